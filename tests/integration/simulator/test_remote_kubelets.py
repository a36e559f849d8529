"""Simulated kubelets of an API server, over HTTP in virtual time: nodes, leases, pods, restarts and outages."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.tools.simulator.faults import requests
from scheduler.tools.simulator.node_agents.pod_status import EXIT_CODE, RUN_SECONDS
from scheduler.tools.simulator.remote import (
    SIMULATED,
    ForeignNodeError,
    as_registered,
    delete,
    register,
    running,
)
from scheduler.tools.simulator.scenarios.scenario import NodeGroup
from scheduler.tools.simulator.server import ApiServer
from tests.support.virtual_time import LoopClock
from tests.unit.tools.simulator.a_store import node, pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LEASES, LEASE_NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
GROUP = NodeGroup(name="sim", count=2, cpu="2", labels={"disk": "ssd"})
Object = dict[str, Any]


class Cluster:
    """An API server without kubelets, and clients of it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.store = server.store

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[ApiConnection]:
        endpoint = Endpoint("http://localhost", unix_socket=self.server.socket_path)
        async with ApiConnection(endpoint) as connection:
            yield connection

    @asynccontextmanager
    async def kubelets(self, group: NodeGroup = GROUP) -> AsyncIterator[None]:
        """Register nodes and run their kubelets."""
        async with self.connection() as connection:
            await register(connection, nodes(group))
            async with running(
                connection, group.node_names, asyncio.Event(), clock=LoopClock(), random=Random(0)
            ):
                yield

    def bind(self, made: Object, node_name: str = "sim-0") -> None:
        self.store.create("pods", made)
        self.store.bind(made["metadata"]["name"], node_name)

    def status(self, name: str) -> Object:
        found: Object = self.store.get("pods", name)["status"]
        return found

    def conditions(self, resource: str, name: str) -> dict[str, str]:
        """The status of each condition of an object."""
        return {one["type"]: one["status"] for one in self.store.get(resource, name)["status"]["conditions"]}

    def renewed(self, name: str) -> str:
        return str(self.store.get(LEASES, name, LEASE_NAMESPACE)["spec"]["renewTime"])


@asynccontextmanager
async def cluster(folder: Path, **options: Any) -> AsyncIterator[Cluster]:
    async with ApiServer(clock=LoopClock(), socket_path=folder / "api.sock", **options) as server:
        yield Cluster(server)


def nodes(group: NodeGroup = GROUP) -> list[Object]:
    return [as_registered(each, place, LoopClock()) for place, each in enumerate(group.node_objects(), 1)]


def annotated(made: Object, **annotations: str) -> Object:
    made["metadata"]["annotations"] = {
        {"seconds": RUN_SECONDS, "code": EXIT_CODE}[name]: value for name, value in annotations.items()
    }
    return made


