"""Ours beside kube-scheduler on an API server of yours: `python -m tests.bench.kube_scheduler KUBE_SCHEDULER KUBECONFIG`.

The API server is one to play with: nodes, pods, Services and events in it are deleted and made anew, and nothing else
may be at work there; a kube-apiserver with an etcd, or `custom-scheduler api-server` without kubelets. Both schedulers
bind the same pods in turn. What counts is pods a second, until every pod has its `Scheduled` event, and the CPU time of
the scheduler's whole process from its start. Machines differ, and so do runs: compare the lines of one run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from scheduler.errors import ApiError
from scheduler.kube.client.connect import connect
from scheduler.kube.http.request import Request
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.kube.client.connection import ApiConnection

_PATIENCE_SECONDS = 300.0
_AT_A_TIME = 32
_APPS = 50
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_PODS = "/api/v1/namespaces/default/pods"
_SERVICES = "/api/v1/namespaces/default/services"
_DEVICES = "/apis/resource.k8s.io/v1"
_DEVICE_CLAIMS = f"{_DEVICES}/namespaces/default/resourceclaims"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_MIXED = ("plain", "zone spread", "zone affinity", "preferred affinity", "node affinity")


class Result(NamedTuple):
    """What one scheduler did: pods a second, and milliseconds of CPU for each."""

    pods_per_second: float
    cpu_milliseconds: float


# The pods.


def _near(key: str, **more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"color": "blue"}}, "topologyKey": key, **more}


def _required(key: str, **more: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [_near(key, **more)]}


_EVERY_NAMESPACE = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "Exists"}]}
_SPREAD = _near(_ZONE, maxSkew=5, whenUnsatisfiable="DoNotSchedule")
_PREFERRED = [{"weight": 1, "podAffinityTerm": _near(_HOST)}]
_POOL = {"key": "pool", "operator": "In", "values": [f"p{number}" for number in range(5)]}

_WISHES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "no two alike": {},
    "zone spread": {"topologySpreadConstraints": [_SPREAD]},
    "zone affinity": {"affinity": {"podAffinity": _required(_ZONE)}},
    "namespace selector": {"affinity": {"podAffinity": _required(_ZONE, namespaceSelector=_EVERY_NAMESPACE)}},
    "preferred affinity": {
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _PREFERRED}}
    },
    "anti-affinity": {"affinity": {"podAntiAffinity": _required(_HOST)}},
    "node affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [_POOL]}]
                }
            }
        }
    },
    "mixed": {},
    "bound volume": {},
    "device": {},
}


def _pod(kind: str, number: int, scheduler_name: str) -> dict[str, Any]:
    cpu, memory = "100m", "500Mi"
    if kind == "no two alike":
        cpu, memory = f"{50 + number % 97}m", f"{100 + number % 193}Mi"
    wish = _WISHES[_MIXED[number % len(_MIXED)] if kind == "mixed" else kind]
    if kind == "bound volume":
        wish = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}]}
    elif kind == "device":
        wish = {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"gpu-{number}"}]}
    labels = {"app": f"a{number % _APPS}", "color": "blue"}
    made = pod_object(
        f"pod-{number}", cpu=cpu, memory=memory, labels=labels, schedulerName=scheduler_name, **wish
    )
    return {**made, "metadata": {"name": made["metadata"]["name"], "labels": labels}, "status": {}}


def _node(number: int) -> dict[str, Any]:
    labels = {_HOST: f"node-{number}", _ZONE: f"zone-{number % 3}", "pool": f"p{number % 10}"}
    made = node_object(f"node-{number}", cpu="4", memory="32Gi", labels=labels)
    return {**made, "metadata": {"name": f"node-{number}", "labels": labels}}


def _service(number: int) -> dict[str, Any]:
    spec = {"selector": {"app": f"a{number}"}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"a{number}"}, "spec": spec}


# What a volume, and what a device takes.


def _volumes(pods: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what holds the pods' data: a volume in some zone for each, bound to its claim."""
    for number in range(pods):
        size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
        claim = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": f"data-{number}"}
        zone = {"key": _ZONE, "operator": "In", "values": [f"zone-{number % 3}"]}
        yield (
            "/api/v1/persistentvolumes",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"data-{number}"},
                "spec": {
                    "capacity": size,
                    "accessModes": modes,
                    "csi": {"driver": "csi.example.com", "volumeHandle": f"{number}"},
                    "claimRef": claim,
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
                },
            },
        )
        yield (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": f"data-{number}",
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                },
                "spec": {
                    "accessModes": modes,
                    "storageClassName": "",
                    "volumeName": f"data-{number}",
                    "resources": {"requests": size},
                },
            },
        )


