"""The search for devices for all claims at once: the first that fit, in order, going back where a choice leads nowhere.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    allocator_incubating.go, Allocate, allocateOne and allocateDevice. What it keeps when a device is refused late, it keeps
    here as well: which devices are given depends on it.
"""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from plugins.dynamic_resources.structured.capacity import fits
from plugins.dynamic_resources.structured.constraints import constraint_of
from plugins.dynamic_resources.structured.counters import TakenCounters
from plugins.dynamic_resources.structured.errors import AllocationError, InvalidPoolsError, OutOfTimeError
from plugins.dynamic_resources.structured.taints import is_tainted
from scheduler.objects.dynamic_resources import MAX_RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugins.dynamic_resources.structured.allocated import AllocatedDevices, DeviceID
    from plugins.dynamic_resources.structured.capacity import Consumption
    from plugins.dynamic_resources.structured.constraints import Constraint
    from plugins.dynamic_resources.structured.counters import AvailableCounters
    from plugins.dynamic_resources.structured.pools import Pool
    from plugins.dynamic_resources.structured.requests import Candidate, Question, Wanted
    from scheduler.objects.dynamic_resources import Device

_NOBODY: AbstractSet[int] = frozenset()


class _Found(Enum):
    """How a part of the search ended."""

    ALL = "devices for all that was left"
    NOTHING = "no devices"
    TOO_MANY = "more devices than a claim can hold"


_Steps = Generator["_Steps", _Found, _Found]
"""A part of the search: it yields parts that are to be done first, and is sent how they ended.

So the search is as deep as there are devices wanted, and Python's stack is not.
"""


class Given(NamedTuple):
    """A device that a claim is given.

    Attributes:
        wanted: for which request.
        candidate: which.
    """

    wanted: Wanted
    candidate: Candidate

    @property
    def device(self) -> Device:
        return self.candidate.device.device

    @property
    def consumed(self) -> dict[str, Consumption]:
        """What is consumed of its capacities, of a device that others may be given too."""
        return self.candidate.consumed if self.device.allow_multiple_allocations else {}


class Solution(NamedTuple):
    """What a search found.

    Attributes:
        devices: for each claim, in the order in which they were given.
        chosen: (claim, request) -> which of the alternatives it was, where there are some.
    """

    devices: list[list[Given]]
    chosen: dict[tuple[int, int], int]


