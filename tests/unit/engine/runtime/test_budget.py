"""A time slice is charged only for its own time, and the error names the plugin that used it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.runtime.budget import AttemptUsage, LoopBudget, OverBudgetError
from scheduler.framework import Plugin
from tests.support.scripted_plugins import NodeFilter, Reserve, framework_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Ours(Plugin):
    """A plugin that looks like an in-tree plugin."""

    name = "Ours"


Ours.__module__ = "plugins.ours"
OURS = Ours()
THEIRS = NodeFilter("Theirs")


class Machine(LoopBudget):
    """A budget with a virtual clock, whose alarm fires when a test advances the clock."""

    def __init__(self) -> None:
        self.time = self.processor = self.waiting = 0.0
        super().__init__(lambda: self.time, seconds=0.5, used=lambda: self.processor)
        self._has_clock = True
        self.due: float | None = None

    def _tick_in(self, seconds: float) -> None:
        self._is_ticking = True
        self._armed = self.time, self.processor, seconds
        self._collected = 0.0
        self.due = self.time + seconds

    def _waited(self) -> float:
        return self.waiting

    def pass_(self, seconds: float, *, used: float = 0.0, waited: float = 0.0, late: float = 0.0) -> None:
        """Advance the clock; the thread runs for a part of the time, and waits for the CPU for another part."""
        pieces = 1000
        for _ in range(pieces):
            self.time += seconds / pieces
            self.processor += used / pieces
            self.waiting += waited / pieces
            if self.due is not None and self.time >= self.due + late:
                self.due = None
                self._on_alarm(signal.SIGALRM, None)


def in_a_slice(test: Callable[[Machine], None]) -> Callable[[], None]:
    """Run a test in a slice."""

    def run() -> None:
        budget = Machine()
        budget.run_slice(test, budget)

    return run


@in_a_slice
def test_a_slow_in_tree_plugin_is_named(budget: Machine) -> None:
    budget.call(OURS, budget.pass_, 0.6)
    assert not budget.is_spent
    budget.call(OURS, lambda: budget.pass_(0.6, used=0.6))
    with pytest.raises(
        OverBudgetError, match=r'more than 0\.5s had passed when plugin "Ours" was done'
    ) as over:
        budget.call(THEIRS, lambda: None)
    assert over.value.used_by is OURS


def test_a_plugin_that_did_not_run_is_not_blamed() -> None:
    budget = Machine()

    def heavy(*_: Any) -> None:
        budget.pass_(1.0, used=1.0)

    first, second = Reserve("First", reserve=heavy), Reserve("Second")
    framework = framework_of(first, second, budget=budget)

    async def reserve() -> Any:
        return framework.run_reserve(None, None, "n1")  # type: ignore[arg-type]

    status = run_now(_awaited(budget.run_in_slices(reserve())))
    assert status.plugin == "First"
    assert 'over budget: more than 0.5s had passed when plugin "First" was done' in status.message
    assert second.called() == []


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


@in_a_slice
def test_time_of_other_processes_is_not_charged(budget: Machine) -> None:
    budget.call(OURS, lambda: budget.pass_(60.0, used=0.3, waited=59.7))
    assert not budget.is_spent
    budget.call(THEIRS, lambda: budget.pass_(30.0, used=0.05, waited=29.9))
    assert not budget.is_spent


def test_time_used_before_the_start_is_not_charged() -> None:
    budget = Machine()
    budget.run_slice(lambda: None)
    budget.pass_(0.45, used=0.45)

    def slice_() -> None:
        budget.pass_(0.4, used=0.4)
        assert not budget.is_spent
        budget.pass_(0.4, used=0.4)
        assert budget.is_spent

    budget.run_slice(slice_)


@in_a_slice
def test_the_time_of_garbage_collection_is_not_charged(budget: Machine) -> None:
    budget._on_collection("start", {"generation": 2})
    budget.pass_(0.45, used=0.45)
    budget._on_collection("stop", {"generation": 2})
    budget.pass_(0.2, used=0.2)
    assert not budget.is_spent


@in_a_slice
def test_sleeping_is_charged_and_waiting_for_the_cpu_is_not(budget: Machine) -> None:
    budget.call(THEIRS, lambda: budget.pass_(5.0, waited=4.9))
    assert not budget.is_spent
    budget.call(THEIRS, lambda: budget.pass_(1.2))
    assert budget.is_spent


def test_a_suspended_process_is_not_charged_and_a_long_c_call_is() -> None:
    budget = Machine()

    def is_charged(used: float) -> bool:
        budget.call(THEIRS, lambda: budget.pass_(10.0, used=used, late=9.0))
        return budget.is_spent

    assert not budget.run_slice(is_charged, 0.0)
    assert budget.run_slice(is_charged, 10.0)


def test_an_attempt_of_many_slices_ends_when_their_sum_reaches_its_limit() -> None:
    budget, usage = Machine(), AttemptUsage(limit=2.0)
    for number in range(7):
        over = budget.run_slice(lambda: budget.is_spent, usage=usage)
        assert not over, number
        budget.run_slice(lambda: budget.pass_(0.3, used=0.3), usage=usage)
        budget.pass_(5.0, used=5.0)  # time that other tasks use in between
    with pytest.raises(OverBudgetError, match="more than 2s"):
        budget.run_slice(budget.call, OURS, lambda: None, usage=usage)


def test_the_longest_block_beyond_the_budget_is_recorded() -> None:
    budget, usage = Machine(), AttemptUsage()
    budget.run_slice(lambda: budget.pass_(0.4, used=0.4), usage=usage)
    assert usage.longest == 0.0
    budget.run_slice(lambda: budget.pass_(3.0, used=3.0), usage=usage)
    assert usage.longest == pytest.approx(3.0)


def test_plugins_called_after_a_slice_do_not_pay_for_it() -> None:
    budget = Machine()

    def attempt() -> str:
        budget.pass_(1.0, used=1.0)
        assert budget.is_spent
        return budget.run_after_slice(budget.call, THEIRS, lambda: "called")

    assert budget.run_slice(attempt) == "called"


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_cleanup_has_time_and_only_an_attempt_that_goes_on_has_it_afterwards(goes_on: bool) -> None:
    budget = Machine()

    def attempt() -> tuple[bool, bool]:
        budget.pass_(1.0, used=1.0)
        budget.run_cleanup(lambda: is_spent.append(budget.is_spent), goes_on=goes_on)
        budget.pass_(0.3, used=0.3)
        return is_spent[0], budget.is_spent

    is_spent: list[bool] = []
    assert budget.run_slice(attempt) == (False, not goes_on)
