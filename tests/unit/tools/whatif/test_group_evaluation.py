"""Explanations of pod groups, for a cluster from a file."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from scheduler.configuration.load import default
from scheduler.configuration.load import parse as parse_configuration
from scheduler.configuration.overrides import GivenFeatures, with_features
from scheduler.tools.whatif.cluster_file import parse
from scheduler.tools.whatif.evaluation import evaluate_each, evaluate_in_sequence, pods_to_evaluate
from scheduler.tools.whatif.explanation_text import show_group
from scheduler.tools.whatif.group_evaluation import GroupEvaluator
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.support.builders import node_object, pod_object

RACK = "topology.kubernetes.io/rack"
FITS = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"


def node(name: str, cpu: str, rack: str) -> dict[str, Any]:
    return node_object(name, cpu=cpu, labels={RACK: rack})


def gang(name: str, min_count: int, *, in_one_rack: bool = False, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": min_count}}, **more}
    if in_one_rack:
        spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def members(group: str, count: int, **fields: Any) -> list[dict[str, Any]]:
    pods = [pod_object(f"{group}-{number}", scheduler_name="p", **fields) for number in range(count)]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pods


def scheduler_of(*objects: dict[str, Any], configuration: Any = None) -> tuple[OfflineScheduler, Any]:
    cluster = parse(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}).encode(), "test")
    return OfflineScheduler(cluster, configuration or default("p")), cluster


def judged(key: str, *objects: dict[str, Any], configuration: Any = None) -> dict[str, Any]:
    scheduler, _ = scheduler_of(*objects, configuration=configuration)
    before = scheduler.cache.counts()
    judge = GroupEvaluator(scheduler)
    (group,) = judge.named(key)
    explanation = judge.judge(group).explanation
    scheduler.cache.check()
    assert scheduler.cache.counts() == before, "somebody was placed"
    return explanation


LOW = pod_object("low", cpu="2", node="n2", scheduler_name="p")
CASES = {
    "fits": ([node("n1", "4", "a"), gang("g", 2), *members("g", 2, cpu="2")], "schedulable", None, 2, []),
    "one does not fit": (
        [node("n1", "2", "a"), gang("g", 2), *members("g", 2, cpu="2")],
        "unschedulable",
        "pod group is unschedulable, No preemption victims found for incoming preemptor",
        1,
        [],
    ),
    "too few members": ([node("n1", "4", "a"), gang("g", 3), *members("g", 2)], "gated", TOO_FEW, 0, []),
    "no object": (
        [node("n1", "4", "a"), *members("g", 1)],
        "gated",
        'waiting for pods\'s pod group "g" to appear in scheduling queue',
        0,
        [],
    ),
    "somebody has to leave": (
        [
            node("n1", "2", "a"),
            node("n2", "2", "a"),
            LOW,
            gang("g", 2, priority=9),
            *members("g", 2, cpu="2", priority=9),
        ],
        "waiting_on_preemption",
        "pod group is unschedulable",
        1,
        ["default/low"],
    ),
}


@pytest.mark.parametrize(("objects", "result", "message", "fits", "victims"), CASES.values(), ids=CASES)
def test_a_group_is_evaluated_as_the_daemon_would_decide(
    objects: list[dict[str, Any]], result: str, message: str | None, fits: int, victims: list[str]
) -> None:
    reported = judged("default/g", *objects)
    assert (reported["result"], reported["message"], reported["fits"], reported["victims"]) == (
        result,
        message,
        fits,
        victims,
    )


def test_each_rack_is_listed_with_its_capacity_and_fitting_members() -> None:
    nodes = [node("a1", "2", "a"), node("b1", "3", "b"), node("b2", "1", "b"), node("c1", "1", "c")]
    reported = judged("default/g", *nodes, gang("g", 3, in_one_rack=True), *members("g", 3, cpu="1"))
    places = {
        each["name"]: (each["nodes"], each["room"], each["fits"], each["chosen"])
        for each in reported["placements"]
    }
    assert places == {"b": (2, 4, 3, True), "a": (1, 2, 2, False), "c": (1, 1, 1, False)}
    assert reported["placements"][0]["total"] is not None
    assert {each["node"] for each in reported["members"]} <= {"b1", "b2"}


def test_a_member_that_fits_is_reported_as_waiting_for_its_group() -> None:
    scheduler, cluster = scheduler_of(node("n1", "2", "a"), gang("g", 2), *members("g", 2, cpu="2"))
    fits, lacks = (
        each.explanation for each in evaluate_each(scheduler, pods_to_evaluate(scheduler, cluster.pods))
    )
    assert (fits["result"], fits["message"], fits["nodes"]["n1"]["feasible"]) == ("unschedulable", FITS, True)
    assert lacks["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert lacks["nodes"]["n1"]["details"] == ["needs 2 cpu, 0 free of 2"]
    assert fits["group"]["fits"] == lacks["group"]["fits"] == 1
    assert "chosen" not in fits


def test_in_a_sequence_a_group_uses_its_capacity_as_a_whole_or_not_at_all() -> None:
    pods = [*members("big", 2, cpu="2", priority=9), *members("g", 2, cpu="1"), pod_object("late", cpu="1", scheduler_name="p")]  # fmt: skip
    scheduler, cluster = scheduler_of(node("n1", "2", "a"), gang("big", 2), gang("g", 2), *pods)
    reported = {
        each.pod.name: each.explanation["result"]
        for each in evaluate_in_sequence(scheduler, pods_to_evaluate(scheduler, cluster.pods))
    }
    assert reported == {
        "big-0": "unschedulable",
        "big-1": "unschedulable",
        "g-0": "schedulable",
        "g-1": "schedulable",
        "late": "unschedulable",
    }


def test_the_table_of_a_group_fits_the_terminal() -> None:
    nodes = [node(f"n{number}", "1", f"rack-{number}-{'x' * 60}") for number in range(12)]
    reported = judged("default/g", *nodes, gang("g", 2, in_one_rack=True), *members("g", 2, cpu="1"))
    out = StringIO()
    show_group(Console(file=out, width=80, highlight=False), reported, all_nodes=False)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines[3:])) <= 80
    assert "  and 4 more: --all-nodes shows them" in lines


def test_a_quota_that_rejects_members_is_reported_with_its_message() -> None:
    quota = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "1", "memory": "100Gi", "ephemeral-storage": "1Gi"}},
    }
    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: p
  plugins:
    multiPoint: {enabled: [{name: CapacityScheduling}]}
    postFilter: {disabled: [{name: DefaultPreemption}]}
"""
    objects = [node("n1", "8", "a"), quota, gang("g", 2), *members("g", 2, cpu="1")]
    reported = judged("default/g", *objects, configuration=parse_configuration(configuration))
    by_plugin = [(each["pod"], each.get("plugin")) for each in reported["members"]]
    assert by_plugin == [("default/g-0", None), ("default/g-1", "CapacityScheduling")]
    assert "because ElasticQuota default is more than Max" in reported["members"][1]["message"]


