"""`custom-scheduler replay`: a recording gone through again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from scheduler.cli.options import command, option
from scheduler.cli.replay_exact import Wanted, exactly
from scheduler.errors import SchedulerError
from scheduler.whatif.replay.script import stretches

_BAD_INPUT = 2


@command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option("--pod", metavar="NS/NAME", help="Stop at decisions about this pod, and explain each at that moment.")
@option("--attempt", type=click.IntRange(1), metavar="N", help="With --pod: only the Nth of them.")
@option(
    "--all-nodes", is_flag=True, help="With --pod: every node by name, also of many that are refused alike."
)
def replay(folder: Path, pod: str | None, attempt: int | None, all_nodes: bool) -> None:
    """Go through a recording again: the same code, told the same in the same order, must decide the same.

    The exit status is 1 where it does not; the first difference is shown.
    """
    try:
        found = stretches(folder)
        wanted = None if pod is None else Wanted(pod if "/" in pod else f"default/{pod}", attempt, all_nodes)
        sys.exit(exactly(found, wanted))
    except (SchedulerError, OSError) as error:
        _refuse(str(error))


def _refuse(message: str) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"error: {line}", err=True)
    sys.exit(_BAD_INPUT)
