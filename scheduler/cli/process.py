"""What the commands that go on until they are ended share: their loop, their end, and their flags."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.cli.options import choice_option, file_option
from scheduler.logs import LogFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

kubeconfig_option = file_option(
    "--kubeconfig",
    help="How to reach the API server; without it, as $KUBECONFIG says, and without that as a pod in the cluster.",
)
logging_format_option = choice_option(
    LogFormat,
    "--logging-format",
    help="How log lines look; without it, text on a terminal and JSON elsewhere.",
)


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does, in uvloop's loop, which costs less, where it installs."""
    try:
        from uvloop import new_event_loop  # it does not install everywhere
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def call_on_signal(name: signal.Signals, called: Callable[[], None]) -> None:
    """Have something called in the running loop whenever the process gets a signal, instead of what it does otherwise."""
    asyncio.get_running_loop().add_signal_handler(name, called)


def stop_on_signals() -> asyncio.Event:
    """Return what is set once the process is told to end; from now on that does not kill it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop
