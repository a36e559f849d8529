"""A session with kubectl against the simulated API server, in real time, in the order of daily work."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.external_controllers import KubeletOptions
from scheduler.tools.simulator.scenarios.clusters import uniform
from scheduler.tools.simulator.server import ApiServer
from tests.support.kubectl import Kubectl, rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)
QUICK = KubeletOptions(admit_seconds=0, start_seconds=0.05, stop_seconds=0.05, job_seconds=0.2)

DAEMONS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: agent:1}]}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, minimum: 1}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
WIDGET = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: 3}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
"""


async def bind_forever(server: ApiServer) -> None:
    """Stand in for a scheduler: the node a pod is pinned to, else any that is not cordoned."""
    turn = 0
    while True:
        await asyncio.sleep(0.05)
        free = [
            one["metadata"]["name"]
            for one in server.store.list("nodes")
            if not one["spec"].get("unschedulable") and not one["spec"].get("taints")
        ]
        for pod in server.store.list("pods", fields="spec.nodeName="):
            affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
            required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
            pinned = [
                field["values"][0]
                for term in required.get("nodeSelectorTerms", ())
                for field in term.get("matchFields", ())
            ]
            turn += 1
            name = pinned[0] if pinned else free[turn % len(free)]
            try:
                server.store.bind(pod["metadata"]["name"], name, pod["metadata"]["namespace"])
            except StatusError as error:
                if error.code != 409:  # it began to go meanwhile
                    raise


@asynccontextmanager
async def session(folder: Path) -> AsyncIterator[tuple[ApiServer, Kubectl]]:
    """A server of three nodes, a scheduler and kubectl."""
    async with ApiServer(controllers=True, kubelet=QUICK, normal_events=True) as server:
        for node in uniform(3):
            server.store.create("nodes", node)
        binding = asyncio.create_task(bind_forever(server))
        try:
            yield server, Kubectl(server.write_kubeconfig(folder / "config"), folder)
            assert not binding.done(), binding.result()
        finally:
            binding.cancel()
            await asyncio.gather(binding, return_exceptions=True)


