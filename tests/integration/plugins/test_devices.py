"""Pods that claim devices in a running daemon: allocation, writes, and failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from plugins.dynamic_resources.devices import Devices
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.objects.decode import decode_pod
from scheduler.testing.devices import (
    DRIVER,
    claims_of,
    device_class,
    exactly,
    resource_claim,
    resource_slice,
    unsaved,
)
from scheduler.tools.simulator.controllers.resource_claims import ResourceClaims
from scheduler.tools.simulator.faults import requests
from tests.integration.groups.gangs import POD_GROUPS, add_gang, members, placed, pod_group
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.unit.plugins.dynamic_resources.structured.node_search import device, long_search

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

CLAIMS, SLICES, CLASSES = (
    f"{each}.resource.k8s.io" for each in ("resourceclaims", "resourceslices", "deviceclasses")
)
GPU = "example.com/gpu"
NO_DEVICE = (
    "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: "
    "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)
CONDITIONS = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


def claiming(name: str, *claims: str, **fields: Any) -> dict[str, Any]:
    return pod_object(name, resourceClaims=claims_of(*claims), **fields)


def asking(name: str) -> dict[str, Any]:
    """A pod that asks for one of the extended resource."""
    amounts = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    return pod_object(name, containers=[{"name": "main", "image": "x", "resources": amounts}])


def create(it: Cluster, *objects: Mapping[str, Any]) -> None:
    """Create objects of resource.k8s.io as somebody would who writes them down."""
    kinds = {"ResourceClaim": CLAIMS, "ResourceSlice": SLICES, "DeviceClass": CLASSES}
    for each in objects:
        it.server.store.create(kinds[each["kind"]], unsaved(each))


def claim(it: Cluster, name: str = "one") -> dict[str, Any]:
    return it.server.store.get(CLAIMS, name, "default")


def devices(it: Cluster, name: str = "one") -> list[tuple[str, str]]:
    """The devices of a claim, each with its pool."""
    allocation = claim(it, name).get("status", {}).get("allocation")
    results = allocation["devices"].get("results", []) if allocation else []
    return [(each["pool"], each["device"]) for each in results]


def users(it: Cluster, name: str = "one") -> list[str]:
    return [each["name"] for each in claim(it, name).get("status", {}).get("reservedFor", [])]


def says(it: Cluster, name: str) -> str:
    return str(it.condition(name).get("message", ""))


def give_back(it: Cluster) -> None:
    """What the controller of claims does when the last pod that used one is gone."""
    it.server.store.patch(
        CLAIMS,
        "one",
        {"status": {"allocation": None, "reservedFor": None, "devices": None}},
        subresource="status",
    )


def set_up(it: Cluster, *nodes: str, devices: int = 1) -> None:
    it.add_nodes(*(node_object(name) for name in nodes))
    create(it, device_class(extended_resource=GPU), *(resource_slice(name, devices) for name in nodes))


status_writes = requests(verb="update", resource="resourceclaims", subresource="status")


async def test_a_pod_is_placed_at_its_device_and_the_claim_records_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("bare"))
        set_up(it, "n")
        create(it, resource_claim("one"))
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: it.node_of("web"))

        assert it.node_of("web") == "n"
        assert devices(it) == [("n", "gpu-0")]
        assert users(it) == ["web"]
        found = claim(it)
        assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert found["status"]["allocation"]["allocationTimestamp"].startswith("2026-01-01T00:00:0")
        assert "nodeSelector" in found["status"]["allocation"]


async def test_two_pods_never_share_a_device_and_the_second_gets_it_after_its_release(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n")
        create(it, resource_claim("one"), resource_claim("two"))
        it.add_pods(claiming("first", "one"))
        await it.until(lambda: it.node_of("first"))
        it.add_pods(claiming("second", "two"))
        await it.until(lambda: says(it, "second"))
        assert says(it, "second") == NO_DEVICE

        it.server.store.delete("pods", "first")
        give_back(it)

        await it.until(lambda: it.node_of("second"))
        assert devices(it, "two") == [("n", "gpu-0")]


async def test_many_pods_at_once_each_get_a_device_of_their_own(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.server.faults.delay(0.2, status_writes)
        set_up(it, "a", "b", "c", devices=4)
        names = [f"p{number}" for number in range(12)]
        create(it, *(resource_claim(name) for name in names))
        it.add_pods(*(claiming(name, name) for name in names))
        await it.until(lambda: all(it.node_of(name) for name in names))

        given = [(it.node_of(name), device) for name in names for _, device in devices(it, name)]
        assert len(set(given)) == 12


async def test_pods_that_share_a_claim_go_to_its_device_together(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "a", "b")
        create(it, resource_claim("one"))
        it.add_pods(*(claiming(f"p{number}", "one") for number in range(3)))
        await it.until(lambda: all(it.node_of(f"p{number}") for number in range(3)), seconds=120)

        assert {it.node_of(f"p{number}") for number in range(3)} == {devices(it)[0][0]}
        assert sorted(users(it)) == ["p0", "p1", "p2"]


@pytest.mark.parametrize("is_extended", [False, True], ids=["of a claim", "of an extended resource"])
async def test_an_unwritten_allocation_requeues_pods_once_it_is_released(
    tmp_path: Path, is_extended: bool
) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n")
        if is_extended:
            first, second = asking("first"), asking("second")
            writes, times = requests(verb="create", resource="resourceclaims"), 1
        else:
            create(it, resource_claim("one"), resource_claim("two"))
            first, second = claiming("first", "one"), claiming("second", "two")
            writes, times = requests(verb="update", resource="resourceclaims", name="one"), None
        it.server.faults.delay(5, writes, times=times)
        it.server.faults.refuse(403, writes, times=times)
        it.add_pods(first)
        await asyncio.sleep(1)
        it.add_pods(second)
        await it.until(lambda: says(it, "second"))
        it.server.store.delete("pods", "first")

        await it.until(lambda: it.node_of("second"), seconds=30)


async def test_members_of_a_gang_share_a_claim_that_one_of_them_allocates(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(*(node_object(name, cpu="16") for name in "ab"))
        create(it, device_class(), *(resource_slice(name, 1) for name in "ab"), resource_claim("one"))
        add_gang(it, "g", 8, resourceClaims=claims_of("one"))
        await it.until(lambda: len(placed(it)) == 8, seconds=5)

        assert {it.node_of(name) for name in placed(it)} == {devices(it)[0][0]}
        assert set(users(it)) == placed(it)
        assert not Devices.of(TableObjects(daemon.parts.cache.table)).in_flight


@pytest.mark.parametrize("version", ["1.36", "1.37"])
async def test_a_claim_from_the_template_of_a_group_is_reserved_for_the_whole_group(
    tmp_path: Path, version: str
) -> None:
    configuration = f"""
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        emulatedVersion: '{version}'
        featureGates: {{GenericWorkload: true, DRAWorkloadResourceClaims: true}}
    """
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    gates = {"DRAWorkloadResourceClaims": True}
    async with cluster(tmp_path, feature_gates=gates) as it, it.daemon(configuration):
        store = it.server.store
        controller = ResourceClaims(store)
        controller.start()
        set_up(it, "n", "other")
        template = {"metadata": {"name": "t"}, "spec": {"spec": unsaved(resource_claim("t"))["spec"]}}
        store.create("resourceclaimtemplates.resource.k8s.io", template)
        store.create(POD_GROUPS, pod_group("g", 3, resourceClaims=claims))
        it.add_pods(*members("g", 3, resourceClaims=claims))
        await it.until(lambda: len(placed(it)) == 3)
        controller.stop()

        (made,) = store.list(CLAIMS)
        name = made["metadata"]["name"]
        assert {it.node_of(f"g-{number}") for number in range(3)} == {devices(it, name)[0][0]}
        uid = store.get(POD_GROUPS, "g", "default")["metadata"]["uid"]
        group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}
        assert made["status"]["reservedFor"] == [group]


async def test_two_profiles_share_the_state_of_devices(tmp_path: Path) -> None:
    profiles = """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles: [{schedulerName: red}, {schedulerName: blue}]
        """
    async with cluster(tmp_path) as it, it.daemon(profiles):
        it.server.faults.delay(1.0, status_writes)
        set_up(it, "n")
        create(it, resource_claim("one"), resource_claim("two"))
        it.add_pods(claiming("a", "one", scheduler_name="red"), claiming("b", "two", scheduler_name="blue"))
        await it.until(lambda: it.node_of("a") and says(it, "b"))

        assert says(it, "b") == NO_DEVICE


async def test_a_pod_waits_for_its_claim_with_the_message_of_kube_scheduler(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n")
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: it.pod("web"))
        create(it, resource_claim("one", exactly(device_class="later")))
        await it.until(lambda: says(it, "web"))
        assert "request r0: device class later does not exist. no new claims" in says(it, "web")

        create(it, device_class("later"))

        await it.until(lambda: it.node_of("web") == "n")


async def test_a_new_slice_adds_capacity_for_a_waiting_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n"))
        create(it, device_class(), resource_claim("one"))
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: says(it, "web") == NO_DEVICE)

        create(it, resource_slice("n"))

        await it.until(lambda: it.node_of("web") == "n")


NO_FILTER_TIMEOUT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: DynamicResources
    args: {filterTimeout: 0s}
"""
LONG_DEVICES, LONG_CLAIM = long_search()
FITTING = [device(f"other-{number}", row=0, column=0) for number in range(5)]
SEARCHES: dict[str, tuple[Any, Any, Any]] = {
    "21 of 20 devices": (resource_claim("one", exactly(count=21)), 21, 20),
    "devices with constraints": (LONG_CLAIM, FITTING, LONG_DEVICES),
}


