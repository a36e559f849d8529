"""Decisions that depend on several nodes, with kubectl: preemption, topology spread, and anti-affinity."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.clock import SystemClock
from scheduler.configuration.load import default
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.daemon import Daemon
from scheduler.kube.client.connect import connect
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object
from tests.support.kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

PATIENCE_SECONDS = 60.0
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
MESSAGE = ("-o", "jsonpath={.items[*].message}")
NAME = ("-o", "jsonpath={.items[*].metadata.name}")


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Kubectl]:
    """kubectl with a server of six nodes in three zones, and a daemon at work."""
    async with ApiServer(clock=SystemClock(), kubelet=True, controllers=True) as server:
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        for number in range(6):
            labels = {ZONE: f"zone-{number % 3}", HOST: f"n{number}"}
            server.store.create("nodes", node_object(f"n{number}", cpu="4", labels=labels))
        async with connect(str(kubeconfig)) as connection:
            settings = with_leader_election(default(), leader_elect=False)
            daemon = Daemon(connection, settings, clock=SystemClock(), random=Random(1))
            stop = asyncio.Event()
            running = asyncio.create_task(daemon.run(stop))
            try:
                yield Kubectl(kubeconfig, folder)
            finally:
                stop.set()
                await running


def deployment(name: str, replicas: int, **wish: Any) -> str:
    labels = {"app": name}
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"schedulerName": "custom-scheduler", "containers": [container], **wish}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }
    )


def pod(name: str, cpu: str, **more: Any) -> str:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    spec = {
        "schedulerName": "custom-scheduler",
        "nodeSelector": {HOST: "n0"},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **more,
    }
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


async def items(kubectl: Kubectl, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await kubectl("get", *arguments, "-o", "json"))["items"]
    return found


async def placed(kubectl: Kubectl, app: str, count: int) -> list[str]:
    """Wait until a Deployment has so many pods, all on nodes, and return the nodes' names."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pods = [
                each
                for each in await items(kubectl, "pods", "-l", f"app={app}")
                if "deletionTimestamp" not in each["metadata"]
            ]
            nodes = [each["spec"].get("nodeName", "") for each in pods]
            if len(nodes) == count and all(nodes):
                return nodes
            await asyncio.sleep(0.2)


async def until_told(kubectl: Kubectl, *arguments: str) -> str:
    """Ask until there is something to tell, and return it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            said = await kubectl("get", *arguments)
            if said:
                return said
            await asyncio.sleep(0.2)


async def test_a_deployment_keeps_its_skew_while_it_is_scaled(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        selector = {"matchLabels": {"app": "spread"}}
        constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        wish = {"topologySpreadConstraints": [{**constraint, "labelSelector": selector}]}
        await kubectl("apply", "-f", "-", stdin=deployment("spread", 4, **wish))
        for replicas in (4, 11, 12):
            await kubectl("scale", "deployment/spread", f"--replicas={replicas}")
            nodes = await placed(kubectl, "spread", replicas)
            zones = Counter(f"zone-{int(name[1:]) % 3}" for name in nodes)
            assert len(zones) == 3
            assert max(zones.values()) - min(zones.values()) <= 1, zones
        # Which pods leave is the ReplicaSet's choice; those that come must even out what it left.
        await kubectl("scale", "deployment/spread", "--replicas=2")
        await placed(kubectl, "spread", 2)
        await kubectl("scale", "deployment/spread", "--replicas=9")
        nodes = await placed(kubectl, "spread", 9)
        assert Counter(int(name[1:]) % 3 for name in nodes) == {0: 3, 1: 3, 2: 3}


async def test_pods_with_mutual_anti_affinity_are_one_per_node_and_others_wait(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "apart"}}}
        repel = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await kubectl("apply", "-f", "-", stdin=deployment("apart", 6, affinity=repel))
        assert sorted(await placed(kubectl, "apart", 6)) == [f"n{number}" for number in range(6)]
        await kubectl("scale", "deployment/apart", "--replicas=7")
        reported = await until_told(kubectl, "events", "--field-selector=reason=FailedScheduling", *MESSAGE)
        assert reported == (
            "0/6 nodes are available: 6 node(s) didn't match pod anti-affinity rules. "
            "no new claims to deallocate, preemption: 0/6 nodes are available: "
            "6 No preemption victims found for incoming pod."
        )


async def test_an_urgent_pod_takes_the_place_of_another(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        await kubectl("create", "priorityclass", "high", "--value=1000")
        await kubectl("apply", "-f", "-", stdin=pod("low", "3"))
        await until_told(kubectl, "pods", "--field-selector=metadata.name=low,status.phase=Running", *NAME)
        await kubectl("apply", "-f", "-", stdin=pod("urgent", "3", priorityClassName="high"))
        await until_told(kubectl, "pods", "--field-selector=metadata.name=urgent,status.phase=Running", *NAME)
        await kubectl.refused("get", "pod", "low")
        uid = await kubectl("get", "pod", "urgent", "-o", "jsonpath={.metadata.uid}")
        (event,) = await items(kubectl, "events", "--field-selector=reason=Preempted")
        assert event["involvedObject"]["name"] == "low"
        assert event["message"] == f"Preempted by pod {uid} on node n0"
        assert event["reportingComponent"] == "custom-scheduler"
        described = await kubectl("describe", "pod", "urgent")
        refused = "0/6 nodes are available: 1 Insufficient cpu, 5 node(s) didn't match Pod's node affinity/selector."
        assert refused in described
        assert "Successfully assigned default/urgent to n0" in described
