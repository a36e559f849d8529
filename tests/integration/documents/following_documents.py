"""Runs the commands of a document in a terminal and compares their output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.documented_commands import missing
from tests.support.terminal import with_ports

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.documented_commands import Command
    from tests.support.terminal import Terminal


async def follow(shell: Terminal, told: Iterable[Command], ports: dict[int, int], folder: Path) -> None:
    """Run commands; every one has to end well and print what is shown.

    Args:
        told: in their order.
        ports: of the document -> that are free here.
        folder: where the terminal is; its logs are in the message if something is wrong.
    """
    for command in told:
        printed, status = await shell.run(with_ports(command, ports))
        unprinted = missing(command.shown, printed)
        assert (status, unprinted) == (0, []), f"$ {command.text}\n{printed}\n{logs_in(folder)}"


def logs_in(folder: Path) -> str:
    """Return the ends of the logs of what runs in the background."""
    return "\n".join(log.read_text()[-2000:] for log in folder.glob("*.log"))
