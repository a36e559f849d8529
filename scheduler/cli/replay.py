"""`custom-scheduler replay`: replays a recording."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from scheduler.cli.options import choice_option, command, file_option, option
from scheduler.cli.replay_backtest import Asked, Output, backtested
from scheduler.cli.replay_exact import Wanted, exactly
from scheduler.cli.usage_error import fail
from scheduler.errors import SchedulerError
from scheduler.tools.whatif.replay.script import stretches

_BACKTEST = "With another configuration"


@command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option(
    "--pod", metavar="NS/NAME", help="Stop at each decision about this pod, and explain it at that moment."
)
@option("--attempt", type=click.IntRange(1), metavar="N", help="With --pod: only the Nth decision.")
@option(
    "--all-nodes", is_flag=True, help="With --pod: show every node, also nodes rejected for the same reason."
)
@file_option(
    "--config",
    multiple=True,
    help="Show what another KubeSchedulerConfiguration would have done: pods arrive and leave as recorded, and this "
    "configuration places them. May be given several times.",
    section=_BACKTEST,
)
@file_option("--html", help="Also write an HTML page with charts to this file.", section=_BACKTEST)
@choice_option(Output, "--output", "-o", default=Output.TABLE, help="Output format.", section=_BACKTEST)
@option(
    "--seed", type=int, default=1, help="Seed for ties that the recording does not decide.", section=_BACKTEST
)
@option(
    "--processes",
    type=click.IntRange(1),
    help="Number of configurations that run at a time.  [default: one per CPU]",
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
    """Replay a recording: the same code, with the same input in the same order, must make the same decisions.

    If it does not, the first difference is shown and the exit status is 1. With --config, show what another
    configuration would have done.
    """
    if config and pod is not None:
        fail("--pod and --config cannot be combined")
    if pod is None and (attempt is not None or all_nodes):
        fail("--attempt and --all-nodes need --pod")
    if not config and (html is not None or output is not Output.TABLE):
        fail("--html and --output need --config")
    try:
        found = stretches(folder)
        if config:
            backtested(found, str(folder), Asked(config, seed, processes, output, html))
            return
        wanted = None if pod is None else Wanted(pod if "/" in pod else f"default/{pod}", attempt, all_nodes)
        sys.exit(exactly(found, wanted))
    except BrokenPipeError:
        raise  # the reader of the output is gone: click exits
    except (SchedulerError, OSError) as error:
        fail(str(error))
