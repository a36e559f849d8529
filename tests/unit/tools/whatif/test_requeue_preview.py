"""The pending pods that an event would requeue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.registry import IN_TREE
from scheduler.configuration.load import default, parse
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    Outcomes,
    QueueingHint,
    ReservePlugin,
    Status,
)
from scheduler.tools.whatif import cluster_file, watch_event
from scheduler.tools.whatif.evaluation import evaluate_each, evaluate_in_sequence, pods_to_evaluate
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.requeue_preview import with_wakes
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.clusters import profile_with

FULL = node_object("n1", cpu="1")
LARGER = node_object("n1", cpu="8")


def requeued(
    event: dict[str, Any],
    *objects: dict[str, Any],
    sequence: bool = False,
    plugin: type[Any] | None = None,
) -> dict[str, bool]:
    """Return pod name -> whether the event requeues it, for the pods with a result."""
    cluster = cluster_file.parse(json.dumps(list(objects)).encode(), "cluster")
    configuration = default() if plugin is None else parse(profile_with(plugin.name), "config")
    in_tree = IN_TREE if plugin is None else {**IN_TREE, plugin.name: plugin}
    scheduler = OfflineScheduler(cluster, configuration, in_tree=in_tree)
    happening = watch_event.parse(json.dumps(event).encode(), "event", cluster, kinds=scheduler.needs.kinds)
    pods = pods_to_evaluate(scheduler, cluster.pods)
    judged = evaluate_in_sequence(scheduler, pods) if sequence else evaluate_each(scheduler, pods)
    reported = list(with_wakes(scheduler, judged, happening))
    assert [each["pod"] for each in reported] == [
        pod.key for pod in (sorted(pods, key=lambda pod: -pod.priority) if sequence else pods)
    ]
    scheduler.queue.check()
    scheduler.cache.check()
    return {each["pod"].partition("/")[2]: each["requeued"] for each in reported if "requeued" in each}


def added(obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ADDED", "object": obj}


def modified(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"type": "MODIFIED", "object": new, "oldObject": old}


def deleted(obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": "DELETED", "object": obj}


def test_an_event_requeues_the_pods_whose_rejecting_plugin_agrees() -> None:
    pods = (pod_object("small", cpu="2"), pod_object("large", cpu="9"), pod_object("fits", cpu="1"))

    assert requeued(modified(FULL, LARGER), FULL, *pods) == {"small": True, "large": False}


def test_schedulable_pods_and_errors_have_no_preview() -> None:
    broken = pod_object(
        "broken",
        affinity={
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [{"key": "a", "operator": "Odd", "values": []}]},
                    }
                ]
            }
        },
    )

    assert requeued(added(node_object("n2")), FULL, broken, pod_object("fits")) == {}


def test_a_pod_that_is_retried_in_any_case_is_not_reported_as_requeued() -> None:
    assert requeued(added(node_object("n1")), pod_object("web")) == {"web": False}, (
        "without nodes nobody rejects"
    )


def test_an_update_of_a_gated_pod_admits_it_when_its_last_gate_is_removed() -> None:
    gated = pod_object("web", gates=["a", "b"])
    events = {
        "one gate of two": modified(gated, pod_object("web", gates=["b"])),
        "the last gate": modified(gated, pod_object("web")),
        "a label": modified(gated, pod_object("web", gates=["a", "b"], labels={"a": "b"})),
        "a node": added(node_object("n2")),
    }

    found = {what: requeued(event, FULL, gated)["web"] for what, event in events.items()}

    assert found == {"one gate of two": False, "the last gate": True, "a label": False, "a node": False}


def test_an_update_of_a_pod_requeues_only_that_pod() -> None:
    web, other = pod_object("web", cpu="2"), pod_object("other", cpu="2")

    assert requeued(modified(web, pod_object("web", cpu="1")), FULL, web, other) == {
        "web": True,
        "other": False,
    }


def test_a_deleted_pod_is_not_requeued() -> None:
    web, other = pod_object("web", cpu="2"), pod_object("other", cpu="2")

    assert requeued(deleted(web), FULL, web, other) == {"web": False, "other": False}


@pytest.mark.parametrize("how", ["deleted", "ended"])
def test_capacity_of_a_deleted_pod_requeues_pods_that_lacked_it(how: str) -> None:
    runs = pod_object("runs", cpu="1", node="n1")
    ended = pod_object("runs", cpu="1", node="n1", status={"phase": "Succeeded"})
    event = deleted(runs) if how == "deleted" else modified(runs, ended)

    assert requeued(event, FULL, runs, pod_object("web", cpu="1")) == {"web": True}


@pytest.mark.parametrize("how", ["deleted", "loses it"])
def test_a_gated_pod_frees_its_nominated_capacity_for_equal_or_lower_priority(how: str) -> None:
    status = {"nominatedNodeName": "n1"}
    nominated = pod_object("nominated", priority=5, gates=["a"], status=status)
    event = deleted(nominated) if how == "deleted" else modified(
        nominated, pod_object("nominated", priority=5, gates=["a"])
    )  # fmt: skip
    others = [pod_object(f"of-{priority}", cpu="2", priority=priority) for priority in (4, 5, 6)]

    assert requeued(event, FULL, nominated, *others) == {
        "nominated": False,
        "of-4": True,
        "of-5": True,
        "of-6": False,
    }


def test_in_a_sequence_the_event_follows_the_last_pod() -> None:
    first, second = pod_object("first", cpu="1", priority=1), pod_object("second", cpu="1")

    assert requeued(modified(FULL, LARGER), FULL, first, second) == {}
    assert requeued(modified(FULL, LARGER), FULL, first, second, sequence=True) == {"second": True}


def test_a_pod_rejected_at_reserve_waits_for_that_plugin() -> None:
    class Hoarder(ReservePlugin):
        name = "Hoarder"
        api_version = 1

        def events(self) -> tuple[EventWithHint, ...]:
            return (EventWithHint(ClusterEvent(EventResource.NODE, ActionType.DELETE)),)

        def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
            return Status.unschedulable("mine")

        def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
            return

    nodes = [FULL, node_object("n2")]

    assert requeued(deleted(FULL), *nodes, pod_object("web"), sequence=True, plugin=Hoarder) == {"web": True}
    assert requeued(modified(FULL, LARGER), *nodes, pod_object("web"), sequence=True, plugin=Hoarder) == {
        "web": False
    }


QUOTA = {"apiVersion": "example.com/v1", "kind": "Quota", "metadata": {"name": "q", "namespace": "default"}}


class OverQuota(FilterPlugin):
    """Rejects every node; registers for a custom resource, and for all other events."""

    name = "OverQuota"
    api_version = 1
    needs = Needs(kinds=frozenset({"example.com/v1/quotas"}))

    def events(self) -> tuple[EventWithHint, ...]:
        every = ClusterEvent(EventResource.WILDCARD, ActionType.ALL)
        return (EventWithHint(every, lambda _pod, _old, new: _answer(bool(new and new.get("free")))),)

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Outcomes:
        return Outcomes.reject(snapshot.pod_count >= 0, "over quota")


def _answer(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


@pytest.mark.parametrize("free", [True, False], ids=["helps", "does not"])
def test_a_custom_resource_that_a_plugin_reads_requeues_by_its_hint(free: bool) -> None:
    event = modified(QUOTA, {**QUOTA, "free": free})

    assert requeued(event, FULL, QUOTA, pod_object("web"), plugin=OverQuota) == {"web": free}


def test_an_object_that_no_plugin_reads_requeues_no_pod() -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}

    assert requeued(added(config_map), FULL, pod_object("web", cpu="2")) == {"web": False}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({"extendedResourceName": "example.com/gpu"}, True), ({"extendedResourceName": "other"}, False), ({}, False)],
    ids=["its resource", "another resource", "none"],
)  # fmt: skip
def test_a_device_class_requeues_pods_that_request_its_resource(spec: dict[str, str], expected: bool) -> None:
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": spec,
    }
    web = pod_object("web", requests={"example.com/gpu": "1"})

    assert requeued(added(device_class), FULL, web) == {"web": expected}
