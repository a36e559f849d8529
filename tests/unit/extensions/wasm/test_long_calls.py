"""Guests that need more time than one slice get it, and the event loop continues."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from itertools import count
from math import inf
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pytest

from scheduler.engine.runtime.adapters import outcomes_of
from scheduler.engine.runtime.calls import NodeError
from scheduler.extensions.wasm import call_context, guest_pool
from scheduler.extensions.wasm.guest import GuestError, GuestTimeError
from scheduler.extensions.wasm.instance import Instance
from scheduler.framework import Code, CycleState, NeedsTime
from scheduler.framework.sliced_work import answer_to_end
from scheduler.loop_work import run_to_end
from scheduler.objects.wording import Duration
from scheduler.testing.fakes import FakeTimeSlice
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.support.guests import LOOPS, TRAPS, KeptEvents, guest, wat

SNAPSHOT = cluster(*(node(f"n{number}") for number in range(20))).snapshot()
POD = pod("web", cpu="1")
SHORT = Duration(100_000_000)
LONG = Duration(5_000_000_000)
WORK = """(local $n i64)
  (loop $on
    (local.set $n (i64.add (local.get $n) (i64.const 1)))
    (br_if $on (i64.ne (local.get $n) (i64.const 600000000))))"""
"""More than a tenth of a second of work."""

Call = tuple[str, bool, float]
ATTEMPTS = count(1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What guests are asked: the function, whether on the event loop, and how long it may take."""
    made: list[Call] = []
    really = Instance.call

    def call(self: Instance, export: str, about: Any, seconds: float) -> int:
        made.append((export, threading.current_thread() is threading.main_thread(), seconds))
        return really(self, export, about, seconds)

    monkeypatch.setattr(Instance, "call", call)
    return made


def limited(*, each_reading: float = 0.0) -> FakeTimeSlice:
    limit = FakeTimeSlice()
    limit.slice_seconds, limit.each_reading = 0.005, each_reading
    return limit


def new_state(attempt: int) -> CycleState:
    state = CycleState()
    state.attempt = attempt
    return state


def asked(plugin: Any) -> Any:
    """Ask about the first node in an attempt, which starts again where the guest needs time."""
    attempt = next(ATTEMPTS)
    return answer_to_end(lambda: plugin.filter_node(new_state(attempt), POD, SNAPSHOT.node_info(0)))


def test_results_are_kept_while_another_plugin_needs_time_in_the_same_attempt(calls: list[Call]) -> None:
    plugin = guest(wat('(func (export "filter") (result i32) (i32.const 0))'), time_slice=limited())
    for attempt in (1, 1, 2, 2, 2):
        plugin.filter_node(new_state(attempt), POD, SNAPSHOT.node_info(0))

    assert len(calls) == 2


def test_an_endless_guest_holds_the_event_loop_for_one_short_call_only(calls: list[Call]) -> None:
    plugin = guest(LOOPS, time_limit=SHORT, time_slice=limited())

    for _ in range(3):
        with pytest.raises(GuestTimeError, match="filter error: stopped"):
            asked(plugin)

    assert [in_loop for _, in_loop, _ in calls] == [True, False, False, False]
    assert calls[0][2] == pytest.approx(guest_pool.CALL_SECONDS, abs=0.01)


def test_a_call_longer_than_a_slice_returns_its_result(calls: list[Call]) -> None:
    content = wat(f'(func (export "filter") (result i32) {WORK} (i32.const 2))')
    plugin = guest(content, time_limit=LONG, time_slice=limited())

    assert asked(plugin).is_rejected
    assert asked(plugin).is_rejected
    assert [in_loop for _, in_loop, _ in calls] == [True, False, False]


