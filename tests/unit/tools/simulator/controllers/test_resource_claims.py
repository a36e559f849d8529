"""Claims for devices: created, reserved, deallocated and deleted; in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.node_agents.device_drivers import DeviceDrivers, DeviceOptions
from tests.unit.tools.simulator.a_store import AStore, node, pod
from tests.unit.tools.simulator.definitions import running

CLAIMS, TEMPLATES, SLICES = "resourceclaims", "resourceclaimtemplates", "resourceslices"
DRIVER = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"

Object = dict[str, Any]


def device_spec() -> Object:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}


def claim(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": device_spec()}


def template(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": device_spec()}}


def wanting(name: str, **asked: str) -> Object:
    """Return a pod with a claim called `gpu`."""
    return pod(name, resourceClaims=[{"name": "gpu", **asked}])


def allocate(store: AStore, name: str, *pods: str, node_name: str = "n1", **result: Any) -> None:
    """Do what the scheduler does with a claim: allocate and reserve it."""
    store.patch(CLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}})
    on_node = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    device = {"request": "gpu", "driver": DRIVER, "pool": node_name, "device": "d0"} | result
    allocation = {
        "devices": {"results": [device]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
    }
    status = {"allocation": allocation, "reservedFor": [consumer(store, one) for one in pods]}
    store.patch(CLAIMS, name, {"status": status}, subresource="status")


def consumer(store: AStore, name: str) -> Object:
    return {"resource": "pods", "name": name, "uid": store.get("pods", name)["metadata"]["uid"]}


def made_for(store: AStore, name: str) -> str:
    """Return the claim that a pod's status names."""
    (status,) = store.get("pods", name)["status"]["resourceClaimStatuses"]
    assert status["name"] == "gpu"
    return str(status["resourceClaimName"])


def phase(store: AStore, name: str) -> str:
    return str(store.get("pods", name)["status"]["phase"])


def messages(store: AStore, name: str) -> list[str]:
    return [str(one["message"]) for one in store.list("events", fields=f"involvedObject.name={name}")]


async def test_a_pod_gets_a_claim_from_its_template_and_its_name_in_the_status(store: AStore):
    async with running(store):
        store.create(TEMPLATES, template("t"))
        store.create("pods", wanting("p", resourceClaimTemplateName="t"))
        await asyncio.sleep(1)
        name = made_for(store, "p")
        assert name.startswith("p-gpu-")
        metadata = store.get(CLAIMS, name)["metadata"]
        assert metadata["labels"] == {"a": "b"}
        assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)


async def test_a_pod_waits_for_its_template(store: AStore):
    async with running(store):
        store.create("pods", wanting("p", resourceClaimTemplateName="t"))
        await asyncio.sleep(1)
        assert messages(store, "p") == [
            'PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
        ]
        store.create(TEMPLATES, template("t"))
        await asyncio.sleep(1)
        assert store.find(CLAIMS, made_for(store, "p")) is not None


async def test_a_deleted_claim_of_a_pod_is_created_again(store: AStore):
    async with running(store):
        store.create(TEMPLATES, template("t"))
        store.create("pods", wanting("p", resourceClaimTemplateName="t"))
        await asyncio.sleep(1)
        first = made_for(store, "p")
        store.delete(CLAIMS, first)
        await asyncio.sleep(1)
        assert made_for(store, "p") != first


async def test_a_generated_claim_is_deleted_with_its_pod(store: AStore):
    async with running(store, node("n1")):
        store.create(TEMPLATES, template("t"))
        store.create("pods", wanting("p", resourceClaimTemplateName="t"))
        await asyncio.sleep(1)
        allocate(store, made_for(store, "p"), "p")
        store.bind("p", "n1")
        await asyncio.sleep(3)
        assert phase(store, "p") == "Running"
        store.delete("pods", "p")
        await asyncio.sleep(5)
        assert store.list(CLAIMS) == []


async def test_a_generated_claim_is_deleted_when_its_pod_has_finished(store: AStore):
    async with running(store, node("n1")):
        store.create(TEMPLATES, template("t"))
        done = wanting("p", resourceClaimTemplateName="t")
        done["metadata"]["annotations"] = {"simulator/run-seconds": "5"}
        store.create("pods", done | {"spec": done["spec"] | {"restartPolicy": "Never"}})
        await asyncio.sleep(1)
        allocate(store, made_for(store, "p"), "p")
        store.bind("p", "n1")
        await asyncio.sleep(3)
        assert len(store.list(CLAIMS)) == 1
        await asyncio.sleep(5)
        assert phase(store, "p") == "Succeeded"
        assert store.list(CLAIMS) == []


