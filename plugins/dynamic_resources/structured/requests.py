"""The requests of a pod's claims, read once for all nodes and for all pods with equal claims."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from plugins.dynamic_resources.cel import CELError, CelSelector, selector
from plugins.dynamic_resources.structured.capacity import Consumption, consumption
from plugins.dynamic_resources.structured.evaluations import EVALUATIONS_OF_A_STEP, evaluations
from plugins.dynamic_resources.structured.node_results import NodeResults
from plugins.dynamic_resources.structured.pool_equivalence import Likeness, Numbers, likeness_of
from scheduler.objects.dynamic_resources import ExactDeviceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence

    from plugins.dynamic_resources.cel import DeviceInput
    from plugins.dynamic_resources.structured.allocated import AllocatedDevices
    from plugins.dynamic_resources.structured.errors import Verdict
    from plugins.dynamic_resources.structured.pool_equivalence import Selection
    from plugins.dynamic_resources.structured.pools import Pool, PoolDevice, Pools
    from plugins.dynamic_resources.structured.search import DeviceSearch
    from scheduler.objects.dynamic_resources import (
        DeviceClass,
        DeviceConstraint,
        DeviceRequest,
        DeviceSelector,
        DeviceSubRequest,
        DeviceToleration,
        ResourceClaim,
        ResourceClaimSpec,
    )

_KEPT_CONSUMPTIONS = 2000
_KEPT_POOLS = 50_000
_KEPT_CANDIDATES = 300_000
"""The limit of results of all questions except the last one."""
_DROPPED_POOLS = 1000
_MOST_FACTS = 64
_KEPT_SEARCHES = 64
_CLAIMS_OF_A_STEP = 4
_LARGE_SPEC = 16_384
_KEPT_DIGESTS = 4096
_DEVICES_OF_A_STEP = 64

Compiled = Mapping[str, "CelSelector | CELError"]
"""Expression -> its compiled form, or the compilation error."""


class DeviceCandidate:
    """A device that a request selects, or whose evaluation failed.

    Attributes:
        pool: the device's pool.
        device: the device.
        consumed: what the request would consume of its capacities.
        failure: why the evaluation of selectors failed; it becomes an error once the device is considered.
        says_class: whether a selector of the class failed, not one of the claim.
    """

    __slots__ = ("consumed", "device", "failure", "pool", "says_class")

    def __init__(
        self,
        pool: Pool,
        device: PoolDevice,
        consumed: dict[str, Consumption],
        failure: str = "",
        *,
        says_class: bool = False,
    ) -> None:
        self.pool = pool
        self.device = device
        self.consumed = consumed
        self.failure = failure
        self.says_class = says_class


class DeviceCandidates:
    """The devices of a pool that a request selects, in the order of allocation; evaluated on demand.

    Attributes:
        found: the devices that were found so far.
        is_complete: whether all devices of the pool were evaluated.
    """

    __slots__ = ("_looked", "_pool", "_wanted", "found", "is_complete")

    def __init__(self, wanted: WantedDevices, pool: Pool) -> None:
        self.found: list[DeviceCandidate] = []
        self.is_complete = not pool.devices
        self._wanted = wanted
        self._pool = pool
        self._looked = 0  # the number of evaluated devices

    def look(self) -> int:
        """Evaluate more devices, for about a millisecond; return how many of them are selected."""
        wanted, pool, before = self._wanted, self._pool, len(self.found)
        most = evaluations.count + EVALUATIONS_OF_A_STEP
        for device in pool.devices[self._looked : self._looked + _DEVICES_OF_A_STEP]:
            self._looked += 1
            selects = wanted.selects(pool, device)
            if isinstance(selects, Failure):
                self.found.append(
                    DeviceCandidate(pool, device, {}, selects.words, says_class=selects.is_of_class)
                )
            elif selects:
                self.found.append(wanted.candidate(pool, device))
            if evaluations.count >= most:
                break
        self.is_complete = self._looked == len(pool.devices)
        return len(self.found) - before


class Failure(NamedTuple):
    """Why selectors fail for a device.

    Attributes:
        words: upstream's message.
        is_of_class: whether it is a selector of the class, not of the claim.
    """

    words: str
    is_of_class: bool


class WantedDevices:
    """A request, or one of its alternatives.

    Attributes:
        claim: the index of its claim.
        name: its name in results, `request` or `request/subrequest`.
        own_name: the last part of the name.
        base_name: the first part of the name.
        names: all names that constraints may use.
        device_class: its class; None if it does not exist, and then `problem` contains the reason.
        all_devices: whether it requests all matching devices.
        count: how many devices it requests otherwise.
        admin_access: whether it may get allocated devices, without allocating them itself.
        tolerations: the tolerated taints.
        problem: why it cannot be evaluated at all; "" if it can.
        facts: what its selectors read; None if that is unknown.

    Args:
        request: the request of the claim.
        compiled: its expressions and those of its class.
    """

    def __init__(
        self,
        claim: int,
        request: ExactDeviceRequest | DeviceSubRequest,
        names: tuple[str, ...],
        device_class: DeviceClass | None,
        compiled: Compiled,
    ) -> None:
        self.claim = claim
        self.name = "/".join(names)
        self.own_name = names[-1]
        self.base_name = names[0]
        self.names = frozenset({names[0], self.name})
        self.device_class = device_class
        self.all_devices = request.allocation_mode == "All"
        self.count = request.count
        self.admin_access = getattr(request, "admin_access", False)
        self.tolerations: tuple[DeviceToleration, ...] = request.tolerations
        self.problem = self._problem(request)
        self._capacity = request.capacity
        # capacities of a device -> what would be consumed of them
        self._consumptions: dict[Hashable, dict[str, Consumption] | None] = {}
        self._class_selectors = _expressions(device_class.spec.selectors, compiled) if device_class else ()
        self._selectors = _expressions(request.selectors, compiled)
        self.facts = _facts_of([compiled for _, compiled in (*self._class_selectors, *self._selectors)])

    @property
    def n_selectors(self) -> int:
        """How many expressions may have to be evaluated for a device."""
        return len(self._class_selectors) + len(self._selectors)

    def candidate(self, pool: Pool, device: PoolDevice) -> DeviceCandidate:
        """Return a selected device as a candidate."""
        return DeviceCandidate(pool, device, self.consumption_of(device) or {})

    def selects(self, pool: Pool, device: PoolDevice) -> bool | Failure:
        """Return whether the request may get a device of a pool, or the failure of a selector.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
            allocator_incubating.go, isSelectable.
        """
        for expressions, is_of_class in ((self._class_selectors, True), (self._selectors, False)):
            for number, (_, compiled) in enumerate(expressions):
                verdict = evaluations.verdict(device, compiled)
                if isinstance(verdict, CELError):
                    return Failure(f"selector #{number}: {verdict}", is_of_class)
                if not verdict:
                    return False
        if pool.usable is not None and device not in pool.usable:
            return False
        return self.consumption_of(device) is not None

    def why_not(self, pool: Pool, device: PoolDevice) -> str:
        """Return a readable reason why the request does not select a device of a pool; "" if it does."""
        for expressions, whose in ((self._class_selectors, "class"), (self._selectors, "request")):
            for expression, compiled in expressions:
                verdict = evaluations.verdict(device, compiled)
                if isinstance(verdict, CELError):
                    return f"of which a selector of the {whose} cannot tell ({verdict})"
                if not verdict:
                    return f"not selected by the {whose}, {expression.strip()}"
        if pool.usable is not None and device not in pool.usable:
            return "for other nodes"
        return "" if self.consumption_of(device) is not None else "without the capacity that is asked for"

    def consumption_of(self, device: PoolDevice) -> dict[str, Consumption] | None:
        """Return what the request would consume of a device; None if the device cannot satisfy it."""
        capacities = tuple(device.device.capacity.items())
        if capacities not in self._consumptions:
            _make_room(self._consumptions, _KEPT_CONSUMPTIONS)
            self._consumptions[capacities] = consumption(device.device, self._capacity)
        return self._consumptions[capacities]

    def _problem(self, request: ExactDeviceRequest | DeviceSubRequest) -> str:
        """Return the error that makes a request invalid.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
            allocator_incubating.go, validateDeviceRequest.
        """
        for number, each in enumerate(request.selectors):
            if each.cel is None:
                return f"selector #{number}: CEL expression empty (unsupported selector type?)"
        name = request.device_class_name
        if not name:
            return "missing device class name (unsupported request type?)"
        if self.device_class is None:
            missing = f'deviceclass.resource.k8s.io "{name}" not found'
            return f"could not retrieve device class {name}: {missing}"
        if request.allocation_mode not in {"All", "ExactCount"}:
            return f"unsupported count mode {request.allocation_mode}"
        return ""


class Question:
    """The requests of some claims, for all pods with equal claims, with the cached results for pools.

    Attributes:
        claims: for each claim, for each of its requests, the alternatives, the best first.
        has_choice: for each claim, for each of its requests, whether it was written as a list of alternatives.
        constraints: the constraints of each claim.
        wants_all: whether a request wants all devices; then incomplete pools matter.
        verdicts: results of nodes.
        found: results of searches in equivalent pools; see `likeness`.
        searches: by their keys: unfinished searches, long ones that have ended, and short ones that found devices and
            are valid for equivalent pools; the last one used is the last.
        n_candidates: how many candidates are cached.

    Args:
        compiled: the expressions of requests and classes.
    """

    def __init__(
        self,
        specs: Sequence[ResourceClaimSpec],
        classes: Sequence[DeviceClass | None],
        shapes: Numbers,
        compiled: Compiled,
    ) -> None:
        left = iter(classes)
        self.claims = [
            [_alternatives(place, request, left, compiled) for request in spec.devices.requests]
            for place, spec in enumerate(specs)
        ]
        self.has_choice = [
            [bool(request.first_available) for request in spec.devices.requests] for spec in specs
        ]
        self.constraints: list[tuple[DeviceConstraint, ...]] = [spec.devices.constraints for spec in specs]
        self.wants_all = any(wanted.all_devices for wanted in self.wanted())
        self.verdicts = NodeResults()
        self.found: dict[Hashable, Verdict] = {}
        self.searches: dict[Hashable, DeviceSearch] = {}
        self.n_candidates = 0
        compared = [each.match_attribute or each.distinct_attribute for each in chain(*self.constraints)]
        attributes = tuple(dict.fromkeys(name for name in compared if name))
        self._likeness = Likeness(self.wanted(), self._facts(), attributes, shapes)
        self._selections: dict[Pool, Selection] = {}
        self._candidates: dict[tuple[WantedDevices, Pool], DeviceCandidates] = {}
        self._matter: dict[Pools, Pools] = {}
        self._seen_dropped = 0

    def candidates(self, wanted: WantedDevices, pool: Pool) -> DeviceCandidates:
        """Return the devices of a pool that a request selects."""
        known = self._candidates.get((wanted, pool))
        if known is None:
            known = self._candidates[wanted, pool] = DeviceCandidates(wanted, pool)
        return known

    def likeness(self, pools: Pools, allocated: AllocatedDevices) -> Hashable | None:
        """Return the key on which a search in relevant pools depends; None if there is no short one."""
        selections = [self._selections.get(pool) for pool in pools]
        if None in selections:
            return None
        return likeness_of(selections, allocated)  # type: ignore[arg-type]  # none is None

    def selected(self, pool: Pool) -> tuple[int, ...]:
        """Return the indexes of the devices that requests select in a pool with a kind."""
        return self._selections[pool].places

    def begun(self, key: Hashable, pools: Pools, *, is_alike: bool) -> DeviceSearch | None:
        """Return a search that was begun, or ended; None if there is none, or if its input has changed.

        Args:
            key: the key of the search.
            pools: the pools to search.
            is_alike: whether the key is complete, so that results of equivalent pools are valid.
        """
        search = self.searches.get(key)
        if search is None:
            return None
        is_current = (is_alike and search.has_ended) or search.is_current()
        if is_current and (search.pools == pools or all(pool in self._selections for pool in search.pools)):
            return search
        del self.searches[key]
        return None

    def keep_search(self, key: Hashable, search: DeviceSearch) -> None:
        """Keep a search as the last to be dropped; short searches are dropped first."""
        searches = self.searches
        searches.pop(key, None)
        if len(searches) >= _KEPT_SEARCHES:
            short = (key for key, each in searches.items() if not each.is_long)
            del searches[next(short, None) or next(iter(searches))]
        searches[key] = search

    def known_matter(self, seen: Pools) -> Pools | None:
        """Return the result of `matter`, if that needs no evaluations; None otherwise."""
        known = self._matter.get(seen)
        if known is not None:
            return known
        selections = self._selections
        found = []
        for pool in seen:
            selection = selections.get(pool)
            if selection is None:
                selection = self._likeness.known(pool)
                if selection is None:
                    return None
                selections[pool] = selection
            if selection.places if pool.gives else pool.is_invalid or self.wants_all:
                found.append(pool)
        known = self._matter[seen] = tuple(found)
        return known

    def matter(self, seen: Pools) -> Generator[None, None, Pools]:
        """Return the pools that make a difference: nodes with the same relevant pools are equivalent."""
        while True:
            known = self.known_matter(seen)
            if known is not None:
                return known
            for pool in seen:
                if pool not in self._selections:
                    self._selections[pool] = self._likeness.known(pool) or (
                        yield from self._likeness.selection(pool)
                    )

    def forget(self, dropped: int) -> None:
        """Forget the results for removed pools if there are many, or all results if they are too large.

        Args:
            dropped: how many pools the inventory has dropped so far.
        """
        if dropped - self._seen_dropped > _DROPPED_POOLS:
            self._seen_dropped = dropped
            self._selections = {pool: each for pool, each in self._selections.items() if not pool.is_gone}
            self._candidates = {key: each for key, each in self._candidates.items() if not key[1].is_gone}
            self._matter = {
                seen: each for seen, each in self._matter.items() if not any(pool.is_gone for pool in seen)
            }
        if max(len(self._candidates), len(self._selections), len(self._matter)) > _KEPT_POOLS:
            self.forget_candidates()
            self._selections.clear()
            self._matter.clear()
        _make_room(self.found, _KEPT_POOLS)

    def forget_candidates(self) -> None:
        """Forget which devices requests select."""
        self._candidates.clear()
        self.n_candidates = 0

    def _facts(self) -> tuple[DeviceInput, ...] | None:
        """Return what all selectors read, in a fixed order; None if that is unknown, or too much."""
        found: set[DeviceInput] = set()
        for wanted in self.wanted():
            if wanted.facts is None:
                return None
            found |= wanted.facts
        return tuple(sorted(found, key=repr)) if len(found) <= _MOST_FACTS else None

    def wanted(self) -> Iterator[WantedDevices]:
        """Yield all requests of all claims, and their alternatives."""
        for requests in self.claims:
            for alternatives in requests:
                yield from alternatives


class Questions:
    """The last questions, so that pods with equal claims share their results."""

    _KEPT = 16

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], tuple[Sequence[DeviceClass | None], Question]] = {}
        self._keys: dict[Question, tuple[bytes, ...]] = {}  # the keys of the cached questions
        self._shapes = Numbers()
        self._digests: dict[
            int, tuple[ResourceClaimSpec, bytes]
        ] = {}  # id of a large spec -> it, and its digest

    def asked(
        self,
        claims: Sequence[ResourceClaim],
        device_class: Callable[[str], DeviceClass | None],
        dropped: int,
    ) -> Generator[None, None, Question]:
        """Return the question of some claims.

        Args:
            claims: the claims.
            device_class: returns a class by its name, None if it does not exist.
            dropped: how many pools the inventory has dropped so far.
        """
        specs = [claim.spec for claim in claims]
        classes = [device_class(name) for name in _class_names(specs)]
        digests = []
        for spec in specs:
            digests.append(self._digest(spec))
            if len(digests) % _CLAIMS_OF_A_STEP == 0:
                yield
        key = tuple(digests)
        known = self._known.get(key)
        if known is None or known[0] != classes:
            compiled: dict[str, CelSelector | CELError] = {}
            for expression in _written(specs, classes):
                if expression not in compiled:
                    compiled[expression] = selector(expression)
                    yield
            known = classes, Question(specs, classes, self._shapes, compiled)
            self._keep(key, known)
        else:
            self._known[key] = self._known.pop(key)
        known[1].forget(dropped)
        return known[1]

    def keep(self, question: Question) -> None:
        """Keep a question that is in use, whatever other questions were created meanwhile."""
        key = self._keys.get(question)
        if key is not None:
            self._known[key] = self._known.pop(key)

    def _keep(self, key: tuple[bytes, ...], known: tuple[Sequence[DeviceClass | None], Question]) -> None:
        if key in self._known:
            del self._keys[self._known.pop(key)[1]]
        elif len(self._known) >= self._KEPT:
            oldest = next(iter(self._known))
            del self._keys[self._known.pop(oldest)[1]]
        self._known[key] = known
        self._keys[known[1]] = key
        n_candidates = sum(question.n_candidates for question in self._keys)
        for question in self._keys if n_candidates > _KEPT_CANDIDATES else ():
            n_candidates -= question.n_candidates
            question.forget_candidates()
            if n_candidates <= _KEPT_CANDIDATES:
                break

    def _digest(self, spec: ResourceClaimSpec) -> bytes:
        """Return the identity of a spec: its content, or a digest of it if that is long."""
        known = self._digests.get(id(spec))
        if known is not None and known[0] is spec:
            return known[1]
        written = msgspec.json.encode(spec)
        if len(written) > _LARGE_SPEC:
            _make_room(self._digests, _KEPT_DIGESTS)
            written = sha256(written).digest()
            self._digests[id(spec)] = spec, written
        return written


def _class_names(specs: Sequence[ResourceClaimSpec]) -> Iterator[str]:
    for spec in specs:
        for request in spec.devices.requests:
            for each in request.first_available or (request.exactly,):
                yield each.device_class_name if each is not None else ""


def _written(specs: Sequence[ResourceClaimSpec], classes: Sequence[DeviceClass | None]) -> Iterator[str]:
    """Yield the expressions of requests and their classes."""
    requests = (
        each
        for spec in specs
        for request in spec.devices.requests
        for each in request.first_available or (request.exactly,)
    )
    for one in chain(
        *(each.spec.selectors for each in classes if each is not None),
        *(each.selectors for each in requests if each is not None),
    ):
        if one.cel is not None:
            yield one.cel.expression


def _alternatives(
    claim: int, request: DeviceRequest, classes: Iterator[DeviceClass | None], compiled: Compiled
) -> list[WantedDevices]:
    if request.first_available:
        return [
            WantedDevices(claim, each, (request.name, each.name), next(classes), compiled)
            for each in request.first_available
        ]
    exactly = request.exactly or ExactDeviceRequest()
    return [WantedDevices(claim, exactly, (request.name,), next(classes), compiled)]


def _expressions(
    selectors: Sequence[DeviceSelector], compiled: Compiled
) -> tuple[tuple[str, CelSelector | CELError], ...]:
    """Return expressions as text and in compiled form."""
    written = [each.cel.expression for each in selectors if each.cel is not None]
    return tuple((expression, compiled[expression]) for expression in written)


def _facts_of(expressions: Iterable[CelSelector | CELError]) -> frozenset[DeviceInput] | None:
    found: set[DeviceInput] = set()
    for each in expressions:
        if isinstance(each, CELError):
            continue  # its result is the same for all devices
        if each.facts is None:
            return None
        found.update(each.facts)
    return frozenset(found)


def _make_room(kept: dict[Any, Any], most: int) -> None:
    if len(kept) >= most:
        kept.clear()
