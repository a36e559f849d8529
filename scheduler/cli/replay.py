"""`custom-scheduler replay`: a recording gone through again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from scheduler.cli.options import choice_option, command, file_option, option
from scheduler.cli.refusal import refuse
from scheduler.cli.replay_backtest import Asked, Output, backtested
from scheduler.cli.replay_exact import Wanted, exactly
from scheduler.errors import SchedulerError
from scheduler.whatif.replay.script import stretches

_BACKTEST = "With another configuration"


@command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option("--pod", metavar="NS/NAME", help="Stop at decisions about this pod, and explain each at that moment.")
@option("--attempt", type=click.IntRange(1), metavar="N", help="With --pod: only the Nth of them.")
@option(
    "--all-nodes", is_flag=True, help="With --pod: every node by name, also of many that are refused alike."
)
@file_option(
    "--config",
    multiple=True,
    help="What another KubeSchedulerConfiguration would have done: pods come and go as recorded, and are placed by it. "
    "Several are compared.",
    section=_BACKTEST,
)
@file_option("--html", help="Write a page of charts as well.", section=_BACKTEST)
@choice_option(
    Output, "--output", "-o", default=Output.TABLE, help="For people or for programs.", section=_BACKTEST
)
@option("--seed", type=int, default=1, help="Of ties that the recording does not decide.", section=_BACKTEST)
@option(
    "--processes",
    type=click.IntRange(1),
    help="How many configurations run at a time.  [default: one per CPU]",
    section=_BACKTEST,
)
def replay(
    folder: Path,
    pod: str | None,
    attempt: int | None,
    all_nodes: bool,
    config: tuple[Path, ...],
    html: Path | None,
    output: Output,
    seed: int,
    processes: int | None,
) -> None:
    """Go through a recording again: the same code, told the same in the same order, must decide the same.

    The exit status is 1 where it does not; the first difference is shown. With --config it is about what another
    configuration would have done.
    """
    if config and pod is not None:
        refuse("--pod and --config are two questions: give one")
    if pod is None and (attempt is not None or all_nodes):
        refuse("--attempt and --all-nodes are about one pod: give --pod too")
    if not config and (html is not None or output is not Output.TABLE):
        refuse("--html and --output tell what another configuration would have done: give --config too")
    try:
        found = stretches(folder)
        if config:
            backtested(found, str(folder), Asked(config, seed, processes, output, html))
            return
        wanted = None if pod is None else Wanted(pod if "/" in pod else f"default/{pod}", attempt, all_nodes)
        sys.exit(exactly(found, wanted))
    except BrokenPipeError:
        raise  # nobody reads what is told: click ends it
    except (SchedulerError, OSError) as error:
        refuse(str(error))
