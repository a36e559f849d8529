"""`custom-scheduler simulate`: compares configurations with a workload in virtual time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click
import msgspec

from scheduler.cli.options import (
    Output,
    command,
    fail,
    features_options,
    file_option,
    longest_wait_option,
    option,
    output_option,
)
from scheduler.cli.workload_options import arrivals_option, processes_option, seeds_option, workload_option
from scheduler.configuration.load import default, load
from scheduler.configuration.overrides import with_features
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.errors import SchedulerError
from scheduler.tools.whatif.simulation.parallel_simulations import jobs_of, run_all
from scheduler.tools.whatif.simulation.workload import typical_pods as kinds_of

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.cli.workload_options import GivenSource
    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.objects.wording import Duration
    from scheduler.tools.whatif.simulation.parallel_simulations import SimulationJob
    from scheduler.tools.whatif.simulation.simulation_measures import Result
    from scheduler.tools.whatif.simulation.workload import Workload


@command()
@workload_option
@file_option(
    "--config",
    multiple=True,
    help="KubeSchedulerConfiguration file; may be given several times. Without it, kube-scheduler's default plugins.",
)
@features_options
@option("--seed", type=int, default=1, help="Seed for ties between nodes and for random samples.")
@seeds_option(default=1, help="Number of seeds, starting at --seed; the mean is shown.")
@option(
    "--inflate",
    type=click.FloatRange(0.01, 10.0),
    metavar="RATIO",
    help="Add pods, in random order and drawn from the trace, until they request this share of the cluster's GPUs. No pod "
    "ends, and a pod that does not fit is removed.",
)
@arrivals_option()
@option(
    "--first-of-equals",
    is_flag=True,
    help="If several nodes are best, choose the smallest name, as the simulator of the paper does, instead of a random one.",
)
@option(
    "--shards",
    type=click.IntRange(1, BUCKETS),
    default=1,
    help="Number of replicas that share the nodes. Each places pods on its own nodes, and passes on a pod that fits on none "
    "of them (docs/sharding.md).",
)
@longest_wait_option
@processes_option("simulations")
@option(
    "--typical-pods",
    is_flag=True,
    help="Print the most frequent kinds of pods (95 %), in the form of FragmentationGradientDescent's arguments, and exit.",
)
@output_option()
def simulate(
    source: GivenSource,
    config: tuple[Path, ...],
    features: GivenFeatures,
    seed: int,
    seeds: int,
    inflate: float | None,
    arrivals: int | None,
    first_of_equals: bool,
    shards: int,
    pod_max_in_unschedulable_pods_duration: Duration,
    processes: int | None,
    typical_pods: bool,
    output: Output,
) -> None:
    """Compare what configurations do with a workload: which pods wait, for how long, and what stays unused."""
    logging.basicConfig(level=logging.WARNING)
    if inflate is not None and arrivals is not None:
        fail("--inflate and --arrivals cannot be combined")
    workload = source.read()
    if typical_pods:
        _print_typical(workload)
        return
    read = [load(path, version=features.version) for path in config] or [default()]
    configs = [with_features(each, features) for each in read]  # errors are reported before anything runs
    try:
        jobs = jobs_of(
            workload,
            configs,
            range(seed, seed + seeds),
            inflate=inflate,
            arrivals=arrivals,
            first_of_equals=first_of_equals,
            max_in_unschedulable_seconds=pod_max_in_unschedulable_pods_duration.seconds,
            shards=shards,
        )
    except ValueError as error:
        fail(str(error))
    try:
        results = run_all(jobs, processes=processes, show=True)
    except SchedulerError as error:
        fail(str(error))
    if output is Output.JSON:
        _print_json(results)
        return
    from rich.console import Console

    from scheduler.tools.whatif.simulation.results_table import show

    show(Console(highlight=False), [(job.config, result) for job, result in results])


def _print_typical(workload: Workload) -> None:
    for kind in kinds_of(workload):
        fields = ", ".join(f"{name}: {value}" for name, value in kind.items())
        click.echo(f"- {{{fields}}}")


def _print_json(results: list[tuple[SimulationJob, Result]]) -> None:
    document = [
        {"config": job.config, "seed": job.seed, **msgspec.to_builtins(result, str_keys=True)}
        for job, result in results
    ]
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