async def test_kubectl_discovers_the_resources_of_the_server(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        resources = {row[0]: row for row in rows(await kubectl("api-resources"))}
        assert resources["jobs"] == ["jobs", "batch/v1", "true", "Job"]
        assert resources["customresourcedefinitions"][1] == "crd,crds"
        versions = (await kubectl("api-versions")).split()
        assert {"v1", "apps/v1", "batch/v1", "policy/v1", "apiextensions.k8s.io/v1"} <= set(versions)
        assert "Server Version: v1.36" in await kubectl("version")


async def test_a_rollout_is_created_updated_and_undone(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        await kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=4")
        status = ("rollout", "status", "deployment/web", "--timeout=30s")
        assert "successfully rolled out" in await kubectl(*status)
        await kubectl("set", "image", "deployment/web", "nginx=nginx:2")
        assert "successfully rolled out" in await kubectl(*status)
        await kubectl("rollout", "undo", "deployment/web")
        await kubectl(*status)
        history = [row[0] for row in rows(await kubectl("rollout", "history", "deployment/web"))[2:] if row]
        assert history == ["2", "3"]
        await kubectl("rollout", "restart", "deployment/web")
        await kubectl(*status)
        image = await kubectl("get", "deploy", "web", "-o", "jsonpath={..containers[0].image}")
        assert image == "nginx:1"
        assert rows(await kubectl("get", "deploy", "web"))[1][:4] == ["web", "4/4", "4", "4"]
        described = await kubectl("describe", "deployment", "web")
        assert "NewReplicaSetAvailable" in described

        await kubectl("rollout", "pause", "deployment/web")
        await kubectl("rollout", "resume", "deployment/web")
        await kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=30s")
        assert rows(await kubectl("get", "pods")) == []


async def test_a_node_is_drained_within_its_budgets_and_uncordoned(tmp_path: Path):
    async with session(tmp_path) as (server, kubectl):
        await kubectl("apply", "-f", "-", stdin=DAEMONS)
        await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=6")
        await kubectl("create", "poddisruptionbudget", "web", "--selector=app=web", "--max-unavailable=50%")
        for what in ("daemonset/agent", "deployment/web"):
            await kubectl("rollout", "status", what, "--timeout=30s")
        assert rows(await kubectl("get", "pdb"))[1][:4] == ["web", "N/A", "50%", "3"]
        assert rows(await kubectl("get", "ds"))[1][:6] == ["agent", "3", "3", "3", "3", "3"]
        assert "cannot delete DaemonSet-managed Pods" in await kubectl.refused("drain", "node-0001")

        reported = await kubectl("drain", "node-0001", "--ignore-daemonsets", "--timeout=30s")
        assert "node/node-0001 drained" in reported
        left = server.store.list("pods", fields="spec.nodeName=node-0001")
        assert [pod["metadata"]["labels"]["app"] for pod in left] == ["agent"]
        state = {row[0]: row[1] for row in rows(await kubectl("get", "nodes"))}
        assert state["node-0001"] == "Ready,SchedulingDisabled"
        await kubectl("uncordon", "node-0001")
        await kubectl("rollout", "restart", "daemonset/agent")
        await kubectl("rollout", "status", "daemonset/agent", "--timeout=30s")


async def test_a_drain_that_a_budget_forbids_is_reported(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
        await kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=3")
        await kubectl("rollout", "status", "deployment/web", "--timeout=30s")
        reported = await kubectl.refused("drain", "node-0000", "--ignore-daemonsets", "--timeout=2s")
        assert "Cannot evict pod as it would violate the pod's disruption budget." in reported


async def test_jobs_are_created_awaited_and_described(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        await kubectl("create", "job", "good", "--image=busybox", "--", "sh", "-c", "sleep 0.2")
        await kubectl("wait", "--for=condition=complete", "job/good", "--timeout=30s")
        assert rows(await kubectl("get", "jobs"))[1][:3] == ["good", "Complete", "1/1"]
        assert "1 Succeeded" in await kubectl("describe", "job", "good")
        await kubectl("wait", "--for=jsonpath={.status.succeeded}=1", "job/good", "--timeout=30s")
        await kubectl("delete", "job", "good")


async def test_custom_resources_work_like_built_in_ones(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        await kubectl("apply", "-f", "-", stdin=DEFINITION)
        await kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s")
        said = [await kubectl("apply", "-f", "-", stdin=WIDGET) for _ in range(2)]
        assert said == ["widget.example.com/w created\n", "widget.example.com/w unchanged\n"]
        assert rows(await kubectl("get", "wd"))[:2] == [["NAME", "SIZE"], ["w", "3"]]
        odd = await kubectl.refused(
            "apply", "-f", "-", stdin=WIDGET.replace("size: 3", "size: 3, colour: red")
        )
        assert 'unknown field "spec.colour"' in odd
        small = await kubectl.refused("apply", "-f", "-", stdin=WIDGET.replace("size: 3", "size: 0"))
        assert "should be greater than or equal to 1" in small
        await kubectl("scale", "widget/w", "--replicas=7")
        assert (await kubectl("get", "all", "-o", "name")).splitlines()[-1] == "widget.example.com/w"
        assert "Size:  7" in await kubectl("describe", "widget", "w")
        await kubectl("patch", "widget", "w", "--type=merge", "-p", '{"spec":{"size":8}}')
        await kubectl("delete", "crd", "widgets.example.com", "--timeout=20s")
        assert "could not find the requested resource" in await kubectl.refused("get", "widgets")


async def test_server_side_apply_reports_and_overrides_conflicts(tmp_path: Path):
    async with session(tmp_path) as (server, kubectl):
        apply = ("apply", "--server-side", "-f", "-")
        assert await kubectl(*apply, stdin=CONFIG) == "configmap/settings serverside-applied\n"
        blue = CONFIG.replace("red", "blue")
        reported = await kubectl.refused(*apply, "--field-manager=other", stdin=blue)
        assert 'Apply failed with 1 conflict: conflict with "kubectl": .data.colour' in reported
        await kubectl(*apply, "--field-manager=other", "--force-conflicts", stdin=blue)
        assert server.store.get("configmaps", "settings")["data"] == {"colour": "blue"}
        shown = json.loads(
            await kubectl("get", "configmap", "settings", "-o", "json", "--show-managed-fields")
        )
        assert [one["manager"] for one in shown["metadata"]["managedFields"]] == ["other"]


async def test_objects_are_read_in_every_way(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        for name, zone in (("a", "1"), ("b", "2")):
            await kubectl("run", name, "--image=nginx", f"--labels=zone={zone}")
        await kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=20s")
        assert await kubectl("get", "pods", "-l", "zone=2", "-o", "name") == "pod/b\n"
        running = ("get", "pods", "--field-selector", "status.phase=Running")
        by_name = await kubectl(*running, "--sort-by=.metadata.name", "-o", "name")
        assert by_name == "pod/a\npod/b\n"
        columns = await kubectl(
            "get", "pods", "-o", "custom-columns=N:.metadata.name,Z:.metadata.labels.zone"
        )
        assert rows(columns) == [["N", "Z"], ["a", "1"], ["b", "2"]]
        assert "nodeName: node-" in await kubectl("get", "pod", "a", "-o", "yaml")
        assert "ZONE" in await kubectl("get", "pods", "-L", "zone")
        assert "Non-terminated Pods:" in await kubectl("describe", "node", "node-0000")
        assert "Status:" in await kubectl("describe", "pod", "a")
        assert "v1.36" in await kubectl("get", "--raw", "/version")


async def test_objects_are_changed_in_every_way(tmp_path: Path):
    async with session(tmp_path) as (server, kubectl):
        await kubectl("create", "configmap", "c", "--from-literal=a=1")
        await kubectl("create", "secret", "generic", "s", "--from-literal=password=x")
        await kubectl("label", "configmap", "c", "tier=front")
        await kubectl("annotate", "configmap", "c", "note=hello")
        await kubectl(
            "patch", "configmap", "c", "--type=json", "-p", '[{"op":"add","path":"/data/b","value":"2"}]'
        )
        await kubectl("patch", "configmap", "c", "--type=merge", "-p", '{"data":{"a":null}}')
        found = server.store.get("configmaps", "c")
        assert (found["data"], found["metadata"]["labels"]) == ({"b": "2"}, {"tier": "front"})
        assert "already has a value" in await kubectl.refused("label", "configmap", "c", "tier=back")

        await kubectl("taint", "node", "node-0002", "a=b:NoSchedule")
        await kubectl("taint", "node", "node-0002", "a:NoSchedule-")
        assert not server.store.get("nodes", "node-0002")["spec"].get("taints")

        await kubectl("run", "p", "--image=nginx")
        await kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=20s")
        await kubectl("delete", "pod", "p", "--dry-run=server")
        assert "deletionTimestamp" not in server.store.get("pods", "p")["metadata"]
        await kubectl("delete", "pod", "p", "--now")
        await kubectl("run", "p", "--image=nginx")
        await kubectl("delete", "pod", "p", "--force", "--grace-period=0")
        assert server.store.find("pods", "p") is None
        created = await kubectl("create", "deployment", "d", "--image=i", "--dry-run=server", "-o", "name")
        assert created == "deployment.apps/d\n"
        assert server.store.find("deployments", "d") is None


async def test_a_kustomization_is_applied(tmp_path: Path):
    folder = tmp_path / "kustomization"
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "kustomization.yaml").write_text("namePrefix: my-\nresources: [config.yaml]\n")

    async with session(tmp_path) as (_, kubectl):
        assert await kubectl("apply", "-k", str(folder)) == "configmap/my-settings created\n"
        assert await kubectl("diff", "-k", str(folder)) == ""


async def test_events_are_listed(tmp_path: Path):
    async with session(tmp_path) as (server, kubectl):
        server.store.create("pods", {"metadata": {"name": "big"}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}]}})  # fmt: skip
        await asyncio.sleep(0.5)
        for command in (("events",), ("events", "--for", "pod/big"), ("get", "events")):
            assert "OutOfcpu" in await kubectl(*command)
        assert "Node didn't have enough resource: cpu" in await kubectl("describe", "pod", "big")


async def test_describe_shows_the_events_of_controllers_and_kubelets(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=1")
        await kubectl("rollout", "status", "deployment/web", "--timeout=20s")

        described = await kubectl("describe", "deployment", "web")
        assert re.search(
            r"ScalingReplicaSet +\S+ +deployment-controller +Scaled up replica set web-", described
        )
        described = await kubectl("describe", "replicaset")
        assert re.search(r"SuccessfulCreate +\S+ +replicaset-controller +Created pod: web-", described)
        described = await kubectl("describe", "pod")
        for reason, message in (("Created", "Container created"), ("Started", "Container started")):
            assert re.search(rf"Normal +{reason} +\S+ +kubelet +{message}", described)


async def test_unsupported_requests_to_a_node_are_refused_with_a_message(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        await kubectl("run", "p", "--image=nginx")
        await kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=20s")
        assert "containers are not run here" in await kubectl.refused("logs", "p")
        assert "containers are not run here" in await kubectl.refused("exec", "p", "--", "true")


async def test_a_list_is_created_item_by_item_and_each_is_validated(tmp_path: Path):
    async with session(tmp_path) as (_, kubectl):
        maps = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": name}}
            for name in ("one", "two")
        ]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": maps})
        assert (await kubectl("create", "-f", "-", stdin=text)).count("created") == 2
        assert (await kubectl("apply", "-f", "-", stdin=text)).count("configured") == 2
        odd = json.dumps({"apiVersion": "v1", "kind": "List", "items": [{**maps[0], "dota": {}}]})
        assert 'unknown field "dota"' in await kubectl.refused("apply", "-f", "-", stdin=odd)
