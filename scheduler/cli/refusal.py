"""How a command ends that cannot do what it is asked."""

from __future__ import annotations

import sys
from typing import Final, NoReturn

import click

_BAD_INPUT: Final = 2


def refuse(message: str) -> NoReturn:
    """Say what is wrong, line by line, and end."""
    for line in message.splitlines():
        click.echo(f"error: {line}", err=True)
    sys.exit(_BAD_INPUT)
