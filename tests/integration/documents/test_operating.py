"""The examples of docs/operating.md work after those of docs/install.md."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from tests.integration.documents.following_documents import follow
from tests.support.documented_commands import commands
from tests.support.manifests import ROOT
from tests.support.ports import free_port
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

DOCS = ROOT / "docs"
AFTER_THE_FIRST_POD = "kubectl apply -k manifests/examples"


async def test_the_examples_of_the_operating_guide_work(tmp_path: Path) -> None:
    ports = {10251: free_port()}
    installing = commands(DOCS / "install.md")
    assert AFTER_THE_FIRST_POD in [command.text for command in installing]
    before = takewhile(lambda command: command.text != AFTER_THE_FIRST_POD, installing)
    async with terminal(tmp_path) as shell:
        await follow(shell, before, ports, tmp_path)
        await follow(shell, commands(DOCS / "operating.md"), ports, tmp_path)