def test_members_that_preempt_one_by_one_delay_the_others() -> None:
    configuration = with_features(default("p"), GivenFeatures(gates={"WorkloadAwarePreemption": False}))
    objects = [node("n1", "2", "a"), node("n2", "2", "a"), LOW, gang("g", 2)]
    reported = judged(
        "default/g", *objects, *members("g", 2, cpu="2", priority=9), configuration=configuration
    )
    assert (reported["result"], reported["victims"]) == ("waiting_on_preemption", ["default/low"])
    waits = "pod group is unschedulable, pod group is waiting for preemption to complete"
    assert (reported["message"], reported["members"][0]["message"]) == (waits, waits)
    assert [each["node"] for each in reported["members"]] == ["n1", "n2"]


def test_the_changes_that_requeue_a_group_are_listed() -> None:
    reported = judged("default/g", node("n1", "8", "a"), gang("g", 2), *members("g", 2, cpu="9"))
    assert {"Node", "Pod"} <= set(reported["requeuingEvents"]["NodeResourcesFit"])


def child(obj: dict[str, Any], parent: str) -> dict[str, Any]:
    obj["spec"] |= {
        "parentCompositePodGroupName": parent,
        "workloadRef": {"workloadName": "w", "templateName": "t"},
    }
    return obj | {"apiVersion": "scheduling.k8s.io/v1beta1"}


def root(name: str, min_groups: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": min_groups}}},
    }


WITH_TREES = parse_configuration(
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    "emulatedVersion: '1.37'\nfeatureGates: {CompositePodGroup: true}\nprofiles: [{schedulerName: p}]\n"
)
TREE = [
    node("n1", "3", "a"),
    root("root", 2),
    child(gang("a", 2), "root"),
    child(gang("b", 2), "root"),
    *members("a", 2, cpu="1"),
    *members("b", 2, cpu="1"),
]


