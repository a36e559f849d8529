"""The search for devices for all claims together: a depth-first search in order, with backtracking.

Source:
  kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
  allocator_incubating.go, Allocate, allocateOne and allocateDevice. State that upstream keeps when a device is rejected
  late is kept here as well: the choice of devices depends on it.
"""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from plugins.dynamic_resources.structured.constraints import (
    INVALID_POOLS,
    NOT_ALL,
    DeviceRefusal,
    TakenCounters,
    constraint_of,
    is_tainted,
)
from plugins.dynamic_resources.structured.requests import DerivedAttributeError, evaluations, fits
from plugins.dynamic_resources.structured.unsatisfiable import is_unsatisfiable
from scheduler.objects.dynamic_resources import MAX_RESULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugins.dynamic_resources.structured.constraints import AvailableCounters, Constraint
    from plugins.dynamic_resources.structured.pools import AllocatedDevices, DeviceID, Pool, Pools
    from plugins.dynamic_resources.structured.question import Question
    from plugins.dynamic_resources.structured.requests import (
        Consumption,
        DeviceCandidate,
        DeviceCandidates,
        WantedDevices,
    )
    from scheduler.objects.dynamic_resources import Device

_NOBODY: AbstractSet[int] = frozenset()

_WORK_OF_A_PAUSE = 512
"""The work between two pauses, in devices considered: less than a millisecond."""
_WORK_OF_A_STEP = 4
_WORK_OF_COUNTERS = 16
_WORK_OF_AN_EVALUATION = 16
_LONG_STEPS = 256
HOPELESS_AFTER = 64
"""After this number of steps the search is checked for whether it can succeed: most searches end before."""


class _Found(Enum):
    """The result of a part of the search."""

    ALL = "devices for all that was left"
    NOTHING = "no devices"
    TOO_MANY = "more devices than a claim can hold"


_Steps = Generator["_Steps | None", _Found, _Found]
"""A part of the search: it yields parts that have to run first, and receives their results; None is a pause.

So the depth of the search is limited by the number of devices, not by Python's stack.
"""


class AllocatedRequest(NamedTuple):
    """A device that is allocated to a claim.

    Attributes:
        wanted: the request.
        candidate: the device.
    """

    wanted: WantedDevices
    candidate: DeviceCandidate

    @property
    def device(self) -> Device:
        return self.candidate.device.device

    @property
    def consumed(self) -> dict[str, Consumption]:
        """What the request consumes of the capacities of a device that several claims may share."""
        return self.candidate.consumed if self.device.allow_multiple_allocations else {}


class Solution(NamedTuple):
    """The result of a search.

    Attributes:
        devices: the devices of each claim, in the order of allocation.
        chosen: (claim, request) -> the index of the chosen alternative, if there are any.
    """

    devices: list[list[AllocatedRequest]]
    chosen: dict[tuple[int, int], int]


class _Stream:
    """The candidates for one request in all pools, evaluated as far as the search needs them.

    Attributes:
        found: the candidates found so far, in order.
    """

    __slots__ = ("_question", "_rest", "_source", "_taken", "_wanted", "found")

    def __init__(self, question: Question, wanted: WantedDevices, pools: Sequence[Pool]) -> None:
        self.found: list[DeviceCandidate] = []
        self._question = question
        self._wanted = wanted
        self._rest = [pool for pool in reversed(pools) if pool.gives]
        self._source: DeviceCandidates | None = None
        self._taken = 0  # number of candidates taken from the current pool

    def more(self) -> bool:
        """Find more candidates, for about a millisecond; return whether there may be more after that."""
        source = self._source
        if source is None:
            if not self._rest:
                return False
            source = self._source = self._question.candidates(self._wanted, self._rest.pop())
            self._taken = 0
        if self._taken == len(source.found) and not source.is_complete:
            self._question.n_candidates += source.look()
        self.found += source.found[self._taken :] if self._taken else source.found
        self._taken = len(source.found)
        if source.is_complete:
            self._source = None
        return True


