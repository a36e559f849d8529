"""The commands of docs/autoscalers.md print what the page shows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.documents.following_documents import follow
from tests.integration.documents.test_operating import DOCS
from tests.support.documented_commands import commands
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)


async def test_the_commands_of_the_page_about_autoscalers_work(tmp_path: Path) -> None:
    installed = [each for each in commands(DOCS / "install.md") if each.text.startswith("export PATH=")][:1]
    async with terminal(tmp_path) as shell:
        await follow(shell, [*installed, *commands(DOCS / "autoscalers.md")], {}, tmp_path)
