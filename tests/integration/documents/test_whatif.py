"""The examples of docs/whatif.md work, command by command in one shell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon.test_prometheus import free_port
from tests.integration.documents.following_documents import follow
from tests.support.documented_commands import commands
from tests.support.manifests import ROOT
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)


async def test_the_examples_of_the_page_about_what_if_requests_work(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await follow(shell, commands(ROOT / "docs" / "whatif.md"), {10251: free_port()}, tmp_path)
