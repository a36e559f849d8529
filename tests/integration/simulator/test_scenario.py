"""Scenarios played on a server: in virtual time, and once from the command line."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_asyncio.client as k8s
from kubernetes_asyncio import config

from scheduler.configuration.load import default
from scheduler.tools.simulator.scenarios.scenario import load_scenario
from scheduler.tools.simulator.scenarios.scenario_player import ScenarioPlayer
from scheduler.tools.whatif.simulation.parallel_simulations import simulate
from scheduler.tools.whatif.simulation.scenario_source import read_scenario
from tests.integration.simulator.simulator_client import serving
from tests.support import virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.tools.simulator.server import ApiServer

SELECTED_NODE = "volume.kubernetes.io/selected-node"
EXAMPLE = Path(__file__).parents[3] / "manifests" / "examples" / "scenario.yaml"


async def bind_forever(server: ApiServer) -> None:
    """Stand in for a scheduler: the first node that is neither cordoned, tainted nor full."""
    while True:
        await asyncio.sleep(0.5)
        free = [
            one["metadata"]["name"]
            for one in server.store.list("nodes")
            if not one["spec"].get("taints") and not one["spec"].get("unschedulable")
        ]
        for place, pod in enumerate(server.store.list("pods", fields="spec.nodeName=")):
            if "deletionTimestamp" not in pod["metadata"] and free:
                name = free[place % len(free)]
                server.store.bind(pod["metadata"]["name"], name, pod["metadata"]["namespace"])


def play(
    tmp_path: Path, path: Path, at: dict[float, Callable[[ApiServer], Awaitable[None]]]
) -> ScenarioPlayer:
    """Play a scenario in virtual time, and look at the server at some moments of it."""
    players = []

    async def playing() -> None:
        async with serving(tmp_path, kubelet=True, controllers=True) as (server, _):
            player = ScenarioPlayer(server, load_scenario(path))
            players.append(player)
            await player.set_up()
            tasks = [asyncio.create_task(player.play()), asyncio.create_task(bind_forever(server))]
            now = 0.0
            for moment, look in at.items():
                await asyncio.sleep(moment - now)
                now = moment
                await look(server)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    virtual_time.run(playing())
    return players[0]


def web(server: ApiServer) -> list[dict[str, Any]]:
    return server.store.list("pods", namespace="shop", labels="app=web")


def test_the_example_runs_as_written(tmp_path: Path):
    seen: dict[str, Any] = {}

    async def after_5s(server: ApiServer) -> None:
        seen["first"] = len(web(server))

    async def after_35s(server: ApiServer) -> None:
        seen["scaled"] = len(web(server))
        seen["cordoned"] = server.store.get("nodes", "general-0")["spec"].get("unschedulable")
        seen["jobs"] = server.store.get("jobs", "report", "shop")["status"].get("active")

    async def after_55s(server: ApiServer) -> None:
        seen["job"] = server.store.get("jobs", "report", "shop")["status"].get("succeeded")

    async def after_65s(server: ApiServer) -> None:
        taints = server.store.get("nodes", "general-1")["spec"]["taints"]
        seen["killed"] = [taint["key"] for taint in taints]
        seen["unready"] = any(
            condition["status"] == "False"
            for pod in web(server)
            if pod["spec"].get("nodeName") == "general-1"
            for condition in pod["status"]["conditions"]
            if condition["type"] == "Ready"
        )

    async def after_380s(server: ApiServer) -> None:
        seen["left on it"] = [pod for pod in web(server) if pod["spec"].get("nodeName") == "general-1"]
        seen["replaced"] = len(web(server))

    async def after_485s(server: ApiServer) -> None:
        seen["taints"] = server.store.get("nodes", "general-1")["spec"].get("taints")
        seen["deleted"] = web(server)

    looks = {
        5.0: after_5s,
        35.0: after_35s,
        55.0: after_55s,
        65.0: after_65s,
        380.0: after_380s,
        485.0: after_485s,
    }
    player = play(tmp_path, EXAMPLE, looks)

    assert player.failures == []
    assert seen == {
        "first": 3,
        "scaled": 8,
        "cordoned": True,
        "jobs": 3,
        "job": 3,
        "killed": ["node.kubernetes.io/unreachable"],
        "unready": True,
        "left on it": [],
        "replaced": 8,
        "taints": None,
        "deleted": [],
    }


RESIZES = """\
nodes: [{name: n, cpu: "4"}]
manifests:
- apiVersion: v1
  kind: Pod
  metadata: {name: p}
  spec: {containers: [{name: main, image: pause, resources: {requests: {cpu: "1", memory: 1Gi}}}]}
