from __future__ import annotations

from typing import Any

import pytest

from scheduler.objects.pod_defaults import qos_class
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, deployment, node, pod

NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


def refusal(store: AStore, obj: dict) -> StatusError:
    with pytest.raises(StatusError) as caught:
        store.create("pods", obj)
    return caught.value


def test_a_pod_gets_the_fields_that_a_scheduler_reads():
    created = AStore().create("pods", pod("a"))

    assert created["spec"]["schedulerName"] == "default-scheduler"
    assert created["spec"]["restartPolicy"] == "Always"
    assert created["spec"]["terminationGracePeriodSeconds"] == 30
    assert created["spec"]["dnsPolicy"] == "ClusterFirst"
    assert created["spec"]["priority"] == 0
    assert created["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
    assert created["spec"]["tolerations"] == [NOT_READY, UNREACHABLE]
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created["metadata"]["generation"] == 1


def test_fields_of_a_pod_are_kept():
    said = {"schedulerName": "mine", "restartPolicy": "Never", "terminationGracePeriodSeconds": 5}

    assert AStore().create("pods", pod("a", **said))["spec"].items() >= said.items()


def test_requests_default_to_limits():
    container = {
        "name": "c",
        "image": "i",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0.5"}},
    }

    created = AStore().create("pods", pod("a", containers=[container]))

    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_a_status_in_a_new_pod_is_ignored():
    created = AStore().create("pods", {**pod("a"), "status": {"phase": "Running"}})

    assert created["status"]["phase"] == "Pending"


def test_a_gated_pod_has_a_condition():
    created = AStore().create("pods", pod("a", schedulingGates=[{"name": "example.com/g"}]))

    (condition,) = created["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


@pytest.mark.parametrize(
    ("tolerations", "added"),
    [
        pytest.param([], [NOT_READY, UNREACHABLE], id="none"),
        pytest.param([{"operator": "Exists"}], [], id="everything is tolerated"),
        pytest.param([{"key": NOT_READY["key"], "operator": "Exists"}], [UNREACHABLE], id="one of them"),
        pytest.param(
            [{"key": NOT_READY["key"], "operator": "Exists", "effect": "NoSchedule"}],
            [NOT_READY, UNREACHABLE],
            id="another effect",
        ),
    ],
)
def test_missing_default_tolerations_are_added(tolerations: Any, added: Any):
    created = AStore().create("pods", pod("a", tolerations=tolerations))

    assert created["spec"]["tolerations"] == [*tolerations, *added]


def resources(requests: dict | None = None, limits: dict | None = None) -> dict:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([resources()], "BestEffort", id="nothing"),
        pytest.param([resources({"cpu": "0"})], "BestEffort", id="zero is nothing"),
        pytest.param([resources({"nvidia.com/gpu": "1"})], "BestEffort", id="other resources do not count"),
        pytest.param([resources({"cpu": "1"})], "Burstable", id="requests only"),
        pytest.param([resources(BOTH, BOTH)], "Guaranteed", id="all limited"),
        pytest.param(
            [resources({"cpu": "1000m", "memory": "1024Mi"}, BOTH)],
            "Guaranteed",
            id="equal but written otherwise",
        ),
        pytest.param([resources(BOTH, BOTH), resources()], "Burstable", id="one container without"),
        pytest.param([resources({**BOTH, "cpu": "500m"}, BOTH)], "Burstable", id="less than the limit"),
        pytest.param([resources({"cpu": "1"}, {"cpu": "1"})], "Burstable", id="memory is not limited"),
    ],
)
def test_the_quality_of_service_follows_the_resources(containers: Any, expected: Any):
    assert qos_class({"containers": containers}) == expected


def test_a_priority_class_sets_the_priority(store: AStore):
    store.create(
        "priorityclasses", {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    )

    spec = store.create("pods", pod("a", priorityClassName="high"))["spec"]

    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


def test_the_global_default_class_applies_to_pods_without_one(store: AStore):
    store.create("priorityclasses", {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})

    spec = store.create("pods", pod("a"))["spec"]

    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)


