"""Filters of pods and nodes."""

from __future__ import annotations

import pytest

from scheduler.configuration.load import default
from scheduler.loop_work import run_to_end
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.filters import EVERY_POD, LabelFilter, PodFilter, node_labels
from scheduler.tools.board.pending_pods import PendingPods
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.support.builders import node, pod
from tests.unit.tools.board.test_workloads import owned

LABELS = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        (" app = web , tier ", True),
        ("app=db", False),
        ("app=web,tier=back", False),
        ("app=", False),
        ("zone", False),
    ],
)
def test_labels_are_matched_as_by_kubectl(text: str, *, matches: bool) -> None:
    assert LabelFilter.of(text).matches(LABELS) is matches


def test_pending_pods_are_filtered_and_counted_by_namespace_and_priority() -> None:
    pods = [
        pod("a", labels=LABELS, priority=5),
        owned("b", namespace="batch"),
        pod("c", namespace="batch", priority=5),
    ]
    subject = FileBoard(ClusterFile([], pods), default(), refresh=False).subject

    def found(wanted: PodFilter = EVERY_POD) -> tuple[list[str], dict[str, object]]:
        waiting = PendingPods(subject, wanted)
        run_to_end(waiting.steps())
        keys = sorted(key for group in waiting.groups for _, key in group.pods)
        return keys, waiting.totals()

    keys, totals = found()
    assert keys == ["batch/b", "batch/c", "default/a"]
    assert totals["namespaces"] == {"largest": [("batch", 2), ("default", 1)], "others": 0}
    assert totals["priorities"] == {"largest": [(5, 2), (0, 1)], "others": 0}
    assert found(PodFilter(namespace="batch"))[0] == ["batch/b", "batch/c"]
    assert found(PodFilter(owner="Job/tr"))[0] == ["batch/b"]
    assert found(PodFilter(labels=LabelFilter.of("app=web")))[0] == ["default/a"]


def test_nodes_are_grouped_by_labels_with_few_values() -> None:
    nodes = [
        node(f"n{each}", labels={"pool": f"p{each % 2}", "kubernetes.io/hostname": f"n{each}"})
        for each in range(60)
    ]
    subject = FileBoard(ClusterFile(nodes, []), default(), refresh=False).subject

    found = run_to_end(node_labels(subject, LabelFilter.of("pool=p1"), "pool"))

    assert "pool" in found["keys"]
    assert "kubernetes.io/hostname" not in found["keys"], "it has 60 values"
    assert len(found["nodes"]) == 30
    assert set(found["nodes"].values()) == {"p1"}
