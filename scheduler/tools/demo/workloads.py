"""The demo's workloads: the default one, where each pod has its place, and one from a user's file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from scheduler.daemon.app.default_scheduler import DEFAULT_SCHEDULER
from scheduler.tools.simulator.scenarios.clusters import ready_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.server import ApiServer


class Suggestion(NamedTuple):
    """A command for another terminal.

    Attributes:
        purpose: the effect of the command, or the question that it answers.
        command: the command line.
    """

    purpose: str
    command: str


class DemoWorkload(Protocol):
    """Objects that are applied one after another, and their expected result.

    Attributes:
        puzzle: a pending pod that the demo explains; "" if all should run.
        scheduler_names: schedulerNames of its pods.
    """

    puzzle: str
    scheduler_names: frozenset[str]

    async def apply(self, server: ApiServer, narrate: Callable[[str], None], *, pause_seconds: float) -> None:
        """Apply all objects; returns after the last step.

        Args:
            server: the API server.
            narrate: called before each step with a text for users: what happens, and why.
            pause_seconds: the pause between steps.
        """

    def suggestions(self, program: str, daemon: str) -> list[Suggestion]:
        """Return commands to try in another terminal.

        Args:
            program: the command line of this program.
            daemon: the daemon's URL.
        """

    def outstanding(self, pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
        """Return texts about what is not yet as expected; empty when every pod is where it should be.

        Args:
            pods: name -> pod.
            nodes: name -> node.
        """


def why_it_waits(pod: PodInfo) -> str:
    """Return the scheduler's message about its last attempt; "" if there was none or the pod is bound."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason in {"Unschedulable", "SchedulerError"}:
            return condition.message
    return ""


SCHEDULER_NAME = "custom-scheduler"
REPLICAS = 20
MORE_REPLICAS = 40
"""The number of replicas that the demo proposes: the new zone must have capacity for a quarter of them."""
ZONE = "topology.kubernetes.io/zone"
TOO_BIG = "too-big"
URGENT = "urgent"
DATABASE = "database"
STORAGE_ZONE = "eu-west-1d"
BATCH = ("gpu-batch-0", "gpu-batch-1")
"""One for each GPU node; each requests all GPUs of a node."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Where a pod should be.

    Attributes:
        pod: name of the pod.
        description: description.
        is_met: returns whether the pod, with its node if it has one, is as expected.
    """

    pod: str
    description: str
    is_met: Callable[[PodInfo, NodeObject | None], bool]


