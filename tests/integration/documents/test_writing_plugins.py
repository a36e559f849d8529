"""The examples of the pages about plugins work, command by command in one shell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.documents.following_documents import follow
from tests.support.documented_commands import commands
from tests.support.manifests import ROOT
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)


@pytest.mark.parametrize(("page", "least"), [("writing-plugins.md", 6), ("recipes.md", 4)])
async def test_the_examples_of_the_pages_about_plugins_work(tmp_path: Path, page: str, least: int) -> None:
    shown = commands(ROOT / "docs" / page)
    assert len(shown) >= least
    async with terminal(tmp_path) as shell:
        await follow(shell, shown, {}, tmp_path)