def test_a_tree_is_evaluated_as_one_and_each_of_its_groups_has_its_result():
    no_victims = "pod group preemption: No preemption victims found for incoming preemptor"
    message = (
        "0/1 placements are available, first placement status: "
        f"minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, {no_victims}"
    )
    of_root = judged("default/root", *TREE, configuration=WITH_TREES)
    of_a = judged("default/a", *TREE, configuration=WITH_TREES)

    assert (of_root["result"], of_root["message"], len(of_root["members"])) == ("unschedulable", message, 4)
    assert [(each["group"], each["result"], each["fits"]) for each in of_root["groups"]] == [
        ("default/a", "unschedulable", 2),
        ("default/b", "unschedulable", 1),
    ]
    assert (of_a["result"], of_a["message"], of_a["fits"], len(of_a["members"])) == (
        "unschedulable",
        message,
        2,
        2,
    )
    shown = StringIO()
    show_group(Console(file=shown, width=80), of_root, all_nodes=True)
    lines = shown.getvalue().splitlines()
    assert lines[0] == f"Group default/root does not fit: {message}."
    assert lines[1] == "group default/root (minGroupCount 2): unschedulable, 2 of 4 members fit"
    at = lines.index("Groups:")
    assert lines[at + 1].startswith("  default/a (minCount 2): unschedulable: 0/1 placements are available")


def test_the_pods_of_a_tree_that_fits_get_nodes_after_one_another():
    objects = [*TREE, node("n2", "1", "a")]
    scheduler, cluster = scheduler_of(*objects, configuration=WITH_TREES)
    found = list(evaluate_in_sequence(scheduler, pods_to_evaluate(scheduler, cluster.pods)))

    chosen = [each.explanation["chosen"] for each in found]
    assert sorted(chosen) == ["n1", "n1", "n1", "n2"]
    assert judged("default/root", *objects, configuration=WITH_TREES)["result"] == "schedulable"


def test_the_explanation_begins_with_the_verdict_and_the_evaluated_changes() -> None:
    reported = judged("default/g", node("n1", "4", "a"), gang("g", 5), *members("g", 5, cpu="2"))

    assert next(iter(reported)) == "verdict"
    assert reported["remedies"] == [
        {"changes": ["minCount were 2 or less (now 5)"], "node": "n1"},
        {"changes": ["2 nodes like n1 were added"], "node": "n1"},
    ]
    assert reported["verdict"].startswith(
        "Group default/g does not fit: 2 of 5 members fit, and it needs 5. It would fit if: minCount were 2 or less "
        "(now 5); or 2 nodes like n1 were added. Its member default/g-2 would fit if: "
    )


def test_more_nodes_are_not_proposed_for_members_that_are_too_large_for_them() -> None:
    reported = judged("default/g", node("n1", "4", "a"), gang("g", 2), *members("g", 2, cpu="5"))

    assert reported["remedies"] == []
    assert reported["rejectedMember"] == {
        "pod": "default/g-0",
        "remedies": [{"changes": ["its cpu request were 4 or less (now 5)"], "node": "n1"}],
    }


def test_further_nodes_are_like_those_of_the_rack_of_the_other_members() -> None:
    racks = [node("a1", "2", "a"), node("b1", "8", "b"), node("a2", "2", "a")]
    full = pod_object("full", cpu="8", node="b1", scheduler_name="p")
    reported = judged("default/g", *racks, full, gang("g", 3, in_one_rack=True), *members("g", 3, cpu="2"))

    assert {"changes": ["one node like a1 were added"], "node": "a1"} in reported["remedies"]


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("fits", "Group default/g fits: 2 of 2 members fit."),
        ("too few members", f"Group default/g is not attempted: {TOO_FEW}."),
        (
            "somebody has to leave",
            "Group default/g waits for preemption: 1 of 2 members fits without it. It evicts default/low.",
        ),
    ],
)
def test_the_verdict_tells_what_a_group_waits_for(case: str, verdict: str) -> None:
    reported = judged("default/g", *CASES[case][0])
    out = StringIO()
    show_group(Console(file=out, width=300, highlight=False), reported, all_nodes=False)

    assert reported["verdict"] == verdict == out.getvalue().splitlines()[0]
