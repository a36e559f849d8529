"""The process that forks commands: `python -m tests.support.command_server LISTENER`.

Its input ends with the process that started it, also if that is killed. Then it kills the forked processes and ends.
"""

from __future__ import annotations

import atexit
import gc
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.forked_command import ANSWER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_STREAMS = 3
_OPEN_FILES = 1024


class _Server:
    """Forks a process for each connection, and sends its exit status; kills it if the connection ends before."""

    def __init__(self, listener: socket.socket) -> None:
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(0, selectors.EVENT_READ, self._kill_all)
        self._waiting.register(listener, selectors.EVENT_READ, partial(self._fork, listener))
        self._running: set[int] = set()  # pidfds of the forked processes

    def serve(self) -> Callable[[], None] | None:
        """Return the function to call in a forked process, or None at the end of the input."""
        while True:
            # One event at a time: the handler of one may close what another is about.
            [(key, _), *_] = self._waiting.select()
            called: Callable[[], Callable[[], None] | bool] = key.data
            result = called()
            if result is False:
                return None
            if not isinstance(result, bool):
                return result

    def _fork(self, listener: socket.socket) -> Callable[[], None] | bool:
        connection, _ = listener.accept()
        received, streams, _, _ = socket.recv_fds(connection, 2**16, _STREAMS)
        length = int.from_bytes(received[:ANSWER_BYTES], "big")
        asked = bytearray(received[ANSWER_BYTES:])
        while len(asked) < length:
            asked += connection.recv(2**16)
        words = asked.decode(errors="surrogateescape").split("\0")
        gc.freeze()
        process = os.fork()
        if not process:
            return _prepare(words, streams)
        for stream in streams:
            os.close(stream)
        ended = os.pidfd_open(process)
        self._running.add(ended)
        with suppress(OSError):  # its client was killed
            connection.sendall(_answer(process))
        self._waiting.register(ended, selectors.EVENT_READ, partial(self._end, process, ended, connection))
        self._waiting.register(connection, selectors.EVENT_READ, partial(self._kill, ended, connection))
        return True

    def _end(self, process: int, ended: int, connection: socket.socket) -> bool:
        """Send the exit status of a process that ended."""
        _, status = os.waitpid(process, 0)
        self._waiting.unregister(ended)
        self._running.remove(ended)
        os.close(ended)
        with suppress(KeyError, ValueError):  # its client was killed
            self._waiting.unregister(connection)
        with suppress(OSError):
            connection.sendall(_answer(os.waitstatus_to_exitcode(status)))
        connection.close()
        return True

    def _kill_all(self) -> bool:
        """Kill all forked processes at the end of the input."""
        for ended in self._running:
            signal.pidfd_send_signal(ended, signal.SIGKILL)
        return False

    def _kill(self, ended: int, connection: socket.socket) -> bool:
        """Kill a process whose client was killed."""
        self._waiting.unregister(connection)
        signal.pidfd_send_signal(ended, signal.SIGKILL)
        return True


def _answer(number: int) -> bytes:
    return number.to_bytes(ANSWER_BYTES, "big", signed=True)


def _prepare(asked: list[str], streams: list[int]) -> Callable[[], None]:
    """Make a forked process like one that was just started; return the function that runs its command."""
    folder, count, *words = asked
    arguments, variables = words[: int(count)], words[int(count) :]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(_STREAMS, _OPEN_FILES)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, closefd=False, errors="backslashreplace")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    sys.argv = arguments
    program = Path(arguments[0])
    first = "" if program.name == "__main__.py" else str(program.parent)
    sys.path[:1] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return cli.kubectl_why if program.name == "kubectl-why" else cli.main


def _run(command: Callable[[], None]) -> None:
    """Run a command, which writes all its output, and end as Python does, but free no module: its memory would be copied."""
    status = 0
    try:
        command()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(status)


if __name__ == "__main__":
    import scheduler.cli
    from scheduler.cli import command as cli

    for module in pkgutil.iter_modules(scheduler.cli.__path__, "scheduler.cli."):
        import_module(module.name)
    for name in ("plugins.registry", "kopf", "uvloop"):
        import_module(name)
    run = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if run is not None:
        _run(run)
