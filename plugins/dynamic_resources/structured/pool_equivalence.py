"""Which pools are equivalent for a question, so that a result for one pool holds for the others.

There are two steps, each cached for many pools. Devices with equal values of all fields that the question reads are
selected equally: thousands of pools have few *shapes*, which all questions about the same attributes share. A search in
pools with the same selected, allocated and tainted devices has the same result: these pools are of one *kind*.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from plugins.dynamic_resources.cel import values_of
from plugins.dynamic_resources.structured.constraints import attribute_of, is_tainted
from plugins.dynamic_resources.structured.requests import EVALUATIONS_OF_A_STEP, evaluations

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Sequence

    from plugins.dynamic_resources.cel import DeviceInput
    from plugins.dynamic_resources.structured.allocated import AllocatedDevices
    from plugins.dynamic_resources.structured.pools import Pool, PoolDevice
    from plugins.dynamic_resources.structured.requests import WantedDevices

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
    """What requests select in a pool.

    Attributes:
        pool: the pool.
        kind: a number for each kind of pool; None for a large pool, and if a search depends on more: on devices that
          several claims may share or that share counters, on a selector that fails, or on an invalid pool.
        places: the indexes of the selected devices, in order; possibly not all for a pool without a kind.
    """

    pool: Pool
    kind: int | None
    places: tuple[int, ...]


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
        self._kinds = Numbers()
        self._of_shape: dict[int, tuple[int | None, tuple[int, ...]]] = {}  # shape -> kind and indexes
        self._of_a_device = sum(1 + wanted.n_selectors for wanted in self._requests)
        self._left = _MOST_EVALUATIONS

    def known(self, pool: Pool) -> Selection | None:
        """Return what requests select in a pool, if that needs no evaluations; None otherwise."""
        if not pool.gives:
            return Selection(pool, None, ())
        shape = self._shape(pool)
        found = None if shape is None else self._of_shape.get(shape)
        if found is not None:
            return Selection(pool, *found)
        return None if self._left > 0 else Selection(pool, None, (0,) if pool.devices else ())

    def selection(self, pool: Pool) -> Generator[None, None, Selection]:
        """Return what requests select in a pool whose devices may be allocated."""
        shape = self._shape(pool)
        self._left -= self._of_a_device * len(pool.devices)
        found = yield from self._selected(pool)
        if shape is not None:
            if len(self._of_shape) >= _MOST_NUMBERS:
                self._of_shape.clear()
            self._of_shape[shape] = found
        return Selection(pool, *found)

    def _shape(self, pool: Pool) -> int | None:
        """Return a number that is equal for pools with the same selection; None if that is unknown."""
        if self._facts is None or len(pool.devices) > _MOST_DEVICES:
            return None
        asked = (self._facts, self._attributes)
        if asked not in pool.shapes:
            if len(pool.shapes) >= _QUESTIONS_OF_A_POOL:
                pool.shapes.clear()
            seen = _seen(pool, self._facts, self._attributes)
            pool.shapes[asked] = None if seen is None else self._shapes.of((asked, seen), len(seen))
        return pool.shapes[asked]

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
            is_simple = not (device.takes or device.device.allow_multiple_allocations)
            if not is_simple or _Result.FAILED in results or len(pool.devices) > _MOST_DEVICES:
                return None, tuple(places)
            kind += results
            kind += [attribute_of(device, name) for name in self._attributes]
        return self._kinds.of(tuple(kind), len(kind)), tuple(places)


def likeness_of(selections: Sequence[Selection], allocated: AllocatedDevices) -> Hashable | None:
    """Return the key on which a search in some pools depends; None if there is no short one."""
    whole = allocated.whole
    found: list[Hashable] = []
    for pool, kind, places in selections:
        if kind is None:
            return None
        found.append(kind)
        if whole:
            devices = pool.devices
            found.append(tuple([place for place in places if devices[place].id in whole]))
    return tuple(found)


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
