"""The examples of docs/extender.md work, command by command in one shell."""

from __future__ import annotations

import asyncio
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


async def test_the_examples_of_the_page_about_extenders_work(tmp_path: Path) -> None:
    ports = {8443: free_port(), 8080: free_port()}
    shown = [
        command._replace(shown=tuple(line for line in command.shown if "8443" not in line))
        for command in commands(ROOT / "docs" / "extender.md")
    ]
    async with terminal(tmp_path) as shell:
        await follow(shell, shown, ports, tmp_path)
