"""Comparison with plugins without caches: cached results always equal new results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.runtime.calls import PluginError
from scheduler.framework import Code, Outcomes, Status
from tests.support.builders import node, pod
from tests.support.scripted_plugins import Filter, NodeFilter, NodeScore, Score, framework_of
from tests.support.snapshots import cache_of
from tests.unit.engine.runtime.evaluation import by_class, by_plugin

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scheduler.engine.runtime.framework import Framework
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot
    from tests.unit.engine.runtime.evaluation import Judge, Judged

    Kinds = tuple[str | None, str | None]
    """The labels `class` and `size` of a pod."""


class Verdict:
    """A rule that reads many parts of a node, its pods, the pod and its own background data.

    Attributes:
        reads: the label of a pod that it reads.
        number: the version of its data.
        breaks: whether it currently fails for some nodes.
    """

    reads = "class"
    number = 0
    breaks = False

    def mark(self, each: PodInfo, node: Any) -> int:
        crowd = sorted(other.name for other in node.pods)
        labels = tuple(sorted(node.labels.items()))
        parts = (node.name, tuple(crowd), labels, each.labels.get(self.reads), self.number)
        return sum(hash_of(part) for part in parts) % 101

    def version(self) -> int:
        return self.number


def hash_of(part: Any) -> int:
    return sum(number * ord(letter) for number, letter in enumerate(repr(part), 1))


class ByNode(Verdict, NodeFilter):
    def filter_node(self, state: Any, pod: PodInfo, node: Any) -> Status | None:
        mark = self.mark(pod, node)
        if self.breaks and mark % 2:
            return Status.failed("broken")
        return Status.unschedulable(f"reason {mark % 4}") if mark % 3 == 0 else None


class AtOnce(Verdict, Filter):
    reads = "size"

    def filter(self, state: Any, pod: PodInfo, snapshot: Snapshot, rows: Any) -> Outcomes:
        marks = [self.mark(pod, snapshot.node_info(row)) for row in range(snapshot.n_nodes)]
        if self.breaks and any(mark % 5 == 0 for mark in marks):
            raise KeyError("broken")
        statuses = [
            Status.unschedulable(f"mark {mark}") if mark % 7 == 0 else Status(Code.SUCCESS) for mark in marks
        ]
        return Outcomes.from_statuses(snapshot.n_nodes, snapshot.all_rows, statuses)


class Ranks(Verdict, Score):
    reads = "size"

    def score(self, state: Any, pod: PodInfo, snapshot: Snapshot, feasible: Any) -> Any:
        marks = [self.mark(pod, snapshot.node_info(row)) for row in range(snapshot.n_nodes)]
        if self.breaks and any(mark % 5 == 0 for mark in marks):
            raise KeyError("broken")
        return np.array(marks, dtype=np.int64)

    def normalize(self, state: Any, pod: PodInfo, scores: Any, feasible: Any) -> Any:
        return scores * 100 // max(int(scores[feasible].max()), 1)


class RanksNodes(Verdict, NodeScore):
    def score_node(self, state: Any, pod: PodInfo, node: Any) -> int:
        return min(self.mark(pod, node), 100)


class Signs(Verdict):
    def signature(self, pod: PodInfo) -> Hashable | None:
        return pod.labels.get(self.reads)


FRESH: tuple[Any, ...] = (ByNode, AtOnce, Ranks, RanksNodes)
KEPT: tuple[Any, ...] = tuple(type(kind.__name__, (Signs, kind), {}) for kind in FRESH)

NODES = st.sampled_from([f"n{number}" for number in range(12)])
CLASSES = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None]))
STEPS = st.one_of(
    st.tuples(st.just("change"), NODES, st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("change_all"), st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("remove"), NODES),
    st.tuples(st.just("bind"), st.integers(0, 8), NODES),
    st.tuples(st.just("unbind"), st.integers(0, 8)),
    st.tuples(st.just("version"), st.sampled_from([0, 1, 2])),
    st.tuples(st.just("fail"), CLASSES, st.sampled_from([by_plugin, by_class])),
    st.tuples(st.just("decide"), CLASSES, st.sampled_from([by_plugin, by_class])),
    st.tuples(st.just("decide"), CLASSES, st.just(by_class)),
    st.tuples(st.just("expect"), CLASSES, NODES),
)  # fmt: skip


class Twins:
    """The same cluster, evaluated by plugins with cached results and by plugins without them."""

    def __init__(self) -> None:
        self.cache = cache_of(["n0", "n1", "n2"])
        kept, fresh = [kind() for kind in KEPT], [kind() for kind in FRESH]
        self.plugins: list[Any] = [*kept, *fresh]
        self.kept, self.fresh = framework_of(*kept), framework_of(*fresh)

    def step(self, what: str, *args: Any) -> None:
        getattr(self, what)(*args)

    def change(self, name: str, kind: str) -> None:
        self.cache.add_node(node(name, labels={"kind": kind}))

    def change_all(self, kind: str) -> None:
        for name in [each.name for each in self.cache.snapshot().nodes]:
            self.change(name, kind)

    def remove(self, name: str) -> None:
        self.cache.remove_node(name)

    def bind(self, number: int, name: str) -> None:
        self.cache.add_pod(pod(f"p{number}", node=name, cpu="1"))

    def unbind(self, number: int) -> None:
        self.cache.remove_pod(pod(f"p{number}").uid)

    def version(self, number: int) -> None:
        self.set(number=number)

    def fail(self, kinds: Kinds, way: Judge) -> None:
        """Evaluate a pod while plugins fail for some nodes; the failures must not be cached."""
        self.set(breaks=True)
        self.judge(self.kept, way, pod_of(kinds), self.cache.snapshot())
        self.set(breaks=False)

    def decide(self, kinds: Kinds, way: Judge) -> None:
        self.compare(way, pod_of(kinds), self.cache.snapshot())

    def expect(self, kinds: Kinds, name: str) -> None:
        snapshot, row = self.cache.snapshot(), self.cache.table.row_of(name)
        if row is not None:
            self.compare(by_plugin, pod_of(kinds), snapshot.overlay(add=[(row, pod("soon"))]))
            self.compare(by_class, pod_of(kinds), snapshot, {row: [pod("soon")]})
            self.compare(by_class, pod_of(kinds), snapshot)

    def set(self, **attributes: Any) -> None:
        for plugin in self.plugins:
            vars(plugin).update(attributes)

    def compare(self, way: Judge, each: PodInfo, snapshot: Snapshot, *more: Any) -> None:
        if snapshot.n_nodes:
            kept = self.judge(self.kept, way, each, snapshot, *more)
            assert kept == self.judge(self.fresh, way, each, snapshot, *more)

    def judge(self, framework: Framework, way: Judge, *args: Any) -> Judged | str:
        try:
            return way(framework, *args)
        except PluginError as error:
            return str(error)


def pod_of(kinds: Kinds) -> PodInfo:
    labels = zip(("class", "size"), kinds, strict=True)
    return pod("web", labels={name: value for name, value in labels if value})


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=40))
def test_cached_results_equal_new_ones(steps: list[Any]):
    twins = Twins()
    for step in steps:
        twins.step(*step)
    for kinds in (("a", "x"), ("b", "x"), (None, "y")):
        twins.step("decide", kinds, by_class)
        twins.step("decide", kinds, by_plugin)
