"""Ways to evaluate a pod, for tests of cached results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework import Diagnosis
from tests.support.builders import node
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.engine.runtime.framework import Framework
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

    Judge = Callable[..., "Judged"]
    Judged = tuple[list[int], list[int], dict[str, list[int]], str]
    """The feasible rows, their totals, what each plugin gave, and the message."""


def by_plugin(framework: Framework, pod: PodInfo, snapshot: Snapshot) -> Judged:
    """Evaluate a pod without its class: the results of each plugin are cached separately."""
    state, diagnosis = AttemptState(), Diagnosis.blank(snapshot.n_nodes)
    rows = framework.filtering.run_filters(state, pod, snapshot, snapshot.all_rows, diagnosis)
    return _judged(framework, pod, snapshot, state, diagnosis, rows)


def by_class(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    nominated: Mapping[int, list[PodInfo]] | None = None,
) -> Judged:
    """Evaluate a pod as a scheduling cycle does: the results of all plugins are cached for its class."""
    state, diagnosis = AttemptState(), Diagnosis.blank(snapshot.n_nodes)
    status = framework.filtering.run_pre_filter(state, pod, snapshot, diagnosis)
    if not status.is_success:
        raise PluginError(status)
    rows = framework.filtering.find_feasible(
        state, pod, snapshot, diagnosis, rows=snapshot.all_rows, nominated=nominated or {}
    )
    return _judged(framework, pod, snapshot, state, diagnosis, rows)


class Again:
    """Evaluates pods in another way, after an invented first pod of each class, whose results are not cached."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._met: set[tuple[int, str | None]] = set()

    def __call__(self, framework: Framework, pod: PodInfo, *more: Any) -> Judged:
        kind = (id(framework), pod.labels.get("class"))
        if kind not in self._met:
            self._met.add(kind)
            before = {
                plugin: list(plugin.calls) for plugin in framework.plugins.all() if hasattr(plugin, "calls")
            }
            self._judge(framework, pod, snapshot_of(node("before", labels={"turn": ""})))
            for plugin, calls in before.items():
                plugin.calls[:] = calls
        return self._judge(framework, pod, *more)


def _judged(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, state: Any, diagnosis: Diagnosis, rows: Rows
) -> Judged:
    message = diagnosis.message()
    if not rows.size:
        return [], [], {}, message
    scores = framework.scoring.run(state, pod, snapshot, rows)
    assert scores.best.tolist() == rows[scores.total == scores.total.max()].tolist()
    by_name = {name: values.tolist() for name, values in scores.by_plugin.items()}
    return rows.tolist(), scores.total.tolist(), by_name, message
