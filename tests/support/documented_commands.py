"""The commands of documents, and their expected output.

Blocks fenced as `console` are run: a line that begins with `$ ` is a command, the lines after it are some of what it
prints, in their order, spaces aside. Blocks fenced otherwise are not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "


class Command(NamedTuple):
    """One command.

    Attributes:
        text: for a shell.
        shown: lines that it prints, among others.
    """

    text: str
    shown: tuple[str, ...]


def commands(document: Path) -> list[Command]:
    """Return all of a document, in their order."""
    found: list[Command] = []
    for block in _BLOCK.findall(document.read_text()):
        for line in block.splitlines():
            if line.startswith(_PROMPT):
                found.append(Command(line.removeprefix(_PROMPT), ()))
            elif line.strip():
                last = found[-1]
                found[-1] = last._replace(shown=(*last.shown, line))
    return found


def missing(shown: tuple[str, ...], printed: str) -> list[str]:
    """Return the lines that were not printed, or not in their order."""
    lines = iter([_squeezed(line) for line in printed.splitlines()])
    return [line for line in shown if _squeezed(line) not in lines]


def _squeezed(line: str) -> str:
    return " ".join(line.split())
