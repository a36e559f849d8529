"""Watch events of pods whose profile belongs to an earlier configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.engine.state.cache import PodState
from scheduler.objects.decode import decode_pod
from tests.support import scripted_plugins as puppets
from tests.support.builders import node, pod, pod_object
from tests.unit.engine.cycle.cluster import Cluster


def told(cluster: Cluster) -> list[str]:
    """Return a list of the labels of all later events of the queue."""
    labels: list[str] = []

    def move_all(event: Any, *_: Any) -> int:
        labels.append(event.label)
        return 0

    cluster.queue.move_all = move_all  # type: ignore[method-assign]
    return labels


def test_deleting_a_pod_in_binding_frees_its_node_after_its_profile_is_removed() -> None:
    cluster = Cluster(puppets.NodeFilter("Picky"))
    cluster.cache.add_node(node("n1"))
    theirs = pod("web", scheduler_name="gone")
    cluster.cache.assume(theirs, "n1")
    labels = told(cluster)

    cluster.pods.on_delete(theirs)

    assert cluster.cache.state_of(theirs.uid) is PodState.OUTSIDE
    assert labels == ["AssignedPodDelete"]


def test_a_version_that_is_decoded_again_is_stored_without_an_event() -> None:
    cluster = Cluster(puppets.NodeFilter("Picky"))
    cluster.cache.add_node(node("n1"))
    whole = pod_object("web", node="n1", annotations={"note": "kept"})
    whole["metadata"]["resourceVersion"] = "7"
    trimmed = {**whole, "metadata": {**whole["metadata"], "annotations": {}}}
    before, after = (decode_pod(msgspec.json.encode(each)) for each in (trimmed, whole))
    cluster.pods.on_add(before)
    labels = told(cluster)

    cluster.pods.on_update(before, after)

    assert labels == []
    assert cluster.cache.pod(after.uid) is after
