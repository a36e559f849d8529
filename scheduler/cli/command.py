"""The commands under one name, and what they share."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import typer

from scheduler.cli.go_flags import GoFlagsCommand
from scheduler.errors import ConfigurationError, SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS = ("run", "check", "explain", "extender", "demo", "api-server")

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
    match name:
        case "run":
            from scheduler.cli.run import run

            return run
        case "explain":
            from scheduler.cli.explain import explain

            return explain
        case "check":
            from scheduler.cli.check import check

            return check
        case "demo":
            from scheduler.cli.demo import demo

            return demo
        case "extender":
            from scheduler.cli.extender import extender

            return extender
        case "api-server":
            from scheduler.cli.api_server import api_server

            return api_server
    raise LookupError(name)
