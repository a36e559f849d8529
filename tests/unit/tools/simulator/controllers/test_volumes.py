"""The volume controller and the provisioners, in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.tools.simulator.node_agents.volume_drivers import ProvisioningFault, ProvisioningFaults
from tests.unit.tools.simulator.a_store import AStore, node
from tests.unit.tools.simulator.definitions import running
from tests.unit.tools.simulator.storage_objects import (
    DRIVER,
    SELECTED_NODE,
    ZONE,
    bound_volume,
    claim,
    events_of,
    phase,
    select_node,
    storage_class,
    using,
    volume,
)

PV, PVC, SC = "persistentvolumes", "persistentvolumeclaims", "storageclasses"


@pytest.fixture
def store() -> AStore:
    return AStore(normal_events=True)


async def test_a_claim_gets_the_smallest_suitable_volume(store: AStore):
    async with running(store):
        for name, size in (("big", "20Gi"), ("right", "5Gi"), ("small", "1Gi")):
            store.create(PV, volume(name, size))
        await asyncio.sleep(1)
        assert phase(store, PV, "right") == "Available"
        store.create(PVC, claim("c", "2Gi"))
        await asyncio.sleep(1)

        assert bound_volume(store, "c") == "right"
        status = store.get(PVC, "c")["status"]
        assert status["capacity"] == {"storage": "5Gi"}
        annotations = store.get(PVC, "c")["metadata"]["annotations"]
        assert annotations == {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }
        assert store.get(PV, "right")["metadata"]["annotations"] == {
            "pv.kubernetes.io/bound-by-controller": "yes"
        }


@pytest.mark.parametrize(
    "other",
    [
        {"storageClassName": "fast"},
        {"volumeMode": "Block"},
        {"accessModes": ["ReadOnlyMany"]},
        {"capacity": {"storage": "1Mi"}},
        {"claimRef": {"namespace": "default", "name": "another"}},
        {"volumeAttributesClassName": "gold"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_an_unsuitable_volume_is_not_used(store: AStore, other: dict[str, Any]):
    async with running(store):
        store.create(PV, volume("v", **other))
        store.create(PVC, claim("c"))
        await asyncio.sleep(5)
        assert phase(store, PVC, "c") == "Pending"
        assert phase(store, PV, "v") == "Available"
        assert events_of(store, "c") == ["FailedBinding"]


async def test_a_claim_waits_for_a_volume_that_its_labels_select(store: AStore):
    async with running(store):
        store.create(PVC, claim("c", selector={"matchLabels": {"disk": "ssd"}}))
        store.create(PV, volume("plain"))
        await asyncio.sleep(1)
        assert phase(store, PVC, "c") == "Pending"
        labelled = volume("chosen")
        labelled["metadata"]["labels"] = {"disk": "ssd"}
        store.create(PV, labelled)
        await asyncio.sleep(1)
        assert bound_volume(store, "c") == "chosen"


async def test_a_volume_reserved_for_a_claim_is_preferred_to_a_smaller_one(store: AStore):
    async with running(store):
        store.create(PV, volume("small", "1Gi"))
        store.create(PV, volume("reserved", "50Gi", claimRef={"namespace": "default", "name": "c"}))
        store.create(PVC, claim("c"))
        await asyncio.sleep(1)
        assert bound_volume(store, "c") == "reserved"
        assert "annotations" not in store.get(PV, "reserved")["metadata"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [({}, ""), ({"storageClassName": "fast"}, "VolumeMismatch"), ({"volumeName": "absent"}, "")],
    ids=["fits", "of_another_class", "not_there"],
)
async def test_a_claim_may_name_its_volume(store: AStore, asked: dict[str, Any], reason: str):
    async with running(store):
        store.create(PV, volume("v"))
        store.create(PVC, claim("c", **{"volumeName": "v"} | asked))
        await asyncio.sleep(1)
        assert bound_volume(store, "c") == ("" if asked else "v")
        assert events_of(store, "c") == ([reason] if reason else [])


async def test_a_volume_with_a_deleted_claim_is_released_and_kept_or_deleted(store: AStore):
    async with running(store):
        store.create(SC, storage_class("plain"))
        store.create(PV, volume("kept"))
        store.create(PVC, claim("static"))
        store.create(PVC, claim("dynamic", storageClassName="plain"))
        await asyncio.sleep(3)
        made = bound_volume(store, "dynamic")
        assert bound_volume(store, "static") == "kept"
        assert made.startswith("pvc-")

        store.delete(PVC, "static")
        store.delete(PVC, "dynamic")
        await asyncio.sleep(0.1)
        assert (phase(store, PV, "kept"), phase(store, PV, made)) == ("Released", "Released")
        await asyncio.sleep(3)
        assert phase(store, PV, "kept") == "Released"
        assert store.find(PV, made) is None


async def test_a_claim_with_a_deleted_volume_is_lost(store: AStore):
    async with running(store):
        store.create(PV, volume("v"))
        store.create(PVC, claim("c"))
        await asyncio.sleep(1)
        store.delete(PV, "v")
        assert phase(store, PV, "v") == "Bound"  # protected
        store.patch(PV, "v", {"metadata": {"finalizers": None}})
        await asyncio.sleep(1)
        assert phase(store, PVC, "c") == "Lost"
        assert events_of(store, "c") == ["ClaimLost"]


async def test_a_claim_that_waits_for_its_first_consumer_is_left_to_the_scheduler(store: AStore):
    async with running(store):
        store.create(SC, storage_class("late", waits=True))
        store.create(PV, volume("v", storageClassName="late"))
        store.create(PVC, claim("c", storageClassName="late"))
        await asyncio.sleep(60)
        assert phase(store, PVC, "c") == "Pending"
        assert phase(store, PV, "v") == "Available"
        assert events_of(store, "c") == ["WaitForFirstConsumer"]

        uid = store.get(PVC, "c")["metadata"]["uid"]
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid}
        store.patch(PV, "v", {"spec": {"claimRef": reference}})
        await asyncio.sleep(1)
        assert bound_volume(store, "c") == "v"


async def test_a_volume_is_provisioned_at_the_node_that_the_scheduler_selected(store: AStore):
    async with running(store, node("n1", labels={ZONE: "b"})):
        store.create(SC, storage_class("late", waits=True, mountOptions=["ro"], reclaimPolicy="Retain"))
        store.create(PVC, claim("c", storageClassName="late"))
        await asyncio.sleep(1)
        select_node(store, "c", "n1")
        await asyncio.sleep(0.5)
        assert phase(store, PVC, "c") == "Pending"  # takes a second
        await asyncio.sleep(1)

        made = store.get(PV, bound_volume(store, "c"))
        assert made["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": DRIVER}
        assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        assert made["spec"]["mountOptions"] == ["ro"]
        required = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert required == [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]
        assert events_of(store, "c") == [
            "WaitForFirstConsumer",
            "ExternalProvisioning",
            "Provisioning",
            "ProvisioningSucceeded",
        ]


async def test_a_driver_uses_the_topology_labels_of_its_csi_node(store: AStore):
    store.create("nodes", node("n1", labels={ZONE: "b", "kubernetes.io/hostname": "n1"}))
    drivers = [{"name": DRIVER, "nodeID": "n1", "topologyKeys": ["kubernetes.io/hostname"]}]
    store.create("csinodes.storage.k8s.io", {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    async with running(store):
        store.create(SC, storage_class("late", waits=True))
        store.create(PVC, claim("c", storageClassName="late"))
        select_node(store, "c", "n1")
        await asyncio.sleep(2)
        made = store.get(PV, bound_volume(store, "c"))
        required = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (expression,) = required[0]["matchExpressions"]
        assert (expression["key"], expression["values"]) == ("kubernetes.io/hostname", ["n1"])


async def test_immediate_volumes_are_spread_over_the_zones_of_a_class(store: AStore):
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    async with running(store):
        store.create(SC, storage_class("zonal", allowedTopologies=allowed))
        for ordinal in range(4):
            store.create(PVC, claim(f"data-web-{ordinal}", storageClassName="zonal"))
        await asyncio.sleep(2)
        zones = []
        for ordinal in range(4):
            made = store.get(PV, bound_volume(store, f"data-web-{ordinal}"))
            term = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
            zones += term["matchExpressions"][0]["values"]
        assert zones in (["a", "b", "a", "b"], ["b", "a", "b", "a"])


async def test_a_failed_volume_returns_the_claim_to_the_scheduler():
    store, faults = AStore(normal_events=True), ProvisioningFaults()
    faults.add(ProvisioningFault(node="n1"))
    async with running(store, *(node(name, labels={ZONE: "a"}) for name in ("n1", "n2")), faults=faults):
        store.create(SC, storage_class("late", waits=True))
        store.create(PVC, claim("c", storageClassName="late"))
        select_node(store, "c", "n1")
        await asyncio.sleep(2)
        annotations = store.get(PVC, "c")["metadata"]["annotations"]
        assert SELECTED_NODE not in annotations
        assert events_of(store, "c")[-2:] == ["ProvisioningFailed", "WaitForFirstConsumer"]

        select_node(store, "c", "n2")
        await asyncio.sleep(2)
        assert bound_volume(store, "c")


async def test_an_immediate_claim_is_retried_repeatedly():
    store, faults = AStore(normal_events=True), ProvisioningFaults()
    faults.add(ProvisioningFault(times=2))
    async with running(store, faults=faults):
        store.create(SC, storage_class("plain"))
        store.create(PVC, claim("c", storageClassName="plain"))
        await asyncio.sleep(2)
        assert events_of(store, "c")[-1] == "ProvisioningFailed"
        await asyncio.sleep(10)
        assert bound_volume(store, "c")
        (event,) = [one for one in store.list("events") if one["reason"] == "ProvisioningFailed"]
        assert event["count"] == 2


async def test_the_provisioner_no_provisioner_provisions_nothing(store: AStore):
    async with running(store):
        made = storage_class("local", waits=True) | {"provisioner": "kubernetes.io/no-provisioner"}
        store.create(SC, made)
        store.create(PVC, claim("c", storageClassName="local"))
        select_node(store, "c", "n1")
        await asyncio.sleep(60)
        assert phase(store, PVC, "c") == "Pending"
        assert store.list(PV) == []


async def test_a_claim_without_a_class_gets_the_default_one_once_it_exists(store: AStore):
    async with running(store):
        store.create(PVC, claim("c"))
        store.create(PVC, claim("none", storageClassName=""))
        await asyncio.sleep(1)
        default = storage_class("plain")
        default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
        store.create(SC, default)
        await asyncio.sleep(2)
        assert bound_volume(store, "c").startswith("pvc-")
        assert phase(store, PVC, "none") == "Pending"


async def test_a_claim_is_kept_while_a_pod_on_a_node_uses_it(store: AStore):
    async with running(store, node("n1")):
        store.create(PV, volume("v"))
        store.create(PVC, claim("c"))
        store.create("pods", using("p", "c"))
        await asyncio.sleep(1)
        store.bind("p", "n1")
        await asyncio.sleep(1)
        store.delete(PVC, "c")
        await asyncio.sleep(10)
        assert "deletionTimestamp" in store.get(PVC, "c")["metadata"]

        store.delete("pods", "p")
        await asyncio.sleep(5)
        assert store.find(PVC, "c") is None


async def test_a_class_of_attributes_is_kept_while_a_claim_uses_it():
    store, classes = AStore(), "volumeattributesclasses"
    async with running(store):
        gold = {"metadata": {"name": "gold"}, "driverName": DRIVER, "parameters": {"iops": "1"}}
        store.create(classes, gold)
        store.create(PVC, claim("c", volumeAttributesClassName="gold"))
        await asyncio.sleep(1)
        store.delete(classes, "gold")
        await asyncio.sleep(1)
        assert store.get(classes, "gold")["metadata"]["deletionTimestamp"]

        store.delete(PVC, "c")
        await asyncio.sleep(1)

        assert store.find(classes, "gold") is None


async def test_a_claim_used_only_by_pending_pods_is_deleted_at_once(store: AStore):
    async with running(store):
        store.create(PVC, claim("c"))
        store.create("pods", using("p", "c"))
        await asyncio.sleep(1)
        store.delete(PVC, "c")
        await asyncio.sleep(1)
        assert store.find(PVC, "c") is None


async def test_an_ephemeral_volume_has_a_claim_that_is_deleted_with_its_pod(store: AStore):
    store.create("nodes", node("n1"))
    template = {"metadata": {"labels": {"app": "web"}}, "spec": claim("", storageClassName="plain")["spec"]}
    pod = using("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
    async with running(store):
        store.create(SC, storage_class("plain"))
        store.create("pods", pod)
        await asyncio.sleep(3)
        made = store.get(PVC, "p-scratch")
        assert made["metadata"]["labels"] == {"app": "web"}
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)
        volume_name = bound_volume(store, "p-scratch")

        store.bind("p", "n1")
        await asyncio.sleep(3)
        store.delete("pods", "p")
        await asyncio.sleep(10)
        assert store.find(PVC, "p-scratch") is None
        assert store.find(PV, volume_name) is None


async def test_a_claim_of_another_owner_is_not_used_as_an_ephemeral_one(store: AStore):
    template = {"spec": claim("")["spec"]}
    pod = using("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
    async with running(store):
        store.create(PVC, claim("p-scratch"))
        store.create("pods", pod)
        await asyncio.sleep(1)
        (event,) = store.list("events", fields="involvedObject.name=p")
        assert event["message"] == (
            "ephemeral volume scratch: PVC default/p-scratch was not created for pod default/p (pod is not owner)"
        )


async def test_the_volumes_of_pods_are_attached_to_their_node(store: AStore):
    async with running(store, node("n1")):
        store.create(PV, volume("v"))
        store.create(PVC, claim("c"))
        store.create("pods", using("p", "c"))
        await asyncio.sleep(1)
        assert store.list("volumeattachments") == []
        store.bind("p", "n1")
        await asyncio.sleep(1)
        (attachment,) = store.list("volumeattachments")
        assert attachment["spec"] == {
            "attacher": DRIVER,
            "nodeName": "n1",
            "source": {"persistentVolumeName": "v"},
        }
        assert attachment["status"] == {"attached": True}
        store.delete("pods", "p")
        await asyncio.sleep(5)
        assert store.list("volumeattachments") == []


async def test_a_driver_without_attachments_attaches_nothing(store: AStore):
    store.create("nodes", node("n1"))
    store.create("csidrivers", {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False}})
    async with running(store):
        store.create(PV, volume("v"))
        store.create(PVC, claim("c"))
        store.create("pods", using("p", "c"))
        store.bind("p", "n1")
        await asyncio.sleep(3)
        assert bound_volume(store, "c") == "v"
        assert store.list("volumeattachments") == []