async def test_nodes_are_registered_with_status_addresses_and_leases(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        await asyncio.sleep(1)

        found = at.store.get("nodes", "sim-1")
        assert (
            found["metadata"]["labels"].items()
            >= {
                "kubernetes.io/hostname": "sim-1",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "disk": "ssd",
                SIMULATED: "true",
            }.items()
        )
        assert found["status"]["allocatable"]["cpu"] == "2"
        assert found["status"]["addresses"] == [
            {"type": "InternalIP", "address": "172.16.0.2"},
            {"type": "Hostname", "address": "sim-1"},
        ]
        assert at.conditions("nodes", "sim-1") == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        lease = at.store.get(LEASES, "sim-1", LEASE_NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "sim-1"
        assert lease["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]


async def test_leases_are_renewed_and_conditions_have_new_heartbeats(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        await asyncio.sleep(1)
        lease = at.renewed("sim-0")
        await asyncio.sleep(10)
        assert at.renewed("sim-0") > lease

        before = at.store.get("nodes", "sim-0")["status"]["conditions"]
        await asyncio.sleep(300)
        after = at.store.get("nodes", "sim-0")["status"]["conditions"]
        for old, new in zip(before, after, strict=True):
            assert new["lastHeartbeatTime"] > old["lastHeartbeatTime"]
            assert new["lastTransitionTime"] == old["lastTransitionTime"]


async def test_a_node_that_became_unknown_is_reported_as_ready_again(tmp_path: Path):
    async with cluster(tmp_path, controllers=True) as at, at.kubelets():
        unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        at.store.patch("nodes", "sim-0", unknown, subresource="status")
        await asyncio.sleep(1)
        assert at.store.get("nodes", "sim-0")["spec"]["taints"]
        await asyncio.sleep(10)

        assert at.conditions("nodes", "sim-0")["Ready"] == "True"
        assert not at.store.get("nodes", "sim-0")["spec"].get("taints")


async def test_a_bound_pod_runs_with_addresses_conditions_and_container_statuses(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.bind(pod("p"), "sim-1")
        await asyncio.sleep(0.1)
        assert at.status("p")["phase"] == "Pending"
        await asyncio.sleep(2)

        status = at.status("p")
        assert (status["phase"], status["hostIP"]) == ("Running", "172.16.0.2")
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert status["startTime"]
        assert set(at.conditions("pods", "p").items()) == {
            (type_, "True")
            for type_ in (
                "PodScheduled",
                "PodReadyToStartContainers",
                "Initialized",
                "ContainersReady",
                "Ready",
            )
        }
        (container,) = status["containerStatuses"]
        assert (container["name"], container["ready"], container["started"]) == ("c", True, True)


async def test_a_pod_on_the_network_of_its_node_has_the_address_of_the_node(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.bind(pod("p", hostNetwork=True))
        await asyncio.sleep(2)

        assert at.status("p")["podIP"] == at.status("p")["hostIP"] == "172.16.0.1"


async def test_pods_of_other_nodes_and_pending_pods_are_left_alone(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.store.create("nodes", node("real"))
        at.bind(pod("elsewhere"), "real")
        at.store.create("pods", pod("pending"))
        await asyncio.sleep(60)

        assert at.status("elsewhere")["phase"] == at.status("pending")["phase"] == "Pending"
        assert at.store.find(LEASES, "real", LEASE_NAMESPACE) is None


async def test_a_deleted_pod_stays_for_its_grace_period(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.bind(pod("p"))
        await asyncio.sleep(2)
        at.store.delete("pods", "p")
        await asyncio.sleep(0.5)
        assert at.store.get("pods", "p")["metadata"]["deletionTimestamp"]
        await asyncio.sleep(1)

        assert at.store.find("pods", "p") is None
        (deletion,) = at.server.requests.matching(method="DELETE", path="/pods/p")
        assert deletion.json["gracePeriodSeconds"] == 0
        assert deletion.json["preconditions"]["uid"]


async def test_a_pod_with_a_finalizer_ends_before_it_is_deleted(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        made = pod("p")
        made["metadata"]["finalizers"] = ["example.com/wait"]
        at.bind(made)
        await asyncio.sleep(2)
        at.server.faults.delay(0.5, requests(verb="patch", resource="pods"))
        at.server.requests.clear()
        at.store.delete("pods", "p")
        await asyncio.sleep(5)

        sent = [each.method for each in at.server.requests if "/pods/p" in each.path]
        assert sent == ["PATCH", "DELETE"]
        assert at.status("p")["phase"] == "Failed"
        assert at.conditions("pods", "p")["Ready"] == "False"
        at.store.patch("pods", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(5)
        assert at.store.find("pods", "p") is None


async def test_a_pod_that_its_node_cannot_run_is_rejected_with_an_event(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.bind(pod("large", requests={"cpu": "3"}))
        at.bind(pod("elsewhere", nodeSelector={"disk": "hdd"}))
        await asyncio.sleep(2)

        found = {name: at.status(name) for name in ("large", "elsewhere")}
        assert {name: (each["phase"], each["reason"]) for name, each in found.items()} == {
            "large": ("Failed", "OutOfcpu"),
            "elsewhere": ("Failed", "NodeAffinity"),
        }
        assert {each["reason"] for each in at.store.list("events")} == {"OutOfcpu", "NodeAffinity"}


async def test_events_of_containers_are_written_and_repeated_ones_counted(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.bind(annotated(pod("again", restartPolicy="OnFailure"), seconds="0", code="1"))
        await asyncio.sleep(25)

        found = {each["reason"]: each["count"] for each in at.store.list("events")}
        assert found == {"Pulled": 2, "Created": 2, "Started": 2, "BackOff": 2}
        assert {each["source"]["host"] for each in at.store.list("events")} == {"sim-0"}


async def test_a_status_does_not_wait_for_a_backlog_of_events(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.server.faults.delay(1.0, requests(resource="events"))
        for number in range(40):
            at.bind(pod(f"p{number}"))
        await asyncio.sleep(3)
        at.bind(pod("late"))
        await asyncio.sleep(3)

        assert at.status("late")["phase"] == "Running"
        assert len(at.store.list("events")) < 120


async def test_a_pod_of_a_job_ends_as_its_annotations_say(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.bind(annotated(pod("good", restartPolicy="Never"), seconds="30"))
        at.bind(annotated(pod("bad", restartPolicy="Never"), seconds="0", code="3"))
        at.bind(annotated(pod("again", restartPolicy="OnFailure"), seconds="0", code="1"))
        await asyncio.sleep(20)
        assert at.status("good")["phase"] == "Running"
        assert at.status("bad")["phase"] == "Failed"
        (container,) = at.status("again")["containerStatuses"]
        assert container["restartCount"] == 2
        await asyncio.sleep(20)

        assert at.status("good")["phase"] == "Succeeded"
        (container,) = at.status("bad")["containerStatuses"]
        assert container["state"]["terminated"]["exitCode"] == 3


async def test_conditions_that_others_write_meanwhile_stay(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        at.bind(pod("p"))
        delay = at.server.faults.delay(0.5, requests(verb="patch", resource="pods"))
        await asyncio.sleep(1.3)  # the status is on its way
        other = {"type": "example.com/checked", "status": "True"}
        conditions = [*at.status("p")["conditions"], other]
        at.store.patch("pods", "p", {"status": {"conditions": conditions}}, subresource="status")
        await asyncio.sleep(1)
        at.server.faults.remove(delay)

        assert at.status("p")["phase"] == "Running"
        assert at.conditions("pods", "p").items() >= {"example.com/checked": "True", "Ready": "True"}.items()


async def test_nothing_is_lost_in_an_outage_and_renewals_do_not_pile_up(tmp_path: Path):
    async with cluster(tmp_path) as at, at.kubelets():
        await asyncio.sleep(1)
        outage = at.server.faults.refuse(503, requests(verb="patch"))
        at.bind(pod("p"))
        await asyncio.sleep(600)
        assert at.status("p")["phase"] == "Pending"
        at.server.faults.remove(outage)
        at.server.requests.clear()
        await asyncio.sleep(9)

        assert at.status("p")["phase"] == "Running"
        assert len(at.server.requests.matching(method="PATCH", path="/leases/sim-0")) <= 2


async def test_kubelets_that_start_again_take_over_their_nodes_and_pods(tmp_path: Path):
    async with cluster(tmp_path) as at:
        async with at.kubelets():
            at.bind(annotated(pod("p", restartPolicy="Never"), seconds="30"))
            at.bind(pod("q"))
            await asyncio.sleep(5)
        uid = at.store.get("nodes", "sim-0")["metadata"]["uid"]
        at.store.delete("pods", "q")
        larger = NodeGroup(name="sim", count=2, cpu="8", labels={"disk": "hdd"})
        async with at.kubelets(larger):
            await asyncio.sleep(40)

        found = at.store.get("nodes", "sim-0")
        assert found["metadata"]["uid"] == uid
        assert found["metadata"]["labels"]["disk"] == "hdd"
        assert found["status"]["allocatable"]["cpu"] == "8"
        assert at.status("p")["phase"] == "Succeeded"
        assert at.store.find("pods", "q") is None


async def test_a_node_of_another_kubelet_is_not_taken_over(tmp_path: Path):
    async with cluster(tmp_path) as at, at.connection() as connection:
        at.store.create("nodes", node("sim-1"))

        with pytest.raises(ForeignNodeError, match=r"node sim-1 exists .*--name-prefix"):
            await register(connection, nodes())

        assert "labels" not in at.store.get("nodes", "sim-1")["metadata"]


async def test_nodes_and_leases_can_be_deleted(tmp_path: Path):
    async with cluster(tmp_path) as at:
        async with at.kubelets():
            await asyncio.sleep(1)
        async with at.connection() as connection:
            await delete(connection, [*GROUP.node_names, "absent"])

        assert not at.store.list("nodes")
        assert not at.store.list(LEASES)


async def test_the_last_statuses_are_written_before_the_end(tmp_path: Path):
    async with cluster(tmp_path) as at:
        async with at.kubelets():
            at.bind(pod("p"))
            delay = at.server.faults.delay(2.0, requests(verb="patch", resource="pods"))
            await asyncio.sleep(1.2)
        at.server.faults.remove(delay)

        assert at.status("p")["phase"] == "Running"
