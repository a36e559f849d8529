"""A shell that runs the commands of a document one after another, in a folder with the files of a checkout."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.binaries import needed_binary
from tests.support.commands import forked_programs
from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.documented_commands import Command

PATIENCE_SECONDS = 90.0
_END = "--end-of-command--"
_COPIED = ("manifests", "config")


class Answer(NamedTuple):
    """What a command left behind.

    Attributes:
        printed: both its streams.
        status: with which it ended; 0 for what runs in the background.
    """

    printed: str
    status: int


class Terminal:
    """One shell, which remembers what was exported and what runs in the background."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, command: str) -> Answer:
        """Run one line."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{command}\n_status=$?; echo; echo {_END} $_status\n".encode())
        lines: list[str] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in stdout:
                text = line.decode()
                if text.startswith(_END):
                    return Answer("".join(lines), int(text.split()[1]))
                lines.append(text)
        raise AssertionError(f"the shell ended\n$ {command}\n{''.join(lines)}")


@asynccontextmanager
async def terminal(folder: Path) -> AsyncIterator[Terminal]:
    """Open a shell in a new checkout; what it leaves running is killed at the end."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name)
    programs_here = folder / ".venv" / "bin"
    programs_here.mkdir(parents=True)
    installed = {path.name: path for path in Path(sys.executable).parent.iterdir()}
    for name, program in (installed | forked_programs()).items():
        (programs_here / name).symlink_to(program)
    python = programs_here / "python"  # a link would not find the packages of its environment
    python.unlink()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    programs = {Path(needed_binary("kubectl", "Kubernetes' releases")).parent, Path("/usr/bin"), Path("/bin")}
    process = await asyncio.create_subprocess_exec(
        needed_binary("bash", "every system"), "--norc", "-o", "pipefail",
        cwd=folder,
        env={
            "PATH": os.pathsep.join(map(str, programs)), "HOME": str(folder), "PYTHONPATH": str(ROOT),
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", ""),
            "GOGC": "off",  # kubectl takes a third less processor time without garbage collection
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=2**22,
    )  # fmt: skip
    shell = Terminal(process)
    try:
        await shell.run(
            "sleep() { command sleep 0.5; }"
        )  # the loops of documents wait for a reader's machine
        yield shell
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def with_ports(command: Command, ports: dict[int, int]) -> str:
    """Return a command's text with the ports that are free here in place of those of the document."""
    text = command.text
    for told, free in ports.items():
        text = text.replace(str(told), str(free))
    return text
