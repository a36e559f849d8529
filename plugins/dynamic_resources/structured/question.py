"""The requests of a pod's claims, read once for all nodes and equal claims, and pools that are equivalent for them.

There are two steps, each cached for many pools. Devices with equal values of all fields that the question reads are
selected equally: thousands of pools have few *shapes*, which all questions about the same attributes share. A search in
pools with the same selected, allocated and tainted devices has the same result: these pools are of one *kind*.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from plugins.dynamic_resources.cel import values_of
from plugins.dynamic_resources.structured.constraints import attribute_of, is_tainted
from plugins.dynamic_resources.structured.requests import (
    EVALUATIONS_OF_A_STEP,
    DeviceCandidates,
    WantedDevices,
    evaluations,
)
from scheduler.objects.dynamic_resources import ExactDeviceRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence

    from plugins.dynamic_resources.cel import DeviceInput
    from plugins.dynamic_resources.structured.device_features import DeviceFeatures
    from plugins.dynamic_resources.structured.pools import (
        AllocatedDevices,
        Pool,
        PoolDevice,
        Pools,
    )
    from plugins.dynamic_resources.structured.requests import Compiled
    from scheduler.objects.dynamic_resources import (
        DeviceClass,
        DeviceConstraint,
        DeviceRequest,
        ResourceClaimSpec,
    )

_MOST_NUMBERS = 100_000
_MOST_VALUES = 2_000_000
_MOST_EVALUATIONS = 200_000
"""Above this number of shapes in one question, further pools are searched separately: comparing them costs too much."""
_LOOK_UPS_OF_A_STEP = 2000
_QUESTIONS_OF_A_POOL = 16
_MOST_DEVICES = 128
"""Larger pools, with several slices, serve many nodes: there are few, and comparing them takes longer than a search."""


class Numbers:
    """Assigns one number to equal values. It forgets values above a limit, and then assigns new numbers."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._next = 0
        self._size = 0

    def of(self, value: Hashable, size: int) -> int:
        """Return the number of a value that consists of `size` parts."""
        number = self._known.get(value)
        if number is None:
            if len(self._known) >= _MOST_NUMBERS or self._size >= _MOST_VALUES:
                self._known.clear()
                self._size = 0
            self._size += size
            number = self._known[value] = self._next
            self._next += 1
        return number


class Selection(NamedTuple):
    """The devices that requests select in a pool; equal pools share them.

    Attributes:
        kind: a number for each kind of pool; None for a large pool, and if a search depends on more: on devices that
          several claims may share or that share counters, on a selector that fails, on derived attributes, or on an
          invalid pool.
        places: the indexes of the selected devices, in order; possibly not all for a pool without a kind.
    """

    kind: int | None
    places: tuple[int, ...]


_NOTHING = Selection(None, ())
_UNKNOWN = Selection(None, (0,))
_NOT_SEEN = -1


class _Result(IntEnum):
    """The result of a request for a device."""

    NO = 0
    YES = 1
    TAINTED = 2
    FAILED = 3


class Likeness:
    """Assigns pools to equivalence classes of a question.

    Args:
        requests: all requests of the question.
        facts: what their selectors read; None if that is unknown.
        attributes: the attributes that constraints compare.
        shapes: assigns one number to equivalent pools, for all questions.
    """

    def __init__(
        self,
        requests: Iterable[WantedDevices],
        facts: tuple[DeviceInput, ...] | None,
        attributes: tuple[str, ...],
        shapes: Numbers,
    ) -> None:
        self._requests = tuple(requests)
        self._facts = facts
        self._attributes = attributes
        self._shapes = shapes
        self._asked = shapes.of((facts, attributes), 1)  # short, because each pool is looked up by it
        self._kinds = Numbers()
        self._of_shape: dict[int, Selection] = {}
        self._of_a_device = sum(1 + wanted.n_selectors for wanted in self._requests)
        self._has_derived = any(wanted.derived for wanted in self._requests)
        self._left = _MOST_EVALUATIONS

    def known(self, pool: Pool) -> Selection | None:
        """Return what requests select in a pool, if that needs no evaluations; None otherwise."""
        if not pool.gives:
            return _NOTHING
        shape = self._shape(pool)
        found = None if shape is None else self._of_shape.get(shape)
        if found is not None or self._left > 0:
            return found
        return _UNKNOWN if pool.devices else _NOTHING

    def selection(self, pool: Pool) -> Generator[None, None, Selection]:
        """Return what requests select in a pool whose devices may be allocated."""
        shape = self._shape(pool)
        self._left -= self._of_a_device * len(pool.devices)
        found = Selection(*(yield from self._selected(pool)))
        if shape is not None:
            if len(self._of_shape) >= _MOST_NUMBERS:
                self._of_shape.clear()
            self._of_shape[shape] = found
        return found

    def _shape(self, pool: Pool) -> int | None:
        """Return a number that is equal for pools with the same selection; None if that is unknown."""
        if self._facts is None or len(pool.devices) > _MOST_DEVICES:
            return None
        asked = self._asked
        shape = pool.shapes.get(asked, _NOT_SEEN)
        if shape == _NOT_SEEN:
            if len(pool.shapes) >= _QUESTIONS_OF_A_POOL:
                pool.shapes.clear()
            seen = _seen(pool, self._facts, self._attributes)
            shape = pool.shapes[asked] = None if seen is None else self._shapes.of((asked, seen), len(seen))
        return shape

    def _selected(self, pool: Pool) -> Generator[None, None, tuple[int | None, tuple[int, ...]]]:
        places: list[int] = []
        kind: list[Any] = []
        most, work = evaluations.count + EVALUATIONS_OF_A_STEP, 0
        for place, device in enumerate(pool.devices):
            results: list[_Result] = []
            for wanted in self._requests:
                results.append(_result(wanted, pool, device))
                if evaluations.count >= most:
                    yield
                    most = evaluations.count + EVALUATIONS_OF_A_STEP
            work += self._of_a_device
            if work > _LOOK_UPS_OF_A_STEP:
                yield
                work = 0
            if not any(results):
                continue
            places.append(place)
            is_simple = not (device.device.consumes_counters or device.device.allow_multiple_allocations)
            is_simple = is_simple and not self._has_derived
            if not is_simple or _Result.FAILED in results or len(pool.devices) > _MOST_DEVICES:
                return None, tuple(places)
            kind += (*results, device.node_use)
            kind += [attribute_of(device, name) for name in self._attributes]
        return self._kinds.of(tuple(kind), len(kind)), tuple(places)


