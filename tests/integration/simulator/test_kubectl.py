"""kubectl against the simulated API server, in real time."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.external_controllers import KubeletOptions
from scheduler.tools.simulator.scenarios.clusters import uniform
from scheduler.tools.simulator.server import ApiServer
from tests.support.kubectl import Kubectl, rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: c, image: nginx, resources: {requests: {cpu: 100m}}}
"""
QUICK = KubeletOptions(admit_seconds=0, start_seconds=0, stop_seconds=0)


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[ApiServer, Kubectl]]:
    """A server with two nodes, and kubectl."""
    async with ApiServer(controllers=True, kubelet=QUICK) as server:
        for node in uniform(2):
            server.store.create("nodes", node)
        yield server, Kubectl(server.write_kubeconfig(folder / "config"), folder)


async def test_kubectl_shows_its_usual_columns(tmp_path: Path):
    async with cluster(tmp_path) as (server, kubectl):
        await kubectl("apply", "-f", "-", stdin=POD)
        head, row = rows(await kubectl("get", "pods"))
        assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert row[:4] == ["web", "0/1", "Pending", "0"]

        server.store.bind("web", "node-0001")
        await asyncio.sleep(0.2)
        wide = rows(await kubectl("get", "pods", "-o", "wide"))
        assert wide[0][5:7] == ["IP", "NODE"]
        assert (wide[1][2], wide[1][6]) == ("Running", "node-0001")

        nodes = rows(await kubectl("get", "nodes"))
        assert nodes[0] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
        assert nodes[1][:3] == ["node-0000", "Ready", "<none>"]


async def test_kubectl_apply_creates_changes_and_leaves_alone(tmp_path: Path):
    async with cluster(tmp_path) as (_, kubectl):
        said = [
            await kubectl("apply", "-f", "-", stdin=text)
            for text in (POD, POD, POD.replace("app: web", "app: x"))
        ]

        assert said == ["pod/web created\n", "pod/web unchanged\n", "pod/web configured\n"]


async def test_kubectl_prints_whole_objects(tmp_path: Path):
    async with cluster(tmp_path) as (_, kubectl):
        await kubectl("create", "-f", "-", stdin=POD)
        listed = json.loads(await kubectl("get", "nodes,pods", "-o", "json"))
        assert [item["kind"] for item in listed["items"]] == ["Node", "Node", "Pod"]
        assert "Node-Selectors" in await kubectl("describe", "pod", "web")


async def test_kubectl_creates_scales_and_deletes_a_deployment(tmp_path: Path):
    async with cluster(tmp_path) as (server, kubectl):
        await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
        await kubectl("scale", "deployment", "web", "--replicas=3")
        for _ in range(2):
            await asyncio.sleep(0.2)
            for pod in server.store.list("pods", fields="spec.nodeName="):
                server.store.bind(pod["metadata"]["name"], "node-0000")
        await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
        shown = rows(await kubectl("get", "deployments"))
        assert shown[0] == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
        assert shown[1][:4] == ["web", "3/3", "3", "3"]

        await kubectl("delete", "deployment", "web")
        await asyncio.sleep(0.5)
        assert server.store.list("pods") == []


async def test_kubectl_creates_and_deletes_a_namespace(tmp_path: Path):
    async with cluster(tmp_path) as (_, kubectl):
        await kubectl("create", "namespace", "shop")
        assert ["shop", "Active"] in [row[:2] for row in rows(await kubectl("get", "namespaces"))]
        await kubectl("delete", "namespace", "shop")


async def test_kubectl_cordons_and_taints(tmp_path: Path):
    async with cluster(tmp_path) as (server, kubectl):
        await kubectl("cordon", "node-0000")
        await kubectl("taint", "node", "node-0000", "a=b:NoSchedule")
        await asyncio.sleep(0.2)

        taints = {taint["key"] for taint in server.store.get("nodes", "node-0000")["spec"]["taints"]}
        assert taints == {"a", "node.kubernetes.io/unschedulable"}


async def test_kubectl_follows_pods(tmp_path: Path):
    async with cluster(tmp_path) as (server, kubectl):
        watching = asyncio.create_task(
            kubectl("get", "pods", "-w", "--request-timeout=3s", "--output-watch-events")
        )
        await asyncio.sleep(1)
        await kubectl("create", "-f", "-", stdin=POD)
        server.store.bind("web", "node-0000")

        seen = [row[:4] for row in rows(await watching)[1:]]
        assert seen[0] == ["ADDED", "web", "0/1", "Pending"]
        assert seen[-1] == ["MODIFIED", "web", "1/1", "Running"]


GANG = """
apiVersion: scheduling.k8s.io/v1alpha2
kind: Workload
metadata: {name: training}
spec:
  podGroupTemplates:
  - {name: workers, schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: workers-0}
spec:
  podGroupTemplateRef: {workload: {workloadName: training, podGroupTemplateName: workers}}
  schedulingPolicy: {gang: {minCount: 2}}
---
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  schedulingGroup: {podGroupName: workers-0}
  containers: [{name: c, image: nginx}]
"""


async def test_kubectl_applies_shows_and_deletes_groups_of_pods(tmp_path: Path):
    async with cluster(tmp_path) as (_, kubectl):
        applied = [(await kubectl("apply", "-f", "-", stdin=GANG)).split("\n")[:-1] for _ in range(2)]
        names = ("workload.scheduling.k8s.io/training", "podgroup.scheduling.k8s.io/workers-0", "pod/worker")
        assert applied == [[f"{name} {how}" for name in names] for how in ("created", "unchanged")]

        assert rows(await kubectl("get", "workloads"))[0] == ["NAME", "AGE"]
        head, row = rows(await kubectl("get", "podgroups"))
        assert head == ["NAME", "POLICY", "WORKLOAD", "STATUS", "AGE"]
        assert row[:4] == ["workers-0", "Gang", "training", "Pending"]
        described = rows(await kubectl("describe", "podgroup", "workers-0"))
        for line in ("Disruption Mode: Pod", "Min Count: 2", "Priority: 0", "Workload Name: training"):
            assert line.split() in described

        await kubectl("delete", "podgroup", "workers-0", "--wait=false")
        assert rows(await kubectl("get", "podgroups"))[1:]
        await kubectl("delete", "pod", "worker")
        await kubectl("wait", "--for=delete", "podgroup/workers-0", "--timeout=20s")
