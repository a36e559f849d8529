"""What the claims of a pod ask for, read once for all nodes, and for all pods that ask for the same."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from plugins.dynamic_resources.cel import CELError, Selector, Subject, selector, values_of
from plugins.dynamic_resources.structured.capacity import Consumption, consumption
from plugins.dynamic_resources.structured.likeness import Likeness, Numbers, likeness_of
from plugins.dynamic_resources.structured.verdicts import Verdicts
from scheduler.objects.dynamic_resources import ExactDeviceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from plugins.dynamic_resources.cel import Fact
    from plugins.dynamic_resources.structured.allocated import AllocatedDevices
    from plugins.dynamic_resources.structured.errors import Verdict
    from plugins.dynamic_resources.structured.likeness import Selection
    from plugins.dynamic_resources.structured.pools import Pool, PoolDevice, Pools
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

_SAID_OF_A_DEVICE = 64
_SAID_OF_KINDS = 20_000
_KEPT_POOLS = 50_000


class Candidate:
    """A device that a request selects, or of which that cannot be said.

    Attributes:
        pool: where the device is.
        device: it.
        consumed: what would be consumed of its capacities.
        failure: why no selector can say; it is an error once the device is looked at.
        says_class: whether the failure is one of the class, not of the claim.
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


class Failure(NamedTuple):
    """Why no selector can say whether a device is one.

    Attributes:
        words: upstream's.
        is_of_class: whether it is a selector of the class, not of the claim.
    """

    words: str
    is_of_class: bool