class DeviceSearch:
    """One search, made in steps.

    Args:
        question: the requests.
        pools: the pools to search, in order.
        allocated: the allocated devices.
        counters: what allocated devices leave of counters.

    Attributes:
        pools: the pools to search, in order.
        steps: how many steps it made, counted as kube-scheduler counts them.
        seconds: how long it took so far.
        solution: the devices found.
        refusal: why there is no solution, once it has ended.
    """

    def __init__(
        self,
        question: Question,
        pools: Pools,
        allocated: AllocatedDevices,
        counters: AvailableCounters,
    ) -> None:
        self.pools = pools
        self.steps = 0
        self.seconds = 0.0
        self.solution: Solution | None = None
        self.refusal: DeviceRefusal | None = None
        self._question = question
        self._allocated = allocated
        self._exclusive = allocated.exclusive(question.features)
        self._seen = allocated.changes
        self._available = counters
        self._counters = TakenCounters(counters)
        self._candidates: dict[WantedDevices, _Stream] = {}
        self._all: dict[WantedDevices, list[DeviceCandidate]] = {}  # of requests for all devices
        self._counts: dict[WantedDevices, int] = {}
        self._constraints: list[list[Constraint]] = []
        self._taken: dict[DeviceID, set[int]] = {}  # the claims that got a device
        self._consumed: dict[DeviceID, dict[str, int]] = {}  # capacity -> amount that these claims consume
        self._given: list[list[AllocatedRequest]] = [[] for _ in question.claims]
        self._chosen: dict[tuple[int, int], int] = {}
        self._left = _WORK_OF_A_PAUSE
        self._run = self._steps()

    @property
    def is_long(self) -> bool:
        """Whether it is unfinished, or would take about a time slice or longer to repeat."""
        return self.steps > _LONG_STEPS or not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether the result is known."""
        return self.solution is not None or self.refusal is not None

    def advance(self) -> bool:
        """Continue for about a millisecond; return whether the search has ended."""
        try:
            next(self._run)
        except StopIteration:
            return True
        except _ProblemError as problem:
            self.refusal = problem.refusal
            return True
        return False

    def is_current(self) -> bool:
        """Return whether everything that the search has read is unchanged, apart from the pools themselves."""
        allocated = self._allocated
        if allocated.changes == self._seen:
            return True
        changed = allocated.changed_since(self._seen)
        if changed is None or any(pool.id in changed for pool in self.pools):
            return False
        self._seen = allocated.changes
        return True

    def _steps(self) -> Generator[None, None, None]:
        for claim in range(len(self._given)):
            yield from self._read(claim)
        if (yield from self._until_done(self._claim(0))) is _Found.ALL:
            self.solution = Solution(self._given, self._chosen)
        elif any(pool.is_invalid for pool in self.pools):
            self.refusal = INVALID_POOLS
        else:
            self.refusal = NOT_ALL

    # The requests.

    def _read(self, claim: int) -> Generator[None, None, None]:
        """Find out how many devices a claim needs, and its constraints."""
        least = 0
        question = self._question
        for problem, alternatives in zip(question.problems[claim], question.claims[claim], strict=True):
            if problem:
                raise _ProblemError(problem, claim)
            for wanted in alternatives:
                if wanted.problem:
                    raise _error(wanted, wanted.problem)
                if wanted.all_devices:
                    self._counts[wanted] = yield from self._count(wanted)
                else:
                    self._counts[wanted] = wanted.count
                    self._candidates[wanted] = _Stream(self._question, wanted, self.pools)
            least += min(self._counts[wanted] for wanted in alternatives)
        if least > MAX_RESULTS:
            words = f": number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
            raise _ProblemError(words, claim)
        constraints = []
        for number, written in enumerate(self._question.constraints[claim]):
            constraint = constraint_of(written, question.features)
            if constraint is None:
                words = f", constraint #{number}: empty constraint (unsupported constraint type?)"
                raise _ProblemError(words, claim)
            constraints.append(constraint)
        self._constraints.append(constraints)

    def _count(self, wanted: WantedDevices) -> Generator[None, None, int]:
        """Find all devices for a request for all, and return how many there are."""
        found = self._all[wanted] = []
        for pool in self.pools:
            if not pool.gives:
                why = "being updated" if pool.is_incomplete else "invalid"
                problem = f"asks for all devices, but resource pool {pool.id} is currently {why}"
                raise _error(wanted, problem)
            source = self._question.candidates(wanted, pool)
            looked = 0
            while looked < len(source.found) or not source.is_complete:
                if looked == len(source.found):
                    self._question.n_candidates += source.look()
                for candidate in source.found[looked:]:
                    self._look_at(candidate, wanted)
                    if self._has_room(candidate):
                        found.append(candidate)
                looked = len(source.found)
                yield
        return len(found)

    # The steps of the search.

    def _until_done(self, first: _Steps) -> Generator[None, None, _Found]:
        under_way = [first]
        ended: _Found | None = None
        while under_way:
            try:
                part = under_way[-1].send(ended)  # type: ignore[arg-type]
            except StopIteration as stopped:
                under_way.pop()
                ended = stopped.value
                continue
            ended = None
            if part is not None:
                under_way.append(part)
                self.steps += 1
                self._left -= _WORK_OF_A_STEP
                if self.steps == HOPELESS_AFTER and (yield from self._is_hopeless()):
                    return _Found.NOTHING
            if part is None or self._left <= 0:
                self._left = _WORK_OF_A_PAUSE
                yield
        assert ended is not None
        return ended

    def _is_hopeless(self) -> Generator[None, None, bool]:
        """Return whether the search certainly fails; this is checked only for long searches."""
        streams = self._candidates
        for stream in streams.values():
            while stream.more():
                yield
        candidates = {wanted: stream.found for wanted, stream in streams.items()} | self._all
        return (
            yield from is_unsatisfiable(
                self._question, self.pools, candidates, self._counts, self._allocated, self._available
            )
        )

    def _claim(self, claim: int) -> _Steps:
        if claim == len(self._given):
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

    def _devices(self, request: int, wanted: WantedDevices, number: int, start: int) -> _Steps:
        """Find one more device for a request that has `number` devices, among the candidates from `start` on."""
        if wanted.all_devices and not self._all[wanted]:
            return _Found.NOTHING
        if number >= self._counts[wanted]:
            return (yield self._request(wanted.claim, request + 1))
        if len(self._given[wanted.claim]) + self._counts[wanted] - number > MAX_RESULTS:
            return _Found.TOO_MANY
        if wanted.all_devices:
            return (yield self._next_of_all(request, wanted, number))
        return (yield from self._next_of_some(request, wanted, number, start))

    def _next_of_some(self, request: int, wanted: WantedDevices, number: int, place: int) -> _Steps:
        """Allocate one of the candidates from an index on, and everything that follows it."""
        stream = self._candidates[wanted]
        candidates = stream.found
        while True:
            if place == len(candidates):
                before = evaluations.count
                if not stream.more():
                    return _Found.NOTHING
                self._left -= 8 + _WORK_OF_AN_EVALUATION * (evaluations.count - before)
            if self._left <= 0:
                yield None
            place = self._next_free(wanted, candidates, place)
            if place == len(candidates) or self._left <= 0:
                continue
            candidate = candidates[place]
            place += 1
            if not self._try(wanted, candidate):
                continue
            found = yield self._devices(request, wanted, number + 1, place)
            if found is not _Found.ALL:
                self._take_back(wanted.claim)
            if found is not _Found.NOTHING:
                return found

    def _next_free(self, wanted: WantedDevices, candidates: Sequence[DeviceCandidate], place: int) -> int:
        """Return the index of the next free candidate; it stops after a limited amount of work."""
        begin, end = place, min(len(candidates), place + self._left)
        if not wanted.admin_access:
            exclusive, taken = self._exclusive, self._taken
            while place < end:
                device = candidates[place].device.id
                if device not in exclusive and not taken.get(device):
                    break
                place += 1
        self._left -= place - begin
        return place

    def _next_of_all(self, request: int, wanted: WantedDevices, number: int) -> _Steps:
        """Allocate the next of all devices; if that fails, no other device can replace it."""
        if not self._give(wanted, self._all[wanted][number], must=True):
            return _Found.NOTHING
        found = yield self._devices(request, wanted, number + 1, 0)
        if found is not _Found.ALL:
            self._take_back(wanted.claim)
        return found

    def _try(self, wanted: WantedDevices, candidate: DeviceCandidate) -> bool:
        """Allocate a device if it is free; only then it is evaluated."""
        self._left -= 2
        if self._is_taken(wanted, candidate):
            return False
        self._look_at(candidate, wanted)
        return self._has_room(candidate) and self._give(wanted, candidate, must=False)

    # One device.

    def _is_taken(self, wanted: WantedDevices, candidate: DeviceCandidate) -> bool:
        device = candidate.device.id
        taken = self._taken.get(device, _NOBODY)
        if wanted.admin_access:
            return wanted.claim in taken
        return device in self._exclusive or bool(taken)

    def _look_at(self, candidate: DeviceCandidate, wanted: WantedDevices) -> None:
        """Raise an error if the evaluation of the device failed."""
        if candidate.failure:
            of = wanted.device_class if candidate.says_class else None
            if of is None:
                raise _ProblemError(f": {candidate.failure}", wanted.claim)
            raise _ProblemError(f"class {of.metadata.name}: {candidate.failure}")

    def _has_room(self, candidate: DeviceCandidate) -> bool:
        """Return whether the device has the capacities that the request would consume."""
        consumed, device = candidate.consumed, candidate.device.id
        return not consumed or fits(
            consumed, self._allocated.consumed.get(device, {}), self._consumed.get(device, {})
        )

    def _give(self, wanted: WantedDevices, candidate: DeviceCandidate, *, must: bool) -> bool:
        """Allocate a device if it satisfies all conditions.

        Raises:
            _ProblemError: the device is required, and a constraint excludes it.
        """
        given = AllocatedRequest(wanted, candidate)
        shared = given.device.allow_multiple_allocations
        device = candidate.device.id
        if not (shared and wanted.admin_access) and self._is_taken(wanted, candidate):
            return False
        if given.device.consumes_counters and not self._question.features.partitionable_devices:
            return False
        in_use = device in self._allocated.consumed or device in self._consumed
        takes = bool(candidate.device.takes) and not (shared and in_use)
        if takes:
            self._left -= _WORK_OF_COUNTERS
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

    def _satisfies_constraints(self, given: AllocatedRequest, *, must: bool) -> bool:
        wanted, device = given.wanted, given.candidate.device
        counted: list[Constraint] = []
        for constraint in self._constraints[wanted.claim]:
            self._left -= 1
            before = evaluations.count
            try:
                is_satisfied = constraint.add(wanted, device)
            except DerivedAttributeError as error:
                raise _error(wanted, str(error)) from error
            self._left -= _WORK_OF_AN_EVALUATION * (evaluations.count - before)
            if not is_satisfied:
                if must:
                    problem = (
                        f"cannot add device {device.id} because a claim constraint would not be satisfied"
                    )
                    raise _error(wanted, problem)
                for each in counted:
                    each.remove(wanted)
                return False
            counted.append(constraint)
        return True

    def _take_back(self, claim: int) -> None:
        """Release the device that a claim got last."""
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

    def _take_back_shares(self, given: AllocatedRequest) -> None:
        device = given.candidate.device.id
        if not given.consumed or device not in self._consumed:
            return
        consumed = self._consumed[device]
        for name, each in given.consumed.items():
            consumed[name] = consumed.get(name, 0) - each.amount
        if not any(consumed.values()):
            del self._consumed[device]


class _ProblemError(Exception):
    """The attempt fails; `claim` is the index of the claim to name before the message."""

    def __init__(self, words: str, claim: int | None = None) -> None:
        super().__init__(words)
        self.refusal = DeviceRefusal(words, is_error=True, claim=claim)


def _error(wanted: WantedDevices, problem: str) -> _ProblemError:
    return _ProblemError(f", request {wanted.own_name}: {problem}", wanted.claim)
