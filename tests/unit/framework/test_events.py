"""The events of a cluster, and the classification of updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.framework import ActionType, ClusterEvent, EventResource
from scheduler.framework.events import (
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    NODE_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    node_changes,
    pod_changes,
    with_event_names,
)
from scheduler.objects.pod import trim_bound_pod
from scheduler.objects.resources import PodRules
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.counted_labels import lines_run

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

NODE, POD, ANY = EventResource.NODE, EventResource.POD, EventResource.WILDCARD
ASSIGNED, UNSCHEDULABLE = EventResource.ASSIGNED_POD, EventResource.UNSCHEDULABLE_POD
ADD, DELETE, UPDATE, ALL = ActionType.ADD, ActionType.DELETE, ActionType.UPDATE, ActionType.ALL
LABEL, TAINT = ActionType.UPDATE_NODE_LABEL, ActionType.UPDATE_NODE_TAINT


@pytest.mark.parametrize(
    ("registered", "happened", "heard"),
    [
        pytest.param((NODE, ADD), (NODE, ADD), True, id="the same"),
        pytest.param((NODE, ADD | LABEL), (NODE, LABEL), True, id="one of several actions"),
        pytest.param((NODE, LABEL), (NODE, TAINT), False, id="another kind of update"),
        pytest.param((NODE, LABEL), (NODE, LABEL | TAINT), False, id="two updates at once, of which one"),
        pytest.param((NODE, LABEL), (NODE, UPDATE), False, id="a general update, one kind registered"),
        pytest.param((NODE, UPDATE), (NODE, UPDATE), True, id="a general update, all registered"),
        pytest.param((NODE, UPDATE), (NODE, LABEL), True, id="one update, all registered"),
        pytest.param((NODE, ADD), (POD, ADD), False, id="another kind of object"),
        pytest.param((POD, DELETE), (ASSIGNED, DELETE), True, id="a pod on a node, of all pods"),
        pytest.param((POD, DELETE), (UNSCHEDULABLE, DELETE), True, id="a pending pod, of all pods"),
        pytest.param((ASSIGNED, DELETE), (POD, DELETE), False, id="all pods, of those on nodes"),
        pytest.param((ANY, ALL), (NODE, ADD), True, id="everything registered"),
        pytest.param((ANY, ALL), (ANY, ALL), True, id="everything registered, everything happened"),
        pytest.param((ANY, ADD), (NODE, ADD), True, id="an action on any kind"),
        pytest.param((ANY, ADD), (NODE, DELETE), False, id="another action on any kind"),
        pytest.param((NODE, ADD), (ANY, ALL), False, id="everything happened, one registered"),
    ],
)
def test_a_plugin_gets_the_events_that_it_registered_for(
    registered: tuple[EventResource, ActionType], happened: tuple[EventResource, ActionType], heard: bool
):
    assert ClusterEvent(*registered).covers(ClusterEvent(*happened)) is heard


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ClusterEvent(NODE, ADD), "NodeAdd"),
        (ClusterEvent(NODE, TAINT), "NodeUpdateNodeTaint"),
        (ClusterEvent(ASSIGNED, DELETE), "AssignedPodDelete"),
        (ClusterEvent(ANY, ALL, "UnschedulableTimeout"), "UnschedulableTimeout"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_events_have_the_labels_of_the_metrics(event: ClusterEvent, label: str):
    assert event.label == label


def labels(events: list[ClusterEvent]) -> list[str]:
    return [event.label for event in events]


def init(cpu: str) -> dict[str, Any]:
    return {"name": "init", "resources": {"requests": {"cpu": cpu}}}


def resized(cpu: str) -> dict[str, Any]:
    """Return a status with the container's resize in some stage."""
    return {
        "containerStatuses": [
            {"name": "main", "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
        ]
    }


def claims(name: str, claim: str | None) -> dict[str, Any]:
    """Return a status with a claim created for one of the pod's claims."""
    return {"status": {"resourceClaimStatuses": [{"name": name, "resourceClaimName": claim}]}}


def extended_claim(claim: str, **more: Any) -> dict[str, Any]:
    return {"status": {"extendedResourceClaimStatus": {"resourceClaimName": claim, **more}}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {}, ["Update"], id="nothing with a name"),
        pytest.param({"status": {"reason": "a"}}, {"status": {"reason": "b"}}, ["Update"], id="a status"),
        pytest.param({}, {"labels": {"a": "b"}}, ["UpdatePodLabel"], id="a label added"),
        pytest.param({"labels": {"a": "b"}}, {}, ["UpdatePodLabel"], id="a label removed"),
        pytest.param({"cpu": "2"}, {"cpu": "1"}, ["UpdatePodScaleDown"], id="a smaller request"),
        pytest.param({"cpu": "2"}, {}, ["UpdatePodScaleDown"], id="a request removed"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, ["Update"], id="a larger request"),
        pytest.param({"cpu": "1"}, {"cpu": "1000m"}, ["Update"], id="the same request written otherwise"),
        pytest.param(
            {"cpu": "1", "memory": "2Gi"},
            {"cpu": "2", "memory": "1Gi"},
            ["UpdatePodScaleDown"],
            id="one of two",
        ),
        pytest.param(
            {"requests": {"example.com/gpu": "2"}},
            {"requests": {"example.com/gpu": "1"}},
            ["UpdatePodScaleDown"],
            id="a smaller extended resource",
        ),
        pytest.param(
            {"init_containers": [init("4")]},
            {"init_containers": [init("3")]},
            ["UpdatePodScaleDown"],
            id="init",
        ),
        pytest.param(
            {"cpu": "1", "status": resized("2")},
            {"cpu": "1", "status": resized("1")},
            ["UpdatePodScaleDown"],
            id="a resize taking effect",
        ),
        pytest.param(
            {"cpu": "2", "status": resized("2")},
            {"cpu": "1", "status": resized("2")},
            ["Update"],
            id="a requested resize",
        ),
        pytest.param(
            {"gates": ["a"]}, {}, ["UpdatePodSchedulingGatesEliminated"], id="the last gate removed"
        ),
        pytest.param({"gates": ["a", "b"]}, {"gates": ["a"]}, ["Update"], id="one gate of two removed"),
        pytest.param(
            {}, {"tolerations": [{"operator": "Exists"}]}, ["UpdatePodToleration"], id="a toleration"
        ),
        pytest.param(
            {}, claims("gpu", "web-gpu-1"), ["UpdatePodGeneratedResourceClaim"], id="a created claim"
        ),
        pytest.param(
            claims("gpu", None), claims("gpu", "x"), ["UpdatePodGeneratedResourceClaim"], id="a claim named"
        ),
        pytest.param(claims("gpu", "x"), claims("gpu", "x"), ["Update"], id="the same claim"),
        pytest.param(
            {}, extended_claim("web-1"), ["UpdatePodGeneratedResourceClaim"], id="one for extended resources"
        ),
        pytest.param(
            extended_claim("web-1"),
            extended_claim("web-1", requestMappings=[{"containerName": "main", "requestName": "r"}]),
            ["UpdatePodGeneratedResourceClaim"],
            id="the request mappings",
        ),
        pytest.param(
            {"cpu": "2", "gates": ["a"]},
            {
                "labels": {"a": "b"},
                "cpu": "1",
                "tolerations": [{"operator": "Exists"}],
                **claims("gpu", "web-gpu-1"),
            },
            [
                "UpdatePodLabel",
                "UpdatePodScaleDown",
                "UpdatePodSchedulingGatesEliminated",
                "UpdatePodToleration",
                "UpdatePodGeneratedResourceClaim",
            ],
            id="all at once",
        ),
    ],
)
@pytest.mark.parametrize("where", ["", "n1"], ids=["pending", "bound"])
def test_an_update_of_a_pod_becomes_specific_events(
    where: str, old: dict[str, Any], new: dict[str, Any], expected: list[str]
):
    events = pod_changes(pod("web", node=where, **old), pod("web", node=where, **new))

    resource = "AssignedPod" if where else "UnschedulablePod"
    assert labels(events) == [resource + action for action in expected]


