"""Proves by counting that a search for devices cannot succeed, if trying all combinations would take too long.

Each test ignores some conditions of the search, so it never excludes a search that would succeed:

- all requests together need more devices than they can use;
- no value of an attribute has enough devices for the requests of a `matchAttribute`;
- there are fewer values than requests for one device in a `distinctAttribute`.

Constraints on derived attributes are ignored as well.

The counters of a pool limit how many of its devices can be allocated.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from plugins.dynamic_resources.structured.constraints import (
    attribute_of,
    concerns,
    is_tainted,
    value_of,
    values_of_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence

    from plugins.dynamic_resources.structured.constraints import AvailableCounters, Value
    from plugins.dynamic_resources.structured.pools import (
        AllocatedDevices,
        DeviceID,
        Pool,
        PoolDevice,
        Pools,
    )
    from plugins.dynamic_resources.structured.question import Question
    from plugins.dynamic_resources.structured.requests import DeviceCandidate, WantedDevices
    from scheduler.objects.dynamic_resources import DeviceConstraint

    Request = list[WantedDevices]  # a request as its alternatives

_LOOKS_OF_A_STEP = 500
_END = "end"


def is_unsatisfiable(
    question: Question,
    pools: Pools,
    candidates: Mapping[WantedDevices, Sequence[DeviceCandidate]],
    counts: Mapping[WantedDevices, int],
    allocated: AllocatedDevices,
    available: AvailableCounters,
) -> Generator[None, None, bool]:
    """Return whether a search certainly fails.

    Args:
        question: the requests.
        pools: the pools to search.
        candidates: all devices that requests select.
        counts: how many devices requests need.
        allocated: the allocated devices.
        available: what allocated devices leave of counters.
    """
    usable = yield from _usable(candidates, allocated.exclusive(question.features))
    if usable is None:
        return False
    has_lists = question.features.list_attributes
    for requests, constraints in zip(question.claims, question.constraints, strict=True):
        if constraints and any(each.all_devices for each in _flat(requests)):
            return False  # a constraint against one of all devices is an error
    limits = yield from _limits(pools, candidates, available)
    if (yield from _are_too_few(list(chain(*question.claims)), usable, counts, limits)):
        return True
    for requests, constraints in zip(question.claims, question.constraints, strict=True):
        derived = {name for wanted in _flat(requests) for name in wanted.derived}
        for constraint in constraints:
            if derived and (constraint.match_attribute or constraint.distinct_attribute) in derived:
                continue
            test = _has_no_match if constraint.match_attribute is not None else _has_too_few_values
            if (yield from test(requests, constraint, usable, counts, limits, has_lists=has_lists)):
                return True
    return False


def _usable(
    candidates: Mapping[WantedDevices, Sequence[DeviceCandidate]], exclusive: Mapping[DeviceID, int]
) -> Generator[None, None, dict[WantedDevices, list[PoolDevice]] | None]:
    """Return the devices that each request may get; None if the search may fail with an error at one of them."""
    usable: dict[WantedDevices, list[PoolDevice]] = {}
    for wanted, found in candidates.items():
        usable[wanted] = mine = []
        for number, candidate in enumerate(found):
            if candidate.failure:
                return None
            is_free = wanted.admin_access or candidate.device.id not in exclusive
            if is_free and not is_tainted(candidate.device.device, wanted.tolerations):
                mine.append(candidate.device)
            if number % _LOOKS_OF_A_STEP == 0:
                yield
    return usable


Limits = dict["PoolDevice", tuple["Pool", int]]
"""Device that consumes counters -> its pool, and the maximum number of such devices of the pool."""


def _limits(
    pools: Pools, candidates: Mapping[WantedDevices, Sequence[DeviceCandidate]], available: AvailableCounters
) -> Generator[None, None, Limits]:
    taking: dict[Pool, dict[PoolDevice, None]] = {}
    for found in candidates.values():
        for candidate in found:
            if candidate.device.takes and not candidate.device.device.allow_multiple_allocations:
                taking.setdefault(candidate.pool, {})[candidate.device] = None
        yield
    limits: Limits = {}
    if len({pool.id.pool for pool in pools}) < len(pools):
        return limits  # of pools with one name, the counters of the first that is requested count for all
    for pool, devices in taking.items():
        left = available.of(pool)
        most = len(devices)
        for place, amount in left.items():
            taken = sorted(device.takes.get(place, 0) for device in devices)
            number, total = 0, 0
            for each in taken:
                total += each
                if total > amount:
                    break
                number += 1
            most = min(most, number)
            yield
        limits.update((device, (pool, most)) for device in devices)
    return limits


def _has_no_match(
    requests: Sequence[Request],
    constraint: DeviceConstraint,
    usable: Mapping[WantedDevices, Sequence[PoolDevice]],
    counts: Mapping[WantedDevices, int],
    limits: Limits,
    *,
    has_lists: bool,
) -> Generator[None, None, bool]:
    """Return whether no value has enough devices for all requests of a constraint."""
    assert constraint.match_attribute is not None, "it is one of these"
    about = [request for request in requests if all(concerns(constraint, each) for each in request)]
    if not any(counts[each] for each in _flat(about)):
        return False
    by_value: dict[Value, dict[WantedDevices, list[PoolDevice]]] = {}
    for wanted in _flat(about):
        for device in usable[wanted]:
            attribute = attribute_of(device, constraint.match_attribute)
            if attribute is not None:
                for value in values_of_all(attribute) if has_lists else (value_of(attribute),):
                    of_value = by_value.setdefault(value, {})
                    of_value.setdefault(wanted, []).append(device)
        yield
    for of_value in by_value.values():
        if not (yield from _are_too_few(about, of_value, counts, limits)):
            return False
    return True


def _has_too_few_values(
    requests: Sequence[Request],
    constraint: DeviceConstraint,
    usable: Mapping[WantedDevices, Sequence[PoolDevice]],
    counts: Mapping[WantedDevices, int],
    _limits: Limits,
    *,
    has_lists: bool,
) -> Generator[None, None, bool]:
    """Return whether there are too few values for all one-device requests of a constraint.

    For requests of several devices only the last one's value is compared with those of other requests.
    """
    assert constraint.distinct_attribute is not None, "it is one of these"
    wishes: list[tuple[int, set[Hashable]]] = []
    for request in requests:
        if not all(concerns(constraint, each) and counts[each] == 1 for each in request):
            continue
        values: set[Hashable] = set()
        for wanted in request:
            for device in usable[wanted]:
                attribute = attribute_of(device, constraint.distinct_attribute)
                if attribute is not None:
                    # A value of an unknown type differs from all others in this test.
                    values |= (values_of_all(attribute) if has_lists else {value_of(attribute)} - {None}) or {
                        device
                    }
            yield
        wishes.append((1, values))
    return (yield from _cannot_be_met(wishes, lambda _: 1, lambda _: None))


def _are_too_few(
    requests: Sequence[Request],
    usable: Mapping[WantedDevices, Sequence[PoolDevice]],
    counts: Mapping[WantedDevices, int],
    limits: Limits,
) -> Generator[None, None, bool]:
    """Return whether requests need more devices than all of them can use."""
    wished: list[tuple[int, set[PoolDevice]]] = []
    looks = 0
    for request in requests:
        devices = {device for wanted in request for device in usable.get(wanted, ())}
        least = min(counts[wanted] for wanted in request)
        looks += 1 + len(devices)
        if looks > _LOOKS_OF_A_STEP:
            looks = 0
            yield
        if any(device.device.allow_multiple_allocations for device in devices):
            continue  # several requests may share such a device
        if len(devices) < least:
            return True
        if not any(wanted.admin_access for wanted in request):  # other requests may get the same devices
            wished.append((least, devices))
    them_all = set(chain.from_iterable(devices for _, devices in wished))
    if sum(least for least, _ in wished) > len(them_all):
        return True
    return (yield from _are_too_few_of_a_sort(wished, limits))


def _are_too_few_of_a_sort(
    wished: Sequence[tuple[int, set[PoolDevice]]], limits: Limits
) -> Generator[None, None, bool]:
    """Return whether the devices are too few for some requests, with no device used twice."""
    # Devices that fit the same requests are counted together.
    of_device: dict[PoolDevice, list[int]] = {}
    for number, (_, devices) in enumerate(wished):
        for device in devices:
            of_device.setdefault(device, []).append(number)
        yield
    wishes: list[tuple[int, set[Hashable]]] = [(least, set()) for least, _ in wished]
    sizes: dict[Hashable, int] = {}
    of_sort: dict[Hashable, tuple[Pool, int] | None] = {}
    for device, numbers in of_device.items():
        limit = limits.get(device)
        sort = (tuple(numbers), None if limit is None else limit[0])
        sizes[sort] = sizes.get(sort, 0) + 1
        if sort not in of_sort:
            of_sort[sort] = limit
            for number in numbers:
                wishes[number][1].add(sort)
            yield
    return (yield from _cannot_be_met(wishes, sizes.__getitem__, of_sort.__getitem__))


def _cannot_be_met(
    wishes: Sequence[tuple[int, set[Hashable]]],
    size: Callable[[Hashable], int],
    limit: Callable[[Hashable], tuple[Pool, int] | None],
) -> Generator[None, None, bool]:
    """Return whether things of some sorts are too few for all wishes, by a flow from sorts to wishes.

    Args:
        wishes: how many things, and of which sorts.
        size: returns how many things of a sort there are.
        limit: returns the pool of a sort, and the maximum number of that pool; None without a limit.
    """
    if any(number > sum(map(size, sorts)) for number, sorts in wishes):
        return True
    flow = _Flow()
    for wish, (_, sorts) in enumerate(wishes):
        for sort in sorts:
            flow.allow(("wish", wish), ("sort", sort), size(sort))
            found = limit(sort)
            if found is None:
                flow.allow(("sort", sort), _END, size(sort))
            else:
                flow.allow(("sort", sort), ("pool", found[0]), size(sort))
                flow.allow(("pool", found[0]), _END, found[1])
        yield
    for wish, (number, _) in enumerate(wishes):
        for _ in range(number):
            if not (yield from flow.enlarge(("wish", wish), _END)):
                return True
        yield
    return False


class _Flow:
    """A flow through a graph, increased step by step.

    Attributes:
        left: node -> next node -> the remaining capacity between them.
    """

    def __init__(self) -> None:
        self.left: dict[Hashable, dict[Hashable, int]] = {}

    def allow(self, before: Hashable, after: Hashable, amount: int) -> None:
        """Add capacity between two nodes."""
        self.left.setdefault(before, {})[after] = amount
        self.left.setdefault(after, {}).setdefault(before, 0)

    def enlarge(self, begin: Hashable, end: Hashable) -> Generator[None, None, bool]:
        """Increase the flow from one node to another by one, over other nodes; return whether that is possible."""
        came_from: dict[Hashable, Hashable] = {begin: None}
        queue = deque([begin])
        looks = 0
        while queue:
            node = queue.popleft()
            for following, amount in self.left[node].items():
                looks += 1
                if amount and following not in came_from:
                    came_from[following] = node
                    queue.append(following)
                    if following == end:
                        self._take(end, came_from)
                        return True
            if looks > _LOOKS_OF_A_STEP:
                looks = 0
                yield
        return False

    def _take(self, node: Hashable, came_from: Mapping[Hashable, Hashable]) -> None:
        while (before := came_from[node]) is not None:
            self.left[before][node] -= 1
            self.left[node][before] += 1
            node = before


def _flat(requests: Iterable[Request]) -> Iterable[WantedDevices]:
    for request in requests:
        yield from request
