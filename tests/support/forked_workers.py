"""Forks the workers of xdist from its controller, which has imported the test modules: an import takes seconds."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from execnet import gateway_io
from execnet.gateway_base import Popen2IO

if TYPE_CHECKING:
    from execnet.gateway_base import ExecModel
    from execnet.xspec import XSpec

_STREAMS = 3
_OPEN_FILES = 1024


class _Worker(Popen2IO):
    """A forked process as execnet uses one that it started."""

    def __init__(self, process: int, to: int, back: int, execmodel: ExecModel) -> None:
        super().__init__(os.fdopen(to, "wb"), os.fdopen(back, "rb"), execmodel)
        self._process = process

    def wait(self) -> int | None:
        with suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        return None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)


def fork_workers(count: int) -> None:
    """Fork processes, which execnet then uses first. A later one, in place of one that crashed, is started as ever."""
    gc.freeze()
    processes = [_fork() for _ in range(count)]
    start = gateway_io.create_io

    def create_io(spec: XSpec, execmodel: ExecModel) -> Popen2IO:
        return _Worker(*processes.pop(0), execmodel) if processes else start(spec, execmodel)

    gateway_io.create_io = create_io


def _fork() -> tuple[int, int, int]:
    """Return a forked process, and the files to write to it and to read from it."""
    its_input, to = os.pipe()
    back, its_output = os.pipe()
    process = os.fork()
    if not process:
        _work(its_input, its_output)
    os.close(its_input)
    os.close(its_output)
    return process, to, back


def _work(its_input: int, its_output: int) -> NoReturn:
    """Do as `python -c` does with the line of Python that execnet sends, and end the process."""
    os.dup2(its_input, 0)
    os.dup2(its_output, 1)
    os.closerange(_STREAMS, _OPEN_FILES)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, closefd=False, errors="backslashreplace")
    logging.getLogger().handlers.clear()  # those of the controller would write to files that are closed
    sys.argv = ["-c"]
    sys.modules["__main__"] = main = ModuleType("__main__")
    status = 0
    try:
        exec(eval(sys.stdin.readline()), vars(main))  # noqa: S102, S307
    except BaseException:  # noqa: BLE001 - nothing of the controller may go on here
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(status)
