"""The work that blocks the loop is named."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.app.loop_watch import LoopWatch, holder_in, watching_loop
from scheduler.daemon.metrics import Metrics
from scheduler.engine.cycle.event_handlers import EventHandler
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.shared import Shared
from scheduler.loop_work import loop_work
from tests.support.builders import node, pod
from tests.support.manual_clock import ManualClock
from tests.unit.engine.queue.cluster import NODE_LABEL, Cluster

if TYPE_CHECKING:
    from scheduler.daemon.app.loop_watch import Holder

pytestmark = pytest.mark.run(by=asyncio.run)


def test_a_description_reads_only_parameters_of_its_function() -> None:
    with pytest.raises(TypeError, match="run has no parameter speed"):
        loop_work("event", lambda speed: f"at {speed}")(LoopWatch.run)


def here() -> Holder:
    return holder_in(sys._getframe(1))


def test_a_hint_is_named_with_plugin_pod_and_event(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    seen: list[Holder] = []
    monkeypatch.setattr(cluster.counts, "hint_asked", lambda *_: seen.append(here()))
    cluster.reject(pod("web"), "Broken")

    cluster.queue.move_all(NODE_LABEL, node("n1"), node("n1"))

    assert seen[0].kind == "queue"
    assert seen[0].what == "requeueing by NodeUpdateNodeLabel, hint of plugin Broken for pod default/web"
    assert "test_loop_watch.py" in seen[0].where


def test_an_event_is_named_with_its_object() -> None:
    seen: list[Holder] = []

    class Slow(EventHandler[Any]):
        def _added(self, obj: Any) -> Any:
            seen.append(here())
            return ()

        def _updated(self, old: Any, new: Any) -> Any:
            return ()

        def _deleted(self, old: Any) -> Any:
            return ()

        def _undecodable(self, identity: Any, error: Any) -> None: ...

    Slow(Shared(ManualClock(0.0), NoObserver())).on_add(pod("web"))

    assert (seen[0].kind, seen[0].what) == ("event", "Slow: added default/web")


def test_work_without_a_name_is_shown_by_its_line() -> None:
    assert here().kind == "other"
    assert here().what == ""
    assert here().where.endswith("test_work_without_a_name_is_shown_by_its_line")


def test_work_whose_arguments_have_changed_is_named_by_its_function() -> None:
    @loop_work("event", lambda name: f"event of {name}")
    def work(name: str) -> Holder:
        del name
        return here()

    assert work("web").what.endswith("work")


class Watched:
    """A loop watch whose clock the test sets."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.metrics = Metrics()
        self.watch = LoopWatch(self.metrics.loop, self.clock.monotonic)

    def shown(self, name: str) -> list[str]:
        return [line for line in self.metrics.text()[0].decode().splitlines() if line.startswith(name)]


def test_a_stall_is_reported_while_it_lasts_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    with caplog.at_level(logging.WARNING):
        it.clock.advance(1.5)
        it.watch.look(sys._getframe())
        it.clock.advance(1.0)
        it.watch.look(sys._getframe())
        it.watch.had_turn(2.5, 0.75)

    assert [record.message for record in caplog.records] == ["The loop is held", "The loop was held"]
    assert caplog.records[1].__dict__["seconds"] == 2.5
    assert caplog.records[1].__dict__["cpu_seconds"] == 0.75
    assert it.shown("custom_scheduler_loop_stalls_total") == [
        'custom_scheduler_loop_stalls_total{holder="other"} 1.0'
    ]
    assert it.shown("custom_scheduler_loop_longest") == [
        'custom_scheduler_loop_longest_stall_seconds{holder="other"} 2.5'
    ]


def test_a_loop_in_time_is_measured_and_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    it.clock.advance(0.1)
    it.watch.look(sys._getframe())
    it.watch.had_turn(0.02, 0.1)

    assert not caplog.records
    assert it.shown("custom_scheduler_loop_lag_seconds_count") == [
        "custom_scheduler_loop_lag_seconds_count 1.0"
    ]


def test_the_processor_time_before_the_delay_does_not_count_as_delay() -> None:
    it = Watched()
    it.watch.had_turn(0.02, 0.1)

    assert it.shown("custom_scheduler_loop_lag_cpu_seconds_sum") == [
        "custom_scheduler_loop_lag_cpu_seconds_sum 0.02"
    ]


@pytest.mark.parametrize("is_busy", [False, True])
async def test_the_processor_time_of_a_delay_is_that_of_the_loop(is_busy: bool) -> None:
    lags: list[tuple[float, float]] = []

    class Lags:
        def lagged(self, *lag: float) -> None:
            lags.append(lag)

    running = asyncio.create_task(LoopWatch(Lags()).run())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    if is_busy:
        end = time.thread_time() + 0.5
        while time.thread_time() < end:
            pass
    else:
        time.sleep(0.5)  # noqa: ASYNC251 - it blocks the loop without the processor
    while not lags:  # noqa: ASYNC110 - the delay is recorded by another task
        await asyncio.sleep(0)
    running.cancel()

    late, cpu = lags[0]
    assert late >= 0.35
    assert (cpu > 0.3) == is_busy


def test_garbage_collection_is_reported_separately(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    it.watch.collecting("start", {})
    it.clock.advance(1.2)
    it.watch.collecting("stop", {})
    it.watch.had_turn(1.3, 1.3)

    assert caplog.records[0].__dict__["holder"] == "garbage collection"


async def test_a_thread_sees_the_work_that_blocks_a_real_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = threading.Event()
    frames: list[Any] = []

    def look(_watch: LoopWatch, frame: Any) -> None:
        frames.append(frame)
        seen.set()

    monkeypatch.setattr(LoopWatch, "look", look)

    async with watching_loop(Metrics().loop):
        assert seen.wait(10), "nobody looked"
    assert frames[0] is not None
