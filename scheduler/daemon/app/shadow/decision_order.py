"""Reconstructs the order in which another scheduler decided from what the watches report afterwards.

Decisions are made one after another, each assuming the previous ones. The watches report only their Bindings, which are
sent concurrently and arrive in another order. Other changes arrive between a decision and its Binding. But no decision is
made after it is reported, nor with an object that is created after it. The order of decisions is therefore that of the
resourceVersions, with some decisions moved towards the beginning.

Recent changes are kept so that they can be reverted and applied again. A decision that this scheduler would not have
made when it was reported is tried in other possible places: earlier, or after decisions that were reported later. A place
is accepted if it explains more decisions than before, where all decisions in between are evaluated again. There is one
order for all profiles, and each decision has one place in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from scheduler.daemon.app.shadow.comparison import MILDEST_FIRST
from scheduler.daemon.app.shadow.decisions import ShadowedOutcome
from scheduler.daemon.app.shadow.observed_changes import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scheduler.clock import Clock
    from scheduler.daemon.app.shadow.comparison import ShadowEvaluator, ShadowVerdict
    from scheduler.daemon.app.shadow.observed_changes import ObservedChange

WINDOW_SECONDS: Final = 3.0
"""How long before its report a decision may have been made."""
SETTLING_SECONDS: Final = 1.0
"""How long after its report earlier decisions may be reported."""
_FURTHEST = 200  # entries that a decision may be moved over, counting only those that matter
_REACHES = (10, 40, 160)  # entries before and after a decision that are reordered together
_MOST_PLACES = 12  # candidate places of a decision that are tried with all entries in between
_SLICE_SECONDS = 0.005
_SEARCHING = 0.5  # maximum share of the time
_SAVED_SECONDS = 30.0  # unused search time that can be saved


class DecisionOrder:
    """The recent changes, in the order in which decisions were made.

    Args:
        judges: evaluate decisions; an order that explains a decision for any of them is accepted.
        clock: the time.
        done: called with each decision when its place is final, and with all entries around it.

    Attributes:
        trials: number of evaluations made to find places.
        unsearched: number of decisions without a search, because there were too many.
    """

    def __init__(
        self,
        judges: Sequence[ShadowEvaluator],
        *,
        clock: Clock,
        done: Callable[[ObservedChange, Sequence[ObservedChange]], None],
    ) -> None:
        self._judges = judges
        self._clock = clock
        self._done = done
        self._entries: list[ObservedChange] = []
        self._made = 0  # number of applied entries, from the first
        self._until = 0.0
        self._credit, self._credited_at = _SAVED_SECONDS, clock.monotonic()
        self.trials = 0
        self.unsearched = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def append(self, entry: ObservedChange) -> None:
        """Evaluate the decision in a change, if there is one, and apply the change."""
        if entry.decision is not None:
            entry.verdicts = [await judge.judge(entry.decision) for judge in self._judges]
        entry.make()
        self._entries.append(entry)
        self._made += 1

    async def settle(self, now: float, *, at_the_end: bool = False) -> None:
        """Search places for unexplained decisions, and drop old entries.

        Args:
            now: time of the monotonic clock.
            at_the_end: whether no more changes follow.
        """
        latest = now if at_the_end else now - SETTLING_SECONDS
        for entry in [each for each in self._entries if not each.is_settled and each.at <= latest]:
            entry.is_settled = True
            if not entry.agrees:
                await self._explain(entry)
        cut = len(self._entries) if at_the_end else self._long_ago(now - WINDOW_SECONDS)
        for entry in self._entries[:cut]:
            if entry.decision is not None:
                self._done(entry, self._entries)
        del self._entries[:cut]
        self._made -= cut

    def _long_ago(self, before: float) -> int:
        for place, entry in enumerate(self._entries):
            if entry.at > before or not entry.is_settled:
                return place
        return len(self._entries)

    # Search of a place.

    async def _explain(self, entry: ObservedChange) -> None:
        if not self._may_search():
            self.unsearched += 1
            return
        began = self._clock.monotonic()
        self._until = began + _SLICE_SECONDS
        place = self._entries.index(entry)
        try:
            for start, order in self._by_age(place):
                if await self._try(start, order) and entry.agrees:
                    return
            place = self._entries.index(entry)
            for start, order in await self._places(entry, place):
                if await self._try(start, order):
                    return
        finally:
            self._go_to(len(self._entries))
            self._credit -= self._clock.monotonic() - began

    def _may_search(self) -> bool:
        now = self._clock.monotonic()
        self._credit = min(_SAVED_SECONDS, self._credit + _SEARCHING * (now - self._credited_at))
        self._credited_at = now
        return self._credit > 0

    def _by_age(self, place: int) -> Iterator[tuple[int, list[ObservedChange]]]:
        """Yield orders by waiting time, as in a queue, with increasing reach."""
        for reach in _REACHES:
            for first in (_age, _rank):
                start = max(0, place - reach)
                region = self._entries[start : place + reach + 1]
                order = _sorted(region, first)
                if order != region:
                    yield start, order

    async def _places(self, entry: ObservedChange, place: int) -> list[tuple[int, list[ObservedChange]]]:
        """Return the places where the decision itself agrees, nearest first: (first index, order of the entries from there)."""
        found: list[tuple[int, int, list[ObservedChange]]] = []
        entries = self._entries
        for start in self._earlier(entry, place):
            self._go_to(start)
            if await self._would_agree(entry):
                found.append((place - start, start, [entry, *entries[start:place]]))
        self._go_to(place)
        pulled: list[ObservedChange] = []
        for at, other in self._later(entry, place):
            other.make()
            pulled.append(other)
            if await self._would_agree(entry):
                rest = [each for each in entries[place + 1 : at] if each not in pulled]
                found.append((at - place, place, [*pulled, entry, *rest]))
        for other in reversed(pulled):
            other.take_back()
        for at, other in self._later(entry, place)[1:]:
            other.make()
            if await self._would_agree(entry):
                found.append((at - place, place, [other, entry, *entries[place + 1 : at]]))
            other.take_back()
        found.sort(key=lambda each: each[0])
        return [(start, order) for _, start, order in found[:_MOST_PLACES]]

    def _earlier(self, entry: ObservedChange, place: int) -> Iterator[int]:
        """Yield the earlier places with a different cluster state, nearest first."""
        over = 0
        for start in range(place - 1, -1, -1):
            other = self._entries[start]
            if other.uid == entry.uid or over == _FURTHEST:
                return
            if other.matters:
                over += 1
                yield start

    def _later(self, entry: ObservedChange, place: int) -> list[tuple[int, ObservedChange]]:
        """Return the later reported decisions that may have been made before, each with its index."""
        touched = {entry.uid}
        found: list[tuple[int, ObservedChange]] = []
        for at, other in enumerate(self._entries[place + 1 :], place + 1):
            if len(found) == _FURTHEST:
                break
            moves = other.decision is not None and other.decision.what is not ShadowedOutcome.WAITS
            if moves and other.uid not in touched:
                found.append((at, other))
            if other.uid:
                touched.add(other.uid)
        return found

    async def _try(self, start: int, order: list[ObservedChange]) -> bool:
        """Reorder entries if that explains more decisions; return whether it does."""
        self._go_to(start)
        end = start + len(order)
        before = sum(not each.agrees for each in self._entries[start:end])
        made: list[tuple[ObservedChange, list[ShadowVerdict]]] = []
        disagreements = 0
        for each in order:
            verdicts: list[ShadowVerdict] = []
            if each.decision is not None:
                self.trials += 1
                verdicts = [await judge.judge(each.decision) for judge in self._judges]
                disagreements += not any(verdict.agrees for verdict in verdicts)
                await self._give_way()
            made.append((each, verdicts))
            each.make()
            if disagreements >= before:
                for entry, _ in reversed(made):
                    entry.take_back()
                return False
        for each, verdicts in made:
            if each.decision is not None:
                each.was_moved |= not each.agrees and any(verdict.agrees for verdict in verdicts)
                each.verdicts = verdicts
        self._entries[start:end] = order
        self._made = end
        return True

    async def _would_agree(self, entry: ObservedChange) -> bool:
        """Evaluate a decision in a possible place; if it disagrees everywhere, the mildest result remains."""
        assert entry.decision is not None
        self.trials += 1
        await self._give_way()
        verdicts = [await judge.judge(entry.decision) for judge in self._judges]
        if any(verdict.agrees for verdict in verdicts):
            return True
        entry.verdicts = [min(pair, key=_severity) for pair in zip(entry.verdicts, verdicts, strict=True)]
        return False

    def _go_to(self, place: int) -> None:
        """Revert or apply changes until `place` of them are applied."""
        while self._made > place:
            self._made -= 1
            self._entries[self._made].take_back()
        while self._made < place:
            self._entries[self._made].make()
            self._made += 1

    async def _give_way(self) -> None:
        if self._clock.monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock.monotonic() + _SLICE_SECONDS


def _severity(verdict: ShadowVerdict) -> int:
    return MILDEST_FIRST.index(verdict.cause)


def _age(entry: ObservedChange) -> tuple[int, ...]:
    assert entry.decision is not None
    return (version_of(entry.decision.pod),)


def _rank(entry: ObservedChange) -> tuple[int, ...]:
    assert entry.decision is not None
    return (-entry.decision.pod.priority, *_age(entry))


def _sorted(
    entries: Sequence[ObservedChange], first: Callable[[ObservedChange], tuple[int, ...]]
) -> list[ObservedChange]:
    """Move decisions towards the beginning so that they are sorted, none over another change of the same pod."""
    earliest: dict[ObservedChange, int] = {}
    last: dict[str, int] = {}
    for at, entry in enumerate(entries):
        earliest[entry] = last.get(entry.uid, -1) + 1
        if entry.uid:
            last[entry.uid] = at
    order: list[ObservedChange] = []
    done: set[ObservedChange] = set()
    for at, entry in enumerate(entries):
        if entry in done:
            continue
        if entry.decision is not None:
            before = [
                each
                for each in entries[at + 1 :]
                if each.decision is not None
                and each not in done
                and earliest[each] <= at
                and first(each) < first(entry)
            ]
            order += sorted(before, key=first)
            done.update(before)
        order.append(entry)
    return order
