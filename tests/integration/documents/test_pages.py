"""The examples of the documentation work, command by command in one shell for each page."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from tests.support.binaries import needed_binary
from tests.support.documented_commands import commands, missing
from tests.support.helm import program
from tests.support.manifests import ROOT
from tests.support.ports import free_port
from tests.support.terminal import terminal, with_ports

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.documented_commands import Command
    from tests.support.terminal import Terminal

pytestmark = pytest.mark.run(by=asyncio.run)

DOCS = ROOT / "docs"
SERVED = (10251,)
"""The port of the daemon on most pages."""
PAGES = (
    "groups", "install", "quotas", "protection", "profiles", "resizes", "node-preference", "rebalance", "numa", "whatif",
    "start/without-a-cluster", "writing-plugins", "recipes",
)  # fmt: skip
AFTER_AN_INSTALLATION = ("why", "kueue", "operating")
AFTER_THE_FIRST_POD = "kubectl apply -k manifests/examples"
TUTORIAL = ("filter", "tests", "score", "shadow", "production")


async def follow(
    shell: Terminal, told: Iterable[Command], folder: Path, ports: Iterable[int] = SERVED
) -> None:
    """Run commands; every one has to end well and print what is shown.

    Args:
        shell: where they run.
        told: in their order.
        folder: where the terminal is; its logs are in the message if something is wrong.
        ports: of the document, which are replaced by ports that are free here.
    """
    free = {port: free_port() for port in ports}
    for command in told:
        printed, status = await shell.run(with_ports(command, free))
        unprinted = missing(command.shown, printed)
        assert (status, unprinted) == (0, []), f"$ {command.text}\n{printed}\n{logs_in(folder)}"


def logs_in(folder: Path) -> str:
    """Return the ends of the logs of what runs in the background."""
    return "\n".join(log.read_text()[-2000:] for log in folder.glob("*.log"))


async def test_the_examples_of_the_tutorial_work_page_after_page(tmp_path: Path) -> None:
    needed_binary("promtool", "Prometheus")

    told = [command for page in TUTORIAL for command in commands(DOCS / "tutorial" / f"{page}.md")]
    async with terminal(tmp_path) as shell:
        await follow(shell, told, tmp_path, ports=(9090, 10251, 10252))


@pytest.mark.parametrize("page", AFTER_AN_INSTALLATION)
async def test_the_examples_of_the_page_work_after_those_of_the_install_guide(
    tmp_path: Path, page: str
) -> None:
    installing = commands(DOCS / "install.md")
    assert AFTER_THE_FIRST_POD in [command.text for command in installing]
    before = takewhile(lambda command: command.text != AFTER_THE_FIRST_POD, installing)
    async with terminal(tmp_path) as shell:
        await follow(shell, [*before, *commands(DOCS / f"{page}.md")], tmp_path)


@pytest.mark.parametrize("page", PAGES)
async def test_the_examples_of_the_page_work(tmp_path: Path, page: str) -> None:
    told = commands(DOCS / f"{page}.md")
    assert len(told) > 3
    async with terminal(tmp_path) as shell:
        await follow(shell, told, tmp_path)


async def test_the_examples_of_the_page_about_helm_work_with_its_own_engine(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await shell.run(f'export PATH="{program(tmp_path).parent}:$PATH"')
        await follow(shell, commands(DOCS / "helm.md"), tmp_path)


async def test_the_examples_of_the_page_about_extenders_work(tmp_path: Path) -> None:
    told = [
        command._replace(shown=tuple(line for line in command.shown if "8443" not in line))
        for command in commands(DOCS / "extender.md")
    ]
    async with terminal(tmp_path) as shell:
        await follow(shell, told, tmp_path, ports=(8443, 8080))


async def test_the_commands_of_the_page_about_autoscalers_work(tmp_path: Path) -> None:
    installed = [each for each in commands(DOCS / "install.md") if each.text.startswith("export PATH=")][:1]
    async with terminal(tmp_path) as shell:
        await follow(shell, [*installed, *commands(DOCS / "autoscalers.md")], tmp_path)
