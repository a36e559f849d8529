"""The examples of docs/install.md work, command by command in one shell, up to the first pod and back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.documents.following_documents import follow
from tests.support.documented_commands import commands, missing
from tests.support.manifests import ROOT
from tests.support.ports import free_port
from tests.support.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)


async def test_the_examples_of_the_install_guide_work(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await follow(shell, commands(ROOT / "docs" / "install.md"), {10251: free_port()}, tmp_path)


def test_a_missing_output_line_is_reported():
    assert missing(("b  c",), "a\nb c\n") == []
    assert missing(("d", "a"), "a\nd\n") == ["a"]


def test_commands_are_the_lines_of_console_blocks(tmp_path: Path):
    document = tmp_path / "a.md"
    document.write_text("```sh\nnot this\n```\n\n```console\n$ one\nshown\n$ two\n```\n")

    assert [(command.text, command.shown) for command in commands(document)] == [
        ("one", ("shown",)),
        ("two", ()),
    ]


async def test_a_shell_keeps_exported_variables_and_returns_the_status_of_a_command(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await shell.run("export A=b")
        assert (await shell.run("echo $A")).printed.split() == ["b"]
        assert (await shell.run("ls no-such-file | cat")).status == 2
        assert (await shell.run("ls manifests/base/kustomization.yaml")).status == 0