def test_calls_return_to_the_event_loop_once_they_are_short(calls: list[Call]) -> None:
    plugin = guest(wat('(func (export "filter") (result i32) (i32.const 0))'), time_slice=limited())
    plugin._pool.long.add("filter")  # as after a call that was long because the machine was busy

    assert asked(plugin).is_success
    assert asked(plugin).is_success
    assert [in_loop for _, in_loop, _ in calls] == [False, True]


def test_calls_that_are_long_in_total_yield_and_evaluate_each_node_once(calls: list[Call]) -> None:
    content = wat(
        """(func (export "prefilter") (result i32) (i32.const 0))
        (func (export "filter") (result i32) (i32.const 0))"""
    )
    limit = limited(each_reading=0.01)  # a turn is over after a few calls
    plugin, times = guest(content, time_slice=limit), 0

    def ask() -> Any:
        nonlocal times
        times += 1
        state = CycleState()
        plugin.pre_filter(state, POD, SNAPSHOT)
        try:
            return outcomes_of(plugin, state, POD, SNAPSHOT, SNAPSHOT.all_rows)
        except NodeError as error:
            raise error.cause from None

    outcomes = answer_to_end(ask)

    assert np.all(outcomes.index == 0)
    assert [export for export, *_ in calls] == ["prefilter", *["filter"] * SNAPSHOT.n_nodes]
    assert times > 3


def test_a_function_that_was_stopped_runs_in_a_thread_until_the_attempt_ends(
    calls: list[Call],
) -> None:
    class AlwaysOver(FakeTimeSlice):
        def measured(self, is_so: bool, what: str = "") -> bool:
            return True

    limit = AlwaysOver()
    limit.slice_seconds = 0.005
    plugin = guest(wat('(func (export "filter") (result i32) (i32.const 0))'), time_slice=limit)
    rows = np.arange(3, dtype=np.intp)

    def ask() -> Any:
        assert len(calls) < 20, "it is stopped again and again"
        try:
            return outcomes_of(plugin, CycleState(), POD, SNAPSHOT, rows)
        except NodeError as error:
            raise error.cause from None

    answer_to_end(ask)

    assert [in_loop for _, in_loop, _ in calls] == [True, False, False, False]


def test_a_changed_node_is_evaluated_again(calls: list[Call]) -> None:
    plugin = guest(
        wat('(func (export "filter") (result i32) (i32.const 0))'), time_slice=limited(each_reading=1.0)
    )
    with pytest.raises(NeedsTime) as needs:
        plugin.filter_node(CycleState(), POD, SNAPSHOT.node_info(0))
    run_to_end(needs.value.steps)

    changed = cluster(node("n0", labels={"changed": "yes"})).snapshot()
    with pytest.raises(NeedsTime):
        plugin.filter_node(CycleState(), POD, changed.node_info(0))

    assert len(calls) == 2


def test_a_result_from_before_a_pod_update_is_not_reused(
    calls: list[Call],
) -> None:
    content = wat(
        """(func (export "addpod") (result i32) (i32.const 0))
        (func (export "filter") (result i32) (i32.const 0))"""
    )
    plugin, state = guest(content, time_slice=limited()), CycleState()
    other = pod("other")

    for _ in range(2):  # the second time as in an attempt that begins again
        plugin.filter_node(state, POD, SNAPSHOT.node_info(0))
        plugin.add_pods(state, POD, [(0, other)], SNAPSHOT)
        plugin.filter_node(state, POD, SNAPSHOT.node_info(0))
        plugin._flight(state, POD).begin(0)

    assert [export for export, *_ in calls] == ["filter", "addpod", "filter"]


READS_ALL_NODES = wat(
    """(func (export "filter") (result i32)
      (i32.gt_u (call $node_list (i32.const 0) (i32.const 0)) (i32.const 100)))"""
)
"""Filter: asks for all nodes, and answers 1 where they are more than 100 bytes."""


