"""The examples of docs/tutorial work, page after page in one shell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.documents.following_documents import follow
from tests.support.binaries import needed_binary
from tests.support.documented_commands import commands
from tests.support.manifests import ROOT
from tests.support.ports import free_port
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

PAGES = ("filter", "tests", "score", "shadow", "production")


async def test_the_examples_of_the_tutorial_work(tmp_path: Path) -> None:
    needed_binary("promtool", "Prometheus")

    ports = {9090: free_port(), 10251: free_port(), 10252: free_port()}
    async with terminal(tmp_path) as shell:
        for page in PAGES:
            await follow(shell, commands(ROOT / "docs" / "tutorial" / f"{page}.md"), ports, tmp_path)