async def test_a_shared_claim_is_deallocated_with_its_last_consumer(store: AStore):
    async with running(store, node("n1")):
        store.create(CLAIMS, claim("c"))
        for name in ("p", "q"):
            store.create("pods", wanting(name, resourceClaimName="c"))
        allocate(store, "c", "p", "q")
        for name in ("p", "q"):
            store.bind(name, "n1")
        await asyncio.sleep(3)
        store.delete("pods", "p")
        await asyncio.sleep(3)
        status = store.get(CLAIMS, "c")["status"]
        assert status["reservedFor"] == [consumer(store, "q")]
        assert "allocation" in status

        store.delete("pods", "q")
        await asyncio.sleep(3)
        found = store.get(CLAIMS, "c")
        assert found["status"] == {}
        assert "finalizers" not in found["metadata"]


async def test_a_claim_in_use_is_deleted_after_its_consumer(store: AStore):
    async with running(store, node("n1")):
        store.create(CLAIMS, claim("c"))
        store.create("pods", wanting("p", resourceClaimName="c"))
        allocate(store, "c", "p")
        store.bind("p", "n1")
        store.delete(CLAIMS, "c")
        await asyncio.sleep(5)
        assert "deletionTimestamp" in store.get(CLAIMS, "c")["metadata"]
        store.delete("pods", "p")
        await asyncio.sleep(5)
        assert store.find(CLAIMS, "c") is None


async def test_a_reservation_for_an_unknown_pod_is_removed(store: AStore):
    async with running(store):
        store.create(CLAIMS, claim("c"))
        store.create("pods", wanting("p", resourceClaimName="c"))
        allocate(store, "c", "p")
        stranger = {"resource": "pods", "name": "p", "uid": "another"}
        store.patch(CLAIMS, "c", {"status": {"reservedFor": [stranger]}}, subresource="status")
        await asyncio.sleep(1)
        assert store.get(CLAIMS, "c")["status"] == {}


async def test_an_allocated_claim_is_reserved_for_a_pod_that_was_bound(store: AStore):
    async with running(store, node("n1")):
        store.create(CLAIMS, claim("c"))
        store.create("pods", wanting("p", resourceClaimName="c"))
        allocate(store, "c", "p")
        store.create("pods", wanting("q", resourceClaimName="c"))
        store.bind("q", "n1")
        await asyncio.sleep(1)
        assert store.get(CLAIMS, "c")["status"]["reservedFor"] == [consumer(store, "p"), consumer(store, "q")]


GROUPS = "podgroups.scheduling.k8s.io"
OF_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "t"}


def pod_group(*claims: Object) -> Object:
    return {
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(claims)},
    }


def member(name: str) -> Object:
    return pod(name, schedulingGroup={"podGroupName": "g"}, resourceClaims=[OF_TEMPLATE])


def of_group(store: AStore) -> Object:
    uid = store.get(GROUPS, "g")["metadata"]["uid"]
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}


