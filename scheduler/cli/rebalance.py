"""`custom-scheduler rebalance`: which evictions would place pods better, and their execution."""

from __future__ import annotations

import logging
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec
import yaml
from click.core import ParameterSource

from scheduler.cli.options import (
    choice_option,
    command,
    duration_option,
    fail,
    option,
    profiles_options,
)
from scheduler.cli.process import context_option, kubeconfig_option, run_in_loop
from scheduler.cli.why_current import Lookup
from scheduler.cli.why_output import write_json
from scheduler.daemon.logs import LogFormat, configure_logging
from scheduler.errors import ObjectError
from scheduler.kube.client.resources import POD_DISRUPTION_BUDGETS
from scheduler.tools.simulator.apimachinery.selectors import parse_labels
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.cluster_file import STANDARD_INPUT, ClusterFileError
from scheduler.tools.whatif.eviction_budgets import BUDGETS
from scheduler.tools.whatif.live_cluster import read_if_allowed
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.rebalancing import eviction_list
from scheduler.tools.whatif.rebalancing.evictable_pods import Wanted
from scheduler.tools.whatif.rebalancing.execution import CarriedOut, Execution, Outcome, SurpriseError
from scheduler.tools.whatif.rebalancing.judging import ACCEPTED, judge
from scheduler.tools.whatif.rebalancing.objectives import OBJECTIVES
from scheduler.tools.whatif.rebalancing.rebalancer import Rebalancer
from scheduler.tools.whatif.rebalancing.text import (
    carried_out_line,
    judgement_lines,
    outcome_lines,
    plan_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scheduler.cli.options import GivenProfiles
    from scheduler.objects.wording import Duration
    from scheduler.tools.whatif.rebalancing.rebalancer import Plan

_STOPPED: Final = 3
"""Exit status: the execution stopped at a surprise, or the judge does not accept an eviction."""


class Output(Enum):
    """The format of results."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class _Task(NamedTuple):
    """The values of the flags."""

    objective: str
    wanted: Wanted
    most_evictions: int
    most_tries: int
    judged: str | None
    patience_seconds: float | None
    output: Output


@command()
@option(
    "--cluster",
    help="Nodes, pods and other objects, as `kubectl get ... -o json` or YAML, instead of a live cluster; - is standard "
    "input.",
    metavar="FILE",
)
@profiles_options
@option(
    "--objective",
    type=click.Choice([*OBJECTIVES]),
    default="nodes",
    help="What to improve: the number of nodes in use, the pods above maxSkew of their topology spread constraints, or free "
    "capacity that pods do not fit.",
)
@option(
    "--namespace",
    "-n",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Evict only pods of this namespace; may be given several times.",
)
@option("--selector", "-l", metavar="SELECTOR", help="Evict only pods with these labels.")
@option(
    "--max-evictions",
    type=click.IntRange(1, 1000),
    default=20,
    metavar="N",
    help="Number of evictions at most.",
)
@option(
    "--tries",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    metavar="N",
    help="Number of decisions that the search may take.",
)
@option(
    "--judge",
    "judged",
    metavar="FILE",
    help="Judge the evictions of this file instead: lines namespace/name, or the log of a dry run of the descheduler; - is "
    "standard input.",
)
@option(
    "--execute",
    is_flag=True,
    help="Carry out the plan: evict one pod after another, until the first surprise.",
)
@duration_option(
    "--patience",
    default="5m",
    help="With --execute: how long an evicted pod may have no ready replacement.",
)
@choice_option(Output, "--output", "-o", default=Output.TABLE, help="Output format.")
@kubeconfig_option
@context_option()
def rebalance(
    cluster: str | None,
    profiles: GivenProfiles,
    objective: str,
    namespaces: tuple[str, ...],
    selector: str | None,
    max_evictions: int,
    tries: int,
    judged: str | None,
    execute: bool,
    patience: Duration,
    output: Output,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show which pods, evicted in which order, the scheduler would place better; with --execute, evict them."""
    _check_flags(cluster, judged, execute=execute, live=kubeconfig or context)
    if patience.nanoseconds <= 0:
        fail(f"--patience: more than 0s is expected, was {patience}")
    try:
        labels = None if selector is None else parse_labels(selector)
    except StatusError as error:
        fail(f"--selector {selector}: {error.message}")
    configure_logging(logging.WARNING, LogFormat.TEXT)
    task = _Task(
        objective,
        Wanted(namespaces, labels),
        max_evictions,
        tries,
        judged,
        patience.seconds if execute else None,
        output,
    )
    if cluster is None:
        look = Lookup(
            None if kubeconfig is None else str(kubeconfig),
            context or "",
            None,
            profiles.config,
            profiles.features,
            as_json=False,
            all_nodes=False,
        )
        status = run_in_loop(_live(look, profiles.names, task))
    else:
        configuration = profiles.configuration()
        try:
            given = cluster_file.load(cluster)
            scheduler = OfflineScheduler(given, configuration)
            status = _shown(Rebalancer(scheduler, given, objective, task.wanted), task)
        except (ClusterFileError, ObjectError) as error:
            fail(str(error))
    sys.exit(status)


def _check_flags(cluster: str | None, judged: str | None, *, execute: bool, live: object) -> None:
    """Exit with a message if flags contradict each other, or one has no effect."""
    if execute and (cluster is not None or judged is not None):
        fail("--execute needs a live cluster, and no --judge")
    if cluster is not None and live:
        fail("--kubeconfig and --context have no effect with --cluster")
    if cluster == judged == STANDARD_INPUT:
        fail("--cluster and --judge cannot both be standard input")
    source = click.get_current_context().get_parameter_source
    for name, is_used, wanted in (
        ("patience", execute, "--execute"),
        ("max_evictions", judged is None, "no --judge"),
        ("tries", judged is None, "no --judge"),
    ):
        if not is_used and source(name) is ParameterSource.COMMANDLINE:
            fail(f"--{name.replace('_', '-')} needs {wanted}")


def _shown(rebalancer: Rebalancer, task: _Task) -> int:
    """Print a plan or a judgement; return the exit status."""
    if task.judged is None:
        plan = _plan(rebalancer, task)
        if task.output is Output.TABLE:
            _echo(plan_lines(plan))
        else:
            _write(plan, task.output)
        return 0
    try:
        listed = eviction_list.load(task.judged, rebalancer.pods)
    except ClusterFileError as error:
        fail(str(error))
    judgement = judge(rebalancer, task.objective, listed)
    if task.output is Output.TABLE:
        _echo(judgement_lines(judgement))
    else:
        _write(judgement, task.output)
    return 0 if all(each.result in ACCEPTED for each in judgement.evictions) else _STOPPED


def _plan(rebalancer: Rebalancer, task: _Task) -> Plan:
    return rebalancer.plan(most_evictions=task.most_evictions, most_tries=task.most_tries)


async def _live(look: Lookup, names: list[str], task: _Task) -> int:
    """Print a plan or a judgement of the live cluster, or carry the plan out; return the exit status.

    Raises:
        SchedulerError: the configuration is wrong, or the cluster cannot be read.
    """
    async with look.connect() as (connection, _):

        async def now() -> Rebalancer:
            scheduler, given = await look.scheduler(connection, names)
            if BUDGETS not in given.others:  # no plugin reads them
                given.others[BUDGETS] = await read_if_allowed(connection, POD_DISRUPTION_BUDGETS)
            return Rebalancer(scheduler, given, task.objective, task.wanted)

        if task.patience_seconds is None:
            return _shown(await now(), task)
        execution = Execution(connection, now, patience_seconds=task.patience_seconds)
        plan = _plan(await now(), task)
        return await _carried_out(execution, plan, task)


async def _carried_out(execution: Execution, plan: Plan, task: _Task) -> int:
    """Carry a plan out, and print what happens; return the exit status.

    Raises:
        ApiError: the API server does not answer, or refuses a request.
    """
    is_table, done, stopped = task.output is Output.TABLE, list[CarriedOut](), None
    if is_table:
        _echo(plan_lines(plan))
    try:
        async for each in execution.run(plan.steps):
            done.append(each)
            if is_table:
                click.echo(carried_out_line(each))
    except SurpriseError as error:
        stopped = str(error)
    outcome = Outcome(plan=plan, carried_out=done, stopped=stopped, now=await execution.numbers())
    if is_table:
        _echo(outcome_lines(outcome))
    else:
        _write(outcome, task.output)
    return 0 if stopped is None else _STOPPED


def _write(value: Any, output: Output) -> None:
    """Print a value as JSON or YAML."""
    if output is Output.JSON:
        write_json(value)
    else:
        click.echo(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True), nl=False)


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