def test_the_system_classes_exist():
    assert (
        AStore().create("pods", pod("a", priorityClassName="system-node-critical"))["spec"]["priority"]
        == 2_000_001_000
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"priorityClassName": "absent"}, "no PriorityClass with name absent was found", id="no such class"
        ),
        pytest.param(
            {"priority": 5},
            "the integer value of priority (5) must not be provided",
            id="a priority of its own",
        ),
        pytest.param(
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not",
            id="a policy of its own",
        ),
    ],
)
def test_a_priority_that_differs_from_its_class_is_forbidden(spec: Any, problem: str):
    error = refusal(AStore(), pod("a", **spec))

    assert (error.code, error.reason) == (403, "Forbidden")
    assert problem in error.message


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        pytest.param({"containers": []}, "spec.containers", "Required value", id="no containers"),
        pytest.param(
            {"containers": [{"name": "c"}]}, "spec.containers[0].image", "Required value", id="no image"
        ),
        pytest.param(
            {"containers": [{"image": "i"}]}, "spec.containers[0].name", "Required value", id="no name"
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]},
            "spec.containers[1].name",
            'Duplicate value: "c"',
            id="a name twice",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "i", **resources({"cpu": "-1"})}]},
            "spec.containers[0].resources.requests[cpu]",
            'Invalid value: "-1": must be greater than or equal to 0',
            id="a negative amount",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "i", **resources({"cpu": "2"}, {"cpu": "1"})}]},
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
            id="more than the limit",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "i", **resources({GPU: "1"})}]},
            "spec.containers[0].resources.limits",
            "Required value: Limit must be set for non overcommitable resources",
            id="a device without limit",
        ),
        pytest.param(
            {"nodeName": "n1", "schedulingGates": [{"name": "g"}]},
            "spec.nodeName",
            "Forbidden: cannot be set until all schedulingGates have been cleared",
            id="gated on a node",
        ),
    ],
)
def test_an_invalid_pod_is_refused_with_the_field(change: Any, field: str, message: str):
    error = refusal(AStore(), pod("bad", **change))

    assert (error.code, error.reason) == (422, "Invalid")
    assert {"reason", "message", "field"} == set(error.details["causes"][0])
    assert (field, message) in {(cause["field"], cause["message"]) for cause in error.details["causes"]}


def test_all_errors_are_reported_at_once():
    error = refusal(AStore(), pod("Bad_Name", containers=[]))

    assert {cause["field"] for cause in error.details["causes"]} == {"metadata.name", "spec.containers"}


@pytest.mark.parametrize(
    ("version", "expected"), [("1.34", {}), ("1.35", {"topology.kubernetes.io/zone": "z1"})]
)
def test_a_pod_on_a_node_gets_its_topology_labels_since_1_35(version: str, expected: dict[str, str]):
    store, zone = AStore(version=version), {"topology.kubernetes.io/zone": "z1", "other": "x"}
    store.create("nodes", node("n1", labels=zone))
    store.create("pods", pod("bound"))

    store.bind("bound", "n1")

    created = store.create("pods", pod("placed", nodeName="n1"))
    assert created["metadata"].get("labels", {}) == expected
    assert store.get("pods", "bound")["metadata"].get("labels", {}) == expected


def test_match_label_keys_become_part_of_the_selector():
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "matchLabelKeys": ["hash", "absent"],
    }
    obj = pod("a", topologySpreadConstraints=[constraint])
    obj["metadata"]["labels"] = {"app": "x", "hash": "1"}

    created = AStore().create("pods", obj)

    (made,) = created["spec"]["topologySpreadConstraints"]
    assert made["labelSelector"]["matchExpressions"] == [{"key": "hash", "operator": "In", "values": ["1"]}]


def changed(spec: dict, patch: dict) -> dict:
    store = AStore()
    store.create("pods", pod("a", **spec))
    return store.patch("pods", "a", {"spec": patch})


@pytest.mark.parametrize(
    ("spec", "patch"),
    [
        pytest.param({}, {"nodeName": "n1"}, id="the node"),
        pytest.param({}, {"schedulerName": "other"}, id="the scheduler"),
        pytest.param({}, {"nodeSelector": {"a": "b"}}, id="the node selector"),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Exists"}]}, {"tolerations": []}, id="fewer tolerations"
        ),
        pytest.param({}, {"schedulingGates": [{"name": "g"}]}, id="a new gate"),
        pytest.param({}, {"containers": []}, id="fewer containers"),
    ],
)
def test_most_fields_of_a_pod_are_immutable(spec: Any, patch: Any):
    with raises(StatusError, code=422, reason="Invalid"):
        changed(spec, patch)


