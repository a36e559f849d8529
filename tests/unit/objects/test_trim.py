from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import PodInfo, trim_bound_pod
from scheduler.objects.pod_affinity import NO_TERMS
from tests.support.builders import pod, pod_object

STATUS = {
    "startTime": "2026-03-01T08:00:15Z",
    "nominatedNodeName": "n9",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}],
}


def running(name: str, **fields: Any) -> Any:
    return pod(name, cpu="1", node="n1", labels={"app": "web"}, status=STATUS, **fields)


def test_a_trimmed_pod_keeps_the_fields_of_scheduling():
    whole = running("web-1", priority=7, tolerations=[{"key": "gpu", "operator": "Exists"}])
    trimmed = trim_bound_pod(whole)
    assert trimmed.key == whole.key
    assert (trimmed.uid, trimmed.node_name, trimmed.priority) == (whole.uid, "n1", 7)
    assert trimmed.labels == whole.labels
    assert trimmed.pod.spec == whole.pod.spec
    assert trimmed.pod.status.start_time == STATUS["startTime"]
    assert trimmed.pod.status.phase == "Running"
    assert trimmed.pod.status.nominated_node_name == "n9"
    assert trimmed.pod.status.conditions == whole.pod.status.conditions


def test_a_trimmed_pod_keeps_a_resize_after_its_status_is_dropped():
    trimmed = trim_bound_pod(running("web-1"))
    assert trimmed.pod.status.container_statuses == ()
    assert trimmed.resources.taken == {"cpu": 2000}
    assert trimmed.placed_on("n2").resources.taken == {"cpu": 2000}


def test_annotations_and_the_object_are_dropped_unless_requested():
    whole = running("web-1", annotations={"a": "b"})
    trimmed = trim_bound_pod(whole)
    assert trimmed.annotations == {}
    with pytest.raises(LookupError, match="Pod default/web-1: its whole object was not kept"):
        _ = trimmed.object
    assert trim_bound_pod(whole, keep_annotations=True).annotations == {"a": "b"}
    assert trim_bound_pod(whole, keep_object=True).object == whole.object


def test_trimming_does_not_change_the_pod_itself():
    whole = running("web-1", annotations={"a": "b"})
    before = msgspec.json.encode(whole.pod)
    trim_bound_pod(whole)
    assert msgspec.json.encode(whole.pod) == before


def test_only_attached_volumes_are_kept():
    token = {"name": "kube-api-access-x7k2p", "projected": {"sources": []}}
    mounted = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}
    whole = running("web-1", volumes=[token, mounted, {"name": "tmp", "emptyDir": {}}])
    trimmed = trim_bound_pod(whole)

    assert [volume.name for volume in trimmed.pod.spec.volumes] == ["data"]
    assert trimmed.claims == whole.claims
    assert trimmed.storage_uses == whole.storage_uses != frozenset()
    assert trimmed.takes_the_same_as(whole)
    assert trim_bound_pod(running("web-2", volumes=[token])).pod.spec.volumes == ()


def test_a_trimmed_pod_has_no_trace_of_volumes_mounted_by_kubelet():
    token = {"name": "kube-api-access-x7k2p", "projected": {"sources": []}}
    with_token, without = (trim_bound_pod(running("web-1", volumes=volumes)) for volumes in ([token], []))

    assert msgspec.json.encode(with_token.pod) == msgspec.json.encode(without.pod)
    assert with_token.__dict__ == without.__dict__


def test_replicas_share_equal_parts():
    mounted = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    one, other = (trim_bound_pod(running(name, volumes=[mounted])) for name in ("web-1", "web-2"))
    assert one.labels is other.labels
    assert one.pod.spec.containers is other.pod.spec.containers
    assert one.pod.status.conditions is other.pod.status.conditions
    assert one.namespace is other.namespace
    assert one.node_name is other.node_name
    assert one.pod.spec.scheduler_name is other.pod.spec.scheduler_name
    assert one.pod.spec.node_selector is other.pod.spec.node_selector
    assert one.pod.spec.volumes is other.pod.spec.volumes


def test_replicas_on_nodes_take_little_more_memory_than_their_own_texts():
    created = "2026-03-01T08:00:15Z"

    def read(number: int) -> PodInfo:
        written = pod_object(
            f"web-{number}", cpu="1", node=f"n{number}", labels={"app": "web"}, status=STATUS
        )
        written["metadata"]["creationTimestamp"] = created
        found = trim_bound_pod(decode_pod(msgspec.json.encode(written)))
        assert (found.group, found.host_ports, found.affinity_terms) == (None, (), NO_TERMS)
        return found

    read(0)
    tracemalloc.start()
    replicas = [read(number) for number in range(1, 101)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [each.name for each in replicas] == [f"web-{number}" for number in range(1, 101)]
    assert {each.pod.metadata.creation_timestamp for each in replicas} == {created}
    assert taken / len(replicas) < 920


def test_different_parts_are_not_shared():
    one = trim_bound_pod(running("web-1"))
    other = trim_bound_pod(pod("db-1", cpu="3", node="n1", labels={"app": "db"}))
    assert other.labels == {"app": "db"}
    assert one.labels == {"app": "web"}
    assert other.resources.taken == {"cpu": 3000}


def test_a_pod_assumed_on_a_node_is_trimmed_with_that_node():
    assert trim_bound_pod(pod("web-1", cpu="1").placed_on("n7")).node_name == "n7"


def test_a_trimmed_pod_keeps_what_its_claims_take_of_its_node():
    claims = [{"resourceClaimName": "one", "containers": ["main"], "resources": {"cpu": "1"}}]
    whole = pod("web-1", cpu="1", node="n1", status={"nodeAllocatableResourceClaimStatuses": claims})

    kept = trim_bound_pod(whole).pod.status.node_allocatable_resource_claim_statuses

    assert kept == whole.pod.status.node_allocatable_resource_claim_statuses != ()
