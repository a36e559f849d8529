"""One attempt at a pod that needs devices: PreFilter, Filter, and the preference of first alternatives.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, computeScore.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.dynamic_resources.extended_resources import is_written
from plugins.dynamic_resources.pod_claims import (
    DeviceBindingError,
    deadline_of,
    is_ready,
    is_reserved_for,
    is_reserved_for_group_of,
)
from plugins.dynamic_resources.reason_codes import (
    CLAIM_CHANGING,
    CLAIM_IN_USE,
    DEVICES_ELSEWHERE,
    DEVICES_UNAVAILABLE,
    NODE_OPERATIONS_MISSING,
)
from plugins.dynamic_resources.structured import OPTIONAL_NODE_OPERATIONS, Alternatives, DeviceRefusal
from scheduler.framework import PASS, Code, Outcome, Outcomes, Reason
from scheduler.objects.selectors import parse_node_term
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from plugins.dynamic_resources.extended_resources import ExtendedResources, NodeClaim
    from plugins.dynamic_resources.pod_claims import HeldClaim
    from plugins.dynamic_resources.pod_node_use import PodNodeUse, Statuses
    from plugins.dynamic_resources.structured import Allocator, Verdict
    from scheduler.objects.dynamic_resources import (
        AllocationResult,
        ResourceClaim,
        ResourceClaimConsumerReference,
    )
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import NodeRule
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot, UInt16s

_MOST_ALTERNATIVES = 8


def has_alternatives(claim: ResourceClaim) -> bool:
    """Return whether a claim has a request with alternatives."""
    return any(request.first_available for request in claim.spec.devices.requests)


def points(chosen: Iterable[int]) -> int:
    """Return 8 for each request that got its first alternative, 7 for its second, and so on."""
    return sum(_MOST_ALTERNATIVES - place for place in chosen)


def points_of_allocated(claim: ResourceClaim) -> int:
    """Return the points for the devices of an allocated claim."""
    assert claim.status.allocation is not None, "it is allocated"
    got = {result.request for result in claim.status.allocation.devices.results}
    return points(
        place
        for request in claim.spec.devices.requests
        for place, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in got
    )


_REFUSED = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
_STALE: Final = Outcome(_REFUSED, (Reason("cannot schedule extended resource claim", CLAIM_CHANGING),))
_LACKING: Final = Outcome(_REFUSED, (Reason("cannot fit resource", DEVICES_UNAVAILABLE),))
_ELSEWHERE: Final = Outcome(_REFUSED, (Reason("resourceclaim not available on the node", DEVICES_ELSEWHERE),))
_UNDECLARED: Final = Outcome(
    _REFUSED,
    (
        Reason(
            f"node does not declare {OPTIONAL_NODE_OPERATIONS}, which the resourceclaim requires",
            NODE_OPERATIONS_MISSING,
        ),
    ),
)


_ANY: Final[tuple[Verdict, ...]] = (None,)
_USED: Final = "is already used by another pod"
_SHARED: Final = "shared by multiple pods"
_MAPPED: Final = "has a mapped device and cannot be shared across pods"


@dataclass(slots=True)
class PodDevices:
    """State of one attempt at a pod; clones of a cycle's state share it, since no other pod changes it.

    Attributes:
        held: the pod's own claims in the order of its spec, then the one for extended resources, if it needs any;
            PreBind replaces them with what it wrote.
        consumers: index in `held` -> the PodGroup that a claim is reserved for instead of the pod.
        of_groups: whether a claim that is reserved for the pod's PodGroup is reserved for the pod.
        extended: the extended resources of the last claim.
        special: the claim for them, as PreFilter found or created it.
        places: index in `held` -> the nodes of a claim that is allocated to some nodes only.
        allocator: allocates devices to the other claims; None if all claims are allocated, and after Reserve.
        shared: index in `held` -> the allocation of another pod of the group in the same attempt.
        needs_declared: whether an allocated claim skips operations on the node, which the node has to support.
        unready: the claims whose devices failed or did not become ready in time.
        unavailable: indexes in `held` of allocated claims that excluded a node.
        other_users: index in `held` of an allocated claim that this pod may not share -> the uids of other pods, on whose
            nodes this is so; None for all nodes.
        node_use: what the pod takes of its node's own resources with devices; None if the feature is off.
        given: index in `held` -> the allocation by Reserve.
        statuses: what Reserve found that the pod takes of its node with devices.
        is_told: whether PreBind began to write these.
        node_claim: the claim that received devices in Reserve instead of `special`.
    """

    held: list[HeldClaim] = field(default_factory=list)
    consumers: Mapping[int, ResourceClaimConsumerReference] = field(default_factory=dict)
    of_groups: bool = False
    extended: ExtendedResources | None = None
    special: ResourceClaim | None = None
    places: Mapping[int, tuple[NodeRule, ...]] = field(default_factory=dict)
    allocator: Allocator | None = None
    shared: Mapping[int, AllocationResult] = field(default_factory=dict)
    needs_declared: bool = False
    unready: frozenset[int] = frozenset()
    unavailable: set[int] = field(default_factory=set)
    other_users: Mapping[int, Sequence[str] | None] = field(default_factory=dict)
    node_use: PodNodeUse | None = None
    given: dict[int, AllocationResult] = field(default_factory=dict)
    statuses: Statuses = ()
    is_told: bool = False
    node_claim: NodeClaim | None = None

    @property
    def own(self) -> list[HeldClaim]:
        """The claims that the pod's spec names."""
        return self.held if self.special is None else self.held[:-1]

    def is_reserved(self, claim: ResourceClaim, pod: PodInfo) -> bool:
        """Return whether a pod may use a claim: the claim is reserved for it, or for its group where groups reserve claims."""
        return is_reserved_for(claim, pod.uid) or (self.of_groups and is_reserved_for_group_of(claim, pod))

    # Allocation on a node.

    def reserve(self, node: NodeObject) -> Mapping[int, AllocationResult] | None:
        """Allocate devices for the pod on a node, and return the allocations; None if that is impossible.

        Raises:
            AllocationError, InvalidPoolsError, OutOfTimeError, NeedsTime: as `Allocator.allocate`.
        """
        given = self._allocate(node)
        self.allocator = None  # not needed after Reserve
        if given and self.special is not None and len(self.held) - 1 in given:
            self.node_claim = self._node_claim(self._names_on(node))
        return given

    def reserved_claim(self, place: int) -> ResourceClaim:
        """Return the claim that received devices in Reserve, in its state then."""
        is_last = place == len(self.held) - 1
        return self.special if self.special is not None and is_last else self.held[place].claim

    def _allocate(self, node: NodeObject) -> dict[int, AllocationResult] | None:
        assert self.allocator is not None, "asked where there is something to allocate"
        claims = self._claims_to_allocate(self._names_on(node))
        if not claims:
            return {}
        given = self.allocator.allocate(node, list(claims.values()))
        return None if given is None else dict(zip(claims, given, strict=True))

    def _claims_to_allocate(self, names: frozenset[str]) -> dict[int, ResourceClaim]:
        """Return the claims that need devices, by their indexes.

        Args:
            names: the extended resources that devices have to provide on the node. Without any there is no claim for
                them; kube-scheduler has an empty claim there if the pod has others, and fails to write it.
        """
        claims = {
            place: held.claim
            for place, held in enumerate(self.own)
            if held.claim.status.allocation is None and place not in self.shared
        }
        if names:
            claims[len(self.held) - 1] = self._node_claim(names).claim
        return claims

    def _node_claim(self, names: frozenset[str]) -> NodeClaim:
        assert self.extended is not None, "resources have names"
        assert self.special is not None, "resources are claimed"
        return self.extended.claim_for(names, self.special)

    def _names_on(self, node: NodeObject) -> frozenset[str]:
        return frozenset() if self.extended is None else self.extended.needed_on(node.allocatable)

    # Filter.

    def judge(self, snapshot: Snapshot, rows: Rows) -> Outcomes:
        """Return which of the rows can provide the pod's devices.

        Source:
            kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, Filter.
            KEP-5945, Node Declared Features Integration.
        """
        verdict = _NodeVerdict(snapshot.n_nodes)
        if self.needs_declared:
            lacks = snapshot.declared_features.judge(lambda named: OPTIONAL_NODE_OPERATIONS not in named)
            verdict.refuse_all(rows[lacks[rows]], _UNDECLARED)
            rows = rows[~lacks[rows]]
        for names, group in self._groups(snapshot, rows, verdict):
            claims = self._claims_to_allocate(names)
            if not claims and not self.own:
                continue  # a device plugin provides everything
            passing = self._refuse_shared(snapshot, group, verdict) if self.other_users else group
            index, table = None, _ANY
            if self.allocator is not None:
                index, table = self.allocator.judge(snapshot, passing, list(claims.values()))
                passing = verdict.refuse(passing, index[passing], table)
            if self.node_use is not None:
                passing = self._refuse_full(snapshot, passing, verdict, self.node_use, (claims, index, table))
            self._refuse_elsewhere(snapshot, passing, verdict)
        return verdict.outcomes()

    def _refuse_full(
        self,
        snapshot: Snapshot,
        rows: Rows,
        verdict: _NodeVerdict,
        node_use: PodNodeUse,
        given: tuple[Iterable[int], UInt16s | None, tuple[Verdict, ...]],
    ) -> Rows:
        """Reject the rows without enough for what the devices there take; return the others.

        `given` has the indexes of the claims that get devices, and the results of the allocator.
        """
        claims, index, table = given
        for place, result in enumerate(table):
            uses = result.node_uses if isinstance(result, Alternatives) else ()
            if not (uses or node_use.is_settled):
                continue
            same = rows if index is None else rows[index[rows] == place]
            of_claims = dict(zip(claims, uses, strict=True)) if uses else {}
            for refused, outcome in node_use.refuse(snapshot, same, of_claims):
                verdict.refuse_all(refused, outcome)
        return verdict.passing(rows)

    def _refuse_shared(self, snapshot: Snapshot, rows: Rows, verdict: _NodeVerdict) -> Rows:
        """Reject the rows where no other pod may use an allocated claim; return the others."""
        for place, users in self.other_users.items():
            name, rules = self.held[place].claim.metadata.name, self.places.get(place)
            here = rows if rules is None else rows[nodes_of_any(snapshot, rules)[rows]]
            if users is None:
                verdict.refuse_all(here, _refused(_MAPPED, name))
                continue
            for row in here.tolist():
                there = [each for uid in users if (each := snapshot.pod_on(row, uid)) is not None]
                taking = [each for each in there if _takes_with(each, name)]
                if taking:
                    words = _USED if len(taking) == 1 else _SHARED
                    verdict.refuse_all(np.array([row], dtype=np.intp), _refused(words, name))
        return verdict.passing(rows)

    def points(self, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return (n_nodes,), how well nodes that passed Filter meet the claims' preferred alternatives."""
        points_everywhere = sum(
            points_of_allocated(held.claim) for held in self.held if held.claim.status.allocation is not None
        )
        found = np.zeros(snapshot.n_nodes, dtype=np.int64)
        assert self.allocator is not None, "asked where there is something to allocate"
        for names, group in self._groups(snapshot, feasible, _NodeVerdict(snapshot.n_nodes)):
            claims = self._claims_to_allocate(names)
            if claims or self.own:
                index, table = self.allocator.judge(snapshot, group, list(claims.values()))
                of_choice = [
                    points(result.chosen) if isinstance(result, Alternatives) else 0 for result in table
                ]
                found[group] = points_everywhere + np.array(of_choice, dtype=np.int64)[index[group]]
        return found

    def _groups(
        self, snapshot: Snapshot, rows: Rows, verdict: _NodeVerdict
    ) -> Iterator[tuple[frozenset[str], Rows]]:
        """Yield rows by the extended resources that devices have to provide there; reject rows where that is impossible."""
        if self.extended is None or self.special is None:
            yield frozenset(), rows
            return
        if is_written(self.special):
            # The claim of an earlier attempt may be for a node that does not fit any more: PostFilter deletes it.
            verdict.refuse_all(rows, _STALE)
            return
        lacks = self.extended.lacking(snapshot, rows)
        verdict.refuse_all(rows[lacks[rows]], _LACKING)
        yield from self.extended.groups(snapshot, rows[~lacks[rows]])

    def _refuse_elsewhere(self, snapshot: Snapshot, rows: Rows, verdict: _NodeVerdict) -> None:
        """Reject the rows outside the nodes of an allocated claim, and record these claims."""
        refused: Bools = np.zeros(len(rows), dtype=np.bool_)
        for place, rules in self.places.items():
            elsewhere = ~nodes_of_any(snapshot, rules)[rows]
            if elsewhere.any():
                self.unavailable.add(place)
                refused |= elsewhere
        if self.unready and rows.size:
            self.unavailable |= self.unready
            refused[:] = True
        verdict.refuse_all(rows[refused], _ELSEWHERE)


def _refused(words: str, claim: str) -> Outcome:
    return Outcome(_REFUSED, (Reason(f"node allocatable resource claim {claim} {words}", CLAIM_IN_USE),))


def _takes_with(pod: PodInfo, claim: str) -> bool:
    """Return whether a pod takes resources of its node with the devices of a claim."""
    statuses = pod.pod.status.node_allocatable_resource_claim_statuses
    return any(each.resource_claim_name == claim for each in statuses)


def is_unready(claim: ResourceClaim, timeout_seconds: float, now: datetime) -> bool:
    """Return whether the devices of an allocated claim failed, or did not become ready in time."""
    try:
        ready = is_ready(claim)
    except DeviceBindingError:
        return True
    deadline = deadline_of(claim, timeout_seconds)
    return not ready and deadline is not None and deadline < now


def skips_operations(allocation: AllocationResult | None) -> bool:
    """Return whether a node has to skip operations of drivers for the devices of a claim."""
    return allocation is not None and any(each.skip_node_operations for each in allocation.devices.results)


def places_of(allocation: AllocationResult | None) -> tuple[NodeRule, ...] | None:
    """Return the rules for the nodes that can use the devices of a claim; None for all nodes.

    Raises:
        SelectorError: the node selector is invalid.
    """
    if allocation is None or allocation.node_selector is None:
        return None
    terms = allocation.node_selector.node_selector_terms
    return tuple(parse_node_term(term) for term in terms if not term.is_empty)


class _NodeVerdict:
    """Collects the results of nodes, group by group."""

    def __init__(self, n_nodes: int) -> None:
        self._index = np.zeros(n_nodes, dtype=np.uint16)
        self._table: dict[Outcome, int] = {PASS: 0}

    def refuse_all(self, rows: Rows, outcome: Outcome) -> None:
        if rows.size:
            self._index[rows] = self._place_of(outcome)

    def refuse(
        self,
        rows: Rows,
        index: np.ndarray[tuple[int], np.dtype[np.uint16]],
        table: tuple[Verdict, ...],
    ) -> Rows:
        """Add the results of rows, `index` being of the same length, and return the rows that pass."""
        places = np.array(
            [
                self._place_of(_outcome(result)) if isinstance(result, DeviceRefusal) else 0
                for result in table
            ],
            dtype=np.uint16,
        )
        said_of_rows = self._index[rows] = places[index]
        passing: Rows = rows[said_of_rows == 0]
        return passing

    def passing(self, rows: Rows) -> Rows:
        """Return the rows that are not rejected so far."""
        left: Rows = rows[self._index[rows] == 0]
        return left

    def outcomes(self) -> Outcomes:
        return Outcomes(self._index, tuple(self._table))

    def _place_of(self, outcome: Outcome) -> int:
        return self._table.setdefault(outcome, len(self._table))


def _outcome(refusal: DeviceRefusal) -> Outcome:
    return Outcome(Code.ERROR if refusal.is_error else _REFUSED, (refusal.words,))
