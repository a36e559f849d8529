"""Other processes and threads: running programs, and waiting for what they do."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_PATIENCE_SECONDS = 120.0


@asynccontextmanager
async def started(*command: object, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program, silent unless the options of `create_subprocess_exec` say otherwise, and kill it at the end."""
    silent = asyncio.subprocess.DEVNULL
    streams = {"stdout": silent, "stderr": silent, **options}
    process = await asyncio.create_subprocess_exec(*map(str, command), **streams)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds that another process or thread fulfils; a coroutine asks less often."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                found = holds()
                if not inspect.isawaitable(found):
                    pause = 0.02
                else:
                    pause, found = 0.1, await found
                if found:
                    return
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"it does not hold after {_PATIENCE_SECONDS} s: {holds}") from None
