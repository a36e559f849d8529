"""The options by which commands name a workload: a trace, a scenario, a recording, or a cluster with edits."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from scheduler.cli.options import fail, file_option, option
from scheduler.errors import SchedulerError
from scheduler.tools.whatif.sources import read_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scheduler.tools.whatif.simulation.workload import Workload


class GivenSource(NamedTuple):
    """The source of a workload.

    Attributes:
        name: path of a file or a folder; `-` is standard input.
        nodes: node table of a trace.
        gpu_nodes_only: whether to ignore a trace's nodes without GPUs.
        add_nodes: nodes to add to a cluster.
        without: selectors of nodes to remove from it.
        scale: workloads to scale.
    """

    name: str
    nodes: Path | None
    gpu_nodes_only: bool
    add_nodes: tuple[str, ...]
    without: tuple[str, ...]
    scale: tuple[str, ...]

    def read(self) -> Workload:
        """Return the workload; end the command if it cannot be read."""
        if self.gpu_nodes_only and self.nodes is None:
            fail("--gpu-nodes-only needs --nodes")
        try:
            return read_source(
                self.name,
                self.nodes,
                gpu_nodes_only=self.gpu_nodes_only,
                add_nodes=self.add_nodes,
                leave_out=self.without,
                scale=self.scale,
            )
        except SchedulerError as error:
            fail(str(error))


_OPTIONS = (
    click.argument("source_name", metavar="TRACE|SCENARIO|RECORDING|CLUSTER"),
    file_option(
        "--nodes",
        help="Node table of a trace, with the columns sn, cpu_milli, memory_mib, gpu and model. Without it, the first "
        "argument is a scenario (YAML with nodes, workloads and steps), a recording (a folder of `run --record`, or a file of "
        "kube-scheduler-simulator's recorder), or a cluster, as `kubectl get nodes,pods -A -o json` or YAML, whose pending "
        "pods all arrive at the beginning; - is a cluster on standard input.",
    ),
    option("--gpu-nodes-only", is_flag=True, help="Ignore a trace's nodes without GPUs."),
    option(
        "--add-nodes",
        multiple=True,
        metavar="NUMBER:SHAPE",
        help="Add nodes to a cluster: 10:like=NODE, or 10:cpu=8,memory=32Gi and labels, as in zone=eu-1a.",
    ),
    option(
        "--without",
        multiple=True,
        metavar="SELECTOR",
        help="Remove the nodes with these labels from a cluster, for example topology.kubernetes.io/zone=eu-1a; replacement "
        "pods are created for theirs.",
    ),
    option(
        "--scale",
        multiple=True,
        metavar="KIND/NAME=SIZE",
        help="Set the number of pods of a workload of a cluster, or multiply it: deployment/web=2x, statefulset/shop/db=5.",
    ),
)


def workload_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a workload, as its argument `source`."""

    @wraps(function)
    def with_source(
        *args: Any,
        source_name: str,
        nodes: Path | None,
        gpu_nodes_only: bool,
        add_nodes: tuple[str, ...],
        without: tuple[str, ...],
        scale: tuple[str, ...],
        **more: Any,
    ) -> Any:
        source = GivenSource(source_name, nodes, gpu_nodes_only, add_nodes, without, scale)
        return function(*args, source=source, **more)

    for decorate in reversed(_OPTIONS):
        with_source = decorate(with_source)
    return with_source
