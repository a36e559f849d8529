"""Error messages and the exit status of commands."""

from __future__ import annotations

import sys
from typing import Final, NoReturn

import click

_BAD_INPUT: Final = 2


def fail(message: str) -> NoReturn:
    """Print an error message, line by line, and exit with status 2."""
    for line in message.splitlines():
        click.echo(f"error: {line}", err=True)
    sys.exit(_BAD_INPUT)
