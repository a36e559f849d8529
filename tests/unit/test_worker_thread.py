"""Work in a thread returns its result, and the event loop never waits forever."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from scheduler import worker_thread

pytestmark = pytest.mark.run(by=asyncio.run)


def test_it_returns_or_raises_the_result_of_the_work() -> None:
    assert asyncio.run(worker_thread.in_a_thread(lambda: threading.current_thread().name, "work")) == "aside"

    def fails() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        asyncio.run(worker_thread.in_a_thread(fails, "work"))


def test_endless_work_is_abandoned_and_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_thread, "LONGEST_SECONDS", 0.2)
    ended = threading.Event()

    def endless() -> None:
        try:
            while True:
                pass
        finally:
            ended.set()

    with pytest.raises(worker_thread.TookTooLongError):
        asyncio.run(worker_thread.in_a_thread(endless, "work"))
    assert ended.wait(10)


class Work:
    """Work elsewhere, of which it is said how much it computed by when."""

    def __init__(self, seconds: float) -> None:
        self.now = self.computed = 0.0
        self.limit = worker_thread.TimeLimit(seconds, lambda: self.computed, lambda: self.now)

    def seconds_until_given_up(self, share: float) -> float:
        """Go on with a share of a processor, until the time is over."""
        while not self.limit.is_over():
            self.now += self.limit.look_seconds
            self.computed += share * self.limit.look_seconds
        return self.now


@pytest.mark.parametrize(
    ("share", "seconds"),
    [
        pytest.param(1.0, 60, id="computing on a machine of its own"),
        pytest.param(0.0, 60, id="asleep"),
        pytest.param(0.01, 60, id="polling"),
        pytest.param(0.5, 120, id="computing on a busy machine"),
        pytest.param(0.1, 600, id="computing on a very busy machine"),
        pytest.param(0.03, 600, id="computing where there is hardly a processor left"),
    ],
)
def test_time_that_work_waits_for_a_cpu_does_not_count(share: float, seconds: float) -> None:
    work = Work(60.0)

    assert seconds <= work.seconds_until_given_up(share) < seconds + 4
    assert str(work.limit).startswith("more than 60 seconds (")


def test_without_the_cpu_time_of_work_all_time_counts() -> None:
    now = 0.0
    limit = worker_thread.TimeLimit(10.0, lambda: None, lambda: now)
    for now in (0.0, 5.0, 9.5):  # noqa: B007 - the clock reads it
        assert not limit.is_over()
    now = 10.0
    assert limit.is_over()


def test_the_cpu_time_of_a_running_process_and_thread_is_known() -> None:
    assert (worker_thread.cpu_seconds() or 0.0) > 0.0
    assert (worker_thread.cpu_seconds(thread=threading.get_native_id()) or 0.0) > 0.0
    assert worker_thread.cpu_seconds(0) is None


def test_time_waiting_for_a_cpu_is_neither_computing_nor_sleeping() -> None:
    began, computed, waited = time.monotonic(), time.process_time(), worker_thread.waited_seconds()
    while time.process_time() - computed < 0.3:
        pass
    passed = time.monotonic() - began
    assert worker_thread.waited_seconds() - waited == pytest.approx(passed - 0.3, abs=0.1 * passed)


async def test_a_wait_is_logged_repeatedly_or_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_thread, "LONGEST_SECONDS", 0.1)
    goes_on = threading.Event()

    reported = r"importing it takes more than 0 seconds \(0\.\d s of CPU in 0 s\)"
    with pytest.raises(worker_thread.TookTooLongError, match=reported):
        await worker_thread.in_a_thread(goes_on.wait, "importing it")
    waiting = asyncio.create_task(worker_thread.in_a_thread(goes_on.wait, "importing it", gives_up=False))
    while len(caplog.records) < 2:  # noqa: ASYNC110 - nothing tells of a log line
        await asyncio.sleep(0.01)
    goes_on.set()
    assert await waiting
    assert {(each.message, vars(each)["what"]) for each in caplog.records} == {
        ("Still waiting", "importing it")
    }


async def test_shutdown_waits_for_no_work() -> None:
    goes_on = threading.Event()

    waiting = asyncio.create_task(worker_thread.in_a_thread(goes_on.wait, "waiting", gives_up=False))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    goes_on.set()


@pytest.mark.parametrize("gives_up", [True, False])
async def test_cancellation_interrupts_only_work_that_may_be_given_up(*, gives_up: bool) -> None:
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    interrupted: list[str] = []

    def work() -> None:
        try:
            began.set()
            while not goes_on.wait(0.001):
                pass
        except BaseException as error:
            interrupted.append(type(error).__name__)
            raise
        finally:
            ended.set()

    waiting = asyncio.create_task(worker_thread.in_a_thread(work, "work", gives_up=gives_up))
    while not began.is_set():  # noqa: ASYNC110 - the thread has only its event to tell
        await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not gives_up:
        goes_on.set()
    assert ended.wait(10)
    assert interrupted == (["_GivenUpError"] if gives_up else [])
