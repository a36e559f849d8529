"""Sources of simulations: a trace, a scenario, a recording, or a cluster with edits."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.errors import SchedulerError
from scheduler.tools.whatif.backtest.recorded_workload import is_own_recording, read_own_recording
from scheduler.tools.whatif.cluster_file import STANDARD_INPUT, load
from scheduler.tools.whatif.simulation.edits import EditError, scaled, with_nodes, without
from scheduler.tools.whatif.simulation.recorder_file import is_recording, read_recording
from scheduler.tools.whatif.simulation.scenario_source import is_scenario, of_cluster, read_scenario
from scheduler.tools.whatif.simulation.trace import TraceError, is_pod_table, read_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.whatif.simulation.workload import Workload


class SourceError(SchedulerError):
    """A source of another kind than expected."""


class SourceKind(Enum):
    """What a source of pods is, by its contents."""

    TRACE = "trace"
    SCENARIO = "scenario"
    RECORDING = "recording"
    CLUSTER = "cluster"


def read_source(
    source: str,
    nodes: Path | None = None,
    *,
    expected: SourceKind | None = None,
    gpu_nodes_only: bool = False,
    add_nodes: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    scale: Sequence[str] = (),
) -> Workload:
    """Return the workload of a file, after edits to its cluster.

    Args:
        source: pods of a trace, a scenario, a recording, or a cluster; `-` and pipes are clusters.
        nodes: the nodes of a trace.
        expected: the kind that the source must have; None for any.
        gpu_nodes_only: whether to ignore a trace's nodes without GPUs.
        add_nodes: see `edits.with_nodes`; all edits apply only to clusters.
        leave_out: see `edits.without`.
        scale: see `edits.scaled`.

    Raises:
        SchedulerError: a part that cannot be read, with its place, or an invalid edit.
    """
    kind = SourceKind.TRACE if nodes is not None else _kind_of(source)
    if expected not in {None, kind}:
        if kind is SourceKind.CLUSTER and source != STANDARD_INPUT:
            load(source)  # reports that it cannot be read
        raise SourceError(f"{source} is a {kind.value}, expected a {expected.value}")
    if kind is not SourceKind.CLUSTER:
        if add_nodes or leave_out or scale:
            raise EditError("--add-nodes, --without and --scale apply only to a cluster from kubectl")
        if nodes is not None:
            return read_trace(nodes, Path(source), gpu_nodes_only=gpu_nodes_only)
        if kind is SourceKind.SCENARIO:
            return read_scenario(source)
        return read_own_recording(source) if is_own_recording(source) else read_recording(source)
    cluster = load(source)
    for text in leave_out:
        cluster = without(cluster, text)
    for text in add_nodes:
        cluster = with_nodes(cluster, text)
    for text in scale:
        cluster = scaled(cluster, text)
    return of_cluster(cluster)


def _kind_of(source: str) -> SourceKind:
    """Return the kind of a source that is no trace with its nodes; one that cannot be read is a cluster, whose reader reports it."""
    if not _can_be_looked_at(source):
        return SourceKind.CLUSTER
    if Path(source).is_file() and is_pod_table(Path(source)):
        raise TraceError(
            f"{source} is the table of a trace's pods: a trace needs --nodes FILE, the table of its nodes"
        )
    if is_own_recording(source) or is_recording(source):
        return SourceKind.RECORDING
    return SourceKind.SCENARIO if is_scenario(Path(source).read_bytes()) else SourceKind.CLUSTER


def _can_be_looked_at(source: str) -> bool:
    """Return whether the type of a source can be detected before it is read: a pipe can be read only once."""
    if source == STANDARD_INPUT:
        return False
    path = Path(source)
    try:
        if not path.is_file():
            return path.is_dir()
        with path.open("rb") as file:
            file.read(1)
    except OSError:  # the reader reports the error
        return False
    return True
