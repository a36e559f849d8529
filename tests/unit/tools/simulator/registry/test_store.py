from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.kinds import Place
from scheduler.tools.simulator.apimachinery.objects import clone
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.tools.simulator.registry.registry import Registry
from scheduler.tools.simulator.registry.store import Store
from tests.support.manual_clock import ManualClock
from tests.unit.tools.simulator.a_store import AStore, deployment, node, pod


def code_and_reason(caught: pytest.ExceptionInfo[StatusError]) -> tuple[int, str]:
    return caught.value.code, caught.value.reason


def test_a_new_object_gets_a_uid_and_a_creation_time(store: AStore):
    created = store.create("pods", pod("a"))["metadata"]

    assert created["namespace"] == "default"
    assert created["creationTimestamp"] == store.timestamp()
    assert created["resourceVersion"] == str(store.version)
    assert len(created["uid"]) == 36
    assert created["uid"] != store.create("pods", pod("b"))["metadata"]["uid"]


def test_the_same_seed_gives_the_same_names():
    generated = {"metadata": {"generateName": "web-"}, "spec": pod("")["spec"]}

    first, second = (AStore().create("pods", generated)["metadata"]["name"] for _ in range(2))

    assert first == second
    assert first.startswith("web-")
    assert len(first) == len("web-12345")


def test_stored_objects_are_copies(store: AStore):
    given = pod("a")
    before = clone(given)
    store.create("pods", given)
    given["spec"]["containers"][0]["image"] = "changed afterwards"

    assert before["metadata"] == {"name": "a"}
    assert store.get("pods", "a")["spec"]["containers"][0]["image"] == "nginx"


@pytest.mark.parametrize(
    ("obj", "code", "reason"),
    [
        pytest.param(pod("a"), 409, "AlreadyExists", id="there already"),
        pytest.param(
            {**pod("b"), "metadata": {"name": "b", "namespace": "absent"}},
            404,
            "NotFound",
            id="no such namespace",
        ),
        pytest.param(pod("Bad_Name"), 422, "Invalid", id="a bad name"),
        pytest.param({**pod("b"), "metadata": {}}, 422, "Invalid", id="no name"),
        pytest.param(
            {**pod("b"), "metadata": {"name": "b", "labels": {"a b": "c"}}}, 422, "Invalid", id="a bad label"
        ),
        pytest.param(
            {**pod("b"), "metadata": {"name": "b", "resourceVersion": "1"}}, 500, "", id="a version already"
        ),
        pytest.param({**pod("b"), "kind": "Node"}, 400, "BadRequest", id="another kind"),
        pytest.param({**pod("b"), "apiVersion": "v2"}, 400, "BadRequest", id="another version"),
        pytest.param({**pod("b"), "spec": []}, 400, "BadRequest", id="a spec of the wrong type"),
    ],
)
def test_an_invalid_creation_is_refused(store: AStore, obj: Any, code: int, reason: str):
    store.create("pods", pod("a"))

    with pytest.raises(StatusError) as caught:
        store.create("pods", obj)

    assert code_and_reason(caught) == (code, reason)


def test_a_terminating_namespace_accepts_no_new_objects(store: AStore):
    store.create("namespaces", {"metadata": {"name": "shop"}})
    store.delete("namespaces", "shop")

    with pytest.raises(StatusError) as caught:
        store.create("pods", pod("a"), namespace="shop")

    assert code_and_reason(caught) == (403, "Forbidden")
    assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"


