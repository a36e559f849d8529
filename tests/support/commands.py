"""Runs commands of custom-scheduler in processes that are forked from one that has imported their modules.

The imports take most of the time of a command. Tests of a start, of standard streams that are closed, of a process's
memory or limits, and of signals that no program receives (SIGSTOP) start `python -m scheduler` instead.
"""

from __future__ import annotations

import atexit
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

from tests.support import forked_command
from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODULE = str(ROOT / "scheduler" / "__main__.py")
_PROGRAMS = ("custom-scheduler", "kubectl-why")
_CLIENT = Path(forked_command.__file__)


def run_command(
    *words: object,
    stdin: bytes = b"",
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m scheduler` with arguments; return its exit status and its output.

    Raises:
        TimeoutExpired: it did not end in time.
    """
    arguments = [str(word) for word in words]
    with TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as connection:
        paths = [Path(name, stream) for stream in ("in", "out", "error")]
        for path in paths:
            path.write_bytes(stdin if path.name == "in" else b"")
        connection.connect(str(server() / "socket"))
        streams = [os.open(path, os.O_RDWR) for path in paths]
        asked = forked_command.request([_MODULE, *arguments], str(folder), os.environ | (environment or {}))
        socket.send_fds(connection, [asked], streams)
        for stream in streams:
            os.close(stream)
        for _ in ("pid", "status"):
            if not select.select([connection], [], [], timeout_seconds)[0]:
                raise subprocess.TimeoutExpired(arguments, timeout_seconds)
            answer = connection.recv(forked_command.ANSWER_BYTES)
        status = forked_command.number(answer)
        return subprocess.CompletedProcess(arguments, status, paths[1].read_bytes(), paths[2].read_bytes())


def forked_program() -> str:
    """Return the path of a program that is `custom-scheduler`, but starts in a tenth of its time.

    It forwards signals to the forked process and ends as that does; when it is killed, so is that process.
    """
    return str(forked_programs()["custom-scheduler"])


def forked_programs() -> dict[str, Path]:
    """Return the paths of all such programs, by name."""
    return {name: server() / name for name in _PROGRAMS}


@cache
def server() -> Path:
    """Start the process that forks, once for this process and those that it forks then.

    Returns:
        the folder of its socket and of its programs.
    """
    folder = Path(mkdtemp(prefix="custom-scheduler-commands-"))
    atexit.register(_end, start_server(folder), folder, os.getpid())
    return folder


def start_server(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that forks, with its socket and its programs in a folder; it ends when its input is closed."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(128)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_server", str(listener.fileno())],
            cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
    client = shlex.join([sys.executable, "-IS", str(_CLIENT), str(folder / "socket")])
    for name in _PROGRAMS:
        (folder / name).write_text(f'#!/bin/sh\nexec {client} "$0" "$@"\n')
        (folder / name).chmod(0o755)
    return process


def _end(process: subprocess.Popen[bytes], folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        process.communicate()  # ends it: its input is closed
        shutil.rmtree(folder)
