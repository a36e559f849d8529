from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.selectors import Selector
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, pod


def a_bound_pod(store: AStore, name: str = "a", **spec: Any) -> dict:
    store.create("pods", pod(name, **spec))
    return store.bind(name, "n1")


def changes(store: AStore, after: int) -> list[tuple[str, str]]:
    """What happened to pods since a version: type and grace period."""
    kind = store.registry.kinds.named("pods")
    watch, past = store.registry.storage(kind).watch(Selector(), lambda: None, after=after)
    store.registry.storage(kind).unwatch(watch)
    return [(type_, entry.object["metadata"].get("deletionGracePeriodSeconds")) for type_, entry in past]


def test_a_bound_pod_gets_its_grace_period(store: AStore):
    a_bound_pod(store)

    metadata = store.delete("pods", "a")["metadata"]

    assert metadata["deletionGracePeriodSeconds"] == 30
    assert metadata["deletionTimestamp"] == "2026-03-01T08:00:30Z"
    assert metadata["generation"] == 2
    assert store.find("pods", "a") is not None


@pytest.mark.parametrize(
    ("spec", "requested", "expected"),
    [
        pytest.param({"terminationGracePeriodSeconds": 5}, None, 5, id="the value of the pod"),
        pytest.param({"terminationGracePeriodSeconds": 5}, 60, 60, id="the value of the request"),
        pytest.param({"terminationGracePeriodSeconds": -3}, None, 1, id="a negative value is one second"),
    ],
)
def test_the_grace_period_can_be_set(store: AStore, spec: Any, requested: Any, expected: Any):
    a_bound_pod(store, **spec)

    deleted = store.delete("pods", "a", grace_period_seconds=requested)

    assert deleted["metadata"]["deletionGracePeriodSeconds"] == expected


def test_a_second_deletion_can_only_shorten_the_time(store: AStore):
    a_bound_pod(store)
    first = store.delete("pods", "a", grace_period_seconds=20)
    store.clock.advance(5)

    assert store.delete("pods", "a", grace_period_seconds=25) == first
    assert store.delete("pods", "a") == first
    shortened = store.delete("pods", "a", grace_period_seconds=10)["metadata"]
    assert (shortened["deletionTimestamp"], shortened["deletionGracePeriodSeconds"]) == (
        "2026-03-01T08:00:10Z",
        10,
    )


def test_a_shorter_time_does_not_end_in_the_past(store: AStore):
    a_bound_pod(store)
    store.delete("pods", "a", grace_period_seconds=100)
    store.clock.advance(50)

    metadata = store.delete("pods", "a", grace_period_seconds=10)["metadata"]

    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (
        "2026-03-01T08:00:50Z",
        1,
    )


def test_no_grace_ends_a_terminating_pod_at_once(store: AStore):
    a_bound_pod(store)
    store.delete("pods", "a")
    before = store.version

    store.delete("pods", "a", grace_period_seconds=0)

    assert store.find("pods", "a") is None
    assert changes(store, before) == [("MODIFIED", 0), ("DELETED", 0)]


def test_an_unbound_pod_is_deleted_at_once_with_an_event(store: AStore):
    store.create("pods", pod("a"))
    before = store.version

    store.delete("pods", "a")

    assert store.find("pods", "a") is None
    assert changes(store, before) == [("MODIFIED", 0), ("DELETED", 0)]


def test_a_finished_pod_is_deleted_at_once(store: AStore):
    a_bound_pod(store)
    store.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")

    store.delete("pods", "a")

    assert store.find("pods", "a") is None


def test_a_finalizer_keeps_an_object_until_it_is_removed(store: AStore):
    held = pod("a")
    held["metadata"]["finalizers"] = ["example.com/f"]
    store.create("pods", held)

    store.delete("pods", "a")
    assert "deletionTimestamp" in store.get("pods", "a")["metadata"]
    store.patch("pods", "a", {"metadata": {"finalizers": None}})

    assert store.find("pods", "a") is None


def test_a_finalizer_keeps_an_object_without_a_grace_period_too(store: AStore):
    store.create("configmaps", {"metadata": {"name": "c", "finalizers": ["example.com/f"]}})

    store.delete("configmaps", "c")
    assert store.get("configmaps", "c")["metadata"]["deletionGracePeriodSeconds"] == 0
    store.patch("configmaps", "c", {"metadata": {"finalizers": None}})

    assert store.find("configmaps", "c") is None


def test_a_bound_pod_with_a_finalizer_needs_both_to_be_removed(store: AStore):
    held = pod("a")
    held["metadata"]["finalizers"] = ["example.com/f"]
    store.create("pods", held)
    store.bind("a", "n1")
    store.delete("pods", "a")
    store.patch("pods", "a", {"metadata": {"finalizers": None}})

    assert store.find("pods", "a") is not None
    store.delete("pods", "a", grace_period_seconds=0)

    assert store.find("pods", "a") is None


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resource_version": "1"}])
def test_a_precondition_protects_an_object(store: AStore, precondition: Any):
    store.create("pods", pod("a"))

    with raises(StatusError, code=409, reason="Conflict"):
        store.delete("pods", "a", **precondition)
    assert store.find("pods", "a") is not None


def test_a_missing_object_cannot_be_deleted():
    with raises(StatusError, code=404, reason="NotFound"):
        AStore().delete("pods", "absent")


def test_the_system_namespaces_are_kept():
    with raises(StatusError, code=403, reason="Forbidden"):
        AStore().delete("namespaces", "kube-system")


def test_a_namespace_terminates_until_it_is_finalized(store: AStore):
    store.create("namespaces", {"metadata": {"name": "shop"}})

    terminating = store.delete("namespaces", "shop")
    assert terminating["status"] == {"phase": "Terminating"}
    with raises(StatusError, code=409):
        store.delete("namespaces", "shop")
    store.update("namespaces", {**terminating, "spec": {}}, subresource="finalize")

    assert store.find("namespaces", "shop") is None
