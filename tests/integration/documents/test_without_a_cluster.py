"""The examples of docs/start/without-a-cluster.md work, command by command in one shell."""

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


async def test_the_examples_of_the_first_page_without_a_cluster_work(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        page = ROOT / "docs" / "start" / "without-a-cluster.md"
        await follow(shell, commands(page), {10251: free_port()}, tmp_path)
