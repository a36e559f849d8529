"""The labels of the durations of watch events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import ObjectError
from tests.support.builders import node, pod
from tests.unit.engine.cycle.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

PENDING = pod("web", cpu="1")
THEIRS = pod("web", cpu="1", scheduler_name="other")
BOUND = pod("web", cpu="1", node="n1")
NODE = node("n1")


def pods(cluster: Cluster) -> Any:
    return cluster.pods


def nodes(cluster: Cluster) -> Any:
    return cluster.nodes


def csi_nodes(cluster: Cluster) -> Any:
    return cluster.parts.object_handler("storage.k8s.io/v1/csinodes")


def racks(cluster: Cluster) -> Any:
    return cluster.parts.object_handler("example.com/v1/racks")


def services(cluster: Cluster) -> Any:
    return cluster.parts.object_handler("v1/services")


OBJECT = {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("handler", "method", "objects", "labels"),
    [
        pytest.param(pods, "add", (PENDING,), ["UnschedulablePodAdd"], id="pending pod added"),
        pytest.param(pods, "add", (THEIRS,), [], id="another scheduler's pod added"),
        pytest.param(pods, "add", (BOUND,), ["AssignedPodAdd"], id="pod on a node added"),
        pytest.param(pods, "update", (PENDING, BOUND), ["AssignedPodAdd"], id="pod bound"),
        pytest.param(
            pods,
            "update",
            (PENDING, pod("web", cpu="1", labels={"a": "b"})),
            ["UnschedulablePodUpdate", "UnschedulablePodUpdatePodLabel"],
            id="pending pod labelled",
        ),
        pytest.param(
            pods, "update", (PENDING, PENDING), ["UnschedulablePodUpdate"], id="pending pod touched"
        ),
        pytest.param(pods, "update", (THEIRS, THEIRS), [], id="another scheduler's pod touched"),
        pytest.param(
            pods,
            "update",
            (BOUND, pod("web", cpu="1", node="n1", labels={"a": "b"})),
            ["AssignedPodUpdatePodLabel"],
            id="pod on a node labelled",
        ),
        pytest.param(pods, "update", (BOUND, BOUND), ["AssignedPodUpdate"], id="pod on a node touched"),
        pytest.param(pods, "delete", (PENDING,), ["UnschedulablePodDelete"], id="pending pod deleted"),
        pytest.param(pods, "delete", (THEIRS,), [], id="another scheduler's pod deleted"),
        pytest.param(pods, "delete", (BOUND,), ["AssignedPodDelete"], id="pod on a node deleted"),
        pytest.param(nodes, "add", (NODE,), ["NodeAdd"], id="node added"),
        pytest.param(nodes, "update", (NODE, NODE), [], id="heartbeat"),
        pytest.param(
            nodes,
            "update",
            (NODE, node("n1", cpu="8", labels={"a": "b"})),
            ["NodeUpdateNodeAllocatable", "NodeUpdateNodeLabel"],
            id="node changed in two ways",
        ),
        pytest.param(nodes, "delete", (NODE,), ["NodeDelete"], id="node deleted"),
        pytest.param(csi_nodes, "add", (OBJECT,), ["storage.k8s.io/CSINodeAdd"], id="other added"),
        pytest.param(racks, "update", (OBJECT, OBJECT), ["racks.v1.example.comUpdate"], id="other changed"),
        pytest.param(services, "delete", (OBJECT,), ["services.v1Delete"], id="other deleted"),
    ],
)
def test_an_event_is_named(
    handler: Callable[[Cluster], Any], method: str, objects: tuple[Any, ...], labels: list[str]
) -> None:
    cluster = Cluster()
    it = handler(cluster)
    if method != "add":  # else there is no object that could change
        it.on_add(objects[0])
    cluster.counts.handled.clear()

    getattr(it, f"on_{method}")(*objects)

    assert cluster.counts.handled == labels


def test_an_undecodable_object_is_no_event() -> None:
    cluster = Cluster()
    cluster.counts.handled.clear()

    class Identity:
        key = "n1"

    cluster.nodes.on_undecodable(Identity(), ObjectError("Node", "n1", "status", "odd"))

    assert cluster.counts.handled == []
