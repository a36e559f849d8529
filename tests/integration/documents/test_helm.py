"""The examples of docs/helm.md work, command by command in one shell, with Helm's own engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.documents.following_documents import follow
from tests.support.documented_commands import commands
from tests.support.helm import program
from tests.support.manifests import ROOT
from tests.support.ports import free_port
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)


async def test_the_examples_of_the_page_about_helm_work(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await shell.run(f'export PATH="{program(tmp_path).parent}:$PATH"')
        await follow(shell, commands(ROOT / "docs" / "helm.md"), {10251: free_port()}, tmp_path)