def test_an_update_with_a_version_needs_the_current_one(store: AStore):
    first = store.create("configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    second = store.update("configmaps", {**first, "data": {"a": "2"}})

    with pytest.raises(StatusError) as caught:
        store.update("configmaps", {**first, "data": {"a": "3"}})

    assert code_and_reason(caught) == (409, "Conflict")
    assert store.get("configmaps", "c") == second
    unconditional = {"metadata": {"name": "c"}, "data": {"a": "3"}}
    assert store.update("configmaps", unconditional)["data"] == {"a": "3"}


def test_an_unchanged_update_creates_no_version(store: AStore):
    created = store.create("configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})

    assert store.update("configmaps", created) == created
    assert store.patch("configmaps", "c", {"data": {"a": "1"}}) == created
    assert str(store.version) == created["metadata"]["resourceVersion"]


def test_an_update_keeps_fields_of_the_server(store: AStore):
    created = store.create("configmaps", {"metadata": {"name": "c"}})
    store.clock.advance(60)

    updated = store.update(
        "configmaps", {"metadata": {"name": "c", "creationTimestamp": None}, "data": {"a": "1"}}
    )

    for field in ("uid", "creationTimestamp"):
        assert updated["metadata"][field] == created["metadata"][field]


def test_an_update_with_another_uid_is_a_conflict(store: AStore):
    created = store.create("configmaps", {"metadata": {"name": "c"}})

    with pytest.raises(StatusError) as caught:
        store.update("configmaps", {**created, "metadata": {"name": "c", "uid": "another"}})

    assert code_and_reason(caught) == (409, "Conflict")


def test_a_lease_is_never_updated_without_a_version(store: AStore):
    lease = {
        "metadata": {"name": "l", "namespace": "kube-system"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    store.create("leases", lease)

    with pytest.raises(StatusError) as caught:
        store.update("leases", lease)

    assert code_and_reason(caught) == (422, "Invalid")


def test_a_put_creates_a_lease_but_not_a_pod(store: AStore):
    assert store.update("leases", {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 15}})[
        "metadata"
    ]["uid"]
    with pytest.raises(StatusError) as caught:
        store.update("pods", pod("a"))
    assert code_and_reason(caught) == (404, "NotFound")


def test_a_patch_with_an_old_version_is_a_conflict(store: AStore):
    first = store.create("nodes", node("n1"))
    store.patch("nodes", "n1", {"metadata": {"labels": {"a": "1"}}})

    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"], "labels": {"a": "2"}}}

    with pytest.raises(StatusError) as caught:
        store.patch("nodes", "n1", stale)

    assert code_and_reason(caught) == (409, "Conflict")


def test_a_patch_cannot_rename_an_object(store: AStore):
    store.create("nodes", node("n1"))

    with pytest.raises(StatusError) as caught:
        store.patch("nodes", "n1", {"metadata": {"name": "n2"}})

    assert code_and_reason(caught) == (422, "Invalid")


def test_a_patch_of_an_unknown_media_type_is_refused(store: AStore):
    store.create("nodes", node("n1"))

    with pytest.raises(StatusError) as caught:
        store.patch("nodes", "n1", {}, patch_type="application/apply-patch+cbor")

    assert code_and_reason(caught) == (415, "UnsupportedMediaType")


def test_a_node_keeps_its_initial_status_and_its_capacity_becomes_allocatable():
    created = AStore().create("nodes", node("n1"))

    assert created["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert created["status"]["nodeInfo"]["kubeletVersion"] == ""


def test_a_service_gets_an_address():
    spec = AStore().create("services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})["spec"]

    assert spec["clusterIP"].startswith("10.96.")
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]


def test_a_scale_increments_the_generation(store: AStore):
    store.create("deployments", deployment("d", 2))

    scaled = store.scale("deployments", "d", 5)

    assert (scaled["spec"]["replicas"], scaled["metadata"]["generation"]) == (5, 2)
    with pytest.raises(StatusError) as caught:
        store.scale("deployments", "d", -1)
    assert code_and_reason(caught) == (422, "Invalid")


def test_a_selector_that_does_not_match_its_template_is_refused():
    wrong = deployment("d", 1)
    wrong["spec"]["selector"] = {"matchLabels": {"app": "other"}}

    with pytest.raises(StatusError) as caught:
        AStore().create("deployments", wrong)

    assert caught.value.details["causes"][0]["field"] == "spec.template.metadata.labels"


def test_the_selector_of_a_deployment_is_immutable(store: AStore):
    store.create("deployments", deployment("d", 1))

    with pytest.raises(StatusError) as caught:
        store.patch("deployments", "d", {"spec": {"selector": {"matchLabels": {"x": "y"}}}})

    assert "field is immutable" in caught.value.message


def test_an_unknown_kind_is_reported_with_the_known_ones():
    with pytest.raises(KeyError, match=r"no kind 'podz' is served; there are pods, nodes"):
        AStore().list("podz")


@pytest.mark.parametrize(
    ("resource", "status"),
    [
        pytest.param("resourcequotas", {}, id="nothing"),
        pytest.param("services", {"loadBalancer": {}}, id="a struct"),
        pytest.param("replicasets.apps", {"replicas": 0}, id="a number"),
        pytest.param(
            "poddisruptionbudgets.policy",
            dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0),
            id="numbers",
        ),
    ],
)
def test_a_new_object_has_the_zero_status_that_go_writes(resource: str, status: dict[str, Any]):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("")["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template} if "apps" in resource else {}

    created = AStore().create(
        resource, {"metadata": {"name": "a"}, "spec": spec, "status": {"phase": "mine"}}
    )

    assert created["status"] == status


def test_an_object_is_changed_and_removed_by_its_uid(store: AStore):
    first = store.create("nodes", node("a"))

    assert store.change(first, {"spec": {"unschedulable": True}})["spec"] == {"unschedulable": True}
    store.remove(first)
    assert store.find("nodes", "a") is None


def test_another_object_of_the_same_name_is_not_removed(store: AStore):
    first = store.create("nodes", node("a"))
    store.remove(first)
    store.create("nodes", node("a"))

    store.remove(first)

    assert not store.has(first)
    assert store.find("nodes", "a") is not None


@pytest.mark.parametrize(
    ("resource", "obj", "change", "field"),
    [
        pytest.param(
            "leases.coordination.k8s.io",
            {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 1}},
            {"spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds",
            id="a lease",
        ),
        pytest.param(
            "roles.rbac.authorization.k8s.io",
            {"metadata": {"name": "a"}},
            {"rules": [{"apiGroups": [""], "resources": ["pods"]}]},
            "rules[0].verbs",
            id="a role",
        ),
        pytest.param(
            "events",
            {"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}},
            {"involvedObject": {"namespace": "other"}},
            "involvedObject.namespace",
            id="an event",
        ),
    ],
)
def test_a_changed_object_is_validated_as_a_new_one(
    store: AStore, resource: str, obj: Any, change: Any, field: str
):
    created = store.create(resource, obj)
    change["metadata"] = {"resourceVersion": created["metadata"]["resourceVersion"]}

    with pytest.raises(StatusError) as caught:
        store.patch(resource, "a", change)

    assert caught.value.details is not None
    assert [cause["field"] for cause in caught.value.details["causes"]] == [field]


def test_a_loaded_object_keeps_its_uid_and_status_and_gets_defaults(store: AStore):
    claim = {"spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}}
    kind = store.registry.kinds.named("persistentvolumeclaims")

    found = store.registry.load(Place(kind, "a", "data"), {**claim, "metadata": {"name": "data", "uid": "u"}})

    assert found.object["metadata"]["uid"] == "u"
    assert found.object["status"]["phase"] == "Bound"
    assert found.object["spec"]["volumeMode"] == "Filesystem"
    assert store.find("persistentvolumeclaims", "data", "a") == found.object


def test_without_the_namespace_lifecycle_a_namespace_need_not_exist():
    config_map = {"metadata": {"name": "c"}}
    free = Registry(clock=ManualClock(), kinds=builtin_kinds(), seed=0, history=1, namespace_lifecycle=False)

    assert Store(free).create("configmaps", config_map, namespace="none")["metadata"]["namespace"] == "none"
    with pytest.raises(StatusError):
        AStore().create("configmaps", config_map, namespace="none")
