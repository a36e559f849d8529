"""RuntimeClasses: what new pods get from them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, pod

TOLERATION = {"key": "sandbox", "operator": "Exists"}


def store_with_class() -> AStore:
    store = AStore()
    store.create(
        "runtimeclasses.node.k8s.io",
        {
            "metadata": {"name": "sandbox"},
            "handler": "sandbox",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [TOLERATION]},
        },
    )
    return store


def test_a_pod_gets_the_overhead_the_node_selector_and_the_tolerations_of_its_class():
    made = pod("p", runtimeClassName="sandbox", nodeSelector={"disk": "ssd"})

    spec = store_with_class().create("pods", made)["spec"]

    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"disk": "ssd", "sandbox": "yes"}
    assert TOLERATION in spec["tolerations"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param(
            {"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found', id="no such class"
        ),
        pytest.param(
            {"runtimeClassName": "sandbox", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            id="another overhead",
        ),
        pytest.param(
            {"runtimeClassName": "sandbox", "nodeSelector": {"sandbox": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; pod.spec.nodeSelector[sandbox] = no",
            id="another node selector",
        ),
    ],
)
def test_a_pod_that_does_not_fit_its_class_is_refused(fields: dict[str, Any], problem: str):
    with raises(StatusError, code=403, message=f'pods "p" is forbidden: {problem}'):
        store_with_class().create("pods", pod("p", **fields))
