"""The options by which commands name a workload, and those of simulations of it."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from scheduler.cli.options import fail, file_option, option
from scheduler.errors import SchedulerError
from scheduler.tools.whatif.sources import SourceKind, read_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scheduler.tools.whatif.simulation.workload import Workload


class GivenSource(NamedTuple):
    """The source of a workload.

    Attributes:
        name: path of a file or a folder; `-` is standard input.
        kind: its kind; None for any.
        nodes: node table of a trace.
        gpu_nodes_only: whether to ignore a trace's nodes without GPUs.
        add_nodes: nodes to add to a cluster.
        without: selectors of nodes to remove from it.
        scale: workloads to scale.
    """

    name: str
    kind: SourceKind | None
    nodes: Path | None
    gpu_nodes_only: bool
    add_nodes: tuple[str, ...]
    without: tuple[str, ...]
    scale: tuple[str, ...]

    def read(self) -> Workload:
        """Return the workload; end the command if it cannot be read."""
        if self.gpu_nodes_only and self.nodes is None:
            fail("--gpu-nodes-only needs --nodes")
        if self.nodes is not None and self.kind not in {None, SourceKind.TRACE}:
            fail("--nodes needs --trace")
        try:
            return read_source(
                self.name,
                self.nodes,
                expected=self.kind,
                gpu_nodes_only=self.gpu_nodes_only,
                add_nodes=self.add_nodes,
                leave_out=self.without,
                scale=self.scale,
            )
        except SchedulerError as error:
            fail(str(error))


_SCENARIO: Final = "a scenario (YAML with nodes, workloads and steps)"
_RECORDING: Final = (
    "a recording (a folder of `run --record`, or a file of kube-scheduler-simulator's recorder)"
)
_CLUSTER: Final = (
    "a cluster, as `kubectl get nodes,pods -A -o json` or YAML, whose pending pods all arrive at the beginning; - is a "
    "cluster on standard input"
)
_NODE_TABLE: Final = "Node table of a trace, with the columns sn, cpu_milli, memory_mib, gpu and model."
_EDITS: Final = (
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
_OF_ANY_KIND: Final = (
    click.argument("source", metavar="TRACE|SCENARIO|RECORDING|CLUSTER"),
    file_option(
        "--nodes",
        help=f"{_NODE_TABLE} Without it, the first argument is {_SCENARIO}, {_RECORDING}, or {_CLUSTER}.",
    ),
    *_EDITS,
)
_BY_KIND: Final = (
    option("--recording", metavar="DIR", help=f"The workload: {_RECORDING}."),
    option("--trace", metavar="FILE", help="The workload: the table of a trace's pods, with --nodes."),
    option("--scenario", metavar="FILE", help=f"The workload: {_SCENARIO}."),
    option("--cluster", metavar="FILE", help=f"The workload: {_CLUSTER}."),
    file_option("--nodes", help=f"With --trace: {_NODE_TABLE[0].lower()}{_NODE_TABLE[1:]}"),
    *_EDITS,
)


def workload_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a workload of any kind, as its argument `source`."""

    @wraps(function)
    def with_source(*args: Any, source: str, **more: Any) -> Any:
        return _called(function, args, source, None, more)

    return _decorated(with_source, _OF_ANY_KIND)


def workload_by_kind_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an option for each kind of workload, of which exactly one is needed, as its argument `source`."""

    @wraps(function)
    def with_source(*args: Any, **more: Any) -> Any:
        given = {kind: name for kind in SourceKind if (name := more.pop(kind.value)) is not None}
        if len(given) != 1:
            raise click.UsageError(
                "exactly one of --recording DIR, --trace FILE, --scenario FILE and --cluster FILE is needed"
            )
        ((kind, name),) = given.items()
        return _called(function, args, name, kind, more)

    return _decorated(with_source, _BY_KIND)


def _called(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    name: str,
    kind: SourceKind | None,
    more: dict[str, Any],
) -> Any:
    edits = {field: more.pop(field) for field in GivenSource._fields[2:]}
    return function(*args, source=GivenSource(name, kind, **edits), **more)


def _decorated(function: Callable[..., Any], options: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    for decorate in reversed(options):
        function = decorate(function)
    return function


seeds_option = partial(option, "--seeds", type=click.IntRange(1, 1000))
arrivals_option = partial(
    option,
    "--arrivals",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Draw this number of pods from the workload for each seed, over the same time; their run times are scaled so that "
    "the load stays.",
)


def processes_option(what: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option for the number of processes, which run a number of `what` at a time."""
    return option(
        "--processes",
        type=click.IntRange(1),
        help=f"Number of {what} that run at a time.  [default: one per CPU]",
        **more,
    )