class Search:
    """One search; it is made and run once.

    Args:
        question: what is asked for.
        claims: the names of the claims, for errors.
        pools: where devices are looked for, in order.
        allocated: what is taken.
        counters: what others leave of counters.
        out_of_time: ends the search when it says True.
    """

    def __init__(
        self,
        question: Question,
        claims: Sequence[str],
        pools: Sequence[Pool],
        allocated: AllocatedDevices,
        counters: AvailableCounters,
        out_of_time: Callable[[], bool],
    ) -> None:
        self._question = question
        self._names = claims
        self._pools = pools
        self._allocated = allocated
        self._counters = TakenCounters(counters)
        self._out_of_time = out_of_time
        self._candidates: dict[Wanted, list[Candidate]] = {}
        self._counts: dict[Wanted, int] = {}
        self._constraints: list[list[Constraint]] = []
        self._taken: dict[DeviceID, set[int]] = {}  # the claims that are given a device
        self._consumed: dict[DeviceID, dict[str, int]] = {}  # capacity -> amount that these claims are given
        self._given: list[list[Given]] = [[] for _ in claims]
        self._chosen: dict[tuple[int, int], int] = {}

    def run(self) -> Solution | None:
        """Return the first solution, None if there is none.

        Raises:
            AllocationError: a request cannot be looked at, or a selector fails for a device.
            InvalidPoolsError: there is none, and pools are broken.
            OutOfTimeError: see the class.
        """
        for claim in range(len(self._names)):
            self._read(claim)
        if self._until_done(self._claim(0)) is _Found.ALL:
            return Solution(self._given, self._chosen)
        if any(pool.is_invalid for pool in self._pools):
            raise InvalidPoolsError("invalid resource pools were encountered")
        return None

    # What is wanted.

    def _read(self, claim: int) -> None:
        """Find out how many devices a claim wants, and by what constraints."""
        least = 0
        for alternatives in self._question.claims[claim]:
            for wanted in alternatives:
                self._counts[wanted] = self._count(wanted)
            least += min(self._counts[wanted] for wanted in alternatives)
        if least > MAX_RESULTS:
            raise AllocationError(
                f"claim {self._names[claim]}: number of requested devices {least} "
                f"exceeds the claim limit of {MAX_RESULTS}"
            )
        constraints = []
        for number, written in enumerate(self._question.constraints[claim]):
            constraint = constraint_of(written)
            if constraint is None:
                raise AllocationError(
                    f"claim {self._names[claim]}, constraint #{number}: "
                    "empty constraint (unsupported constraint type?)"
                )
            constraints.append(constraint)
        self._constraints.append(constraints)

    def _count(self, wanted: Wanted) -> int:
        if wanted.problem:
            raise self._error(wanted, wanted.problem)
        if not wanted.all_devices:
            self._candidates[wanted] = [
                each for pool in self._pools if pool.gives for each in self._question.candidates(wanted, pool)
            ]
            return wanted.count
        found = []
        for pool in self._pools:
            if not pool.gives:
                why = "being updated" if pool.is_incomplete else "invalid"
                problem = f"asks for all devices, but resource pool {pool.id} is currently {why}"
                raise self._error(wanted, problem)
            for candidate in self._question.candidates(wanted, pool):
                self._look_at(candidate, wanted)
                if self._has_room(candidate):
                    found.append(candidate)
        self._candidates[wanted] = found
        return len(found)

    # The steps of the search.

    def _until_done(self, first: _Steps) -> _Found:
        under_way = [first]
        ended: _Found | None = None
        while under_way:
            try:
                part = under_way[-1].send(ended)  # type: ignore[arg-type]
            except StopIteration as stopped:
                under_way.pop()
                ended = stopped.value
                continue
            if self._out_of_time():
                raise OutOfTimeError
            under_way.append(part)
            ended = None
        assert ended is not None
        return ended

    def _claim(self, claim: int) -> _Steps:
        if claim == len(self._names):
            return _Found.ALL
        return (yield self._request(claim, 0))

    def _request(self, claim: int, request: int) -> _Steps:
        requests = self._question.claims[claim]
        if request == len(requests):
            return (yield self._claim(claim + 1))
        alternatives = requests[request]
        if not self._question.has_choice[claim][request]:
            return (yield self._devices(request, alternatives[0], 0, 0))
        all_too_many = True
        for place, wanted in enumerate(alternatives):
            found = yield self._devices(request, wanted, 0, 0)
            if found is _Found.ALL:
                self._chosen[claim, request] = place
                return found
            all_too_many &= found is _Found.TOO_MANY
        return _Found.TOO_MANY if all_too_many else _Found.NOTHING

    def _devices(self, request: int, wanted: Wanted, number: int, start: int) -> _Steps:
        """Find one more device for a request, of which it has `number`, among candidates from `start` on."""
        candidates = self._candidates[wanted]
        if wanted.all_devices and not candidates:
            return _Found.NOTHING
        if number >= self._counts[wanted]:
            return (yield self._request(wanted.claim, request + 1))
        if len(self._given[wanted.claim]) + self._counts[wanted] - number > MAX_RESULTS:
            return _Found.TOO_MANY
        if wanted.all_devices:
            return (yield self._next_of_all(request, wanted, number))
        for place in range(start, len(candidates)):
            if not self._try(wanted, candidates[place]):
                continue
            found = yield self._devices(request, wanted, number + 1, place + 1)
            if found is not _Found.ALL:
                self._take_back(wanted.claim)
            if found is not _Found.NOTHING:
                return found
        return _Found.NOTHING

    def _next_of_all(self, request: int, wanted: Wanted, number: int) -> _Steps:
        """Give the next of all devices; if it cannot be given, no others will do."""
        if not self._give(wanted, self._candidates[wanted][number], must=True):
            return _Found.NOTHING
        found = yield self._devices(request, wanted, number + 1, 0)
        if found is not _Found.ALL:
            self._take_back(wanted.claim)
        return found

    def _try(self, wanted: Wanted, candidate: Candidate) -> bool:
        """Give a device if it is free; it is looked at only then."""
        if self._is_taken(wanted, candidate):
            return False
        self._look_at(candidate, wanted)
        return self._has_room(candidate) and self._give(wanted, candidate, must=False)

    # One device.

    def _is_taken(self, wanted: Wanted, candidate: Candidate) -> bool:
        device = candidate.device.id
        taken = self._taken.get(device, _NOBODY)
        if wanted.admin_access:
            return wanted.claim in taken
        return device in self._allocated.whole or bool(taken)

    def _look_at(self, candidate: Candidate, wanted: Wanted) -> None:
        """Fail if it cannot be said whether the device is one of those wanted."""
        if candidate.failure:
            of = wanted.device_class if candidate.says_class else None
            who = f"claim {self._names[wanted.claim]}" if of is None else f"class {of.metadata.name}"
            raise AllocationError(f"{who}: {candidate.failure}")

    def _has_room(self, candidate: Candidate) -> bool:
        """Say whether the device has the capacities that the request would consume."""
        consumed, device = candidate.consumed, candidate.device.id
        return not consumed or fits(
            consumed, self._allocated.consumed.get(device, {}), self._consumed.get(device, {})
        )

    def _give(self, wanted: Wanted, candidate: Candidate, *, must: bool) -> bool:
        """Give a device, if nothing is against it.

        Raises:
            AllocationError: it must be this one, and a constraint is against it.
        """
        given = Given(wanted, candidate)
        shared = given.device.allow_multiple_allocations
        device = candidate.device.id
        if not (shared and wanted.admin_access) and self._is_taken(wanted, candidate):
            return False
        in_use = device in self._allocated.consumed or device in self._consumed
        takes = bool(candidate.device.takes) and not (shared and in_use)
        if takes and not self._counters.take(candidate.pool, candidate.device):
            return False
        if is_tainted(given.device, wanted.tolerations) or not self._satisfies_constraints(given, must=must):
            return False
        if not shared:
            self._taken.setdefault(device, set()).add(wanted.claim)
        if not self._has_room(candidate):
            return False
        if shared:
            consumed = self._consumed.setdefault(device, {})
            for name, each in given.consumed.items():
                consumed[name] = consumed.get(name, 0) + each.amount
        self._given[wanted.claim].append(given)
        return True

    def _satisfies_constraints(self, given: Given, *, must: bool) -> bool:
        wanted, device = given.wanted, given.candidate.device
        counted: list[Constraint] = []
        for constraint in self._constraints[wanted.claim]:
            if not constraint.add(wanted, device):
                if must:
                    problem = (
                        f"cannot add device {device.id} because a claim constraint would not be satisfied"
                    )
                    raise self._error(wanted, problem)
                for each in counted:
                    each.remove(wanted)
                return False
            counted.append(constraint)
        return True

    def _take_back(self, claim: int) -> None:
        """Take back the device that a claim was given last."""
        given = self._given[claim].pop()
        device = given.candidate.device
        for constraint in self._constraints[claim]:
            constraint.remove(given.wanted)
        if given.device.allow_multiple_allocations:
            self._take_back_shares(given)
            return
        self._taken[device.id].discard(claim)
        if device.takes:
            self._counters.give_back(given.candidate.pool, device)

    def _take_back_shares(self, given: Given) -> None:
        device = given.candidate.device.id
        if not given.consumed or device not in self._consumed:
            return
        consumed = self._consumed[device]
        for name, each in given.consumed.items():
            consumed[name] = consumed.get(name, 0) - each.amount
        if not any(consumed.values()):
            del self._consumed[device]

    def _error(self, wanted: Wanted, problem: str) -> AllocationError:
        return AllocationError(f"claim {self._names[wanted.claim]}, request {wanted.own_name}: {problem}")
