"""The tour of the demo: its suggestions succeed, and its end is what it claims."""

from __future__ import annotations

import asyncio
import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from scheduler.configuration.load import default
from scheduler.tools.demo import show
from scheduler.tools.demo.show import ClusterView, ShownEvent
from scheduler.tools.demo.workloads import (
    BATCH,
    MORE_REPLICAS,
    REPLICAS,
    Tour,
    UserWorkload,
    nginx,
    storage_node,
)
from scheduler.tools.simulator.scenarios.clusters import heterogeneous
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.evaluation import evaluate_in_sequence, pods_to_evaluate
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.support import virtual_time
from tests.support.builders import pod
from tests.unit.tools.simulator.a_store import AStore

if TYPE_CHECKING:
    from collections.abc import Iterable


def placed(nodes: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]]) -> list[str | None]:
    """Return the nodes of the pending pods, placed one after the other."""
    document = {"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}
    cluster = cluster_file.parse(json.dumps(document).encode(), "cluster")
    scheduler = OfflineScheduler(cluster, default())
    judged = evaluate_in_sequence(scheduler, pods_to_evaluate(scheduler, cluster.pods))
    return [each.explanation.get("chosen") for each in judged]


def replica(number: int, node: str | None = None) -> dict[str, Any]:
    template = nginx()["spec"]["template"]
    name = f"nginx-{number:02}"
    metadata = {"name": name, "namespace": "default", "uid": name, **template["metadata"]}
    spec = template["spec"] | ({"nodeName": node} if node else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_the_proposed_number_of_replicas_fits_beside_the_first_ones() -> None:
    nodes = heterogeneous(30, seed=7)
    first = placed(nodes, [replica(number) for number in range(REPLICAS)])
    running = [replica(number, node) for number, node in enumerate(first)]

    more = placed(
        [*nodes, storage_node()], [*running, *(replica(number) for number in range(REPLICAS, MORE_REPLICAS))]
    )

    assert None not in first
    assert None not in more


@pytest.mark.parametrize(
    ("missing", "settled", "status", "first"),
    [
        ([], True, 0, "Every pod is where it should be."),
        (["nginx: 3 of 40"], True, 0, "Every pod was where it should be, before these changes:"),
        (["nginx: 3 of 20"], False, 1, "Not every pod is where it should be:"),
    ],
)
def test_the_end_tells_where_the_pods_are_now(
    missing: list[str], settled: bool, status: int, first: str
) -> None:
    console = Console(file=io.StringIO(), width=120)

    assert show._verdict(console, missing, settled=settled) == status
    assert console.file.getvalue().splitlines()[0] == first  # type: ignore[attr-defined]


def test_each_step_is_narrated_before_its_objects_exist() -> None:
    store = AStore()
    steps: dict[str, list[str]] = {}  # text -> the pods and nodes at that moment

    def narrate(text: str) -> None:
        steps[text] = [one["metadata"]["name"] for kind in ("pods", "nodes") for one in store.list(kind)]

    async def scenario() -> None:
        applying = asyncio.create_task(
            Tour().apply(SimpleNamespace(store=store), narrate, pause_seconds=4.0)  # type: ignore[arg-type]
        )
        await asyncio.sleep(60)
        assert not applying.done(), "nothing preempts before there is a victim"
        for name in BATCH:
            store.bind(name, "gpu")
        await applying

    virtual_time.run(scenario())

    assert [(text.partition(" ")[0], names) for text, names in steps.items()] == [
        ("20", []),
        ("Pod", []),
        ("Pod", ["too-big"]),
        ("Two", ["gated", "too-big"]),
        ("The", ["gated", "gpu-batch-0", "gpu-batch-1", "too-big"]),
        ("Pod", ["database", "gated", "gpu-batch-0", "gpu-batch-1", "too-big"]),
        ("A", ["database", "gated", "gpu-batch-0", "gpu-batch-1", "gpu-trainer", "too-big"]),
    ]
    assert max(map(len, [*steps, show._SETTLED])) < 80, "a line of a small terminal"


def test_without_a_terminal_the_demo_prints_its_steps_and_not_each_placed_pod() -> None:
    console = Console(file=io.StringIO(), width=120)
    cluster = ClusterView([])

    async def scenario() -> None:
        end = asyncio.Event()
        shown = asyncio.create_task(show._show(console, cluster, end))
        await asyncio.sleep(1)
        cluster.narrate("Two pods arrive.")
        for reason, name in (("Scheduled", "p"), ("Preempted", "p"), ("Preempted", "p"), ("Preempted", "q")):
            cluster.on_event(ShownEvent(reason, name, "why"))
        end.set()
        await shown

    virtual_time.run(scenario())

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[1:4] == ["Two pods arrive.", "Preempted        p  why", "Preempted        q  why"]
    assert lines[4].startswith("╭─ 0 nodes")


def test_every_suggestion_has_a_purpose() -> None:
    for workload in (Tour(), UserWorkload([])):
        for purpose, command in workload.suggestions("custom-scheduler", "http://127.0.0.1:1"):
            assert purpose[0].isupper()
            assert command.startswith(("custom-scheduler explain", "kubectl "))


def test_replicas_that_the_user_adds_must_run_too() -> None:
    pods = {f"nginx-{number}": pod(f"nginx-{number}") for number in range(MORE_REPLICAS)}

    assert Tour().outstanding(pods, {})[0] == f"nginx: 0 of {MORE_REPLICAS} replicas on a node"


def test_a_cluster_at_rest_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    cluster = ClusterView([])
    monkeypatch.setattr(show, "whole", lambda view, *_: drawn.append(view.version) or "picture")

    async def scenario() -> None:
        end = asyncio.Event()
        picture = asyncio.create_task(
            show._show(Console(file=io.StringIO(), force_terminal=True, width=80), cluster, end)
        )
        await asyncio.sleep(60)
        cluster.version += 1
        await asyncio.sleep(60)
        end.set()
        await picture

    virtual_time.run(scenario())

    assert drawn == [0, 1, 1], "at the start, after the change, and at the end"
