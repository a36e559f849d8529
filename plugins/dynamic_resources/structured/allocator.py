"""Allocates devices on a node to claims, or returns why that is impossible; builds the claims' status.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    allocator_incubating.go, Allocate and createNodeSelector.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np

from plugins.dynamic_resources.structured.constraints import (
    INVALID_POOLS,
    AllocationError,
    Alternatives,
    AvailableCounters,
    DeviceRefusal,
    InvalidPoolsError,
    OutOfTimeError,
)
from plugins.dynamic_resources.structured.node_results import OUT_OF_TIME
from plugins.dynamic_resources.structured.node_use import UsedDevice, node_use_of
from plugins.dynamic_resources.structured.search import AllocatedRequest, DeviceSearch
from plugins.work_in_steps import UNLIMITED, PluginWork
from scheduler.objects.dynamic_resources import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from scheduler.objects.selectors import METADATA_NAME, NodeSelector, NodeSelectorTerm, SelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator, Sequence

    from plugins.dynamic_resources.structured.constraints import Verdict
    from plugins.dynamic_resources.structured.device_features import DeviceFeatures
    from plugins.dynamic_resources.structured.inventory import Inventory
    from plugins.dynamic_resources.structured.node_results import KnownQuestion, OutOfTime
    from plugins.dynamic_resources.structured.node_use import NodeUse
    from plugins.dynamic_resources.structured.pools import AllocatedDevices, InventoryNode, Pools
    from plugins.dynamic_resources.structured.requests import WantedDevices
    from plugins.dynamic_resources.structured.search import Solution
    from scheduler.framework import TimeSlice
    from scheduler.objects.dynamic_resources import DeviceClass, OpaqueDeviceConfiguration, ResourceClaim
    from scheduler.snapshot import Rows, Snapshot, UInt16s


def allocation_result(
    claim: ResourceClaim,
    given: Sequence[AllocatedRequest],
    chosen: Sequence[WantedDevices],
    node_name: str,
    new_share_id: Callable[[], str],
    features: DeviceFeatures,
) -> AllocationResult:
    """Return the allocation for the status of a claim.

    Args:
        claim: the claim.
        given: its devices.
        chosen: the chosen alternative of each of its requests.
        node_name: the node for its devices.
        new_share_id: creates the id of a share.
        features: what is on.

    Raises:
        AllocationError: a slice has a node selector with several terms, which is not supported.
    """
    try:
        selector = _node_selector(given, node_name)
    except ValueError as error:
        name = claim.metadata.name
        raise AllocationError(f"create NodeSelector for claim {name}: {error}") from error
    once = features.config_for_all
    config = (*_class_configuration(chosen), *_claim_configuration(claim, chosen, once=once))
    if once:
        config = tuple(_for_all(each, chosen) for each in config)
    results = tuple(_result(each, new_share_id, features) for each in given)
    return AllocationResult(DeviceAllocationResult(results, config), selector)


def _result(
    given: AllocatedRequest, new_share_id: Callable[[], str], features: DeviceFeatures
) -> DeviceRequestAllocationResult:
    wanted, device, (driver, pool, name) = given.wanted, given.device, given.candidate.device.id
    skipped = given.candidate.device.spec.skip_node_operations
    return DeviceRequestAllocationResult(
        request=wanted.name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=wanted.admin_access,
        tolerations=wanted.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=new_share_id() if device.allow_multiple_allocations else None,
        consumed_capacity={capacity: each.written for capacity, each in given.consumed.items()},
        skip_node_operations=skipped if features.optional_node_operations else (),
        compatibility_groups={
            each.counter_set: each.compatibility_groups
            for each in device.consumes_counters
            if features.compatibility_groups and each.compatibility_groups
        },
    )


def _class_configuration(chosen: Sequence[WantedDevices]) -> Iterator[DeviceAllocationConfiguration]:
    """Yield the configuration of each class once, for all requests of the class."""
    requests: dict[str, list[str]] = {}  # class -> names of requests
    configurations: dict[str, tuple[OpaqueDeviceConfiguration | None, ...]] = {}
    for wanted in chosen:
        device_class = wanted.device_class
        if device_class is not None:
            name = device_class.metadata.name
            requests.setdefault(name, []).append(wanted.name)
            configurations[name] = tuple(each.opaque for each in device_class.spec.config)
    for name, opaques in configurations.items():
        for opaque in opaques:
            yield DeviceAllocationConfiguration("FromClass", tuple(requests[name]), opaque)


def _claim_configuration(
    claim: ResourceClaim, chosen: Sequence[WantedDevices], *, once: bool
) -> Iterator[DeviceAllocationConfiguration]:
    """Yield the configurations of a claim for all requests, or for some: one time, or one time for each request."""
    for config in claim.spec.devices.config:
        times = (
            sum(not wanted.names.isdisjoint(config.requests) for wanted in chosen) if config.requests else 1
        )
        for _ in range(min(times, 1) if once else times):
            yield DeviceAllocationConfiguration("FromClaim", config.requests, config.opaque)


def _for_all(
    config: DeviceAllocationConfiguration, chosen: Sequence[WantedDevices]
) -> DeviceAllocationConfiguration:
    """Return a configuration without requests if it names all of them.

    Source:
        https://github.com/kubernetes/kubernetes/pull/139731
    """
    if any(wanted.names.isdisjoint(config.requests) for wanted in chosen):
        return config
    return msgspec.structs.replace(config, requests=())


def _node_selector(given: Sequence[AllocatedRequest], node_name: str) -> NodeSelector | None:
    """Return the selector of the nodes that can use all devices together; None for all nodes.

    Raises:
        ValueError: a selector has several terms.
    """
    fields: list[SelectorRequirement] = []
    labels: list[SelectorRequirement] = []
    for each in given:
        device, spec = each.device, each.candidate.device.spec
        placed = device if spec.per_device_node_selection else spec
        if placed.node_name or device.binds_to_node:
            only = SelectorRequirement(METADATA_NAME, "In", (node_name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
        terms = placed.node_selector.node_selector_terms if placed.node_selector is not None else ()
        if len(terms) > 1:
            raise ValueError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(labels, term.match_expressions)
    if not (fields or labels):
        return None
    return NodeSelector((NodeSelectorTerm(match_expressions=tuple(labels), match_fields=tuple(fields)),))


def _add_new(known: list[SelectorRequirement], requirements: Sequence[SelectorRequirement]) -> None:
    """Add requirements that are not there yet; the order of values does not matter."""
    for new in requirements:
        if not any(
            (each.key, each.operator, frozenset(each.values))
            == (new.key, new.operator, frozenset(new.values))
            for each in known
        ):
            known.append(new)


def _node_uses(solution: Solution, features: DeviceFeatures) -> tuple[NodeUse | None, ...]:
    """Return what the devices of each claim take of the node; empty if none takes anything."""
    uses = tuple(
        node_use_of(
            (
                UsedDevice(
                    each.candidate.device.id.device,
                    each.device,
                    {name: amount.written for name, amount in each.consumed.items()},
                )
                for each in given
            ),
            features,
        )
        for given in solution.devices
    )
    return uses if any(use is not None for use in uses) else ()


T = TypeVar("T")

_MOST_BEGINNINGS: Final = 100


class Allocator:
    """Allocates devices to the claims of one pod, for many nodes.

    Args:
        inventory: all devices.
        allocated: the allocated devices.
        device_class: returns a class by its name, None if it does not exist.
        work: the time slice of one call.
        limit: measures how long searches take.
        seconds: time limit of the search for one node; 0 means no limit.
        new_share_id: creates the id of a share of a device.

    Attributes:
        allocated: the allocated devices.
        steps: how many steps all searches made, see `DeviceSearch`.
    """

    def __init__(
        self,
        inventory: Inventory,
        allocated: AllocatedDevices,
        device_class: Callable[[str], DeviceClass | None],
        *,
        work: PluginWork | None = None,
        limit: TimeSlice = UNLIMITED,
        seconds: float = 0.0,
        new_share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.steps = 0
        self._inventory = inventory
        self.allocated = allocated
        self._device_class = device_class
        self._work = PluginWork() if work is None else work
        self._limit = limit
        self._seconds = seconds
        self._new_share_id = new_share_id
        self._counters = AvailableCounters(allocated, inventory.features)
        self._asked: KnownQuestion | None = None

    def allocate(
        self, node: InventoryNode, claims: Sequence[ResourceClaim]
    ) -> tuple[AllocationResult, ...] | None:
        """Return the allocation of each claim on a node, in their order; None if not all claims can be satisfied.

        The same node, claims and state give the same devices; only the ids of shares differ.

        Raises:
            AllocationError: a selector cannot be evaluated, a class does not exist, or there are more than 32 devices.
            InvalidPoolsError: not all claims can be satisfied, and there are invalid pools.
            OutOfTimeError: the search took too long.
            NeedsTime: the search takes longer than one time slice.
        """
        question, pools, search = self._work.done(self._found(node, claims), self._goes_on)
        if search is None:
            raise OutOfTimeError(f"node {node.name}: timed out trying to allocate devices")
        if search.solution is None:
            assert search.refusal is not None, "it has ended"
            refusal = search.refusal.named([claim.key for claim in claims])
            if refusal.is_error:
                raise AllocationError(refusal.words)
            if refusal == INVALID_POOLS:
                raise InvalidPoolsError(refusal.words)
            return None
        given = self._given(question, search, pools)
        results = []
        for place, claim in enumerate(claims):
            chosen = [
                alternatives[search.solution.chosen.get((place, request), 0)]
                for request, alternatives in enumerate(question.claims[place])
            ]
            results.append(
                allocation_result(
                    claim, given[place], chosen, node.name, self._new_share_id, self._inventory.features
                )
            )
        return tuple(results)

    def judge(
        self, snapshot: Snapshot, rows: Rows, claims: Sequence[ResourceClaim]
    ) -> tuple[UInt16s, tuple[Verdict, ...]]:
        """Return for many nodes whether devices can be allocated to the claims there.

        Returns:
            index: (n_nodes,), an index in the table for each of `rows`; undefined elsewhere.
            table: None, at index 0, and Alternatives mean yes; a Refusal is the reason why not.

        Raises:
            NeedsTime: the search takes longer than one time slice.
        """
        try:
            question = self._work.done(self._question(claims))
        except AllocationError as error:
            return np.ones(snapshot.n_nodes, dtype=np.uint16), (
                None,
                DeviceRefusal(str(error), is_error=True),
            )
        self._work.done(self._inventory.looks(snapshot, rows))
        verdicts, all_views = question.verdicts, self._inventory.views_of_all(snapshot)
        n_nodes = snapshot.n_nodes

        searching = _Searching(self, question)
        # If there are many rows, the results of all nodes are computed, for the next pod.
        if all_views is not None and (2 * len(rows) >= n_nodes or verdicts.is_about(all_views)):
            steps = verdicts.find_all(all_views, self.allocated, question, searching)
            self._work.done(steps, self._goes_on)
            index, table = verdicts.all(snapshot.name_of)
        else:
            views = self._inventory.views(snapshot, rows)
            steps = verdicts.find_some(views, self.allocated, question, searching)
            self._work.done(steps, self._goes_on)
            index, table = verdicts.some(views, n_nodes, question, snapshot.name_of)
        for result in table:
            if result is not None and isinstance(result, DeviceRefusal) and result.claim is not None:
                names = [claim.key for claim in claims]
                return index, tuple(
                    each.named(names) if isinstance(each, DeviceRefusal) else each for each in table
                )
        return index, table

    def _question(self, claims: Sequence[ResourceClaim]) -> Generator[None, None, KnownQuestion]:
        inventory, self._asked = self._inventory, None
        if not inventory.is_current:
            yield from inventory.refreshing()
        if inventory.fault is not None:
            raise AllocationError(f"gather pool information: {inventory.fault}")
        self._asked = yield from inventory.questions.asked(
            claims, self._device_class, inventory.dropped, inventory.size
        )
        return self._asked

    def _goes_on(self) -> bool:
        """Return whether the slices have not changed since the question was created; the question is kept meanwhile."""
        if self._asked is None:
            return True
        self._inventory.questions.keep(self._asked)
        return self._inventory.is_current

    def _found(
        self, node: InventoryNode, claims: Sequence[ResourceClaim]
    ) -> Generator[None, None, tuple[KnownQuestion, Pools, DeviceSearch | None]]:
        """Return the question, the relevant pools of a node, and the search there; None if it takes too long."""
        question = yield from self._question(claims)
        seen = self._inventory.view_of(node)
        pools = question.known_matter(seen)
        if pools is None:
            pools = yield from question.matter(seen)
        search, _ = yield from self.searched(question, pools)
        return question, pools, search

    def searched(
        self, question: KnownQuestion, pools: Pools
    ) -> Generator[None, None, tuple[DeviceSearch | None, Hashable | None]]:
        """Search pools to the end; return None if that takes too long, and the key of the result, see `likeness`.

        An interrupted search is continued, also one in equivalent pools. It restarts when devices of its pools are allocated
        or released, but keeps the time that it has used. If that happens repeatedly, it takes too long as well.
        """
        allocated, limit = self.allocated, self._limit
        seconds, begun = 0.0, 0
        while begun <= _MOST_BEGINNINGS:
            likeness = question.likeness(pools, allocated)
            key = pools if likeness is None else likeness
            search = question.begun(key, pools, is_alike=likeness is not None)
            if search is not None and search.has_ended:
                return search, likeness
            if search is None:
                search = DeviceSearch(question, pools, allocated, self._counters)
                search.seconds = seconds
                begun += 1
            changes = allocated.changes
            while not allocated.is_changed_since(changes):
                before, began = search.steps, limit.seconds()
                has_ended = search.advance()
                search.seconds += limit.seconds() - began
                self.steps += search.steps - before
                if has_ended:
                    if search.is_long or (search.solution is not None and likeness is not None):
                        question.keep_search(key, search)
                    return search, likeness
                question.keep_search(key, search)
                if self._seconds and limit.measured(search.seconds > self._seconds, "search"):
                    search.seconds = 0.0  # the next attempt continues, for the same time
                    return None, None
                yield
            seconds = max(seconds, search.seconds)
        return None, None

    @staticmethod
    def _given(question: KnownQuestion, search: DeviceSearch, pools: Pools) -> list[list[AllocatedRequest]]:
        """Return what claims are given in pools by a search there, or in equivalent pools."""
        assert search.solution is not None, "it found something"
        devices = search.solution.devices
        if search.pools == pools:
            return devices
        counterparts = {
            theirs.devices[place]: (mine, mine.devices[here])
            for mine, theirs in zip(pools, search.pools, strict=True)
            for here, place in zip(question.selected(mine), question.selected(theirs), strict=True)
        }
        return [
            [
                AllocatedRequest(each.wanted, each.wanted.candidate(*counterparts[each.candidate.device]))
                for each in given
            ]
            for given in devices
        ]


class _Searching:
    """Implements `Searching` for one question."""

    def __init__(self, allocator: Allocator, question: KnownQuestion) -> None:
        self._allocator = allocator
        self._question = question

    def known(self, pools: Pools) -> Verdict | OutOfTime:
        found = self._question.found
        if not found:
            return OUT_OF_TIME
        return found.get(self._question.likeness(pools, self._allocator.allocated), OUT_OF_TIME)

    def verdict(self, pools: Pools) -> Generator[None, None, Verdict | OutOfTime]:
        search, likeness = yield from self._allocator.searched(self._question, pools)
        if search is None:
            return OUT_OF_TIME
        verdict: Verdict = search.refusal
        if search.solution is not None:
            chosen = tuple(place for _, place in sorted(search.solution.chosen.items()))
            features = self._question.features
            uses = _node_uses(search.solution, features) if features.node_allocatable else ()
            verdict = Alternatives(chosen, uses) if chosen or uses else None
        if likeness is not None:
            self._question.found[likeness] = verdict
        return verdict
