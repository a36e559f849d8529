"""Work aside: what it comes to, and that the loop waits for none of it for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from scheduler.app import aside


def test_it_comes_to_what_the_work_returns_or_raises() -> None:
    assert asyncio.run(aside.in_a_thread(lambda: threading.current_thread().name)) == "aside"

    def fails() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        asyncio.run(aside.in_a_thread(fails))


def test_work_without_end_is_given_up_and_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "LONGEST_SECONDS", 0.2)
    ended = threading.Event()

    def endless() -> None:
        try:
            while True:
                pass
        finally:
            ended.set()

    with pytest.raises(aside.TookTooLongError):
        asyncio.run(aside.in_a_thread(endless))
    assert ended.wait(10)
