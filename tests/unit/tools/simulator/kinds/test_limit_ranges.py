"""LimitRanges of a namespace: defaults of new pods, limits of new pods and claims."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, pod

Object = dict[str, Any]


def store_with(*limits: Object, namespace: str = "default") -> AStore:
    store = AStore()
    store.create(
        "limitranges", {"metadata": {"name": "r", "namespace": namespace}, "spec": {"limits": [*limits]}}
    )
    return store


def sized(name: str, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> Object:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"requests": requests or {}, "limits": limits or {}}
    return made


def claim(size: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": "c"}, "spec": spec}


DEFAULTS = {
    "type": "Container",
    "default": {"cpu": "500m", "memory": "500Mi"},
    "defaultRequest": {"cpu": "100m", "memory": "200Mi"},
}


def test_a_container_without_resources_gets_the_defaults():
    created = store_with(DEFAULTS).create("pods", pod("p"))

    assert created["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "500Mi"},
        "requests": {"cpu": "100m", "memory": "200Mi"},
    }
    assert created["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container c; "
        "cpu, memory limit for container c"
    }
    assert created["status"]["qosClass"] == "Burstable"


def test_a_limit_of_the_container_is_its_request_before_the_default_request():
    created = store_with(DEFAULTS).create("pods", sized("p", {"memory": "150Mi"}, {"cpu": "300m"}))

    assert created["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "300m", "memory": "500Mi"},
        "requests": {"cpu": "300m", "memory": "150Mi"},
    }


def test_limits_of_another_namespace_have_no_effect():
    created = store_with(DEFAULTS, namespace="kube-system").create("pods", pod("p"))

    assert created["spec"]["containers"][0]["resources"] == {}


CONTAINER = {"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "500m"}}
CASES = [
    pytest.param(
        CONTAINER,
        sized("p", {"cpu": "10m"}, {"cpu": "100m"}),
        "minimum cpu usage per Container is 50m, but request is 10m",
        id="request below the minimum",
    ),
    pytest.param(
        CONTAINER,
        sized("p", {"cpu": "100m"}, {"cpu": "1"}),
        "maximum cpu usage per Container is 500m, but limit is 1",
        id="limit above the maximum",
    ),
    pytest.param(
        {"type": "Pod", "max": {"cpu": "500m"}},
        sized("p", {"cpu": "100m"}),
        "maximum cpu usage per Pod is 500m.  No limit is specified",
        id="pod without a limit",
    ),
    pytest.param(
        {"type": "Pod", "min": {"cpu": "1"}},
        pod("p"),
        "minimum cpu usage per Pod is 1.  No request is specified",
        id="pod without a request",
    ),
    pytest.param(
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
        sized("p", {"cpu": "100m"}, {"cpu": "300m"}),
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        id="ratio",
    ),
]


@pytest.mark.parametrize(("item", "made", "problem"), CASES)
def test_a_pod_outside_of_the_limits_is_refused(item: Object, made: Object, problem: str):
    with raises(StatusError, code=403, message=f'pods "p" is forbidden: {problem}'):
        store_with(item).create("pods", made)


def test_a_claim_outside_of_the_limits_is_refused():
    store = store_with(
        {"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}, "max": {"storage": "5Gi"}}
    )

    for size, problem in (
        ("1Gi", "minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"),
        ("6Gi", "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"),
    ):
        with pytest.raises(StatusError, match=problem):
            store.create("persistentvolumeclaims", claim(size))
    store.create("persistentvolumeclaims", claim("5Gi"))


@pytest.mark.parametrize("change", [{"value": 2}, {"preemptionPolicy": "Never"}])
def test_value_and_policy_of_a_priority_class_cannot_change(store: AStore, change: Object):
    store.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1})

    with raises(StatusError, code=422):
        store.patch("priorityclasses", "high", change)
    store.patch("priorityclasses", "high", {"description": "important"})
