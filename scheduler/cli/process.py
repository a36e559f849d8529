"""The process of a command: its event loop, signals, flags, and command line."""

from __future__ import annotations

import asyncio
import ctypes
import shlex
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.cli.options import choice_option, file_option, option
from scheduler.daemon.logs import LogFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

kubeconfig_option = file_option(
    "--kubeconfig",
    help="Kubeconfig of the API server; without it, $KUBECONFIG, and else the ServiceAccount of this pod.",
)
context_option = partial(
    option, "--context", metavar="NAME", help="Context of the kubeconfig; without it, the current one."
)
logging_format_option = choice_option(
    LogFormat,
    "--logging-format",
    help="Format of log lines; without it, text on a terminal and JSON elsewhere.",
)


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does; in uvloop's faster loop where it is installed."""
    try:
        from uvloop import new_event_loop  # it does not install everywhere
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def call_on_signal(name: signal.Signals, called: Callable[[], None]) -> None:
    """Call a function in the running loop whenever the process receives a signal, instead of its default action."""
    asyncio.get_running_loop().add_signal_handler(name, called)


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; a second SIGINT (Ctrl-C) kills the process."""
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
    """Let the kernel remove a signal's handler after its first call, so that the second signal ends the process.

    Without this, the second signal waits for the event loop, which a plugin may block, or for the interpreter, which a
    call into C may block. Where the C library cannot do this (musl, macOS), the loop removes the handler later.
    """
    install = getattr(ctypes.CDLL(None), "sysv_signal", None)
    if install is not None:
        installed = ctypes.pythonapi.PyOS_getsig
        installed.argtypes, installed.restype = [ctypes.c_int], ctypes.c_void_p
        install.argtypes, install.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        install(name, installed(name))


def program() -> str:
    """Return the command that runs this program in any folder and terminal, quoted for a shell.

    The PATH of another terminal may not have the virtual environment, so a program in one has its whole path.
    """
    called = Path(sys.argv[0])
    if called.name == "__main__.py" or not called.is_file():
        return f"{python()} -m scheduler"
    if sys.prefix == sys.base_prefix and shutil.which(called.name) is not None:
        return called.name
    return shlex.quote(str(called.absolute()))


def python() -> str:
    """Return the command that runs this Python, quoted for a shell."""
    return shlex.quote(sys.executable)
