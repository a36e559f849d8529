"""The virtual-time loop of tests."""

from __future__ import annotations

import asyncio
import threading

import pytest

from scheduler.worker_thread import THREAD_NAME, in_a_thread
from tests.support import virtual_time


async def test_a_read_takes_no_time_even_if_it_ends_while_the_loop_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends, first_look = threading.Event(), iter([True])

    def ends_meanwhile() -> bool:
        threads = [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
        if threads and next(first_look, False):
            return True
        ends.set()
        for thread in threads:
            thread.join()
        return False

    monkeypatch.setattr(virtual_time, "_is_reading", ends_meanwhile)

    await asyncio.wait_for(in_a_thread(ends.wait, "reading", gives_up=False), 1.0)

    assert asyncio.get_running_loop().time() == 0.0


async def test_an_async_test_runs_in_virtual_time() -> None:
    await asyncio.sleep(3600.0)

    assert asyncio.get_running_loop().time() == 3600.0


@pytest.mark.run(by=asyncio.run)
async def test_an_async_test_runs_with_the_function_of_its_mark() -> None:
    assert not isinstance(asyncio.get_running_loop(), virtual_time.VirtualTimeLoop)
