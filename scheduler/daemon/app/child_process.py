"""Runs a module in a child process with limited time and memory, because nothing else can end any code in time."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scheduler.worker_thread import TimeLimit, cpu_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class ChildResult(NamedTuple):
    """The end of a child process.

    Attributes:
        output: its standard output.
        status: its exit status; negative is a signal.
        late: the time that it took, if it was ended at its time limit; else "".
        is_given_up: whether it was ended because nobody waits for it any more.
    """

    output: bytes
    status: int | None
    late: str = ""
    is_given_up: bool = False


async def in_a_child(
    module: str,
    given: AsyncIterator[bytes],
    seconds: float,
    is_given_up: Callable[[], bool] = lambda: False,
) -> ChildResult:
    """Run a module in a child process, and end the process with all of its own children at the time limit.

    Args:
        module: its `main` runs as in `python -m`.
        given: pieces of its standard input, each written when the child has read most of those before.
        seconds: the limit, see `TimeLimit`; the time in which the input is made counts.
        is_given_up: returns whether nobody waits for the result any more.
    """
    # In memory: the volume for temporary files may be full.
    with os.fdopen(os.memfd_create("child"), "w+b") as output:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(),
        )
        assert child.stdin is not None
        limit = TimeLimit(seconds, partial(cpu_seconds, child.pid))
        running = asyncio.create_task(_finish(child, child.stdin, given), name=f"child {module}")
        is_late = gives_up = False
        try:
            while not (is_late or gives_up):
                if (await asyncio.wait({running}, timeout=limit.look_seconds))[0]:
                    break
                is_late, gives_up = limit.is_over(), is_given_up()
        finally:
            running.cancel()
            with suppress(ProcessLookupError):  # together with its children
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
            child.stdin.close()
            with suppress(BrokenPipeError, ConnectionResetError):
                await child.stdin.wait_closed()
        if not (is_late or gives_up):
            running.result()
        output.seek(0)
        return ChildResult(output.read(), child.returncode, str(limit) if is_late else "", gives_up)


async def _finish(
    child: asyncio.subprocess.Process, stdin: asyncio.StreamWriter, given: AsyncIterator[bytes]
) -> None:
    """Write the input of a child, and wait for its end; a child need not read all of its input."""
    with suppress(BrokenPipeError, ConnectionResetError):
        async for piece in given:
            stdin.write(piece)
            await stdin.drain()
    stdin.close()
    await child.wait()


def limit_this_process(seconds: int, memory_bytes: int) -> None:
    """Limit the CPU time and the memory of a child process; the time is for a parent that has ended."""
    for what, amount in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(what)
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (amount if most < 0 else min(amount, most), most))
    # If memory runs out nevertheless, the kernel ends this process first.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def ending(status: int | None) -> str:
    """Return the name of the signal that ended a process, or its exit status."""
    if status is not None and status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"status {status}"


def _environment() -> dict[str, str]:
    """Return the environment with this process's import path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