steps:
- {at: 10s, resize: {name: p, cpu: "2"}}
- {at: 20s, resize: {name: p, cpu: "5"}}
- {at: 30s, resize: {name: p, container: side, cpu: "1"}}
- {at: 40s, resize: {name: gone, cpu: "1"}}
"""


def test_a_step_resizes_a_pod_as_far_as_its_kubelet_can(tmp_path: Path):
    seen: list[Any] = []

    async def look(server: ApiServer) -> None:
        pod = server.store.get("pods", "p")
        pending = [each["reason"] for each in pod["status"]["conditions"] if "Pending" in each["type"]]
        seen.append((pod["status"]["containerStatuses"][0]["allocatedResources"], pending))

    path = tmp_path / "resizes.yaml"
    path.write_text(RESIZES)
    player = play(tmp_path, path, {15.0: look, 25.0: look, 45.0: look})

    has = {"cpu": "2", "memory": "1Gi"}
    assert seen == [(has, []), (has, ["Infeasible"]), (has, ["Infeasible"])]
    assert player.failures == [
        "30s resize: pod default/p has no container side",
        '40s resize: pods "gone" not found',
    ]


async def test_a_fault_lasts_as_long_as_the_scenario_states(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(
        "steps:\n- {at: 10s, fault: {refuse: 429, retryAfter: 2s, resource: pods, verb: list, for: 5s}}\n"
    )
    codes = []

    async with serving(tmp_path) as (server, client):
        player = ScenarioPlayer(server, load_scenario(tmp_path / "s.yaml"))
        await player.set_up()
        task = asyncio.create_task(player.play())
        for _ in range(4):
            await asyncio.sleep(4)
            code, _ = await client.ask("GET", "/api/v1/pods")
            codes.append(code)
        await task
    assert codes == [200, 200, 429, 200]


def test_a_failing_step_is_reported_and_the_others_are_done(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(
        "nodes: [{name: n}]\n"
        "steps:\n"
        "- {at: 1s, delete: {resource: pods, name: absent}}\n"
        "- {at: 2s, scale: {resource: gadgets, name: g, replicas: 1}}\n"
        "- {at: 3s, cordon: n-0}\n"
    )
    cordoned = []

    async def look(server: ApiServer) -> None:
        cordoned.append(server.store.get("nodes", "n-0")["spec"].get("unschedulable"))

    player = play(tmp_path, tmp_path / "s.yaml", {5.0: look})

    assert cordoned == [True]
    assert player.failures[0] == '1s delete: pods "absent" not found'
    assert player.failures[1].startswith("2s scale: no kind 'gadgets' is served; there are ")


WORKLOADS = """
nodes: [{name: general, count: 3, cpu: "4"}]
workloads:
- {name: web, replicas: 2, cpu: 100m, every: 10s, until: 15s}
- {name: batch, kind: Job, replicas: 2, cpu: 100m, runs: 5s, every: 10s, until: 15s, priority: 7}
- {name: train, kind: Job, replicas: 2, at: 1s, gang: true}
steps:
- {at: 15s, scale: {name: web, replicas: 5}}
- {at: 20s, addNodes: {name: more, count: 2}}
- {at: 25s, drain: general-0}
- {at: 26s, removeNode: general-1}
"""


def test_workloads_arrive_and_nodes_come_and_go(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(WORKLOADS)
    seen: dict[str, Any] = {}

    def pods(server: ApiServer, name: str) -> list[dict[str, Any]]:
        return server.store.list("pods", labels=f"app={name}")

    async def after_8s(server: ApiServer) -> None:
        seen["first"] = [len(pods(server, name)) for name in ("web", "batch", "train")]
        seen["ended"] = server.store.get("jobs", "batch-0")["status"]["succeeded"]
        seen["priority"] = {pod["spec"]["priority"] for pod in pods(server, "batch")}
        seen["group"] = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods(server, "train")}
        seen["least"] = server.store.get("podgroups", "train-0")["spec"]["schedulingPolicy"]["gang"]

    async def after_12s(server: ApiServer) -> None:
        seen["second"] = len(pods(server, "web")), len(server.store.list("jobs"))

    async def after_60s(server: ApiServer) -> None:
        seen["scaled"] = len(pods(server, "web"))
        seen["nodes"] = [node["metadata"]["name"] for node in server.store.list("nodes")]
        seen["places"] = {pod["spec"]["nodeName"] for pod in pods(server, "web")} & {"general-0", "general-1"}

    player = play(tmp_path, tmp_path / "s.yaml", {8.0: after_8s, 12.0: after_12s, 60.0: after_60s})

    assert player.failures == []
    assert seen == {
        "first": [2, 2, 2],
        "ended": 2,
        "priority": {7},
        "group": {"train-0"},
        "least": {"minCount": 2},
        "second": (4, 3),
        "scaled": 5,
        "nodes": ["general-0", "general-2", "more-0", "more-1"],
        "places": set(),
    }


def test_a_simulation_plays_the_same_file(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(WORKLOADS)

    result = simulate(read_scenario(tmp_path / "s.yaml"), default("custom-scheduler"), seed=1)

    assert (result.arrived - result.evicted, result.waiting) == (2 + 2 + 1 + 4 + 2, 0)


def test_a_definition_and_its_objects_can_be_applied_together(tmp_path: Path):
    (tmp_path / "crd.yaml").write_text(
        """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
