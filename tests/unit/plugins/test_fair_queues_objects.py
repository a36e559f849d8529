"""Queues: which are in force, what is told of the others, and whose a pod is."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from plugins.fair_queues.queues import QUEUE_NAME, Queues, faults, read
from scheduler.snapshot import ObjectStore
from tests.builders import pod


def queue(name: str, *, created: str = "2026-03-01T08:00:00Z", **spec: Any) -> tuple[str, dict[str, Any]]:
    return name, {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}


GPU = {"matchLabels": {"kind": "gpu"}}
LATE = "2026-03-02T08:00:00Z"


@pytest.mark.parametrize(
    ("queues", "in_force", "told"),
    [
        pytest.param([queue("a"), queue("b", parent="a")], ["a", "b"], {}, id="a tree"),
        pytest.param(
            [queue("a", parent="a")],
            [],
            {"a": ("spec.parent", "no root is found: a is part of a")},
            id="part of itself",
        ),
        pytest.param(
            [queue("a", parent="b"), queue("b", parent="a"), queue("c", parent="a"), queue("d")],
            ["d"],
            {
                "a": ("spec.parent", "no root is found: a is part of b is part of a"),
                "b": ("spec.parent", "no root is found: b is part of a is part of b"),
                "c": ("spec.parent", "no root is found: a is part of b is part of a"),
            },
            id="a cycle, and who hangs on it",
        ),
        pytest.param(
            [queue("a", parent="none"), queue("b", parent="a")],
            [],
            {
                "a": ("spec.parent", "queue none does not exist"),
                "b": ("spec.parent", "queue a is left out, since of a the parent is"),
            },
            id="no such parent",
        ),
        pytest.param(
            [queue("a", weight=0), queue("b", parent="a")],
            [],
            {
                "a": ("spec.weight", "at least 1 is expected, was 0"),
                "b": ("spec.parent", "queue a is wrong itself"),
            },
            id="no weight",
        ),
        pytest.param(
            [queue("a", weight=10**400)],
            [],
            {"a": ("spec.weight", f"at most 2147483647 is expected, was {10**400}")},
            id="a weight that overflows",
        ),
        pytest.param([queue("a", weight="much")], [], {"a": ("spec.weight", ...)}, id="a text for a number"),
        pytest.param(
            [queue("a", min={"cpu": "many"})],
            [],
            {"a": ("spec.min.cpu", ...)},
            id="no quantity",
        ),
        pytest.param(
            [queue("a", max={"cpu": -1})],
            [],
            {"a": ("spec.max.cpu", "at least 0 is expected, was -1")},
            id="less than nothing",
        ),
        pytest.param(
            [queue("a", max={"cpu": "1E"})],
            [],
            {"a": ("spec.max.cpu", "at most 9223372036854775807m is expected, was 1E")},
            id="more than can be computed with",
        ),
        pytest.param(
            [queue("a", podSelector={"matchExpressions": [{"key": "a", "operator": "Like"}]})],
            [],
            {"a": ("spec.podSelector", ...)},
            id="no selector",
        ),
        pytest.param(
            [queue("a", namespaces=["x"]), queue("b", parent="a")],
            ["a", "b"],
            {
                "a": (
                    "spec.namespaces",
                    "it has children, and only queues without any hold pods: they are left to others",
                )
            },
            id="a parent that claims pods",
        ),
        pytest.param(
            [queue("a", namespaces=["x", "y"], created=LATE), queue("b", namespaces=["y"])],
            ["a", "b"],
            {"a": ("spec.namespaces[1]", "queue b has namespace y already")},
            id="two of one namespace",
        ),
        pytest.param(
            [queue("a", min={"cpu": 1}), queue("b", parent="a", min={"cpu": 2})],
            ["a", "b"],
            {"a": ("spec.min.cpu", "its children are sure of 2 together, it of 1: they get less")},
            id="children are sure of more",
        ),
        pytest.param(
            [queue("a", min={"cpu": 2}, max={"cpu": 1})],
            ["a"],
            {"a": ("spec.min.cpu", "2 is more than its max, 1: max holds")},
            id="sure of more than it may have",
        ),
        pytest.param(
            [queue("a"), queue("b", parent="a", min={"cpu": 2})], ["a", "b"], {}, id="a parent without min"
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_field(
    queues: list[tuple[str, dict[str, Any]]], in_force: list[str], told: dict[str, Any]
) -> None:
    tree, found = read(dict(queues))

    assert sorted(each.name for each in tree.queues) == in_force
    assert found.keys() == told.keys()
    for name, (field, text) in told.items():
        assert found[name][0] == field
        assert text is ... or found[name][1] == text
    assert faults(dict(queues)) == found


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        pytest.param([queue("it", parent="it")], "ParentCycle", id="a cycle"),
        pytest.param([queue("it", parent="none")], "UnknownParent", id="no such parent"),
        pytest.param(
            [queue("p", weight=0), queue("it", parent="p")], "ParentNotInForce", id="a parent that is wrong"
        ),
        pytest.param(
            [queue("p", parent="none"), queue("it", parent="p")],
            "ParentNotInForce",
            id="a parent that is left out",
        ),
        pytest.param([queue("it", min={"cpu": "many"})], "Invalid", id="no quantity"),
        pytest.param(
            [queue("it", namespaces=["x"]), queue("b", parent="it")],
            "HasChildren",
            id="a parent that claims pods",
        ),
        pytest.param(
            [queue("it", namespaces=["x"], created=LATE), queue("b", namespaces=["x"])],
            "NamespaceTaken",
            id="two of one namespace",
        ),
        pytest.param(
            [queue("it", min={"cpu": 1}), queue("b", parent="it", min={"cpu": 2})],
            "ChildrenMinAboveMin",
            id="children are sure of more",
        ),
        pytest.param(
            [queue("it", min={"cpu": 2}, max={"cpu": 1})], "MinAboveMax", id="sure of more than it may have"
        ),
    ],
)
def test_what_is_wrong_has_a_reason(queues: list[tuple[str, dict[str, Any]]], reason: str) -> None:
    assert faults(dict(queues))["it"].reason == reason


@pytest.mark.parametrize(
    ("namespace", "labels", "whose"),
    [
        pytest.param("x", {}, "all-of-x", id="by namespace"),
        pytest.param("y", {}, "", id="nobody's"),
        pytest.param("x", {"kind": "gpu"}, "gpus", id="a selector before a namespace"),
        pytest.param("y", {"kind": "gpu"}, "gpus", id="by selector"),
        pytest.param("y", {"kind": "gpu", QUEUE_NAME: "named"}, "named", id="its label before all"),
        pytest.param("y", {QUEUE_NAME: "all-of-x"}, "", id="named, but not for its namespace"),
        pytest.param("x", {QUEUE_NAME: "nobody"}, "all-of-x", id="a queue that is not there"),
        pytest.param("x", {QUEUE_NAME: "root"}, "all-of-x", id="a queue that holds no pods"),
        pytest.param("z", {"kind": "cpu"}, "in-z", id="a selector within a namespace"),
        pytest.param("x", {"kind": "cpu"}, "all-of-x", id="that namespace only"),
    ],
)
def test_whose_a_pod_is(namespace: str, labels: dict[str, str], whose: str) -> None:
    tree, wrong = read(
        dict(
            [
                queue("root"),
                queue("all-of-x", parent="root", namespaces=["x"]),
                queue("gpus", podSelector=GPU),
                queue("gpus-too", podSelector=GPU, created=LATE),
                queue("named"),
                queue("in-z", namespaces=["z"], podSelector={"matchLabels": {"kind": "cpu"}}),
            ]
        )
    )

    assert not wrong
    assert tree.queue_of(pod("p", namespace=namespace, labels=labels)) == whose


def test_who_lost_all_its_namespaces_takes_nobody_by_name() -> None:
    tree, _ = read(dict([queue("a", namespaces=["x"]), queue("b", namespaces=["x"], created=LATE)]))

    assert tree.queue_of(pod("p", namespace="y", labels={QUEUE_NAME: "b"})) == ""


def test_what_is_wrong_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store, queues = ObjectStore(), Queues()
    store["a"] = queue("a", parent="none")[1]
    with caplog.at_level(logging.WARNING):
        queues.look_at(store)
        first = queues.tree
        queues.look_at(store)
        assert queues.tree is first
        store["b"] = queue("b")[1]
        queues.look_at(store)

    assert [each.name for each in queues.tree.queues] == ["b"]
    [told] = caplog.records
    assert (vars(told)["queue"], vars(told)["field"]) == ("a", "spec.parent")
