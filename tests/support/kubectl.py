"""kubectl, run with a kubeconfig and a home of its own."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from tests.support.binaries import needed_binary

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_SECONDS = 60


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl; where it is not installed the test is skipped, or fails in CI.

    Args:
        kubeconfig: the file it uses.
        home: where it keeps what it learned.

    It collects no garbage, which takes a third of the processor time of most commands.
    """

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._program = needed_binary("kubectl", "Kubernetes' releases")
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(kubeconfig), "GOGC": "off",
        }  # fmt: skip

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Return what it prints; the test fails when kubectl does."""
        said = await self.run(*arguments, stdin=stdin)
        assert said.code == 0, f"kubectl {' '.join(arguments)}: {said.err}"
        return said.out

    async def refused(self, *arguments: str, stdin: str = "") -> str:
        """Return what it complains of; the test fails when kubectl does not."""
        said = await self.run(*arguments, stdin=stdin)
        assert said.code != 0, f"kubectl {' '.join(arguments)}: {said.out}"
        return said.err

    async def run(self, *arguments: str, stdin: str = "") -> Said:
        process = await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), _PATIENCE_SECONDS)
        return Said(process.returncode or 0, out.decode(), err.decode())


def rows(table: str) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in table.splitlines()]
