from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.structure import WriteOptions
from scheduler.tools.simulator.registry.store import bind
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, pod


def test_a_binding_sets_the_node_and_the_condition_and_clears_the_nomination(store: AStore):
    store.create("pods", pod("a"))
    store.patch("pods", "a", {"status": {"nominatedNodeName": "n9"}}, subresource="status")

    bound = store.bind("a", "n1", annotations={"x": "y"})

    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"x": "y"}
    assert bound["metadata"]["generation"] == 1
    assert "nominatedNodeName" not in bound["status"]
    (condition,) = bound["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": store.timestamp(),
    }


def test_the_condition_replaces_the_previous_one(store: AStore):
    store.create("pods", pod("a"))
    failed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    other = {"type": "Other", "status": "True"}
    store.patch("pods", "a", {"status": {"conditions": [failed, other]}}, subresource="status")

    conditions = store.bind("a", "n1")["status"]["conditions"]

    assert [(one["type"], one["status"]) for one in conditions] == [
        ("PodScheduled", "True"),
        ("Other", "True"),
    ]
    assert "reason" not in conditions[0]


def test_a_node_that_does_not_exist_is_accepted(store: AStore):
    store.create("pods", pod("a"))

    assert store.bind("a", "nowhere")["spec"]["nodeName"] == "nowhere"


BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}


@pytest.mark.parametrize(
    ("binding", "code", "message"),
    [
        pytest.param(
            {**BINDING, "metadata": {"name": "b"}},
            400,
            "name in URL does not match name in Binding object",
            id="names differ",
        ),
        pytest.param({**BINDING, "target": {}}, 500, "target.name: Required value", id="no target"),
        pytest.param(
            {**BINDING, "target": {"kind": "Pod", "name": "x"}},
            500,
            'target.kind: Unsupported value: "Pod"',
            id="no node",
        ),
        pytest.param(
            {**BINDING, "metadata": {"name": "a", "uid": "x"}},
            409,
            "Precondition failed: UID in precondition: x",
            id="another uid",
        ),
        pytest.param(
            {**BINDING, "metadata": {"name": "a", "resourceVersion": "1"}},
            409,
            "ResourceVersion in precondition: 1",
            id="another version",
        ),
        pytest.param({**BINDING, "metadata": []}, 400, "name in URL does not match", id="no metadata"),
        pytest.param(
            {**BINDING, "metadata": "a"},
            400,
            "cannot be handled as a Binding",
            id="metadata of the wrong type",
        ),
        pytest.param([], 400, "not a Binding object", id="no object"),
    ],
)
def test_an_invalid_binding_is_refused(store: AStore, binding: Any, code: int, message: str):
    store.create("pods", pod("a"))

    with pytest.raises(StatusError) as caught:
        bind(store.registry, "default", "a", binding, WriteOptions())

    assert caught.value.code == code
    assert message in caught.value.message
    assert "nodeName" not in store.get("pods", "a")["spec"]


def bound(store: AStore) -> None:
    store.bind("a", "n1")


def terminating(store: AStore) -> None:
    store.patch("pods", "a", {"metadata": {"finalizers": ["example.com/f"]}})
    store.delete("pods", "a")


@pytest.mark.parametrize(
    ("prepare", "spec", "problem"),
    [
        pytest.param(bound, {}, 'pod a is already assigned to node "n1"', id="bound already"),
        pytest.param(
            terminating, {}, "pod a is being deleted, cannot be assigned to a host", id="being deleted"
        ),
        pytest.param(
            lambda _: None,
            {"schedulingGates": [{"name": "g"}]},
            "pod a has non-empty .spec.schedulingGates",
            id="gated",
        ),
    ],
)
def test_a_pod_that_cannot_be_bound_is_a_conflict(store: AStore, prepare: Any, spec: Any, problem: str):
    store.create("pods", pod("a", **spec))
    prepare(store)

    with raises(
        StatusError,
        code=409,
        reason="Conflict",
        message=f'Operation cannot be fulfilled on pods/binding "a": {problem}',
        details={"name": "a", "kind": "pods/binding"},
    ):
        store.bind("a", "n2")


def test_the_uid_is_checked_before_the_state_of_the_pod(store: AStore):
    store.create("pods", pod("a"))
    store.bind("a", "n1")

    with pytest.raises(StatusError, match="UID in precondition"):
        store.bind("a", "n1", uid="another")
