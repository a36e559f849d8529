"""The examples of docs/kueue.md work after those of docs/install.md; a stand-in plays Kueue."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from tests.integration.documents.following_documents import follow
from tests.integration.documents.test_operating import AFTER_THE_FIRST_POD, DOCS
from tests.support.documented_commands import commands
from tests.support.ports import free_port
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)


async def test_the_examples_of_the_page_about_kueue_work(tmp_path: Path) -> None:
    ports = {10251: free_port()}
    before = takewhile(lambda command: command.text != AFTER_THE_FIRST_POD, commands(DOCS / "install.md"))
    async with terminal(tmp_path) as shell:
        await follow(shell, before, ports, tmp_path)
        await follow(shell, commands(DOCS / "kueue.md"), ports, tmp_path)