class Wanted:
    """A request, or one of several that would do.

    Attributes:
        claim: the place of its claim.
        name: as results name it, `request` or `request/subrequest`.
        own_name: its last part.
        base_name: its first part.
        names: all by which constraints may name it.
        device_class: its class; None if there is none, and then `problem` says so.
        all_devices: whether it wants all devices there are, however many.
        count: how many it wants otherwise.
        admin_access: whether it may have devices that are taken, and takes none.
        tolerations: the taints that are no hindrance.
        problem: why it cannot be looked at at all; "" if it can.
        facts: what its selectors look at; None if that is not clear.
    """

    def __init__(
        self,
        claim: int,
        request: ExactDeviceRequest | DeviceSubRequest,
        names: tuple[str, ...],
        device_class: DeviceClass | None,
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
        self._class_selectors = _expressions(device_class.spec.selectors) if device_class else ()
        self._selectors = _expressions(request.selectors)
        self.facts = _facts_of([compiled for _, compiled in (*self._class_selectors, *self._selectors)])

    def candidates(self, pool: Pool) -> list[Candidate]:
        """Return the devices of a pool that the request selects, in the order in which they are given."""
        found = []
        for device in pool.devices:
            selects = self.selects(pool, device)
            if isinstance(selects, Failure):
                found.append(Candidate(pool, device, {}, selects.words, says_class=selects.is_of_class))
            elif selects:
                found.append(Candidate(pool, device, self.consumption_of(device) or {}))
        return found

    def selects(self, pool: Pool, device: PoolDevice) -> bool | Failure:
        """Say whether a device of a pool is one that the request may be given, or why no selector can say.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
            allocator_incubating.go, isSelectable.
        """
        for expressions, is_of_class in ((self._class_selectors, True), (self._selectors, False)):
            for number, (_, compiled) in enumerate(expressions):
                verdict = _verdict(device, compiled)
                if isinstance(verdict, CELError):
                    return Failure(f"selector #{number}: {verdict}", is_of_class)
                if not verdict:
                    return False
        if pool.usable is not None and device not in pool.usable:
            return False
        return self.consumption_of(device) is not None

    def why_not(self, pool: Pool, device: PoolDevice) -> str:
        """Say for people why a device of a pool is none that the request selects; "" if it is one."""
        for expressions, whose in ((self._class_selectors, "class"), (self._selectors, "request")):
            for expression, compiled in expressions:
                verdict = _verdict(device, compiled)
                if isinstance(verdict, CELError):
                    return f"of which a selector of the {whose} cannot tell ({verdict})"
                if not verdict:
                    return f"not selected by the {whose}, {expression.strip()}"
        if pool.usable is not None and device not in pool.usable:
            return "for other nodes"
        return "" if self.consumption_of(device) is not None else "without the capacity that is asked for"

    def consumption_of(self, device: PoolDevice) -> dict[str, Consumption] | None:
        """Return what the request would consume of a device; None if it can never have it."""
        capacities = tuple(device.device.capacity.items())
        if capacities not in self._consumptions:
            _make_room(self._consumptions, _SAID_OF_KINDS)
            self._consumptions[capacities] = consumption(device.device, self._capacity)
        return self._consumptions[capacities]

    def _problem(self, request: ExactDeviceRequest | DeviceSubRequest) -> str:
        """Say what makes a request one that cannot be looked at.

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
    """What some claims ask for, whoever has them, with what was found out for it about pools.

    Attributes:
        claims: for each claim, for each of its requests, those that would do, the best first.
        has_choice: for each claim, for each of its requests, whether it was written as a list of such.
        constraints: for each claim, those it has.
        wants_all: whether some request wants all devices; then pools that are incomplete matter.
        verdicts: what was said of nodes.
        found: what searches in pools that are alike came to; see `likeness`.
    """

    def __init__(
        self, specs: Sequence[ResourceClaimSpec], classes: Sequence[DeviceClass | None], shapes: Numbers
    ) -> None:
        left = iter(classes)
        self.claims = [
            [_alternatives(place, request, left) for request in spec.devices.requests]
            for place, spec in enumerate(specs)
        ]
        self.has_choice = [
            [bool(request.first_available) for request in spec.devices.requests] for spec in specs
        ]
        self.constraints: list[tuple[DeviceConstraint, ...]] = [spec.devices.constraints for spec in specs]
        self.wants_all = any(wanted.all_devices for wanted in self.wanted())
        self.verdicts = Verdicts()
        self.found: dict[Hashable, Verdict] = {}
        compared = [each.match_attribute or each.distinct_attribute for each in chain(*self.constraints)]
        attributes = tuple(dict.fromkeys(name for name in compared if name))
        self._likeness = Likeness(self.wanted(), self._facts(), attributes, shapes)
        self._selections: dict[Pool, Selection] = {}
        self._candidates: dict[tuple[Wanted, Pool], list[Candidate]] = {}
        self._matter: dict[Pools, Pools] = {}

    def candidates(self, wanted: Wanted, pool: Pool) -> list[Candidate]:
        """Return the devices of a pool that a request selects, see `Wanted.candidates`."""
        known = self._candidates.get((wanted, pool))
        if known is None:
            known = self._candidates[wanted, pool] = wanted.candidates(pool)
        return known

    def likeness(self, pools: Pools, allocated: AllocatedDevices) -> Hashable | None:
        """Return what a search in pools that matter depends on; None where nothing short says it."""
        return likeness_of([self._selections[pool] for pool in pools], allocated)

    def matter(self, seen: Pools) -> Pools:
        """Return those pools that make a difference: nodes for which they are the same are alike."""
        known = self._matter.get(seen)
        if known is None:
            known = self._matter[seen] = tuple(pool for pool in seen if self._matters(pool))
        return known

    def forget(self) -> None:
        """Forget what was found out about pools, if that is much: they may be gone."""
        if max(len(self._candidates), len(self._selections), len(self._matter)) > _KEPT_POOLS:
            self._candidates.clear()
            self._selections.clear()
            self._matter.clear()
        _make_room(self.found, _KEPT_POOLS)

    def _matters(self, pool: Pool) -> bool:
        selection = self._selections.get(pool)
        if selection is None:
            selection = self._selections[pool] = self._likeness.selection(pool)
        return bool(selection.places) if pool.gives else pool.is_invalid or self.wants_all

    def _facts(self) -> tuple[Fact, ...] | None:
        """Return what all selectors look at, in a fixed order; None if that is not clear."""
        found: set[Fact] = set()
        for wanted in self.wanted():
            if wanted.facts is None:
                return None
            found |= wanted.facts
        return tuple(sorted(found, key=repr))

    def wanted(self) -> Iterator[Wanted]:
        """Yield all requests of all claims, and their alternatives."""
        for requests in self.claims:
            for alternatives in requests:
                yield from alternatives


class Questions:
    """The last questions that were asked, so that pods of one kind share what was found out."""

    _KEPT = 16

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Sequence[DeviceClass | None], Question]] = {}
        self._shapes = Numbers()

    def of(
        self, claims: Sequence[ResourceClaim], device_class: Callable[[str], DeviceClass | None]
    ) -> Question:
        """Return the question that claims ask."""
        specs = [claim.spec for claim in claims]
        classes = [device_class(name) for name in _class_names(specs)]
        key = msgspec.json.encode(specs)
        known = self._known.pop(key, None)
        if known is None or known[0] != classes:
            known = (classes, Question(specs, classes, self._shapes))
            if len(self._known) >= self._KEPT:
                del self._known[next(iter(self._known))]
        known[1].forget()
        self._known[key] = known
        return known[1]


def _class_names(specs: Sequence[ResourceClaimSpec]) -> Iterator[str]:
    for spec in specs:
        for request in spec.devices.requests:
            for each in request.first_available or (request.exactly,):
                yield each.device_class_name if each is not None else ""


def _alternatives(claim: int, request: DeviceRequest, classes: Iterator[DeviceClass | None]) -> list[Wanted]:
    if request.first_available:
        return [
            Wanted(claim, each, (request.name, each.name), next(classes)) for each in request.first_available
        ]
    exactly = request.exactly or ExactDeviceRequest()
    return [Wanted(claim, exactly, (request.name,), next(classes))]


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[tuple[str, Selector | CELError], ...]:
    """Return expressions as written, and compiled."""
    written = [each.cel.expression for each in selectors if each.cel is not None]
    return tuple((expression, selector(expression)) for expression in written)


def _facts_of(expressions: Iterable[Selector | CELError]) -> frozenset[Fact] | None:
    found: set[Fact] = set()
    for each in expressions:
        if isinstance(each, CELError):
            continue  # it says the same of all devices
        if each.facts is None:
            return None
        found.update(each.facts)
    return frozenset(found)


def _verdict(device: PoolDevice, compiled: Selector | CELError) -> bool | CELError:
    """Say whether an expression selects a device; it is evaluated once for all that it cannot tell apart."""
    if isinstance(compiled, CELError):
        return compiled
    if device.is_clear and compiled.facts is not None:
        values = values_of(compiled.facts, device.id.driver, device.device)
        if values is not None:
            verdict = compiled.said.get(values)
            if verdict is None:
                _make_room(compiled.said, _SAID_OF_KINDS)
                verdict = compiled.said[values] = _evaluated(device, compiled)
            return verdict
    verdict = device.verdicts.get(compiled)
    if verdict is None:
        _make_room(device.verdicts, _SAID_OF_A_DEVICE)
        verdict = device.verdicts[compiled] = _evaluated(device, compiled)
    return verdict


def _make_room(kept: dict[Any, Any], most: int) -> None:
    if len(kept) >= most:
        kept.clear()


@lru_cache(maxsize=1)
def _subject(device: PoolDevice) -> Subject:
    """Return a device as expressions see it; the next expression is mostly about the same."""
    return Subject(device.id.driver, device.device)


def _evaluated(device: PoolDevice, compiled: Selector) -> bool | CELError:
    try:
        return compiled.matches(_subject(device))
    except CELError as error:
        return error