def _devices(nodes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a device on each node, and the class of all."""
    selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    yield (
        f"{_DEVICES}/deviceclasses",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [selector]},
        },
    )
    for number in range(nodes):
        name = f"node-{number}"
        yield (
            f"{_DEVICES}/resourceslices",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": name},
                "spec": {
                    "driver": "gpu.example.com",
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu", "capacity": {"memory": {"value": f"{number % 3 * 40}Gi"}}}],
                },
            },
        )


def _device_claim(number: int) -> dict[str, Any]:
    large = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
    request = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": large}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"gpu-{number}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
    }


# The API server.


async def _create(api: ApiConnection, path: str, objects: Sequence[dict[str, Any]]) -> None:
    await _create_each(api, ((path, each) for each in objects))


async def _create_each(api: ApiConnection, objects: Iterator[tuple[str, dict[str, Any]]]) -> None:
    """Create (path, object) pairs; those that are there stay."""

    async def some() -> None:
        for path, each in objects:
            try:
                await api.send(Request("POST", path, json.dumps(each).encode()))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    await asyncio.gather(*(some() for _ in range(_AT_A_TIME)))


async def _delete_device_claims(api: ApiConnection) -> None:
    """Delete all claims; without controllers nobody else takes their allocations and finalizers away."""
    claims = json.loads((await api.send(Request("GET", _DEVICE_CLAIMS))).body)["items"]
    left = iter(claims)
    merge = "application/merge-patch+json"

    async def some() -> None:
        for claim in left:
            path = f"{_DEVICE_CLAIMS}/{claim['metadata']['name']}"
            nothing = b'{"status":{"allocation":null,"reservedFor":null}}'
            await api.send(Request("PATCH", f"{path}/status", nothing, merge))
            await api.send(Request("PATCH", path, b'{"metadata":{"finalizers":null}}', merge))
            await api.send(Request("DELETE", path))

    await asyncio.gather(*(some() for _ in range(_AT_A_TIME)))


async def _delete_all(api: ApiConnection, path: str) -> None:
    await api.send(Request("DELETE", path, params={"gracePeriodSeconds": "0"}, timeout_seconds=300))


async def _events(api: ApiConnection) -> int:
    """Return how many there are: one for each pod that is bound, if nothing goes wrong."""
    found = json.loads((await api.send(Request("GET", _EVENTS, params={"limit": "1"}))).body)
    return len(found["items"] or ()) + (found["metadata"].get("remainingItemCount") or 0)


async def _prepare(api: ApiConnection, kind: str, nodes: int, pods: int, scheduler_name: str) -> None:
    for path in (_PODS, _EVENTS):
        await _delete_all(api, path)
    if len(json.loads((await api.send(Request("GET", "/api/v1/nodes"))).body)["items"]) != nodes:
        await _delete_all(api, "/api/v1/nodes")
        await _create(api, "/api/v1/nodes", [_node(number) for number in range(nodes)])
    for service in json.loads((await api.send(Request("GET", _SERVICES))).body)["items"]:
        await api.send(Request("DELETE", f"{_SERVICES}/{service['metadata']['name']}"))
    if kind == "mixed":
        await _create(api, _SERVICES, [_service(number) for number in range(_APPS)])
    elif kind == "bound volume":
        await _create_each(api, _volumes(pods))
    elif kind == "device":
        await _delete_device_claims(api)
        await _create_each(api, _devices(nodes))
        await _create(api, _DEVICE_CLAIMS, [_device_claim(number) for number in range(pods)])
    await _create(api, _PODS, [_pod(kind, number, scheduler_name) for number in range(pods)])


async def _wait_for_events(api: ApiConnection, count: int) -> float:
    """Return when so many are there; asking costs the API server something, so it is not done all the time."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while await _events(api) < count:
        assert time.monotonic() < end, "the pods were not bound in time"
        await asyncio.sleep(0.1)
    return time.monotonic()


# The schedulers.


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()


def _cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _measure(kubeconfig: Path, command: Sequence[str], kind: str, nodes: int, pods: int) -> Result:
    scheduler_name = "custom-scheduler" if command[0] == sys.executable else "default-scheduler"
    async with connect(str(kubeconfig)) as api:
        await _prepare(api, kind, nodes, pods, scheduler_name)
        with TemporaryDirectory() as folder:
            configuration = Path(folder) / "scheduler.yaml"
            # kube-scheduler limits itself to 50 requests a second unless it is told otherwise.
            limit = "" if scheduler_name == "custom-scheduler" else ", qps: 5000, burst: 5000"
            configuration.write_text(
                "apiVersion: kubescheduler.config.k8s.io/v1\n"
                "kind: KubeSchedulerConfiguration\n"
                "leaderElection: {leaderElect: false}\n"
                f"clientConnection: {{kubeconfig: {kubeconfig}{limit}}}\n"
            )
            started = [*command, "--config", str(configuration), "--secure-port", "0"]
            with _running(started, Path(folder) / "log") as process:
                begin = await _wait_for_events(api, 1)
                end = await _wait_for_events(api, pods)
                return Result(pods / (end - begin), 1000 * _cpu_seconds(process) / pods)


@click.command()
@click.argument("kube_scheduler", type=click.Path(exists=True, path_type=Path), help="The binary.")
@click.argument("kubeconfig", type=click.Path(exists=True, path_type=Path), help="Of the API server.")
@click.option("--kind", "kinds", multiple=True, help=f"One of {', '.join(_WISHES)}.")
@click.option("--nodes", default=5000, help="How many nodes.")
@click.option("--pods", default=2000, help="How many pods are bound.")
def main(kube_scheduler: Path, kubeconfig: Path, kinds: Sequence[str], nodes: int, pods: int) -> None:
    """Print pods a second and CPU a pod of both, and what ours is of the other's."""
    commands = ([sys.executable, "-m", "scheduler", "run"], [str(kube_scheduler)])
    for kind in kinds or [kind for kind in _WISHES if kind != "node affinity"]:
        ours, theirs = (
            asyncio.run(_measure(kubeconfig.absolute(), command, kind, nodes, pods)) for command in commands
        )
        print(
            f"{f'{nodes} nodes, {kind}':34}{ours.pods_per_second:6.0f} /{theirs.pods_per_second:6.0f} pods/s"
            f" = {ours.pods_per_second / theirs.pods_per_second:4.2f}"
            f"{ours.cpu_milliseconds:8.2f} /{theirs.cpu_milliseconds:6.2f} ms of CPU a pod"
            f" = {ours.cpu_milliseconds / theirs.cpu_milliseconds:4.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
