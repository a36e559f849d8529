"""The commands under one name, and what they share."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from scheduler.cli.go_flags import GoFlagsCommand
from scheduler.errors import ConfigurationError, SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS = ("run", "check", "explain", "extender", "demo", "api-server")
"""Each is a function in a module of its own, both of that name."""

app = typer.Typer(
    name="custom-scheduler",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def _about() -> None:
    """A scheduler for Kubernetes whose plugins are single Python files."""


def main() -> None:
    """Run the command line; a fault of the configuration ends it with status 2, any other error of ours with 1."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    gc.disable()  # modules stay until the process ends: looking for garbage in them takes a sixth of the time
    for name in (asked,) if asked in COMMANDS else COMMANDS:
        app.command(name, cls=GoFlagsCommand)(_command(name))
    gc.freeze()
    gc.enable()
    try:
        app()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except SchedulerError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


def _command(name: str) -> Callable[..., Any]:
    """Import one command; what `run` needs takes longer to load than `explain` takes in all."""
    function = name.replace("-", "_")
    command: Callable[..., Any] = getattr(import_module(f"scheduler.cli.{function}"), function)
    return command
