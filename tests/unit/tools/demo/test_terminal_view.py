"""The view of the demo fits the terminal and shows for every pod its node or its reason to wait."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console

from scheduler.objects.decode import decode_pod
from scheduler.tools.demo.show import ClusterView, ShownEvent, whole
from scheduler.tools.demo.workloads import Tour
from tests.support.builders import node, pod, pod_object

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

ZONE = "topology.kubernetes.io/zone"
WHY = (
    "0/31 nodes are available: 1 node(s) were unschedulable, 30 Insufficient cpu. "
    + 3 * "Preemption is not helpful. "
)
WAITS = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WHY}]
}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "nginx-abc", "uid": "1", "controller": True}


def replica(number: int) -> PodInfo:
    made = pod_object(
        f"nginx-abc-{number}", labels={"pod-template-hash": "abc"}, node=f"node-{number:04}", cpu="1"
    )
    made["metadata"]["ownerReferences"] = [OWNER]
    return decode_pod(msgspec.json.encode(made))


STEP = "Two batch pods request all GPUs. They tolerate the taint of the GPU nodes."


def cluster(*, alone: int = 0) -> ClusterView:
    """The tour at its end, and so many pods more that stand alone."""
    nodes = [node(f"node-{n:04}", labels={ZONE: f"eu-west-1{'abc'[n % 3]}"}) for n in range(31)]
    pods = [
        *(replica(number) for number in range(20)),
        *(pod(name, node="node-0011") for name in ("database", "gpu-batch-0", "gpu-trainer")),
        pod("gated", gates=["example.com/quota"]),
        pod("too-big", status=WAITS),
        pod("stranger", scheduler_name="volcano"),
        *(pod(f"zzz-{number}") for number in range(alone)),
    ]
    made = ClusterView(Tour.scheduler_names)
    made._nodes = {each.name: each for each in nodes}
    made._pods = {each.name: each for each in pods}
    made.step = STEP
    made.happenings.extend(
        ShownEvent("Scheduled", f"nginx-{n}", 3 * f"Assigned to node-{n:04}. ") for n in range(8)
    )
    return made


def lines(width: int, height: int, *, alone: int = 0) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(whole(cluster(alone=alone), width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 30), (100, 40), (120, 50), (200, 60)])
@pytest.mark.parametrize("alone", [0, 1, 30])
def test_the_view_fits_the_terminal(width: int, height: int, alone: int) -> None:
    shown = lines(width, height, alone=alone)

    assert len(shown) <= height
    assert max(map(len, shown)) <= width
    assert shown[0].startswith("╭─ 31 nodes ─")


def test_24_lines_of_80_columns_show_all_nodes_and_a_line_for_each_pod() -> None:
    shown = "\n".join(lines(80, 24))

    assert all(f"node-{number:04} " in shown for number in range(31))
    assert "│20 nginx    20 on 20 nodes 7 in eu-west-1a, 7 in eu-west-1b, 6 in eu-west-1c" in shown
    assert "│gated       pending        scheduling gate example.com/quota" in shown
    assert "│stranger    pending        no profile has its schedulerName volcano" in shown
    assert "│too-big     pending        0/31 nodes are available: 1 node(s) were unschedu… │" in shown
    assert STEP in shown
    assert "Events" not in shown


def test_hidden_lines_are_counted() -> None:
    assert "│and 26 more" in "\n".join(lines(80, 24, alone=25))


def test_a_large_terminal_shows_whole_reasons_and_events() -> None:
    shown = "\n".join(lines(120, 50))

    assert "Preemption is not helpful." in shown
    assert shown.count("Assigned to") >= 8


def test_a_step_wraps_in_a_narrow_terminal_with_enough_lines() -> None:
    shown = "\n".join(lines(60, 60))

    assert "Two batch pods request all GPUs. They tolerate the taint of\nthe GPU nodes." in shown
