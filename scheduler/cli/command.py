"""All commands, and what they share: error messages, exit statuses and output."""

from __future__ import annotations

import errno
import gc
import os
import select
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from scheduler.cli.options import HELP_NAMES, CommandGroup
from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.objects.wording import did_you_mean, quoted
from scheduler.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS: Final = (
    "run",
    "check",
    "explain",
    "simulate",
    "tune",
    "replay",
    "recording",
    "why",
    "rebalance",
    "board",
    "extender",
    "demo",
    "api-server",
    "kubelets",
    "new",
    "completion",
)
"""Names of the commands; each is a function of that name in a module of that name."""
_INSTALL: Final = "install custom-scheduler[tools]"
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}
"""Errors of an output that is full or broken."""
_FIRST_STEPS: Final = (
    ("demo", "watch the scheduler in a simulated cluster"),
    ("new plugin NAME", "create a plugin package with tests"),
    ("check FILE", "check a configuration"),
    ("run --no-bind", "decide in your cluster, and write nothing"),
)


class _Commands(CommandGroup):
    """Imports a command when it is called: the imports of `run` take longer than all of `explain`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        function = cmd_name.replace("-", "_")
        gc.disable()  # modules stay until the process ends: collecting garbage in them takes a sixth of the time
        try:
            command: click.Command = getattr(import_module(f"scheduler.cli.{function}"), function)
        except ModuleNotFoundError as error:
            if not _is_of_tools(error):
                raise
            return _missing(cmd_name, error)
        finally:
            gc.freeze()
            gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and (hint := did_you_mean(name, COMMANDS)):
            raise click.UsageError(f"there is no command {quoted(name)}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("First steps"):
            formatter.write_dl(
                [(f"{ctx.command_path} {step}", text) for step, text in _FIRST_STEPS], col_max=40
            )


def _is_of_tools(error: ModuleNotFoundError) -> bool:
    """Return whether a module of this program is missing: only those of custom-scheduler-tools can be."""
    return (error.name or "").startswith("scheduler.")


def _missing(name: str, error: ModuleNotFoundError) -> click.Command:
    """Return a command that raises an error, for the list of commands and for completion."""

    def fail() -> NoReturn:
        raise error

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(
        name, context_settings=settings, callback=fail, help=_INSTALL.capitalize(), add_help_option=False
    )


@click.command(
    "custom-scheduler",
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": HELP_NAMES},
)
@click.version_option(VERSION, message="custom-scheduler %(version)s")
@click.pass_context
def _commands(context: click.Context) -> None:
    """A Kubernetes scheduler whose plugins are single Python files."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run the command line."""
    _run(_commands)


def kubectl_why() -> None:
    """Run `why` as a kubectl plugin."""
    command = _commands.get_command(click.Context(_commands), "why")
    assert command is not None
    _run(partial(command, prog_name="kubectl why"))


def _run(command: Callable[[], object]) -> None:
    """Run a command. Exit status 2: the configuration is invalid; 1: another SchedulerError, or the tools are missing."""
    # Numpy's linear algebra library starts a thread for each core, which takes as long as all our imports. We do not
    # use linear algebra; a plugin that does can set this variable.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_what_is_closed()
    try:
        try:
            command()
        finally:
            sys.stdout.flush()  # here, so that an error of the output is reported below
    except ConfigurationError as error:
        head = f"{error.source}: " if error.source else ""
        sys.stderr.writelines(f"error: {head}{each}\n" for each in error.errors)
        sys.exit(2)
    except SchedulerError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    except ModuleNotFoundError as error:
        if not _is_of_tools(error):
            raise
        sys.stderr.write(f"error: {error.name} is not installed: {_INSTALL}\n")
        sys.exit(1)
    except OSError as error:
        if not _is_of_output(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python writes the rest again when it exits
        if error.errno != errno.EPIPE:
            sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
        sys.exit(1)


def _is_of_output(error: OSError) -> bool:
    """Return whether an error comes from our standard output, and not from another file, pipe or connection."""
    if error.errno != errno.EPIPE:
        return error.errno in _FULL and error.filename is None
    reader = select.poll()
    reader.register(1, select.POLLOUT)
    return any(state & select.POLLERR for _, state in reader.poll(0))


def _open_what_is_closed() -> None:
    """Open the standard streams that are closed (`>&-`): else the next opened file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - to the end