@pytest.mark.parametrize(
    ("spec", "patch"),
    [
        pytest.param(
            {},
            {"tolerations": [NOT_READY, UNREACHABLE, {"key": "b", "operator": "Exists"}]},
            id="one toleration more",
        ),
        pytest.param(
            {},
            {"tolerations": [{**NOT_READY, "tolerationSeconds": 5}, UNREACHABLE]},
            id="tolerated for another time",
        ),
        pytest.param({"schedulingGates": [{"name": "g"}]}, {"schedulingGates": None}, id="gates removed"),
        pytest.param(
            {"schedulingGates": [{"name": "g"}]},
            {"nodeSelector": {"a": "b"}},
            id="the node selector while gated",
        ),
        pytest.param({}, {"containers": [{"name": "c", "image": "other", "resources": {}}]}, id="the image"),
    ],
)
def test_mutable_fields_increment_the_generation(spec: Any, patch: Any):
    # A container is replaced as a whole by a merge patch, so the defaults come again.
    assert changed(spec, patch)["metadata"]["generation"] == 2


def test_a_change_of_metadata_keeps_the_generation(store: AStore):
    store.create("pods", pod("a"))

    assert store.patch("pods", "a", {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1


def test_the_status_subresource_changes_nothing_else(store: AStore):
    store.create("pods", pod("a"))

    patched = store.patch(
        "pods", "a", {"spec": {"schedulerName": "x"}, "status": {"phase": "Running"}}, subresource="status"
    )

    assert patched["spec"]["schedulerName"] == "default-scheduler"
    assert (patched["status"]["phase"], patched["status"]["qosClass"]) == ("Running", "BestEffort")


def test_the_pod_itself_does_not_change_its_status(store: AStore):
    store.create("pods", pod("a"))

    assert store.patch("pods", "a", {"status": {"phase": "Running"}})["status"]["phase"] == "Pending"


DNS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        pytest.param({}, "null: must specify one of: `podGroupName`", id="no group is named"),
        pytest.param({"podGroupName": None}, "null: must specify one of: `podGroupName`", id="null"),
        pytest.param({"podGroupName": ""}, f'"": {DNS_SUBDOMAIN}', id="an empty name"),
        pytest.param({"podGroupName": "A"}, f'"A": {DNS_SUBDOMAIN}', id="no DNS subdomain"),
    ],
)
def test_a_pod_names_its_group(group: dict[str, Any], problem: str):
    refused = refusal(AStore(), pod("a", schedulingGroup=group))

    assert (refused.code, refused.message) == (
        422,
        f'Pod "a" is invalid: spec.schedulingGroup.podGroupName: Invalid value: {problem}',
    )


def test_the_group_of_a_pod_may_be_missing():
    spec = AStore().create("pods", pod("a", schedulingGroup={"podGroupName": "g.x"}))["spec"]

    assert spec["schedulingGroup"] == {"podGroupName": "g.x"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, {"podGroupName": "h"}, id="another"),
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, None, id="group removed"),
        pytest.param({}, {"podGroupName": "g"}, id="one where there was none"),
        pytest.param(
            {"schedulingGroup": {"podGroupName": "g"}, "schedulingGates": [{"name": "x.y/z"}]},
            {"podGroupName": "h"},
            id="gated",
        ),
    ],
)
def test_the_group_of_a_pod_is_immutable(store: AStore, before: dict[str, Any], after: dict[str, Any] | None):
    store.create("pods", pod("a", **before))

    with pytest.raises(StatusError, match="pod updates may not change fields other than") as caught:
        store.patch("pods", "a", {"spec": {"schedulingGroup": after}})

    assert caught.value.code == 422


def test_a_template_of_pods_names_a_group_by_the_same_rules():
    with pytest.raises(StatusError) as caught:
        AStore().create("deployments.apps", deployment("d", 1, schedulingGroup={}))

    assert "spec.template.spec.schedulingGroup.podGroupName: Invalid value: null" in caught.value.message


def test_a_resize_changes_the_resources_of_containers_and_nothing_else(store: AStore):
    created = store.create("pods", pod("a"))
    [container] = created["spec"]["containers"]
    changed = {**container, "image": "other", "resources": {"requests": {"cpu": "3"}}}

    resized = store.patch(
        "pods",
        "a",
        {"metadata": {}, "spec": {"containers": [changed], "nodeName": "n"}, "status": {"phase": "Running"}},
        subresource="resize",
    )

    assert resized["spec"]["containers"] == [{**container, "resources": {"requests": {"cpu": "3"}}}]
    assert "nodeName" not in resized["spec"]
    assert resized["status"] == created["status"]
    assert resized["metadata"]["generation"] == 2