RESIZES = [  # the request and the status before and after, and whether the pod takes less or more then
    pytest.param(("1", "2"), ("1", "1"), "ScaleDown", id="a smaller size takes effect"),
    pytest.param(("2", "2"), ("1", "2"), "", id="a smaller size is requested"),
    pytest.param(("1", "1"), ("2", "1"), "ScaleUp", id="a larger size is requested"),
    pytest.param(("2", "1"), ("2", "2"), "", id="a larger size takes effect"),
]


@pytest.mark.parametrize(("old", "new", "expected"), RESIZES)
def test_a_resize_is_recognized_without_the_status_which_is_not_kept(
    old: tuple[str, str], new: tuple[str, str], expected: str
):
    before, after = (
        trim_bound_pod(pod("web", node="n1", cpu=cpu, status=resized(given))) for cpu, given in (old, new)
    )

    named = labels(pod_changes(before, after, names_scale_up=True))

    assert named == [f"AssignedPodUpdatePod{expected}" if expected else "AssignedPodUpdate"]


def test_a_larger_request_has_no_name_unless_resizes_wait_for_it():
    assert labels(pod_changes(pod("web", cpu="1"), pod("web", cpu="2"))) == ["UnschedulablePodUpdate"]


def resizing(**cpu_of_containers: str) -> PodInfo:
    """Return a pod whose two containers request 1 and 3 CPUs, and have what the arguments say."""
    asked = {"a": "1", "b": "3"}
    statuses = [
        {
            "name": name,
            "resources": {"requests": {"cpu": cpu}},
            "allocatedResources": {"cpu": cpu},
        }
        for name, cpu in cpu_of_containers.items()
    ]
    return pod(
        "p",
        node="n1",
        containers=[{"name": name, "resources": {"requests": {"cpu": cpu}}} for name, cpu in asked.items()],
        status={"containerStatuses": statuses},
    )


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        # Each container's largest request: 3 and 3, then 1 and 3.
        pytest.param(PodRules(), "AssignedPodUpdatePodScaleDown", id="1.36"),
        # The largest total: 4 before and after.
        pytest.param(PodRules(as_a_whole=True), "AssignedPodUpdate", id="1.37"),
    ],
)
def test_the_end_of_a_resize_frees_what_the_rules_of_the_version_counted(rules: PodRules, expected: str):
    # As the daemon keeps pods on nodes: without the statuses of containers.
    before, after = (
        trim_bound_pod(each.under(rules)) for each in (resizing(a="3", b="1"), resizing(a="1", b="3"))
    )

    assert labels(pod_changes(before, after)) == [expected]