@pytest.mark.parametrize(("wanted", "here", "there"), SEARCHES.values(), ids=SEARCHES)
async def test_a_search_without_a_limit_ends_with_a_placement(
    tmp_path: Path, wanted: Any, here: Any, there: Any
) -> None:
    """kube-scheduler's test of filterTimeout 0s, and a search that takes thousands of steps on the node without a place."""
    async with cluster(tmp_path) as it, it.daemon(NO_FILTER_TIMEOUT):
        it.add_nodes(node_object("worker-0"), node_object("worker-1"))
        create(
            it, device_class(), resource_slice("worker-0", here), resource_slice("worker-1", there), wanted
        )
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: it.node_of("web"))

        assert it.node_of("web") == "worker-0"
        assert it.notes("web", "FailedScheduling") == []


async def test_an_extended_resource_gets_a_claim_and_the_pod_status_names_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        set_up(it, "n")
        it.add_pods(asking("ai"))
        await it.until(lambda: it.node_of("ai"))

        (made,) = it.server.store.list(CLAIMS)
        name = made["metadata"]["name"]
        assert name.startswith("ai-extended-resources-")
        assert made["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
        assert made["metadata"]["ownerReferences"][0]["name"] == "ai"
        assert devices(it, name) == [("n", "gpu-0")]
        assert users(it, name) == ["ai"]
        assert it.pod("ai")["status"]["extendedResourceClaimStatus"] == {
            "resourceClaimName": name,
            "requestMappings": [
                {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
            ],
        }
        created = daemon.metrics.registry.get_sample_value(
            "scheduler_resourceclaim_creates_total", {"status": "success"}
        )
        assert created == 1.0
        it.add_pods(asking("late"))
        await it.until(lambda: "cannot allocate all claims" in says(it, "late"))


async def test_a_claim_in_another_namespace_is_not_used_for_an_extended_resource(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        create(it, device_class(extended_resource=GPU))
        it.add_pods(asking("ai"))
        await it.until(lambda: it.condition("ai"))
        it.server.store.create("namespaces", {"metadata": {"name": "tenant"}})
        pod = decode_pod(msgspec.json.encode(it.pod("ai")))
        marked = {"resource.kubernetes.io/extended-resource-claim": "true"}
        kept = ["example.com/kept"]  # from the garbage collector, since its owner is not in its namespace
        forged = resource_claim("forged", namespace="tenant", owner=pod, annotations=marked, finalizers=kept)
        create(it, forged)
        await asyncio.sleep(1)
        it.add_nodes(node_object("n"))
        create(it, resource_slice("n", 1))

        await it.until(lambda: it.node_of("ai"))
        [made] = [each for each in it.server.store.list(CLAIMS) if each["metadata"]["name"] != "forged"]
        assert made["metadata"]["namespace"] == "default"
        assert users(it, made["metadata"]["name"]) == ["ai"]


async def test_pods_of_a_template_get_claims_that_are_deleted_with_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True, controllers=True) as it, it.daemon():
        set_up(it, "n")
        spec = {"spec": {"devices": {"requests": [exactly()]}}}
        it.server.store.create(
            "resourceclaimtemplates.resource.k8s.io",
            {"metadata": {"name": "a-gpu", "namespace": "default"}, "spec": spec},
        )
        wish = [{"name": "gpu", "resourceClaimTemplateName": "a-gpu"}]
        it.add_pods(pod_object("first", resourceClaims=wish))
        await it.until(lambda: it.pod("first")["status"]["phase"] == "Running")
        it.add_pods(pod_object("second", resourceClaims=wish))
        await it.until(lambda: says(it, "second") == NO_DEVICE)

        it.server.store.delete("pods", "first")

        await it.until(lambda: it.pod("second")["status"]["phase"] == "Running", seconds=120)
        (left,) = it.server.store.list(CLAIMS)
        assert left["metadata"]["ownerReferences"][0]["name"] == "second"


# What goes wrong.


@pytest.mark.parametrize("lost", [1, 2], ids=["the first answer", "two answers"])
async def test_a_lost_response_neither_loses_nor_doubles_an_allocation(tmp_path: Path, lost: int) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n", devices=2)
        create(it, resource_claim("one"), resource_claim("two"))
        it.server.faults.lose_answers(requests(verb="update", resource="resourceclaims"), times=lost)
        it.add_pods(claiming("first", "one"), claiming("second", "two"))
        await it.until(lambda: it.node_of("first") and it.node_of("second"), seconds=120)

        assert devices(it) != devices(it, "two")
        assert users(it) == ["first"]


async def test_a_temporary_outage_of_the_api_server_costs_a_wait_only(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n")
        create(it, resource_claim("one"))
        it.server.faults.refuse(503, requests(verb="update", resource="resourceclaims"), times=2)
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: it.node_of("web"), seconds=120)

        assert users(it) == ["web"]


async def test_a_silent_watch_of_claims_never_allocates_a_device_twice(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n", devices=2)
        create(it, *(resource_claim(name) for name in ("one", "two", "three")))
        it.add_pods(claiming("p1", "one"))
        await it.until(lambda: it.node_of("p1"))
        stalled = it.server.faults.stall_watches(requests(verb="watch", resource="resourceclaims"))
        it.add_pods(claiming("p2", "two"))
        await it.until(lambda: it.node_of("p2"))
        it.add_pods(claiming("p3", "three"))
        await it.until(lambda: says(it, "p3"))

        assert says(it, "p3") == NO_DEVICE
        it.server.faults.remove(stalled)


async def test_a_pod_that_cannot_be_bound_releases_its_reservation(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n")
        create(it, resource_claim("one"))
        it.server.faults.refuse(403, requests(verb="create", resource="pods", subresource="binding"), times=1)
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: it.node_of("web"), seconds=120)

        patches = it.server.requests.matching(method="PATCH")
        assert any("/resourceclaims/one/status" in each.path for each in patches)
        assert users(it) == ["web"]
        assert devices(it) == [("n", "gpu-0")]


async def test_an_unneeded_claim_for_extended_resources_is_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        set_up(it, "n")
        it.server.faults.refuse(403, requests(verb="create", resource="pods", subresource="binding"), times=1)
        it.add_pods(asking("ai"))
        await it.until(lambda: it.node_of("ai"), seconds=120)

        (made,) = it.server.store.list(CLAIMS)
        assert (
            it.pod("ai")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
            == made["metadata"]["name"]
        )


async def test_a_claim_with_256_pods_accepts_no_more(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n", pods=400))
        create(it, device_class(), resource_slice("n"), resource_claim("one"))
        it.add_pods(claiming("first", "one"))
        await it.until(lambda: it.node_of("first"))
        others = [{"resource": "pods", "name": f"x{number}", "uid": f"x{number}"} for number in range(256)]
        it.server.store.patch(CLAIMS, "one", {"status": {"reservedFor": others}}, subresource="status")
        it.add_pods(claiming("late", "one"))
        await it.until(lambda: len(users(it)) == 256 and it.notes("late", "FailedScheduling"), seconds=120)

        assert any("must have at most 256 items" in note for note in it.notes("late", "FailedScheduling"))
        assert it.node_of("late") == ""


# Devices that must be made ready.


def said(it: Cluster, kind: str) -> None:
    """The driver says something of the device of the claim."""
    ((pool, device),) = devices(it)
    condition = {
        "type": kind,
        "status": "True",
        "reason": "So",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = [{"driver": DRIVER, "pool": pool, "device": device, "conditions": [condition]}]
    it.server.store.patch(CLAIMS, "one", {"status": {"devices": status}}, subresource="status")


def to_be_made_ready(it: Cluster, *nodes: str) -> None:
    it.add_nodes(*(node_object(name) for name in nodes))
    slices = [resource_slice(name, [{"name": "gpu-0", **CONDITIONS}]) for name in nodes]
    create(it, device_class(), *slices, resource_claim("one"))


async def test_a_pod_is_bound_once_its_device_is_ready(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        to_be_made_ready(it, "n")
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: it.notes("web", "BindingConditionsPending"))
        assert it.notes("web", "BindingConditionsPending") == [
            "waiting for binding conditions for device on node n"
        ]
        assert it.node_of("web") == ""

        said(it, "Ready")

        await it.until(lambda: it.node_of("web") == "n")
        labels = {"profile": "custom-scheduler", "driver": DRIVER, "status": "success"}
        value = daemon.metrics.registry.get_sample_value
        assert value("scheduler_dra_bindingconditions_allocations_total", labels) == 1.0
        assert value("scheduler_dra_bindingconditions_wait_duration_seconds_count", labels) == 1.0


async def test_a_failed_device_is_released_and_replaced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        to_be_made_ready(it, "a", "b")
        it.add_pods(claiming("web", "one"))
        await it.until(lambda: it.notes("web", "BindingConditionsPending"))
        ((broken, _),) = devices(it)

        said(it, "Broken")
        it.server.store.delete(SLICES, f"{broken}-{DRIVER}")
        await it.until(lambda: devices(it) and devices(it) != [(broken, "gpu-0")], seconds=120)
        said(it, "Ready")

        await it.until(lambda: it.node_of("web"), seconds=120)
        assert it.node_of("web") == ({"a", "b"} - {broken}).pop()
        assert users(it) == ["web"]
        assert any(
            "device binding failed: claim=one, reason=So" in note
            for note in it.notes("web", "FailedScheduling")
        )


@pytest.mark.parametrize(
    ("version", "field", "use"),
    [
        ("1.36", "nodeAllocatableResourceMappings", {"allocationMultiplier": "2"}),
        ("1.37", "nodeAllocatableResources", {"mapping": {"deviceMultiplier": "2"}}),
    ],
)
async def test_a_pod_counts_with_the_cpus_that_its_device_is(
    tmp_path: Path, version: str, field: str, use: dict[str, Any]
) -> None:
    configuration = f"""
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        emulatedVersion: '{version}'
        featureGates: {{DRANodeAllocatableResources: true}}
    """

    def pod_of(name: str, claim: str) -> dict[str, Any]:
        resources = {"requests": {"cpu": "1"}, "claims": [{"name": "c0"}]}
        return claiming(name, claim, containers=[{"name": "main", "image": "x", "resources": resources}])

    gates = {"DRANodeAllocatableResources": True}
    async with cluster(tmp_path, version=version, feature_gates=gates) as it, it.daemon(configuration):
        it.add_nodes(node_object("n", cpu="5"))
        cpus = [{"name": f"cpus-{number}", field: {"cpu": use}} for number in (0, 1)]
        create(it, device_class(), resource_slice("n", cpus), resource_claim("one"), resource_claim("two"))
        it.add_pods(pod_of("first", "one"))
        await it.until(lambda: it.node_of("first"))

        (status,) = it.pod("first")["status"]["nodeAllocatableResourceClaimStatuses"]
        taken = (
            {"resources": {"cpu": "2"}}
            if version == "1.36"
            else {"mapping": [{"name": "cpu", "quantity": "2"}]}
        )
        assert status == {"resourceClaimName": "one", "containers": ["main"], **taken}

        it.add_pods(pod_of("second", "two"))
        await it.until(lambda: "Insufficient cpu" in says(it, "second"))
        it.server.store.delete("pods", "first", grace_period_seconds=0)
        await it.until(lambda: it.node_of("second"))


def events(it: Cluster) -> list[str]:
    return [
        note
        for note in it.notes("web", "FailedScheduling")
        if "deallocation of ResourceClaim completed" in note
    ]


async def test_a_device_that_never_becomes_ready_is_released_in_time(tmp_path: Path) -> None:
    short = """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - pluginConfig: [{name: DynamicResources, args: {bindingTimeout: 30s}}]
        """
    async with cluster(tmp_path) as it, it.daemon(short):
        to_be_made_ready(it, "n")
        it.add_pods(claiming("web", "one"))
        await it.until(
            lambda: any("device binding timeout" in note for note in it.notes("web", "FailedScheduling"))
        )
        await it.until(lambda: events(it), seconds=120)


# A server without devices.


def kinds_that_lack(caplog: pytest.LogCaptureFixture) -> set[str]:
    """Return the kinds that the log says the server does not have."""
    return {
        str(getattr(record, "resource", ""))
        for record in caplog.records
        if record.message == "The API server does not serve this kind; install or enable it"
    }


async def test_a_server_without_device_apis_is_supported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        it.server.faults.refuse(404, lambda info: info.group == "resource.k8s.io")
        with caplog.at_level("INFO"):
            async with it.daemon():
                it.add_nodes(node_object("n"))
                it.add_pods(pod_object("plain", cpu="1"), claiming("web", "one"))
                await it.until(lambda: it.node_of("plain"))
                await it.until(lambda: {CLAIMS, SLICES, CLASSES} <= kinds_that_lack(caplog))
        assert it.node_of("web") == ""