"""
    )
    (tmp_path / "s.yaml").write_text("manifests: [crd.yaml]\n")
    there = []

    async def look(server: ApiServer) -> None:
        there.append(server.store.get("widgets", "w")["kind"])

    play(tmp_path, tmp_path / "s.yaml", {1.0: look})
    assert there == ["Widget"]


async def _the_command(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scheduler", "api-server", "--scenario", str(EXAMPLE), "--kubeconfig", str(kubeconfig),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            first = (await process.stdout.readline()).decode()
            second = (await process.stdout.readline()).decode()
        assert first.endswith("serves 5 nodes\n")
        assert second == f"export KUBECONFIG={kubeconfig}\n"
        await config.load_kube_config(str(kubeconfig))
        async with k8s.ApiClient() as api:
            nodes = await k8s.CoreV1Api(api).list_node()
            assert [node.metadata.name for node in nodes.items][-1] == "gpu-0"
            assert await k8s.AppsV1Api(api).read_namespaced_deployment("web", "shop")
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


def test_the_command_plays_a_scenario_and_prints_the_path_of_its_kubeconfig(tmp_path: Path):
    asyncio.run(_the_command(tmp_path))


def test_the_command_reports_errors_of_a_scenario(tmp_path: Path):
    (tmp_path / "s.yaml").write_text("nods: []\n")
    command = [sys.executable, "-m", "scheduler", "api-server", "--scenario", str(tmp_path / "s.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'error: {tmp_path}/s.yaml: nods: unknown field, did you mean "nodes"?\n'


VOLUMES_AND_DEVICES = EXAMPLE.with_name("scenario-volumes-and-devices.yaml")


async def choose_nodes(server: ApiServer) -> None:
    """Do what a scheduler does with claims that wait: say which node they are for."""
    for claim in server.store.list("persistentvolumeclaims"):
        selected = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
        if claim["status"]["phase"] == "Pending" and selected is None:
            patch = {"metadata": {"annotations": {SELECTED_NODE: "general-0"}}}
            server.store.patch("persistentvolumeclaims", claim["metadata"]["name"], patch)


def test_volumes_fail_and_devices_disappear_as_written(tmp_path: Path):
    seen: dict[str, Any] = {}

    def bound(server: ApiServer) -> int:
        claims = server.store.list("persistentvolumeclaims")
        return sum(claim["status"]["phase"] == "Bound" for claim in claims)

    async def after_1s(server: ApiServer) -> None:
        seen["claims"] = len(server.store.list("resourceclaims"))
        await choose_nodes(server)

    async def after_5s(server: ApiServer) -> None:
        seen["bound"] = bound(server)

    async def after_45s(server: ApiServer) -> None:
        await choose_nodes(server)

    async def after_50s(server: ApiServer) -> None:
        seen["failed"] = [
            event["message"]
            for event in server.store.list("events")
            if event["reason"] == "ProvisioningFailed"
        ]
        seen["still bound"] = bound(server)

    async def after_65s(server: ApiServer) -> None:
        seen["withdrawn"] = sorted(one["spec"]["nodeName"] for one in server.store.list("resourceslices"))

    async def after_95s(server: ApiServer) -> None:
        await choose_nodes(server)

    async def after_125s(server: ApiServer) -> None:
        seen["bound at last"] = bound(server)
        seen["restored"] = {
            one["spec"]["nodeName"]: one["spec"]["pool"]["generation"]
            for one in server.store.list("resourceslices")
        }

    looks = {
        1: after_1s,
        5: after_5s,
        45: after_45s,
        50: after_50s,
        65: after_65s,
        95: after_95s,
        125: after_125s,
    }
    player = play(tmp_path, VOLUMES_AND_DEVICES, looks)

    assert player.failures == []
    assert (seen["claims"], seen["bound"], seen["still bound"]) == (6, 3, 3)
    assert (
        seen["failed"]
        == [
            'failed to provision volume with StorageClass "disk": rpc error: code = ResourceExhausted desc = out of space'
        ]
        * 3
    )
    assert seen["bound at last"] == 6
    assert seen["withdrawn"] == ["gpu-0"]
    assert seen["restored"] == {"gpu-0": 1, "gpu-1": 2}
