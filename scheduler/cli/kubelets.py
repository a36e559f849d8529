"""`custom-scheduler kubelets`: registers nodes with an API server, and simulates their kubelets."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING, Any

import click

from scheduler.cli.options import command, option
from scheduler.cli.process import kubeconfig_option, logging_format_option, run_in_loop, stop_on_signals
from scheduler.clock import SystemClock
from scheduler.daemon.logs import LogFormat, configure_logging
from scheduler.errors import ConfigurationError, FieldError
from scheduler.kube.client.connect import connect
from scheduler.kube.client.requests import StartupRequests
from scheduler.tools.simulator.remote import as_registered, delete, register, running
from scheduler.tools.simulator.scenarios.scenario import NodeGroup, NodeTaint, group_faults

if TYPE_CHECKING:
    from pathlib import Path


def _pairs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Read `NAME=VALUE,...`."""
    pairs = {}
    for text in (part for one in given for part in one.split(",")):
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"must be NAME=VALUE, was {text!r}", context, parameter)
        pairs[name] = value
    return pairs


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _taints(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[NodeTaint, ...]:
    """Read `KEY=VALUE:EFFECT,...` or `KEY:EFFECT,...`, as kubelet does."""
    taints = []
    for text in (part for one in given for part in one.split(",")):
        pair, _, effect = text.rpartition(":")
        key, _, value = pair.partition("=")
        if not key or effect not in _EFFECTS:
            message = f"must be KEY=VALUE:EFFECT with an effect of {', '.join(_EFFECTS)}, was {text!r}"
            raise click.BadParameter(message, context, parameter)
        taints.append(NodeTaint(key=key, value=value, effect=effect))  # type: ignore[arg-type]
    return tuple(taints)


@command()
@kubeconfig_option
@option("--nodes", default=4, type=click.IntRange(1, 100_000), help="Number of nodes.")
@option(
    "--name-prefix",
    default="simulated",
    help="Beginning of the names of nodes; a number follows.",
    metavar="NAME",
)
@option("--cpu", default="4", help="CPU of each node.", metavar="QUANTITY")
@option("--memory", default="16Gi", help="Memory of each node.", metavar="QUANTITY")
@option("--pods", default=110, type=click.IntRange(min=0), help="Pod limit of each node.", metavar="COUNT")
@option(
    "--resources",
    multiple=True,
    callback=_pairs,
    help="Further resources of each node, for example nvidia.com/gpu=2; ephemeral-storage=100Gi if not set.",
    metavar="NAME=QUANTITY,...",
)
@option("--labels", multiple=True, callback=_pairs, help="Labels of each node.", metavar="NAME=VALUE,...")
@option(
    "--taints",
    multiple=True,
    callback=_taints,
    help="Taints of nodes that are created.",
    metavar="KEY=VALUE:EFFECT,...",
)
@option("--zones", default="zone-a", help="Zones, assigned to the nodes in turn.", metavar="NAME,...")
@option("--delete-nodes", is_flag=True, help="Delete the nodes and their leases at the end.")
@logging_format_option
def kubelets(
    kubeconfig: Path | None,
    nodes: int,
    name_prefix: str,
    cpu: str,
    memory: str,
    pods: int,
    resources: dict[str, str],
    labels: dict[str, str],
    taints: tuple[NodeTaint, ...],
    zones: str,
    delete_nodes: bool,
    logging_format: LogFormat | None,
) -> None:
    """Simulate the kubelets of an API server: register nodes, and run the pods that are bound to them."""
    configure_logging(logging.INFO, logging_format)
    group = NodeGroup(
        name=name_prefix,
        count=nodes,
        cpu=cpu,
        memory=memory,
        pods=pods,
        resources={"ephemeral-storage": "100Gi", **resources},
        labels=labels,
        taints=taints,
        zones=tuple(filter(None, zones.split(","))),
    )
    faults = [FieldError(_flag(each.path), each.problem) for each in group_faults({"": group})]
    if faults:
        raise ConfigurationError(faults)
    run_in_loop(_serve(None if kubeconfig is None else str(kubeconfig), group, delete_nodes=delete_nodes))


def _flag(path: str) -> str:
    """Return the flag of a field of a `NodeGroup`."""
    return "--name-prefix" if path == "name" else f"--{path}"


async def _serve(kubeconfig: str | None, group: NodeGroup, *, delete_nodes: bool) -> None:
    stop = stop_on_signals()
    clock, names = SystemClock(), group.node_names
    nodes: list[dict[str, Any]] = [
        as_registered(node, place, clock) for place, node in enumerate(group.node_objects(), 1)
    ]
    async with connect(kubeconfig) as connection:
        await register(StartupRequests(connection, stop), nodes)
        async with running(connection, names, stop, clock=clock, random=Random()):
            click.echo(f"Kubelets of {len(names)} nodes run: {names[0]} to {names[-1]}")
            await stop.wait()
        if delete_nodes:
            await delete(connection, names)
