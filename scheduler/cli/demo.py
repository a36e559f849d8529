"""`custom-scheduler demo`: the daemon on a simulated cluster."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from scheduler.cli.options import command, features_options, file_option, option
from scheduler.cli.process import program, run_in_loop, stop_on_signals
from scheduler.configuration.load import Configuration, default, load
from scheduler.configuration.manifests import read_manifests
from scheduler.configuration.overrides import with_features
from scheduler.daemon.app import loop_watch
from scheduler.daemon.app.plugin_dry_run import dry_run_plugins
from scheduler.daemon.logs import LogFormat, configure_logging
from scheduler.tools.demo.show import show
from scheduler.tools.demo.workloads import Tour, UserWorkload

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.tools.demo.workloads import DemoWorkload


@command()
@file_option("--config", help="KubeSchedulerConfiguration file; without it, the default plugins.")
@features_options
@file_option(
    "--apply",
    help="YAML or JSON file of objects to create; without it, a tour of the features.",
)
@option(
    "--exit",
    "exit_",
    is_flag=True,
    help="Exit when done: with status 0 when every pod is where it should be, else 1.",
)
def demo(config: Path | None, features: GivenFeatures, apply: Path | None, exit_: bool) -> None:
    """Watch the daemon place pods on a simulated cluster of 30 nodes; no cluster is needed."""
    configure_logging(logging.ERROR, LogFormat.TEXT)
    logging.getLogger(loop_watch.__name__).setLevel(logging.WARNING)
    configuration = with_features(
        default() if config is None else load(config, version=features.version), features
    )
    workload = Tour() if apply is None else UserWorkload(read_manifests(apply))
    sys.exit(run_in_loop(_demo(configuration, workload, exit_when_settled=exit_)))


async def _demo(configuration: Configuration, workload: DemoWorkload, *, exit_when_settled: bool) -> int:
    stop = stop_on_signals()
    await dry_run_plugins(configuration)
    return await show(
        Console(), configuration, workload, stop, program=program(), exit_when_settled=exit_when_settled
    )
