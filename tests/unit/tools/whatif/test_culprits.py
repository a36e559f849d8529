"""Each explanation begins with the verdict, and names what keeps the pod from its nodes, in text and JSON alike."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from scheduler.configuration.load import default
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.evaluation import evaluate_each, pods_to_evaluate
from scheduler.tools.whatif.explanation_text import show
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import Mapping

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def node(name: str, zone: str, **fields: Any) -> dict[str, Any]:
    labels = {ZONE: zone, HOST: name, **fields.pop("labels", {})}
    return node_object(name, labels=labels, **{"cpu": "4", **fields})


def pod(name: str, **fields: Any) -> dict[str, Any]:
    return pod_object(name, scheduler_name="default-scheduler", **fields)


def web(**fields: Any) -> dict[str, Any]:
    return pod("web", **{"labels": {"app": "web"}, **fields})


def selector(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"matchLabels": dict(labels)}


def spread() -> list[dict[str, Any]]:
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**rule, "labelSelector": selector({"app": "web"})}]


def terms(kind: str, key: str, **labels: str) -> dict[str, Any]:
    term = {"labelSelector": selector(labels), "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def required_zones(*zones: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def port(number: int) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "pause", "ports": [{"hostPort": number, "protocol": "TCP"}]}]


def explained(*objects: dict[str, Any], key: str = "default/web") -> dict[str, Any]:
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    cluster = cluster_file.parse(document, "cluster")
    scheduler = OfflineScheduler(cluster, default("default-scheduler"))
    pods = [each for each in pods_to_evaluate(scheduler, cluster.pods) if each.key == key]
    (judged,) = evaluate_each(scheduler, pods)
    return judged.explanation


def text_of(explanation: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=500, highlight=False)
    show(console, explanation, all_nodes=True)
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return lines


NOWHERE = "Pod default/web does not fit on any of {} nodes. It would fit if: {}."
ALONE = "Pod default/web does not fit on the only node. It would fit if: {}."

SPREAD = [
    node("a1", "a"),
    node("b1", "b"),
    pod("busy", node="b1", cpu="3"),
    *(pod(f"web-{number}", node="a1", labels={"app": "web"}) for number in range(2)),
    web(cpu="2", topologySpreadConstraints=spread()),
]
TAINTED = [node("a1", "a", taints=["gpu=true:NoSchedule"]), node("b1", "b", cpu="1"), web(cpu="2")]
LABELLED = [node("a1", "a", labels={"disk": "hdd"}), node("b1", "b"), web(nodeSelector={"disk": "ssd"})]
ZONED = [node("a1", "a"), web(affinity=required_zones("b", "c"))]
APART = [
    node("a1", "a"),
    pod("web-0", node="a1", labels={"app": "web"}),
    web(affinity=terms("podAntiAffinity", ZONE, app="web")),
]
TOGETHER = [
    node("a1", "a"),
    node("b1", "b", cpu="1"),
    pod("db-0", node="b1", cpu="1", labels={"app": "db"}),
    web(cpu="1", affinity=terms("podAffinity", ZONE, app="db")),
]
UNWANTED = [
    node("a1", "a"),
    pod("db-0", node="a1", affinity=terms("podAntiAffinity", ZONE, app="web")),
    web(),
]
PORTS = [node("a1", "a"), pod("proxy", node="a1", containers=port(80)), web(containers=port(80))]
FULL = [node("a1", "a"), node("a2", "a"), pod("half", cpu="100m", node="a2"), web(cpu="5")]
CORDONED = [node("a1", "a", unschedulable=True), web()]


@pytest.mark.parametrize(
    ("objects", "verdict", "node_name", "detail", "summary"),
    [
        pytest.param(
            SPREAD,
            NOWHERE.format(2, "its cpu request were 1 or less (now 2); "
            f"or maxSkew of its spread over {ZONE} were 3 or more (now 1); or one node like b1 were added in zone b; "
            "or its priority were 1 or more (now 0), since it would preempt default/busy on b1"),
            "a1",
            f"spread of app=web over {ZONE} (maxSkew 1): a pod here would make the skew 3; a has 2 pods, the minimum is 0; "
            "pods by domain: b 0, a 2",
            f"spread of app=web over {ZONE} (maxSkew 1): pods by domain: b 0, a 2",
            id="spread",
        ),
        pytest.param(
            TAINTED,
            NOWHERE.format(2, "its cpu request were 1 or less (now 2); "
            "or the taint gpu=true:NoSchedule were removed from a1 (or tolerated)"),
            "a1",
            "does not tolerate gpu=true:NoSchedule",
            "taints without a toleration: gpu=true:NoSchedule on 1 of 1 nodes",
            id="taint",
        ),
        pytest.param(
            LABELLED,
            NOWHERE.format(2, "a1 had the label disk=ssd (or the pod did not require it)"),
            "a1",
            "nodeSelector disk=ssd; the node has disk=hdd",
            "required: disk=ssd on 0 of 2 nodes",
            id="nodeSelector",
        ),
        pytest.param(
            ZONED,
            ALONE.format(f"it did not require {ZONE} In [b, c] (it fits on a1 then)"),
            "a1",
            f"node affinity {ZONE} In [b, c]; the node has {ZONE}=a",
            f"required: {ZONE} In [b, c] on 0 of 1 nodes",
            id="node affinity",
        ),
        pytest.param(
            APART,
            ALONE.format(f"it did not require the anti-affinity app=web in {ZONE} (pod default/web-0 is on a1); "
            "or its priority were 1 or more (now 0), since it would preempt default/web-0 on a1"),
            "a1",
            f"anti-affinity app=web in {ZONE}: pod default/web-0 is on this node",
            f"anti-affinity app=web in {ZONE}: pod default/web-0 is on a1",
            id="anti-affinity",
        ),
        pytest.param(
            TOGETHER,
            NOWHERE.format(2, f"it did not require the affinity app=db in {ZONE} (no such pod in {ZONE}=a; "
            f"such pods: default/db-0 on b1 ({ZONE}=b)); or one node like b1 were added in zone b"),
            "a1",
            f"affinity app=db in {ZONE}: no such pod in {ZONE}=a; such pods: default/db-0 on b1 ({ZONE}=b)",
            f"affinity app=db in {ZONE}: no such pod in {ZONE}=a; such pods: default/db-0 on b1 ({ZONE}=b)",
            id="affinity",
        ),
        pytest.param(
            UNWANTED,
            ALONE.format("its priority were 1 or more (now 0), since it would preempt default/db-0 on a1"),
            "a1",
            f"pod default/db-0 on this node has anti-affinity to app=web in {ZONE}",
            f"pod default/db-0 on a1 has anti-affinity to app=web in {ZONE}",
            id="anti-affinity of another pod",
        ),
        pytest.param(
            PORTS,
            ALONE.format("the host port 80/TCP were free on a1 (used by default/proxy); "
            "or one node like a1 were added in zone a; "
            "or its priority were 1 or more (now 0), since it would preempt default/proxy on a1"),
            "a1",
            "host port 80/TCP is in use by default/proxy",
            "host ports 80/TCP are requested",
            id="host port",
        ),
        pytest.param(
            FULL,
            NOWHERE.format(2, "its cpu request were 4 or less (now 5)"),
            "a2",
            "needs 5 cpu, 3.9 free of 4",
            "5 cpu requested, at most 4 of 4 free (a1)",
            id="resources",
        ),
        pytest.param(
            CORDONED,
            ALONE.format("a1 were uncordoned; or one node like a1 were added in zone a"),
            "a1",
            "the node is cordoned",
            "cordoned",
            id="cordoned node",
        ),
    ],
)  # fmt: skip
def test_a_rejection_names_its_culprit_and_the_smallest_change(
    objects: list[dict[str, Any]], verdict: str, node_name: str, detail: str, summary: str
) -> None:
    explanation = explained(*objects)
    lines = text_of(explanation)

    assert next(iter(explanation)) == "verdict"
    assert explanation["verdict"] == lines[0] == verdict
    assert explanation["nodes"][node_name]["details"] == [detail]
    assert any(line.startswith("     ") and line.endswith(detail) for line in lines)
    assert summary in [each["summary"] for each in explanation["rejections"]]
    assert any(line.endswith(f"; {summary}") for line in lines)


def test_a_missing_claim_is_named_with_the_object_that_would_help() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    explanation = explained(node("a1", "a"), web(volumes=[claim]))

    assert explanation["verdict"] == text_of(explanation)[0]
    assert explanation["verdict"] == (
        "Pod default/web does not fit on any node: the PersistentVolumeClaim data does not exist in namespace default "
        "(VolumeRestrictions). It would fit if: a PersistentVolumeClaim data existed in namespace default."
    )


def test_gates_are_named_by_the_verdict() -> None:
    explanation = explained(node("a1", "a"), web(gates=["example.com/quota"]))

    assert explanation["verdict"] == text_of(explanation)[0]
    assert explanation["verdict"] == (
        "Pod default/web is not attempted: waiting for scheduling gates: [example.com/quota]."
    )


def test_the_verdict_of_a_pod_that_fits_names_the_best_node_and_why() -> None:
    explanation = explained(
        node("a1", "a"),
        node("a2", "a"),
        node("a3", "a", cpu="1"),
        pod("half", node="a1", cpu="2"),
        web(cpu="2"),
    )

    assert explanation["verdict"] == text_of(explanation)[0]
    assert explanation["verdict"].startswith(
        "Pod default/web fits on 2 of 3 nodes; best: a2, because its total is "
    )
    assert ", and that of the next, a1, is " in explanation["verdict"]
    assert "(NodeResourcesFit 26 higher" in explanation["verdict"]


def test_two_changes_are_proposed_only_together_and_only_if_no_single_one_is_enough() -> None:
    explanation = explained(node("a1", "a"), web(cpu="5", nodeSelector={"disk": "ssd"}))

    assert explanation["verdict"] == ALONE.format(
        "a1 had the label disk=ssd (or the pod did not require it) and its cpu request were 4 or less (now 5)"
    )
    assert explanation["remedies"] == [
        {
            "changes": [
                "a1 had the label disk=ssd (or the pod did not require it)",
                "its cpu request were 4 or less (now 5)",
            ],
            "node": "a1",
        }
    ]


def test_nodes_are_grouped_by_reason_the_most_first() -> None:
    explanation = explained(
        *(node(f"n{number}", "a") for number in range(3)),
        node("far", "b", taints=["k=v:NoSchedule"]),
        web(cpu="9"),
    )

    assert [(each["plugin"], each["nodes"]) for each in explanation["rejections"]] == [
        ("NodeResourcesFit", 3),
        ("TaintToleration", 1),
    ]
    assert (
        "  3 nodes: NodeResourcesFit: Insufficient cpu; 9 cpu requested, at most 4 of 4 free (n0)"
        in text_of(explanation)
    )


def test_preemption_is_named_before_other_changes() -> None:
    explanation = explained(node("a1", "a"), pod("low", node="a1", cpu="3"), web(cpu="2", priority=9))

    assert explanation["verdict"].startswith(
        "Pod default/web does not fit on the only node. Preemption could free a1 for it. It would fit if: "
    )
