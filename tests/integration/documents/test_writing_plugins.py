"""docs/writing-plugins.md does what it says, command by command in one shell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.integration.documents.following_documents import follow
from tests.support.documented_commands import commands
from tests.support.manifests import ROOT
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path


def test_what_the_page_about_plugins_shows_happens(tmp_path: Path) -> None:
    async def scenario() -> None:
        shown = commands(ROOT / "docs" / "writing-plugins.md")
        assert len(shown) >= 6
        async with terminal(tmp_path) as shell:
            await follow(shell, shown, {}, tmp_path)

    asyncio.run(scenario())
