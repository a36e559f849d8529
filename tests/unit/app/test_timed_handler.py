"""What events are called whose handling is timed."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.app.timed_handler import KindLabels, NodeLabels, PodLabels, TimedHandler
from tests.builders import node, pod

OURS = {"custom-scheduler"}


class Handler:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_add(self, obj: Any) -> None:
        self.calls.append(("add", obj))

    def on_update(self, old: Any, new: Any) -> None:
        self.calls.append(("update", old, new))

    def on_delete(self, old: Any) -> None:
        self.calls.append(("delete", old))

    def on_undecodable(self, identity: Any, error: Any) -> None:
        self.calls.append(("undecodable", identity, error))


class Observer:
    def __init__(self) -> None:
        self.told: list[str] = []

    def event_handled(self, event: str, seconds: float) -> None:
        assert seconds >= 0
        self.told.append(event)


PENDING = pod("web", cpu="1")
THEIRS = pod("web", cpu="1", scheduler_name="other")
BOUND = pod("web", cpu="1", node="n1")
NODE = node("n1")


@pytest.mark.parametrize(
    ("labels", "method", "objects", "told"),
    [
        pytest.param(PodLabels(OURS), "add", (PENDING,), ["UnschedulablePodAdd"], id="pending pod added"),
        pytest.param(PodLabels(OURS), "add", (THEIRS,), [], id="another scheduler's pod added"),
        pytest.param(PodLabels(OURS), "add", (BOUND,), ["AssignedPodAdd"], id="pod on a node added"),
        pytest.param(PodLabels(OURS), "update", (PENDING, BOUND), ["AssignedPodAdd"], id="pod bound"),
        pytest.param(
            PodLabels(OURS),
            "update",
            (PENDING, pod("web", cpu="1", labels={"a": "b"})),
            ["UnschedulablePodUpdate", "UnschedulablePodUpdatePodLabel"],
            id="pending pod labelled",
        ),
        pytest.param(
            PodLabels(OURS),
            "update",
            (PENDING, PENDING),
            ["UnschedulablePodUpdate"],
            id="pending pod touched",
        ),
        pytest.param(PodLabels(OURS), "update", (THEIRS, THEIRS), [], id="another scheduler's pod touched"),
        pytest.param(
            PodLabels(OURS),
            "update",
            (BOUND, pod("web", cpu="1", node="n1", labels={"a": "b"})),
            ["AssignedPodUpdatePodLabel"],
            id="pod on a node labelled",
        ),
        pytest.param(
            PodLabels(OURS), "update", (BOUND, BOUND), ["AssignedPodUpdate"], id="pod on a node touched"
        ),
        pytest.param(
            PodLabels(OURS), "delete", (PENDING,), ["UnschedulablePodDelete"], id="pending pod deleted"
        ),
        pytest.param(PodLabels(OURS), "delete", (THEIRS,), [], id="another scheduler's pod deleted"),
        pytest.param(PodLabels(OURS), "delete", (BOUND,), ["AssignedPodDelete"], id="pod on a node deleted"),
        pytest.param(NodeLabels(), "add", (NODE,), ["NodeAdd"], id="node added"),
        pytest.param(NodeLabels(), "update", (NODE, NODE), [], id="heartbeat"),
        pytest.param(
            NodeLabels(),
            "update",
            (NODE, node("n1", cpu="8", labels={"a": "b"})),
            ["NodeUpdateNodeAllocatable", "NodeUpdateNodeLabel"],
            id="node changed in two ways",
        ),
        pytest.param(NodeLabels(), "delete", (NODE,), ["NodeDelete"], id="node deleted"),
        pytest.param(
            KindLabels("storage.k8s.io/CSINode"),
            "add",
            ({},),
            ["storage.k8s.io/CSINodeAdd"],
            id="other added",
        ),
        pytest.param(
            KindLabels("example.com/v1/racks"),
            "update",
            ({}, {}),
            ["example.com/v1/racksUpdate"],
            id="other changed",
        ),
        pytest.param(KindLabels("v1/services"), "delete", ({},), ["v1/servicesDelete"], id="other deleted"),
    ],
)
def test_an_event_is_handed_on_and_told_by_its_name(
    labels: Any, method: str, objects: tuple[Any, ...], told: list[str]
) -> None:
    handler, observer = Handler(), Observer()

    getattr(TimedHandler(handler, labels, observer), f"on_{method}")(*objects)

    assert handler.calls == [(method, *objects)]
    assert observer.told == told


def test_an_object_that_cannot_be_read_is_handed_on() -> None:
    handler, observer = Handler(), Observer()

    TimedHandler(handler, NodeLabels(), observer).on_undecodable("who", "why")  # type: ignore[arg-type]

    assert handler.calls == [("undecodable", "who", "why")]
    assert observer.told == []