def test_nodes_that_take_long_to_write_are_written_in_a_thread(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is always too late.
    monkeypatch.setattr(call_context, "time", SimpleNamespace(perf_counter=lambda: inf))
    plugin = guest(READS_ALL_NODES, time_slice=limited())

    assert asked(plugin).code is Code.ERROR
    assert [in_loop for _, in_loop, _ in calls] == [True, False]


def test_an_event_of_a_long_call_is_recorded_on_the_event_loop() -> None:
    threads: list[threading.Thread] = []

    class Events(KeptEvents):
        def record(self, *args: Any, **kwargs: Any) -> None:
            threads.append(threading.current_thread())

    event = '{"RegardingReference":{"Kind":"Pod","Name":"web"}}'
    content = wat(
        f"""(func (export "filter") (result i32)
          (call $eventf (i32.const 16) (i32.const {len(event)})) (i32.const 0))""",
        data=event,
    )
    plugin = guest(content, events=Events(), time_slice=limited())
    plugin._pool.long.add("filter")

    assert asked(plugin).is_success
    assert threads == [threading.main_thread()]
    assert "filter" not in plugin._pool.long


def test_an_abandoned_long_call_leaves_no_instance_behind() -> None:
    plugin = guest(LOOPS, time_limit=SHORT, time_slice=limited())
    plugin._pool.long.add("filter")

    def begin_and_give_up() -> None:
        try:
            plugin.filter_node(CycleState(), POD, SNAPSHOT.node_info(0))
        except NeedsTime as needs:
            next(needs.steps)
            needs.steps.close()

    begin_and_give_up()
    for thread in threading.enumerate():
        if thread.name == "wasm-guest":
            thread.join()

    assert plugin._pool._idle == []


@pytest.mark.parametrize("export", ["reserve", "permit"])
def test_calls_from_reserve_on_have_a_tenth_of_a_second_each(export: str, calls: list[Call]) -> None:
    result = "i64" if export == "permit" else "i32"
    plugin = guest(
        wat(f'(func (export "{export}") (result {result}) ({result}.const 0))'), time_slice=limited()
    )

    getattr(plugin, export)(CycleState(), POD, "n0")

    assert calls == [(export, True, pytest.approx(guest_pool.LAST_CALL_SECONDS, abs=0.01))]


def test_offline_a_call_may_use_the_whole_time_limit_of_the_guest(calls: list[Call]) -> None:
    assert FakeTimeSlice().slice_seconds == inf
    plugin = guest(wat('(func (export "filter") (result i32) (i32.const 0))'), time_limit=LONG)

    assert asked(plugin).is_success
    assert calls[0][1]
    assert calls[0][2] > 1


@pytest.mark.parametrize("content", [LOOPS, TRAPS], ids=["loops", "traps"])
@pytest.mark.parametrize("is_long", [False, True], ids=["on the loop", "in a thread"])
def test_the_memory_of_a_failed_guest_does_not_wait_for_the_garbage_collector(
    content: bytes, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ref[Instance]] = []
    really = Instance.call

    def call(self: Instance, export: str, about: Any, seconds: float) -> int:
        seen.append(ref(self))
        return really(self, export, about, seconds)

    monkeypatch.setattr(Instance, "call", call)
    plugin = guest(content, time_limit=Duration(20_000_000), time_slice=limited())
    if is_long:
        plugin._pool.long.add("filter")
    gc.collect()
    gc.disable()
    try:
        with suppress(GuestError):
            asked(plugin)
        left = [instance for instance in seen if instance() is not None]
    finally:
        gc.enable()

    assert len(seen) == 1
    assert not left


def test_the_instance_of_a_long_call_is_free_again_without_the_garbage_collector() -> None:
    plugin = guest(wat('(func (export "filter") (result i32) (i32.const 0))'), time_slice=limited())
    plugin._pool.long.add("filter")
    gc.disable()
    try:
        assert asked(plugin).is_success
        plugin._pool.begin(POD, next(ATTEMPTS))
        assert len(plugin._pool._idle) == 1
    finally:
        gc.enable()