def conditions(*pairs: tuple[str, str], **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": status, **more} for type_, status in pairs]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {}, [], id="nothing"),
        pytest.param({"cpu": "4"}, {"cpu": "8"}, ["Allocatable"], id="more cpu"),
        pytest.param({"cpu": "4"}, {"cpu": "2"}, ["Allocatable"], id="less cpu"),
        pytest.param({"cpu": "4"}, {"cpu": "4000m"}, [], id="the same cpu written otherwise"),
        pytest.param({}, {"allocatable": {"example.com/gpu": "1"}}, ["Allocatable"], id="a new resource"),
        pytest.param({}, {"labels": {"zone": "a"}}, ["Label"], id="a label"),
        pytest.param({}, {"annotations": {"a": "b"}}, ["Annotation"], id="an annotation"),
        pytest.param({}, {"no_resize_preemption": ["a"]}, ["PreemptionPolicy"], id="a preemption policy"),
        pytest.param({"no_resize_preemption": ["a"]}, {}, ["PreemptionPolicy"], id="no preemption policy"),
        pytest.param({"taints": ["a:NoSchedule"]}, {}, ["Taint"], id="a taint removed"),
        pytest.param({}, {"taints": ["a:NoSchedule"]}, ["Taint"], id="a taint added"),
        pytest.param({"unschedulable": True}, {}, ["Taint"], id="uncordoned"),
        pytest.param({}, {"unschedulable": True}, [], id="cordoned"),
        pytest.param(
            {"unschedulable": True, "taints": ["a:NoSchedule"]},
            {},
            ["Taint"],
            id="uncordoned and a taint, once",
        ),
        pytest.param(
            conditions(("Ready", "True")),
            conditions(("Ready", "False")),
            ["Condition"],
            id="a condition's status",
        ),
        pytest.param(
            conditions(("Ready", "True"), reason="a"),
            conditions(("Ready", "True"), reason="b"),
            [],
            id="a condition's reason",
        ),
        pytest.param(
            conditions(("Ready", "True"), lastHeartbeatTime="2026-03-01T08:00:00Z"),
            conditions(("Ready", "True"), lastHeartbeatTime="2026-03-01T08:05:00Z"),
            [],
            id="a heartbeat",
        ),
        pytest.param(
            conditions(("A", "True"), ("B", "True")),
            conditions(("B", "True"), ("A", "True")),
            [],
            id="conditions in another order",
        ),
        pytest.param({}, {"declaredFeatures": ["A"]}, ["DeclaredFeature"], id="a feature declared"),
        pytest.param({"declaredFeatures": ["A"]}, {}, ["DeclaredFeature"], id="a feature no longer declared"),
        pytest.param({"declaredFeatures": ["A"]}, {"declaredFeatures": ["A"]}, [], id="the same features"),
        pytest.param(
            {"cpu": "4", "taints": ["a:NoSchedule"]},
            {
                "cpu": "8",
                "labels": {"a": "b"},
                "annotations": {"a": "b"},
                "declaredFeatures": ["A"],
                **conditions(("Ready", "False")),
            },
            ["Allocatable", "Label", "Taint", "Condition", "Annotation", "DeclaredFeature"],
            id="all at once",
        ),
    ],
)
def test_an_update_of_a_node_becomes_specific_events(
    old: dict[str, Any], new: dict[str, Any], expected: list[str]
):
    events = node_changes(node("n1", **old), node("n1", **new))

    assert labels(events) == [f"NodeUpdateNode{what}" for what in expected]


