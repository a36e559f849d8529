"""What the commands that go on until they are ended share: their loop, their end, and their flags."""

from __future__ import annotations

import asyncio
import ctypes
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
    """Return what is set once the process is told to end; from now on that does not kill it, but a second Ctrl-C does."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    _kill_by_the_second(signal.SIGINT)
    return stop


def _kill_by_the_second(name: signal.Signals) -> None:
    """Have the kernel take a signal's handler away once it was called, so that the next one ends the process.

    Else that would wait for the loop, which a plugin may hold, or even for the interpreter, which a call into C may keep.
    Where the C library cannot do so (musl, macOS), the loop does it once it has a turn.
    """
    install = getattr(ctypes.CDLL(None), "sysv_signal", None)
    if install is not None:
        installed = ctypes.pythonapi.PyOS_getsig
        installed.argtypes, installed.restype = [ctypes.c_int], ctypes.c_void_p
        install.argtypes, install.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        install(name, installed(name))