def _seen(pool: Pool, facts: Sequence[DeviceInput], attributes: Sequence[str]) -> tuple[Hashable, ...] | None:
    """Return all fields of a pool's devices that a question reads; None if a device is unclear."""
    seen: list[Hashable] = []
    usable = pool.usable
    for device in pool.devices:
        values = values_of(facts, device.id.driver, device.device) if device.is_clear else None
        if values is None:
            return None
        seen += (values, device.kind, usable is None or device in usable)
        if attributes:
            seen += [attribute_of(device, name) for name in attributes]
    return tuple(seen)


def _result(wanted: WantedDevices, pool: Pool, device: PoolDevice) -> _Result:
    selects = wanted.selects(pool, device)
    if not isinstance(selects, bool):
        return _Result.FAILED
    if not selects:
        return _Result.NO
    is_hindered = device.device.taints and is_tainted(device.device, wanted.tolerations)
    return _Result.TAINTED if is_hindered else _Result.YES


KEPT_POOLS = 50_000
"""The limit of results for pools of a question that do not exist any more."""
_DROPPED_POOLS = 1000
_MOST_FACTS = 64


class Question:
    """The requests of some claims, for all pods with equal claims, with the cached results for pools.

    Attributes:
        claims: for each claim, for each of its requests, the alternatives, the best first.
        has_choice: for each claim, for each of its requests, whether it was written as a list of alternatives.
        constraints: the constraints of each claim.
        problems: for each claim, for each of its requests, why the request needs a feature that is off; "" if it does
            not.
        features: what is on.
        wants_all: whether a request wants all devices; then incomplete pools matter.
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
        features: DeviceFeatures,
    ) -> None:
        left = iter(classes)
        self.features = features
        self.claims = [
            [_alternatives(place, request, left, compiled, features) for request in spec.devices.requests]
            for place, spec in enumerate(specs)
        ]
        self.problems = [[_problem(request, features) for request in spec.devices.requests] for spec in specs]
        self.has_choice = [
            [bool(request.first_available) for request in spec.devices.requests] for spec in specs
        ]
        self.constraints: list[tuple[DeviceConstraint, ...]] = [spec.devices.constraints for spec in specs]
        self.wants_all = any(wanted.all_devices for wanted in self.wanted())
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
        exclusive = allocated.exclusive(self.features)
        selections = self._selections
        found: list[Hashable] = []
        for pool in pools:
            kind, places = selections.get(pool, _NOTHING)
            if kind is None:
                return None
            found.append(kind)
            if exclusive:
                devices = pool.devices
                found.append(tuple([place for place in places if devices[place].id in exclusive]))
        return tuple(found)

    def selected(self, pool: Pool) -> tuple[int, ...]:
        """Return the indexes of the devices that requests select in a pool with a kind."""
        return self._selections[pool].places

    def has_selected(self, pools: Pools) -> bool:
        """Return whether the selected devices of some pools are known."""
        return all(pool in self._selections for pool in pools)

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

    def forget(self, dropped: int, size: int) -> None:
        """Forget the results for removed pools if there are many, or all results if they are too large.

        Args:
            dropped: how many pools the inventory has dropped so far.
            size: an upper bound of the number of its pools, and of what nodes see of them.
        """
        if dropped - self._seen_dropped > _DROPPED_POOLS:
            self._seen_dropped = dropped
            self._selections = {pool: each for pool, each in self._selections.items() if not pool.is_gone}
            self._candidates = {key: each for key, each in self._candidates.items() if not key[1].is_gone}
            self._matter = {
                seen: each for seen, each in self._matter.items() if not any(pool.is_gone for pool in seen)
            }
        if max(len(self._candidates), len(self._selections), len(self._matter)) > KEPT_POOLS + size:
            self.forget_candidates()
            self._selections.clear()
            self._matter.clear()

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


def _alternatives(
    claim: int,
    request: DeviceRequest,
    classes: Iterator[DeviceClass | None],
    compiled: Compiled,
    features: DeviceFeatures,
) -> list[WantedDevices]:
    if request.first_available:
        return [
            WantedDevices(claim, each, (request.name, each.name), next(classes), compiled, features)
            for each in request.first_available
        ]
    exactly = request.exactly or ExactDeviceRequest()
    return [WantedDevices(claim, exactly, (request.name,), next(classes), compiled, features)]


def _problem(request: DeviceRequest, features: DeviceFeatures) -> str:
    """Return why a request needs a feature that is off; "" if it does not."""
    if request.first_available and not features.prioritized_list:
        return f", request {request.name}: has subrequests, but the DRAPrioritizedList feature is disabled"
    if features.consumable_capacity:
        return ""
    words = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    if request.exactly is not None and request.exactly.capacity is not None:
        return f", request {request.name}: {words}"
    names = (each.name for each in request.first_available if each.capacity is not None)
    return next((f", subrequest {name}: {words}" for name in names), "")