def test_our_own_events_have_the_labels_of_kube_scheduler():
    ours = (ASSIGNED_POD_DELETE, UNSCHEDULABLE_POD_UPDATE, NODE_ADD, UNSCHEDULABLE_TIMEOUT, FORCE_ACTIVATE)

    assert labels(list(ours)) == [
        "AssignedPodDelete",
        "UnschedulablePodUpdate",
        "NodeAdd",
        "UnschedulableTimeout",
        "ForceActivate",
    ]


@pytest.mark.parametrize(
    ("text", "in_1_37"),
    [
        pytest.param("UnschedulablePodAdd", "UnscheduledPodAdd", id="a pod"),
        pytest.param("UnschedulablePodUpdatePodLabel", "TargetPodUpdatePodLabel", id="the pod itself"),
        pytest.param(
            "rejected by A; UnschedulablePodDelete happened meanwhile",
            "rejected by A; UnscheduledPodDelete happened meanwhile",
            id="within a text",
        ),
        pytest.param("NodeAdd; gated by A: b", "NodeAdd; gated by A: b", id="another event"),
        pytest.param(
            "MyUnschedulablePods UnschedulablePods", "MyUnschedulablePods UnschedulablePods", id="no event"
        ),
    ],
)
def test_texts_have_the_event_names_of_the_version(text: str, in_1_37: str):
    assert with_event_names(text, FakeFeatures("1.36")) == text
    assert with_event_names(text, FakeFeatures("1.37")) == in_1_37


def test_the_timeout_and_the_activation_are_wildcard_events():
    assert UNSCHEDULABLE_TIMEOUT.is_wildcard
    assert FORCE_ACTIVATE.is_wildcard


def test_equal_requests_of_very_many_containers_are_not_computed_again():
    sidecars = [{**init(f"{number}m"), "restartPolicy": "Always"} for number in range(5000)]
    old, new = (pod("p", initContainers=sidecars, status={"reason": reason}) for reason in "ab")
    assert old.resources is not new.resources, "too long to be kept"
    assert lines_run(lambda: pod_changes(old, new)) < 200
