"""docs/groups.md does what it says, command by command in one shell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.documented_commands import commands
from tests.integration.following_documents import follow
from tests.manifests import ROOT
from tests.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path


def test_what_the_page_about_groups_shows_happens(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with terminal(tmp_path) as shell:
            await follow(shell, commands(ROOT / "docs" / "groups.md"), {}, tmp_path)

    asyncio.run(scenario())