async def test_members_of_a_group_share_the_claim_from_its_template():
    store = AStore(DRAWorkloadResourceClaims=True)
    async with running(store):
        store.create("pods", member("early"))
        store.create(GROUPS, pod_group(OF_TEMPLATE))
        store.create(TEMPLATES, template("t"))
        store.create("pods", member("late"))
        await asyncio.sleep(1)
        (made,) = store.get(GROUPS, "g")["status"]["resourceClaimStatuses"]
        assert made_for(store, "early") == made_for(store, "late") == made["resourceClaimName"]
        (owner,) = store.get(CLAIMS, made["resourceClaimName"])["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("PodGroup", "g")
        assert owner["apiVersion"].startswith("scheduling.k8s.io/")
        assert len(store.list(CLAIMS)) == 1


async def test_a_claim_that_the_group_does_not_have_is_created_for_each_member():
    store = AStore(DRAWorkloadResourceClaims=True)
    async with running(store):
        store.create(TEMPLATES, template("t"))
        store.create(GROUPS, pod_group(OF_TEMPLATE | {"name": "other"}))
        store.create("pods", member("p"))
        await asyncio.sleep(1)
        (owner,) = store.get(CLAIMS, made_for(store, "p"))["metadata"]["ownerReferences"]
        assert owner["kind"] == "Pod"


async def test_a_deleted_claim_of_a_group_is_created_again_for_all_its_members():
    store = AStore(DRAWorkloadResourceClaims=True)
    async with running(store):
        store.create(TEMPLATES, template("t"))
        store.create(GROUPS, pod_group(OF_TEMPLATE))
        store.create("pods", member("p"))
        await asyncio.sleep(1)
        first = made_for(store, "p")
        store.delete(CLAIMS, first)
        await asyncio.sleep(1)
        assert made_for(store, "p") != first
        assert store.find(CLAIMS, made_for(store, "p")) is not None


async def test_members_run_with_the_reservation_of_their_group_until_the_group_is_deleted():
    store = AStore(DRAWorkloadResourceClaims=True)
    async with running(store, node("n1")):
        store.create(TEMPLATES, template("t"))
        store.create(GROUPS, pod_group(OF_TEMPLATE))
        store.create("pods", member("p"))
        await asyncio.sleep(1)
        name = made_for(store, "p")
        allocate(store, name)
        store.patch(CLAIMS, name, {"status": {"reservedFor": [of_group(store)]}}, subresource="status")
        store.bind("p", "n1")
        await asyncio.sleep(5)
        assert phase(store, "p") == "Running"
        store.delete("pods", "p")
        await asyncio.sleep(60)
        assert store.get(CLAIMS, name)["status"]["reservedFor"] == [of_group(store)]
        store.delete(GROUPS, "g")
        await asyncio.sleep(60)
        assert store.find(CLAIMS, name) is None


async def test_an_allocated_claim_is_reserved_for_the_group_of_a_pod_that_was_bound():
    store = AStore(DRAWorkloadResourceClaims=True)
    async with running(store, node("n1")):
        store.create(TEMPLATES, template("t"))
        store.create(GROUPS, pod_group(OF_TEMPLATE))
        store.create("pods", member("p"))
        await asyncio.sleep(1)
        name = made_for(store, "p")
        allocate(store, name)
        store.bind("p", "n1")
        await asyncio.sleep(1)
        assert store.get(CLAIMS, name)["status"]["reservedFor"] == [of_group(store)]


async def test_a_terminating_claim_is_not_reserved_for_another_pod(
    store: AStore, caplog: pytest.LogCaptureFixture
):
    async with running(store, node("n1")):
        store.create(CLAIMS, claim("c"))
        store.create("pods", wanting("p", resourceClaimName="c"))
        allocate(store, "c", "p")
        store.delete(CLAIMS, "c")
        store.create("pods", wanting("late", resourceClaimName="c"))
        store.bind("late", "n1")
        await asyncio.sleep(1)
        assert store.get(CLAIMS, "c")["status"]["reservedFor"] == [consumer(store, "p")]

    assert not caplog.records


async def test_the_claim_for_extended_resources_is_deleted_with_its_pod(store: AStore):
    async with running(store, node("n1")):
        store.create("pods", pod("p"))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
        owner["uid"] = store.get("pods", "p")["metadata"]["uid"]
        extended = claim("p-extended")
        extended["metadata"] |= {
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [owner],
        }
        store.create(CLAIMS, extended)
        allocate(store, "p-extended", "p")
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "gpu"}
        status = {"resourceClaimName": "p-extended", "requestMappings": [mapping]}
        patch = {"status": {"extendedResourceClaimStatus": status}}
        store.patch("pods", "p", patch, subresource="status")
        store.bind("p", "n1")
        await asyncio.sleep(3)
        assert phase(store, "p") == "Running"
        store.delete("pods", "p")
        await asyncio.sleep(5)
        assert store.list(CLAIMS) == []


@pytest.mark.parametrize("elsewhere", [False, True], ids=["not_allocated", "allocated_elsewhere"])
async def test_a_pod_starts_only_with_its_devices_allocated_on_its_node(store: AStore, elsewhere: bool):
    async with running(store, node("n1")):
        store.create(CLAIMS, claim("c"))
        store.create("pods", wanting("p", resourceClaimName="c"))
        if elsewhere:
            allocate(store, "c", "p", node_name="n2")
        store.bind("p", "n1")
        await asyncio.sleep(5)
        assert phase(store, "p") == "Pending"
        problem = "its devices are not on node n1" if elsewhere else "not allocated"
        assert messages(store, "p") == [
            f"Failed to prepare dynamic resources: prepare dynamic resources: ResourceClaim c: {problem}"
        ]
        if not elsewhere:
            allocate(store, "c", "p")
            await asyncio.sleep(1)
            assert phase(store, "p") == "Running"


