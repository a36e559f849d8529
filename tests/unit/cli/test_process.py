from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scheduler.cli.process import run_in_loop

if TYPE_CHECKING:
    from collections.abc import Sequence


async def _loop() -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]


def test_commands_that_serve_run_in_uvloop():
    assert run_in_loop(_loop()) == "uvloop"


def test_without_uvloop_commands_run_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert run_in_loop(_loop()) == "asyncio"


STOPPED = """
import asyncio, signal, sys
from scheduler.cli.process import run_in_loop, stop_on_signals

async def main():
    stop = stop_on_signals()
    for name in sys.argv[1:]:
        signal.raise_signal(int(name))
    await stop.wait()
    print("in good order")

run_in_loop(main())
"""


@pytest.mark.parametrize(
    ("signals", "status"),
    [
        pytest.param([signal.SIGINT], 0, id="one interrupt"),
        pytest.param([signal.SIGTERM, signal.SIGTERM], 0, id="a second signal of the kubelet"),
        pytest.param([signal.SIGTERM, signal.SIGINT], 0, id="one of each"),
        pytest.param(
            [signal.SIGINT, signal.SIGINT], -signal.SIGINT, id="two interrupts, and no turn between"
        ),
    ],
)
def test_a_command_ends_cleanly_unless_it_is_interrupted_twice(
    signals: Sequence[signal.Signals], status: int
):
    command = [sys.executable, "-c", STOPPED, *(str(int(name)) for name in signals)]

    done = subprocess.run(command, capture_output=True, timeout=60, check=False)

    assert done.returncode == status
    assert done.stdout == (b"in good order\n" if status == 0 else b"")
