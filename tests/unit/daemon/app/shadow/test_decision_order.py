"""The order of decisions is reconstructed from later reports in any order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.app.shadow.comparison import BEST, REFUSED, WORSE, ShadowEvaluator, ShadowVerdict
from scheduler.daemon.app.shadow.decision_order import SETTLING_SECONDS, WINDOW_SECONDS, DecisionOrder
from scheduler.daemon.app.shadow.decisions import ShadowedDecision, ShadowedOutcome
from scheduler.daemon.app.shadow.observed_changes import ObservedChange
from scheduler.objects.decode import decode_pod
from tests.support.builders import pod, pod_object
from tests.support.manual_clock import ManualClock
from tests.unit.daemon.app.shadow.changes import Turned

if TYPE_CHECKING:
    from collections.abc import Sequence


ANYWHERE = "anywhere"


class NumberedPlaces(Turned):
    """Give each pod the number of earlier pods; a pod with another number was reported in another order."""

    def __init__(self) -> None:
        self.bound: list[str] = []
        self.is_open = True

    def change(self, old: Any, new: Any) -> None:
        if isinstance(old, bool) or isinstance(new, bool):
            self.is_open = bool(new)
        elif new.node_name:
            self.bound.append(new.uid)
        else:
            self.bound.remove(old.uid)


class Nothing(NumberedPlaces):
    """Changes that have no effect."""

    def change(self, old: Any, new: Any) -> None:
        return


class NumberJudge:
    """Evaluates a decision: the best node has the number of the bound pods."""

    name = "judge"

    def __init__(self, places: NumberedPlaces) -> None:
        self._places = places
        self.asked = 0

    async def judge(self, theirs: ShadowedDecision) -> ShadowVerdict:
        self.asked += 1
        if not self._places.is_open:
            return ShadowVerdict(REFUSED, {}, cast("Any", None), cast("Any", None))
        is_best = theirs.node_name in {ANYWHERE, str(len(self._places.bound))}
        return ShadowVerdict(BEST if is_best else WORSE, {}, cast("Any", None), cast("Any", None))


class JudgedHistory:
    """A history of such decisions.

    Attributes:
        done: the entries that are final, in the order in which they were decided.
    """

    def __init__(self) -> None:
        self.clock, self.places = ManualClock(), NumberedPlaces()
        self.judge = NumberJudge(self.places)
        self.done: list[ObservedChange] = []
        self.history = DecisionOrder(
            [cast("ShadowEvaluator", self.judge)],
            clock=self.clock,
            done=lambda entry, _: self.done.append(entry),
        )

    def place(self, number: int, *, age: int | None = None, to: str = "") -> ObservedChange:
        made = pod_object(f"p{number}")
        # The pod that came first was decided first, unless a test says otherwise.
        made["metadata"]["resourceVersion"] = str(number + 1 if age is None else age)
        old, new = decode_pod(msgspec.json.encode(made)), pod(f"p{number}", node=str(number))
        decision = ShadowedDecision(ShadowedOutcome.PLACED, old, to or str(number))
        entry = ObservedChange(self.places, old, new, 0, self.clock.monotonic(), decision)
        asyncio.run(self.history.append(entry))
        return entry

    def change(self, *, is_open: bool) -> None:
        now = self.clock.monotonic()
        asyncio.run(
            self.history.append(ObservedChange(self.places, not is_open, is_open, 0, now, is_settled=True))
        )

    def settle(self, *, after: float = WINDOW_SECONDS + 1) -> None:
        self.clock.advance(after)
        asyncio.run(self.history.settle(self.clock.monotonic()))

    @property
    def causes(self) -> list[tuple[str, str, bool]]:
        """(pod, cause, whether it was moved), in the order found."""
        return [(each.new.name, each.verdicts[0].cause, each.was_moved) for each in self.done]


def swapped(places: Sequence[int], at: Sequence[int]) -> list[int]:
    found = list(places)
    for each in at:
        found[each], found[each + 1] = found[each + 1], found[each]
    return found


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([0, 1, 2, 3, 4], id="as decided"),
        pytest.param([1, 0, 2, 3, 4], id="two"),
        pytest.param([0, 2, 3, 4, 1], id="one late"),
        pytest.param([4, 0, 1, 2, 3], id="one early"),
        pytest.param([1, 0, 2, 4, 3], id="two pairs"),
    ],
)
def test_a_single_order_explains_every_decision(seen: list[int]) -> None:
    it = JudgedHistory()
    for number in seen:
        it.place(number)

    it.settle()

    assert [name for name, _, _ in it.causes] == ["p0", "p1", "p2", "p3", "p4"]
    assert {cause for _, cause, _ in it.causes} == {BEST}
    assert it.places.bound == [f"uid-of-default-p{number}" for number in range(5)]


@pytest.mark.parametrize("seen", [[1, 0, 2], [0, 2, 1, 3], [2, 0, 1]], ids=str)
def test_pods_that_waited_equally_long_may_be_decided_in_any_order(seen: list[int]) -> None:
    it = JudgedHistory()
    for number in seen:
        it.place(number, age=1)

    it.settle()

    assert [name for name, _, _ in it.causes] == [f"p{number}" for number in sorted(seen)]
    assert {cause for _, cause, _ in it.causes} == {BEST}


@pytest.mark.parametrize("others", [1, 3])
def test_a_decision_may_move_after_any_other_decisions_that_agree(others: int) -> None:
    it = JudgedHistory()
    it.place(others, age=1)
    for number in range(others):
        it.place(number, age=1, to=ANYWHERE)

    it.settle()

    assert it.causes[-1] == (f"p{others}", BEST, True)
    assert {cause for _, cause, _ in it.causes} == {BEST}


def test_a_decision_is_not_moved_over_another_change_of_the_same_pod() -> None:
    it = JudgedHistory()
    it.place(1)
    before, after = pod("p0"), pod("p0", status={"nominatedNodeName": "0"})
    decision = ShadowedDecision(ShadowedOutcome.PREEMPTS, before, "another")
    asyncio.run(
        it.history.append(ObservedChange(Nothing(), before, after, 0, it.clock.monotonic(), decision))
    )
    it.place(0)

    it.settle()

    assert [entry.decision.what for entry in it.done if entry.decision and entry.uid == after.uid] == [
        ShadowedOutcome.PREEMPTS,
        ShadowedOutcome.PLACED,
    ]
    assert ("p1", WORSE, False) in it.causes


@given(st.lists(st.integers(0, 8), max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_decision_is_lost_and_none_counts_twice(at: list[int]) -> None:
    it = JudgedHistory()
    for number in swapped(range(10), at):
        it.place(number)

    it.settle()

    assert sorted(entry.new.name for entry in it.done) == [f"p{number}" for number in range(10)]
    assert sorted(it.places.bound) == sorted(f"uid-of-default-p{number}" for number in range(10))
    assert it.places.bound == [entry.uid for entry in it.done]


def test_a_decision_that_no_order_explains_is_a_disagreement_and_moves_no_others() -> None:
    it = JudgedHistory()
    for number in (0, 1, 7, 3, 4):
        it.place(number)

    it.settle()

    assert [(name, cause) for name, cause, _ in it.causes] == [
        ("p0", BEST),
        ("p1", BEST),
        ("p7", WORSE),
        ("p3", BEST),
        ("p4", BEST),
    ]
    assert not any(was_moved for _, _, was_moved in it.causes)


def test_a_decision_may_precede_a_change_until_it_was_observed() -> None:
    it = JudgedHistory()
    it.place(0)
    it.change(is_open=False)
    it.place(1)

    it.settle()

    assert it.causes == [("p0", BEST, False), ("p1", BEST, True)]
    assert not it.places.is_open


def test_a_decision_follows_an_observed_change() -> None:
    it = JudgedHistory()
    it.change(is_open=False)
    it.settle(after=WINDOW_SECONDS + 1)
    it.place(0)
    it.change(is_open=True)

    it.settle()

    assert it.causes == [("p0", REFUSED, False)]


def test_a_disagreement_keeps_the_mildest_of_its_verdicts() -> None:
    it = JudgedHistory()
    it.place(0)
    it.change(is_open=False)
    it.place(5)

    it.settle()

    assert it.causes == [("p0", BEST, False), ("p5", WORSE, False)]


def test_a_decision_waits_for_others_that_may_have_preceded_it() -> None:
    it = JudgedHistory()
    it.place(1)
    it.settle(after=SETTLING_SECONDS / 2)
    it.place(0)
    it.settle(after=SETTLING_SECONDS)
    it.settle(after=WINDOW_SECONDS)

    assert it.causes == [("p0", BEST, True), ("p1", BEST, True)]


def test_no_order_is_searched_where_everything_agrees() -> None:
    it = JudgedHistory()
    for number in range(50):
        it.place(number)

    it.settle()

    assert (it.judge.asked, it.history.trials) == (50, 0)


def test_the_search_for_one_decision_is_bounded() -> None:
    it = JudgedHistory()
    for number in range(1000):
        it.place(number if number != 500 else 5000)

    it.settle()

    assert [name for name, cause, _ in it.causes if cause != BEST] == ["p5000"]
    assert it.history.trials < 2500


def test_the_total_search_time_is_bounded() -> None:
    it = JudgedHistory()
    it.judge.judge = _slow(it, it.judge.judge)  # type: ignore[method-assign]
    for number in range(100, 140):
        it.place(number)

    it.settle()

    assert len(it.done) == 40
    assert 0 < it.history.unsearched < 40


def _slow(it: JudgedHistory, judging: Any) -> Any:
    async def slowly(theirs: ShadowedDecision) -> ShadowVerdict:
        it.clock.advance(0.1)
        verdict: ShadowVerdict = await judging(theirs)
        return verdict

    return slowly
