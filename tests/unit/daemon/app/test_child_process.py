"""Child processes end with their work, at their limits, or when nobody waits for them; these tests start real ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.app.child_process import ending, in_a_child

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.run(by=asyncio.run)

ECHO = "base64"
"""A module of Python that writes its standard input, encoded."""


async def nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def two_pieces() -> AsyncIterator[bytes]:
    yield b"ab"
    await asyncio.sleep(0)
    yield b"cd"


async def test_a_child_process_reads_all_pieces_of_its_input() -> None:
    assert (await in_a_child(ECHO, two_pieces(), 60.0)).output == b"YWJjZA==\n"


async def test_a_child_process_ends_when_nobody_waits_for_it() -> None:
    ended = await in_a_child(ECHO, nothing(), 4.0, lambda: True)

    assert (ended.is_given_up, ended.late, ending(ended.status)) == (True, "", "SIGKILL")


async def test_a_child_process_without_input_ends_at_its_limit() -> None:
    ended = await in_a_child(ECHO, nothing(), 0.5)

    assert ended.late.startswith("more than ")
    assert ending(ended.status) == "SIGKILL"


async def test_a_child_process_that_reads_no_input_does_not_fail_its_parent() -> None:
    async def much() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100_000

    assert ending((await in_a_child("no_such_module", much(), 60.0)).status) == "status 1"
