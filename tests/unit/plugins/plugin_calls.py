"""Creates and calls plugins as the runtime does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.runtime.adapters import outcomes_of, scores_of
from scheduler.engine.runtime.plugin_classes import constructor_wants
from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterObjects,
    CycleState,
    Features,
    PreFilterPlugin,
    PreScorePlugin,
    QueueingHint,
    Status,
    TimeSlice,
)
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import FakeFeatures, FakeTimeSlice

if TYPE_CHECKING:
    from scheduler.errors import FieldError
    from scheduler.framework import EventResource, FilterPlugin, Plugin, PluginArgs, ScorePlugin
    from scheduler.objects.pod import PodInfo
    from tests.support.clusters import Cluster

DEFAULT_FEATURES = FakeFeatures()


def made(
    plugin: type[Any],
    *,
    table: ClusterTable | None = None,
    features: Features = DEFAULT_FEATURES,
    time_slice: TimeSlice | None = None,
    **args: Any,
) -> Any:
    """Create a plugin from arguments in the configuration's spelling; `table` is the cluster from which it reads objects."""
    wants = constructor_wants(plugin)
    offered: dict[Any, Any] = {
        None: msgspec.convert(args, plugin.Args),
        ClusterObjects: TableObjects(table or ClusterTable()),
        TimeSlice: time_slice or FakeTimeSlice(),
        Features: features,
    }
    return plugin(**{name: offered[wanted] for name, wanted in wants.items()})


def faults(args: type[PluginArgs], **given: Any) -> list[str]:
    """The errors of arguments in the configuration's spelling."""
    found: list[FieldError] = list(msgspec.convert(given, args).faults())
    return [str(fault) for fault in found]


def reasons(plugin: FilterPlugin, pod: PodInfo, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Node name -> the reasons of its rejection, for rejected nodes."""
    state, snapshot = CycleState(), cluster.snapshot()
    if isinstance(plugin, PreFilterPlugin):
        answer = plugin.pre_filter(state, pod, snapshot)
        if answer is SKIP:
            return {}
        assert not isinstance(answer, Status) or answer.is_success, answer
    outcomes = outcomes_of(plugin, state, pod, snapshot, snapshot.all_rows)
    return {
        node.name: outcomes.of(row).reasons
        for row, node in enumerate(cluster.nodes)
        if not outcomes.passing[row]
    }


def scores(plugin: ScorePlugin, pod: PodInfo, cluster: Cluster) -> dict[str, int] | None:
    """Node name -> normalized score; None if PreScore skips."""
    state, snapshot = CycleState(), cluster.snapshot()
    rows = snapshot.all_rows
    if isinstance(plugin, PreScorePlugin) and plugin.pre_score(state, pod, snapshot, rows) is SKIP:
        return None
    found = plugin.normalize(state, pod, scores_of(plugin, state, pod, snapshot, rows), rows)
    return {node.name: int(found[row]) for row, node in enumerate(cluster.nodes)}


def requeues(
    plugin: Plugin,
    resource: EventResource,
    pod: PodInfo,
    old: Any,
    new: Any,
    action: ActionType = ActionType.ALL,
) -> bool:
    """Return whether an event requeues a pod; `action` selects one of several events of a kind."""
    (registered,) = [
        each for each in plugin.events() if each.event.resource is resource and each.event.action & action
    ]
    found = QueueingHint.QUEUE if registered.hint is None else registered.hint(pod, old, new)
    assert isinstance(found, QueueingHint)
    return found is QueueingHint.QUEUE