async def test_a_pod_starts_only_with_its_devices_reserved_for_it(store: AStore):
    async with running(store, node("n1"), controllers=False):
        store.create(CLAIMS, claim("c"))
        for name in ("p", "other"):
            store.create("pods", wanting(name, resourceClaimName="c"))
        allocate(store, "c", "other")
        store.bind("p", "n1")
        await asyncio.sleep(5)
        assert phase(store, "p") == "Pending"
        assert "is not allowed to use ResourceClaim c" in messages(store, "p")[0]


async def test_a_pod_starts_once_its_volume_is_bound(store: AStore):
    store.create("nodes", node("n1"))
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    async with running(store):
        store.create("pods", pod("p", volumes=[volume]))
        store.bind("p", "n1")
        await asyncio.sleep(5)
        assert phase(store, "p") == "Pending"
        assert 'persistentvolumeclaims "c" not found' in messages(store, "p")[0]

        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        store.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": asked})
        await asyncio.sleep(1)
        assert messages(store, "p")[-1].endswith("error processing PVC default/c: PVC is not bound")
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
        store.create("persistentvolumes", {"metadata": {"name": "v"}, "spec": spec})
        await asyncio.sleep(1)
        assert phase(store, "p") == "Running"


def devices(count: int) -> list[Object]:
    return [{"name": f"gpu-{place}"} for place in range(count)]


def drivers(store: AStore, **options: Any) -> DeviceDrivers:
    return DeviceDrivers(store, DeviceOptions(**options))


async def test_a_driver_publishes_the_devices_of_a_node_while_it_exists(store: AStore):
    of_nodes = drivers(store)
    async with running(store, devices=of_nodes):
        of_nodes.publish("n1", DRIVER, devices(100))
        assert store.list(SLICES) == []
        store.create("nodes", node("n1"))
        await asyncio.sleep(1)
        found = store.list(SLICES, fields="spec.nodeName=n1")
        assert sorted(len(one["spec"]["devices"]) for one in found) == [36, 64]
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
        assert [one["spec"]["pool"] for one in found] == [pool, pool]

        of_nodes.publish("n1", DRIVER, devices(1))
        (left,) = store.list(SLICES)
        assert left["spec"]["pool"] == {"name": "n1", "generation": 2, "resourceSliceCount": 1}
        store.delete("nodes", "n1")
        await asyncio.sleep(1)
        assert store.list(SLICES) == []


async def test_a_slice_can_be_withdrawn(store: AStore):
    store.create("nodes", node("n1"))
    of_nodes = drivers(store)
    of_nodes.publish("n1", DRIVER, devices(2))
    of_nodes.publish("n1", "nic.example.com", devices(1))
    of_nodes.withdraw("n1", DRIVER)
    (left,) = store.list(SLICES)
    assert left["spec"]["driver"] == "nic.example.com"
    with pytest.raises(KeyError, match="node 'n2' has no devices"):
        of_nodes.withdraw("n2")


@pytest.mark.parametrize(("fails", "expected"), [(False, ["ready"]), (True, ["broken"])], ids=["well", "not"])
async def test_binding_conditions_of_a_device_become_true(store: AStore, fails: bool, expected: list[str]):
    of_nodes = drivers(store, seconds=10, fails=frozenset({"n1"} if fails else ()))
    async with running(store, devices=of_nodes):
        store.create(CLAIMS, claim("c"))
        store.create("pods", wanting("p", resourceClaimName="c"))
        conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        allocate(store, "c", "p", **conditions)
        await asyncio.sleep(9)
        assert "devices" not in store.get(CLAIMS, "c")["status"]
        await asyncio.sleep(2)
        (device,) = store.get(CLAIMS, "c")["status"]["devices"]
        assert (device["driver"], device["pool"], device["device"]) == (DRIVER, "n1", "d0")
        assert [one["type"] for one in device["conditions"]] == expected


def test_an_allocation_is_immutable_and_needed_for_a_reservation(store: AStore):
    store.create(CLAIMS, claim("c"))
    store.create("pods", wanting("p", resourceClaimName="c"))
    patch = {"status": {"reservedFor": [consumer(store, "p")]}}
    with pytest.raises(StatusError, match="may not be specified when `allocated` is not set"):
        store.patch(CLAIMS, "c", patch, subresource="status")
    allocate(store, "c", "p")
    with pytest.raises(StatusError, match="field is immutable"):
        allocate(store, "c", "p", device="d1")
