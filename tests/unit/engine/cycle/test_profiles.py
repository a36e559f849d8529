"""The active profiles change for all users at once, also for pods whose profile belongs to an earlier configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.configuration.types import Extender
from scheduler.engine.cycle.shared import Profiles
from scheduler.engine.state.cache import PodState
from scheduler.extensions.extenders import Extenders
from scheduler.framework import QueuedPodInfo, Status
from scheduler.objects.decode import decode_pod
from tests.support import scripted_plugins as puppets
from tests.support.builders import node, pod, pod_object
from tests.support.scripted_plugins import framework_of
from tests.unit.engine.cycle.cluster import Cluster

WEB = pod("web", scheduler_name="a")


def profiles() -> Profiles:
    it = Profiles()
    it.swap(
        {"a": framework_of(puppets.Sort("Sort", (1.0,)), puppets.Gate("Gate", Status.unschedulable("no")))}
    )
    return it


def test_before_the_first_swap_there_are_no_profiles() -> None:
    it = Profiles()

    assert list(it) == []
    assert it.extenders is None
    assert it.events("a") == {}


def test_the_queue_uses_the_profile_of_the_pod() -> None:
    it = profiles()

    assert it.sort_key(QueuedPodInfo(WEB, 0.0)) == (1.0,)
    assert it.run_pre_enqueue(WEB).plugin == "Gate"
    assert set(it.events("a")) == {"Gate"}
    assert it.events("b") == {}


def test_a_swap_replaces_all_profiles() -> None:
    it = profiles()
    it.swap({"b": framework_of(puppets.Sort("Sort", (2.0,)))})

    assert "a" not in it
    assert list(it) == ["b"]


def test_an_empty_list_of_extenders_is_none() -> None:
    heard = Cluster().failures
    it = Profiles()
    it.swap({}, Extenders([], heard))
    assert it.extenders is None

    extenders = Extenders([Extender(url_prefix="http://localhost")], heard)
    it.swap({}, extenders)
    assert it.extenders is extenders


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
