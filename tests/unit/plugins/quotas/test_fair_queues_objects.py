"""Queues: which are active, the faults of the others, and the queue of a pod."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from plugins.quotas import queues
from plugins.quotas.elastic_quotas import Quotas
from plugins.quotas.queues import QUEUE_NAME, Queues, faults, read
from scheduler.loop_work import run_to_end
from scheduler.snapshot import ObjectStore
from tests.support.builders import pod
from tests.support.counted_labels import calls_of


def queue(name: str, *, created: str = "2026-03-01T08:00:00Z", **spec: Any) -> tuple[str, dict[str, Any]]:
    return name, {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}


GPU = {"matchLabels": {"kind": "gpu"}}
LATE = "2026-03-02T08:00:00Z"


@pytest.mark.parametrize(
    ("queues", "active", "expected"),
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
            id="a cycle and its children",
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
                "b": ("spec.parent", "queue a is invalid itself"),
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
        pytest.param([queue("a", min={"cpu": "many"})], [], {"a": ("spec.min.cpu", ...)}, id="no quantity"),
        pytest.param(
            [queue("a", max={"cpu": -1})],
            [],
            {"a": ("spec.max.cpu", "at least 0 is expected, was -1")},
            id="a negative amount",
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
                    "it has children, and only queues without children hold pods: its pods are left to other queues",
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
            {"a": ("spec.min.cpu", "its children are guaranteed 2 together, but it only 1: they get less")},
            id="children are sure of more",
        ),
        pytest.param(
            [queue("a", min={"cpu": 2}, max={"cpu": 1})],
            ["a"],
            {"a": ("spec.min.cpu", "2 is more than its max, 1: max counts")},
            id="sure of more than it may have",
        ),
        pytest.param(
            [queue("a", min={"nvidia.com/gpu": 2048}, max={"nvidia.com/gpu": 1024})],
            ["a"],
            {"a": ("spec.min.nvidia.com/gpu", "2048 is more than its max, 1024: max counts")},
            id="counts have no units of bytes",
        ),
        pytest.param(
            [queue("a"), queue("b", parent="a", min={"cpu": 2})], ["a", "b"], {}, id="a parent without min"
        ),
    ],
)
def test_an_invalid_queue_is_reported_at_its_field(
    queues: list[tuple[str, dict[str, Any]]], active: list[str], expected: dict[str, Any]
) -> None:
    tree, found = read(dict(queues))

    assert sorted(each.name for each in tree.queues) == active
    assert found.keys() == expected.keys()
    for name, (field, text) in expected.items():
        assert found[name].path == field
        assert text is ... or found[name].problem == text
    assert faults(dict(queues)) == found


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        pytest.param([queue("it", parent="it")], "ParentCycle", id="a cycle"),
        pytest.param([queue("it", parent="none")], "UnknownParent", id="no such parent"),
        pytest.param(
            [queue("p", weight=0), queue("it", parent="p")], "ParentNotActive", id="a parent that is wrong"
        ),
        pytest.param(
            [queue("p", parent="none"), queue("it", parent="p")],
            "ParentNotActive",
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
def test_an_invalid_queue_has_a_reason(queues: list[tuple[str, dict[str, Any]]], reason: str) -> None:
    assert faults(dict(queues))["it"].reason == reason


@pytest.mark.parametrize(
    ("namespace", "labels", "whose"),
    [
        pytest.param("x", {}, "all-of-x", id="by namespace"),
        pytest.param("y", {}, "", id="no queue"),
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
def test_the_queue_of_a_pod(namespace: str, labels: dict[str, str], whose: str) -> None:
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


def test_a_queue_without_namespaces_takes_no_pod_by_name() -> None:
    tree, _ = read(dict([queue("a", namespaces=["x"]), queue("b", namespaces=["x"], created=LATE)]))

    assert tree.queue_of(pod("p", namespace="y", labels={QUEUE_NAME: "b"})) == ""


def test_an_invalid_queue_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
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
    [reported] = caplog.records
    assert (vars(reported)["queue"], vars(reported)["field"]) == ("a", "spec.parent")


@pytest.mark.parametrize(
    ("holder", "kind", "key"),
    [
        pytest.param(Queues, "queue", "a", id="Queues"),
        pytest.param(Quotas, "quota", "ns/a", id="ElasticQuotas"),
    ],
)
def test_an_invalid_annotation_is_logged_when_it_changes_and_not_with_each_status(
    holder: type[Queues | Quotas], kind: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, read_objects = ObjectStore(), holder()

    def show(time: str, status: str) -> None:
        annotations = {"custom-scheduler.io/min-run-time": time}
        metadata = {"name": "a", "namespace": key.rpartition("/")[0], "annotations": annotations}
        store[key] = {"metadata": metadata, "spec": {}, "status": {"averageShare": status}}
        read_objects.look_at(store)

    with caplog.at_level(logging.WARNING):
        for time, status in (
            ("1d", "1%"),
            ("1d", "2%"),
            ("1d", "3%"),
            ("2d", "3%"),
            ("5m", "3%"),
            ("2d", "3%"),
        ):
            show(time, status)

    logged = [(vars(each)[kind], vars(each)["value"]) for each in caplog.records]
    assert logged == [(key, "1d"), (key, "2d"), (key, "2d")]


def test_each_queue_of_a_long_cycle_has_a_short_message() -> None:
    names = [f"{'x' * 200}-{number}" for number in range(400)]
    found = faults(dict(queue(name, parent=names[place - 1]) for place, name in enumerate(names)))
    reported = found[names[7]]
    assert len(found) == 400
    assert reported.reason == "ParentCycle"
    assert reported.problem.startswith(f"no root is found: {names[7]} is part of {names[6]} is part of ")
    assert reported.problem.endswith(", and so on, in a cycle of 400 queues")
    assert max(len(fault.problem) for fault in found.values()) < 1000


def test_a_queue_that_is_too_deep_is_inactive_with_its_children() -> None:
    chain = [queue("q0"), *(queue(f"q{number}", parent=f"q{number - 1}") for number in range(1, 800))]
    tree, wrong = read(dict(chain))
    assert len(tree) == 32
    assert str(wrong["q32"]) == "spec.parent: 33 queues lead from it to its root, at most 32 may"
    assert wrong["q32"].reason == "TooDeep"
    assert len(wrong) == 768
    assert len(tree.title(31)) <= 256


@pytest.mark.parametrize("shape", ["chain", "cycle"])
def test_the_path_of_each_queue_to_its_root_is_followed_once(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0

    class Counted(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(name)

    names = [f"q{number}" for number in range(2000)]
    first = queue(names[0], parent=names[-1] if shape == "cycle" else "")
    chain = dict([first, *(queue(name, parent=names[place]) for place, name in enumerate(names[1:]))])
    settle = queues._with_parents
    monkeypatch.setattr(queues, "_with_parents", lambda known, wrong: settle(Counted(known), wrong))
    read(chain)
    assert looked_at <= 5 * len(names)


def test_only_changed_queues_are_read_again_and_a_status_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = calls_of(monkeypatch, queues, "_read_one")
    objects, known = ObjectStore(), Queues()
    for number in range(1000):
        name, obj = queue(f"q{number}", namespaces=[f"n{number}"])
        objects[name] = obj
    run_to_end(known.reading(objects))
    assert len(seen) == 1000

    seen.clear()
    tree = known.tree
    objects["q7"] = {**objects["q7"], "status": {"pending": 3}}
    known.look_at(objects)
    assert ([name for name, _ in seen], known.tree) == (["q7"], tree)

    objects["q8"] = queue("q8", namespaces=["other"])[1]
    del objects["q9"]
    run_to_end(known.reading(objects))
    assert [name for name, _ in seen] == ["q7", "q8"]
    assert known.tree.queue_of(pod("p", namespace="other")) == "q8"
    assert known.tree.queue_of(pod("p", namespace="n9")) == ""
    assert known.tree.queue_of(pod("p", namespace="n7")) == "q7"
