"""Runs commands of custom-scheduler in processes that are forked from one that has imported their modules.

The imports take most of the time of a short command. Tests of a start, of signals or of the hash seed begin their own
processes with `python -m scheduler`.
"""

from __future__ import annotations

import atexit
import json
import os
import pkgutil
import select
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

_STREAMS = ("stdin", "stdout", "stderr")


def run_command(
    *words: object,
    stdin: bytes = b"",
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run `custom-scheduler` with arguments; return its exit status and its output.

    Raises:
        TimeoutExpired: it did not end in time.
    """
    arguments = [str(word) for word in words]
    with TemporaryDirectory() as name:
        streams = Path(name)
        for stream in _STREAMS:
            (streams / stream).write_bytes(stdin if stream == "stdin" else b"")
        asked = {"arguments": arguments, "folder": str(folder), "streams": name}
        environment = {**os.environ, **(environment or {})}
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked | {"environment": environment}).encode() + b"\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout_seconds)[0]:
            server.kill()
            _server.cache_clear()
            raise subprocess.TimeoutExpired(arguments, timeout_seconds)
        status = int(server.stdout.readline())
        out, error = ((streams / stream).read_bytes() for stream in _STREAMS[1:])
        return subprocess.CompletedProcess(arguments, status, out, error)


@cache
def _server() -> subprocess.Popen[bytes]:
    """Start the process that forks; it answers a JSON line with the exit status of a command."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.commands"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    atexit.register(server.communicate)  # ends it: its input is closed
    return server


def _serve() -> bool:
    """Answer requests; return True in the process of a command, and False at the end of the input."""
    import scheduler.cli

    for module in pkgutil.iter_modules(scheduler.cli.__path__, "scheduler.cli."):
        import_module(module.name)
    import_module("plugins.registry")
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _prepare(json.loads(line))
            return True
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return False


def _prepare(asked: dict[str, Any]) -> None:
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for number, stream in enumerate(_STREAMS):
        opened = os.open(Path(asked["streams"]) / stream, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the buffer of the other one has further requests
    sys.argv = ["custom-scheduler", *asked["arguments"]]
    sys.path[0] = ""


if __name__ == "__main__" and _serve():
    from scheduler.cli import main

    main()
