"""The dry run of preemption finds the same victims on all nodes together and on one node after another."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from plugins.node_ports import NodePorts
from plugins.node_resources.fit import NodeResourcesFit
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.runtime.plugin_classes import keeps_rows_apart
from scheduler.framework import Code, Diagnosis, Status
from tests.support.builders import node, pod
from tests.support.scripted_plugins import Filter, NodeFilter, PreFilter, framework_of
from tests.support.snapshots import snapshot_of
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    Found = Mapping[int, Status | tuple[PodInfo, ...]]


def dry_run(
    snapshot: Snapshot,
    preemptor: PodInfo,
    removable: Mapping[int, Sequence[PodInfo]],
    nominated: Mapping[int, Sequence[PodInfo]] | None = None,
    *more: Plugin,
) -> Found:
    plugins = [NodePorts(), made(NodeResourcesFit), *more]
    filtering = framework_of(*plugins).filtering
    state = AttemptState()
    assert filtering.run_pre_filter(state, preemptor, snapshot, Diagnosis.blank(snapshot.n_nodes)).is_success
    tried = DryRun()
    tried.filtering = filtering
    return tried.dry_run(state, preemptor, snapshot, removable, nominated or {})


def names(found: Found) -> dict[int, list[str] | tuple[str, ...]]:
    return {
        row: result.reasons if isinstance(result, Status) else [each.name for each in result]
        for row, result in found.items()
    }


def test_only_pods_that_do_not_fit_beside_the_preemptor_are_evicted() -> None:
    small, large = pod("small", cpu="1", node="n0"), pod("large", cpu="3", node="n0")
    snapshot = snapshot_of("n0", pods=[small, large])

    assert names(dry_run(snapshot, pod("p", cpu="2"), {0: [small, large]})) == {0: ["large"]}
    assert names(dry_run(snapshot, pod("p", cpu="2"), {0: [large, small]})) == {0: ["large"]}
    assert names(dry_run(snapshot, pod("p", cpu="1"), {0: [large, small]})) == {0: ["small"]}


def test_a_node_that_is_too_full_without_its_victims_has_a_reason() -> None:
    stays, goes = pod("stays", cpu="3", node="n0"), pod("goes", cpu="1", node="n0")
    found = dry_run(snapshot_of("n0", pods=[stays, goes]), pod("p", cpu="2"), {0: [goes]})

    assert names(found) == {0: ("Insufficient cpu",)}
    assert isinstance(found[0], Status)
    assert found[0].code is Code.UNSCHEDULABLE


def test_capacity_of_nominated_pods_is_kept() -> None:
    first, second = pod("first", cpu="2", node="n0"), pod("second", cpu="2", node="n0")
    snapshot, removable = snapshot_of("n0", pods=[first, second]), {0: [first, second]}

    assert names(dry_run(snapshot, pod("p", cpu="2"), removable)) == {0: ["second"]}
    expected = {0: [pod("expected", cpu="2", priority=9)]}
    assert names(dry_run(snapshot, pod("p", cpu="2"), removable, expected)) == {0: ["first", "second"]}


def fails(*_: Any) -> Status:
    return Status.failed("no answer")


def raises(_state: Any, _pod: Any, pods: Sequence[tuple[int, PodInfo]], _snapshot: Any) -> None:
    if pods[0][0] == 1:
        raise KeyError("x")


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (NodeFilter("Mine", fails), 'running "Mine" filter plugin: no answer'),
        (PreFilter("Mine", remove_pods=raises), "running RemovePod on PreFilter plugin \"Mine\": KeyError: 'x'"),
        (PreFilter("Mine", add_pods=raises), "running AddPod on PreFilter plugin \"Mine\": KeyError: 'x'"),
    ],
    ids=["Filter", "RemovePod", "AddPod"],
)  # fmt: skip
def test_a_plugin_that_fails_is_the_reason_of_a_node(plugin: Plugin, message: str) -> None:
    victims = [pod(f"v{row}", cpu="2", node=f"n{row}") for row in range(2)]
    found = dry_run(
        snapshot_of("n0", "n1", pods=victims),
        pod("p", cpu="4"),
        {row: [each] for row, each in enumerate(victims)},
        None,
        plugin,
    )

    refusal = found[1]
    assert isinstance(refusal, Status)
    assert (refusal.code, refusal.reasons, refusal.plugin) == (Code.ERROR, (message,), "Mine")
    assert isinstance(found[0], Status) == isinstance(plugin, NodeFilter)  # the others failed at n1 only


@pytest.mark.parametrize("seed", range(20))
def test_all_nodes_together_give_the_same_result_as_one_by_one(seed: int) -> None:
    random = Random(seed)
    nodes = [node(f"n{row}", cpu=str(random.randint(2, 6)), pods=random.randint(2, 6)) for row in range(6)]
    pods = [
        pod(
            f"v{number}",
            cpu=f"{random.randint(1, 20) * 100}m",
            node=f"n{random.randrange(6)}",
            containers=[
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": f"{random.randint(1, 20) * 100}m"}},
                    "ports": [{"hostPort": random.choice([80, 81]), "containerPort": 1}],
                }
            ],
        )
        for number in range(20)
    ]
    snapshot = snapshot_of(*nodes, pods=pods)
    removable = {row: [each for each in snapshot.pods_on(row) if random.random() < 0.8] for row in range(6)}
    removable = {row: its for row, its in removable.items() if its}
    nominated = {0: [pod("soon", cpu="1", priority=9)], 3: [pod("later", cpu="2", priority=9)]}
    asked = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    preemptor = pod("p", priority=5, containers=[{**asked, "ports": [{"hostPort": 80, "containerPort": 1}]}])

    together = dry_run(snapshot, preemptor, removable, nominated)
    apart = {
        row: result
        for row, its in removable.items()
        for row, result in dry_run(snapshot, preemptor, {row: its}, nominated).items()
    }
    assert together == apart
    reported = PreFilter("Told")
    assert dry_run(snapshot, preemptor, removable, nominated, reported) == together
    assert reported.called().count("remove_pods") >= len(removable)  # each node was evaluated alone


def test_a_plugin_with_pod_updates_must_promise_independent_rows() -> None:
    class Promises(PreFilter):
        keeps_rows_apart = True

    plugins = [NodePorts(), made(NodeResourcesFit), Promises("P")]
    assert keeps_rows_apart(plugins, pod("web"))
    assert not keeps_rows_apart([PreFilter("Told")], pod("web"))
    assert not keeps_rows_apart([Filter("ClusterWide")], pod("web"))
    assert keeps_rows_apart([PreFilter("Told")], pod("web"), frozenset({"Told"}))


def test_plugins_remove_very_many_pods_in_several_steps() -> None:
    reported: list[int] = []

    class Counts(PreFilter):
        keeps_rows_apart = True

        def remove_pods(self, state: Any, pod: PodInfo, removed: Sequence[Any], snapshot: Snapshot) -> None:
            reported.append(len(removed))

    victims = {row: [pod(f"{row}-{place}", node=f"n{row}") for place in range(600)] for row in range(2)}
    snapshot = snapshot_of("n0", "n1", pods=[each for its in victims.values() for each in its])

    dry_run(snapshot, pod("p"), victims, None, Counts("Counts"))

    assert reported[:3] == [500, 500, 200]
    assert max(reported) == 500