class Tour:
    """Replicas that spread, a pod that fits no node, a gated pod, a pod that preempts another, and a pod with a volume."""

    puzzle = TOO_BIG
    scheduler_names = frozenset({SCHEDULER_NAME})

    async def apply(self, server: ApiServer, narrate: Callable[[str], None], *, pause_seconds: float) -> None:
        """Apply all objects; the pod that preempts is created when its victim is on a node."""
        for text, objects in _steps():
            await asyncio.sleep(pause_seconds)
            narrate(text)
            for obj in objects:
                server.store.apply(obj)
        while not all(server.store.get("pods", name)["spec"].get("nodeName") for name in BATCH):  # noqa: ASYNC110
            await asyncio.sleep(pause_seconds)
        await asyncio.sleep(pause_seconds)
        narrate("Pod gpu-trainer is urgent, and all GPUs are in use: it preempts a batch pod.")
        server.store.apply(urgent_class())
        server.store.apply(trainer())
        await asyncio.sleep(pause_seconds)
        narrate(f"A node joins zone {STORAGE_ZONE}, and pod {DATABASE} starts on it.")
        server.store.create("nodes", storage_node())

    def suggestions(self, program: str, daemon: str) -> list[Suggestion]:
        """Return commands that explain why a pod waits, and commands that let others run."""
        gate = (
            """kubectl patch pod gated --type=json -p '[{"op": "remove", "path": "/spec/schedulingGates"}]'"""
        )
        return [
            Suggestion(f"Why is {TOO_BIG} pending?", f"{program} explain --server {daemon} --pod {TOO_BIG}"),
            Suggestion("The same in one sentence, with the events", f"kubectl describe pod {TOO_BIG}"),
            Suggestion(
                "More replicas: they spread over four zones, the new one included",
                f"kubectl scale deployment nginx --replicas={MORE_REPLICAS}",
            ),
            Suggestion("Remove the scheduling gate: the pod is placed at once", gate),
        ]

    def outstanding(self, pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
        """Return the expectations that are not met."""
        replicas = [pod for name, pod in pods.items() if name.startswith("nginx-")]
        running, wanted = sum(pod.node_name in nodes for pod in replicas), max(REPLICAS, len(replicas))
        missing = [f"nginx: {running} of {wanted} replicas on a node"] if running != wanted else []
        for expected in EXPECTATIONS:
            pod = pods.get(expected.pod)
            if pod is None or not expected.is_met(pod, nodes.get(pod.node_name)):
                missing.append(f"{expected.pod}: {expected.description}")
        remaining = sum(name in pods for name in BATCH)
        if remaining != len(BATCH) - 1:
            missing.append(
                f"{BATCH[0]} and {BATCH[1]}: {remaining} of {len(BATCH)} exist, but gpu-trainer has to preempt one"
            )
        return missing


def _steps() -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the first steps of the tour: a text, and the objects to apply."""
    too_big, gated, *batch = harder_pods()
    return [
        (f"{REPLICAS} nginx pods must spread evenly over the three zones.", [nginx()]),
        (f"Pod {TOO_BIG} requests 500 cpus. No node has so many, so it stays pending.", [too_big]),
        ("Pod gated has a scheduling gate. It waits until someone removes the gate.", [gated]),
        ("Two batch pods request all GPUs. They tolerate the taint of the GPU nodes.", batch),
        (f"The volume of pod {DATABASE} is in zone {STORAGE_ZONE}, which has no nodes yet.", database()),
    ]


def nginx() -> dict[str, Any]:
    """Return an ordinary Deployment, spread evenly over zones, with our schedulerName."""
    labels = {"app": "nginx"}
    spec = _pod_spec("nginx:1.29", {"cpu": "1", "memory": "2Gi"})
    spec["topologySpreadConstraints"] = [
        {
            "topologyKey": ZONE,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "nginx", "namespace": "default", "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def urgent_class() -> dict[str, Any]:
    """Return the PriorityClass of the pod that preempts."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": URGENT},
        "value": 1000,
    }


def harder_pods() -> list[dict[str, Any]]:
    """Return a pod that fits no node, a gated pod, and two pods that tolerate a taint and request all GPUs."""
    gated = _pod_spec("report:7", {"cpu": "250m", "memory": "128Mi"})
    gated["schedulingGates"] = [{"name": "example.com/quota"}]
    return [
        _pod(TOO_BIG, _pod_spec("simulation:4", {"cpu": "500", "memory": "1Gi"})),
        _pod("gated", gated),
        *(_pod(name, _gpu_spec("embeddings:3", gpus=4)) for name in BATCH),
    ]


def trainer() -> dict[str, Any]:
    """Return a pod that has to preempt another when all GPUs are in use."""
    return _pod("gpu-trainer", _gpu_spec("trainer:2", gpus=1) | {"priorityClassName": URGENT})


def database() -> list[dict[str, Any]]:
    """Return a pod, its claim, and the claim's volume in a zone without nodes."""
    in_zone = {"key": ZONE, "operator": "In", "values": [STORAGE_ZONE]}
    size, modes, reference = (
        {"storage": "10Gi"},
        ["ReadWriteOnce"],
        {"namespace": "default", "name": DATABASE},
    )
    volume_spec = {
        "capacity": size,
        "accessModes": modes,
        "claimRef": reference,
        "csi": {"driver": "csi.example.com", "volumeHandle": DATABASE},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}},
    }
    claim_spec = {
        "accessModes": modes,
        "resources": {"requests": size},
        "storageClassName": "",
        "volumeName": DATABASE,
    }
    pod_spec = _pod_spec("postgres:18", {"cpu": "500m", "memory": "1Gi"})
    pod_spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": DATABASE}}]
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": DATABASE}, "spec": volume_spec},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": reference, "spec": claim_spec},
        _pod(DATABASE, pod_spec),
    ]


