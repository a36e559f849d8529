"""The commands under one name, and what they share."""

from __future__ import annotations

import sys

import typer

from scheduler.cli.api_server import api_server
from scheduler.cli.demo import demo
from scheduler.cli.run import run
from scheduler.errors import ConfigurationError, SchedulerError

app = typer.Typer(
    name="custom-scheduler",
    help="A scheduler for Kubernetes whose plugins are single Python files.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command("run")(run)
app.command("api-server")(api_server)
app.command("demo")(demo)


def main() -> None:
    """Run the command line; a fault of the configuration ends it with status 2, any other error of ours with 1."""
    try:
        app()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except SchedulerError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