def storage_node() -> dict[str, Any]:
    """Return the first node of the volume's zone."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return ready_node("node-0030", STORAGE_ZONE, {}, {}, amounts, amounts)


EXPECTATIONS = (
    Expectation(
        TOO_BIG,
        "pending: no node has 500 cpus",
        lambda pod, _: not pod.node_name and "Insufficient cpu" in why_it_waits(pod),
    ),
    Expectation(
        "gated",
        "pending with its scheduling gate, without an attempt",
        lambda pod, _: not pod.node_name and not why_it_waits(pod),
    ),
    Expectation(
        "gpu-trainer",
        "runs on a node with a tolerated taint, after preempting another pod",
        lambda _, node: node is not None and any(taint.key == "dedicated" for taint in node.taints),
    ),
    Expectation(
        DATABASE,
        "runs on a new node in the zone of its volume",
        lambda _, node: node is not None and node.labels.get(ZONE) == STORAGE_ZONE,
    ),
)


def _pod(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_spec(image: str, requests: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": image, "resources": {"requests": requests}}
    return {"schedulerName": SCHEDULER_NAME, "containers": [container]}


def _gpu_spec(image: str, *, gpus: int) -> dict[str, Any]:
    spec = _pod_spec(image, {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": str(gpus)})
    spec["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]
    return spec


_WITH_REPLICAS = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})


class UserWorkload:
    """Objects whose pods should all run."""

    puzzle = ""

    def __init__(self, objects: Sequence[dict[str, Any]]) -> None:
        self._objects = objects
        self.scheduler_names = frozenset(
            spec.get("schedulerName") or DEFAULT_SCHEDULER for spec in map(_spec_of_pods, objects) if spec
        )
        self._lasting_pods = sum(_lasting_pods(obj) for obj in objects)

    async def apply(self, server: ApiServer, narrate: Callable[[str], None], *, pause_seconds: float) -> None:
        """Apply all objects.

        Raises:
            StatusError: the server rejects an object.
        """
        await asyncio.sleep(pause_seconds)
        narrate("The objects of the file are created.")
        for obj in self._objects:
            server.store.apply(obj)

    def suggestions(self, program: str, daemon: str) -> list[Suggestion]:
        """Return a command that explains the first pod."""
        first = "{.items[0].metadata.namespace}/{.items[0].metadata.name}"
        pod = f"$(kubectl get pods -A -o jsonpath='{first}')"
        return [Suggestion("Why is the first pod there?", f"{program} explain --server {daemon} --pod {pod}")]

    def outstanding(self, pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
        """Return the number of pods that do not exist yet, and the pods that do not run, with reasons."""
        to_come = self._lasting_pods - len(pods)
        missing = [f"{to_come} pods are not created yet"] if to_come > 0 else []
        for name, pod in pods.items():
            phase = pod.pod.status.phase
            if phase != "Running":
                missing.append(f"{name}: {why_it_waits(pod) or phase}")
        return missing


def _spec_of_pods(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of an object's pods; empty if it creates none."""
    spec: Mapping[str, Any] = obj.get("spec") or {}
    if obj["kind"] == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return spec if obj["kind"] == "Pod" else (spec.get("template") or {}).get("spec") or {}


def _lasting_pods(obj: Mapping[str, Any]) -> int:
    """Return the number of an object's pods that do not end by themselves."""
    spec = obj.get("spec") or {}
    if obj["kind"] in _WITH_REPLICAS:
        return int(spec.get("replicas", 1))
    return int(obj["kind"] == "Pod" and spec.get("restartPolicy", "Always") == "Always")
