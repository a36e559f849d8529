"""Objects that are not created yet: the pods that controllers and the API server would create from manifests.

The simulator's controllers create them in a separate store, so that pods have their owners, claims and defaults.
"""

from __future__ import annotations

import asyncio
from secrets import randbits
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.clock import SystemClock
from scheduler.daemon.app.needs import resource_of
from scheduler.simulator.apimachinery.objects import clone, key_of
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.daemonset import DaemonSetController
from scheduler.simulator.controllers.job import JobController
from scheduler.simulator.controllers.replicas import (
    DeploymentController,
    ReplicaSetController,
    StatefulSetController,
)
from scheduler.simulator.controllers.resource_claims import ResourceClaims
from scheduler.simulator.controllers.volumes import EphemeralVolumes
from scheduler.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.simulator.registry.registry import Registry
from scheduler.simulator.registry.store import Store
from scheduler.tools.whatif.start_preview import Planned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.simulator.apimachinery.objects import Object

_CONTROLLERS: Final = (
    DeploymentController,
    ReplicaSetController,
    StatefulSetController,
    DaemonSetController,
    JobController,
    EphemeralVolumes,
    ResourceClaims,
)
_MADE_AS_THEY_ARE: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"})
_HISTORY: Final = 20_000
_TURNS_UNTIL_QUIET: Final = 3


class Plan:
    """Creates the pods of manifests; needs a running event loop.

    Args:
        namespace: namespace of objects that name none.
        given: existing objects that affect pods: PriorityClasses, StorageClasses, ResourceClaimTemplates, and nodes.
        replicas: number of pods of each object; None for its own number.

    Attributes:
        problems: objects that the API server would reject, with its messages.
    """

    def __init__(self, namespace: str, given: Iterable[bytes], replicas: int | None = None) -> None:
        self.problems: list[str] = []
        self._namespace = namespace
        self._replicas = replicas
        seed = randbits(64)  # uids differ from those of all other pods, also in a simulated cluster
        registry = Registry(clock=SystemClock(), kinds=builtin_kinds(), seed=seed, history=_HISTORY)
        self._store = Store(registry)
        self._store.bootstrap()
        for raw in given:
            self._take(_as_new(msgspec.json.decode(raw)))
        self._controllers = [controller(self._store) for controller in _CONTROLLERS]

    async def make(self, manifests: Iterable[Object]) -> list[Planned]:
        """Return the workloads of manifests, in their order.

        Objects that create no pods exist before those that do, in any order of the manifests.
        """
        bringing: list[tuple[Object, list[Object]]] = []
        for manifest in manifests:
            namespace = self._placed(manifest)["metadata"].get("namespace")
            if namespace:
                self._take({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            workloads = self._workloads(manifest)
            if workloads:
                bringing.append((manifest, workloads))
            else:
                self._take(self._placed(manifest))
        for controller in self._controllers:
            controller.start()
        try:
            return [await self._made(manifest, workloads) for manifest, workloads in bringing]
        finally:
            for controller in self._controllers:
                controller.stop()

    def others(self, kinds: Iterable[str]) -> dict[str, dict[str, bytes]]:
        """Return the other objects that would exist: kind, as in plugins' `needs` -> `namespace/name` -> JSON."""
        found: dict[str, dict[str, bytes]] = {}
        for kind in kinds:
            resource = resource_of(kind)
            try:
                objects = self._store.list(str(resource))
            except (StatusError, LookupError):
                continue  # a kind that only plugins know
            found[kind] = {"/".join(filter(None, key_of(obj))): msgspec.json.encode(obj) for obj in objects}
        return found

    async def _made(self, manifest: Object, workloads: list[Object]) -> Planned:
        placed = self._placed(manifest)
        spec = manifest.get("spec") or {}
        planned = Planned(
            manifest["kind"],
            placed["metadata"]["namespace"],
            placed["metadata"].get("name") or placed["metadata"].get("generateName", ""),
            in_order=manifest["kind"] == "StatefulSet" and spec.get("podManagementPolicy") != "Parallel",
        )
        before = {pod["metadata"]["uid"] for pod in self._store.list("pods")}
        try:
            for workload in workloads:
                self._store.apply(self._placed(workload))
        except StatusError as error:
            planned.problem = error.message
        await self._quiet()
        planned.pods = [pod for pod in self._store.list("pods") if pod["metadata"]["uid"] not in before]
        planned.pods.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        if not planned.pods and not planned.problem:
            planned.problem = self._why_no_pod(self._placed(workloads[0]))
        return planned

    def _why_no_pod(self, workload: Object) -> str:
        """Create a pod of a template directly, and return the error."""
        template = workload["spec"]["template"]
        metadata = {**(template.get("metadata") or {}), "name": _name(workload)}
        pod = {"metadata": metadata, "spec": template["spec"]}
        try:
            made = self._store.create("pods", pod, namespace=workload["metadata"]["namespace"])
        except StatusError as error:
            return error.message
        self._store.remove(made, grace_period_seconds=0)
        return "it requests no pods in this cluster"

    async def _quiet(self) -> None:
        """Wait until the controllers are idle."""
        version = -1
        while version != self._store.version:
            version = self._store.version
            for _ in range(_TURNS_UNTIL_QUIET):
                await asyncio.sleep(0)

    def _take(self, obj: Object) -> None:
        """Add an object to the store, if its kind is served."""
        if not self._store.serves(obj):
            return
        try:
            self._store.apply(obj)
        except StatusError as error:
            self.problems.append(f"{obj['kind']} {obj['metadata'].get('name', '')}: {error.message}")

    def _placed(self, manifest: Object) -> Object:
        """Return an object with its namespace, if its kind is namespaced."""
        metadata = dict(manifest.get("metadata") or {})
        if self._store.is_namespaced(manifest):
            metadata["namespace"] = metadata.get("namespace") or self._namespace
        return {**manifest, "metadata": metadata}

    def _workloads(self, manifest: Object) -> list[Object]:
        """Convert an object that creates pods to a kind that the simulated controllers handle; empty if it creates none."""
        manifest = clone(manifest)
        if manifest["kind"] == "Pod":
            return self._copies(manifest)
        spec = manifest.get("spec")
        if manifest["kind"] == "CronJob" and isinstance(spec, dict):
            job = spec.get("jobTemplate")
            job = job if isinstance(job, dict) else {}
            manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": manifest["metadata"], **job}
            manifest["metadata"] = {**(job.get("metadata") or {}), "name": _name(manifest)}
            spec = manifest.get("spec")
        if not (isinstance(spec, dict) and _is_pod_template(spec.get("template"))):
            return []
        spec.pop("suspend", None)  # evaluated as if the workload started now
        spec.pop("paused", None)
        if manifest["kind"] == "StatefulSet":
            spec["podManagementPolicy"] = "Parallel"  # else only the first pod would be created
        if self._replicas is not None:
            self._scale(manifest["kind"], spec, self._replicas)
        return [manifest if manifest["kind"] in _MADE_AS_THEY_ARE else _as_replica_set(manifest)]

    def _copies(self, pod: Object) -> list[Object]:
        if self._replicas is None:
            return [pod]
        name = _name(pod)
        return [
            {**pod, "metadata": {**pod["metadata"], "name": f"{name}-{number}"}}
            for number in range(self._replicas)
        ]

    @staticmethod
    def _scale(kind: str, spec: Object, replicas: int) -> None:
        if kind != "Job":
            spec["replicas"] = replicas
            return
        spec["parallelism"] = replicas
        if spec.get("completions") is not None:
            spec["completions"] = max(replicas, spec["completions"])


def _name(obj: Object) -> str:
    metadata = obj.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _is_pod_template(template: Any) -> bool:
    if not isinstance(template, dict):
        return False
    spec = template.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def _as_replica_set(workload: Object) -> Object:
    """Return a ReplicaSet for the pod template of another kind."""
    template = workload["spec"]["template"]
    metadata = template.get("metadata") or {}
    labels = metadata.get("labels") or {"app.kubernetes.io/name": _name(workload)}
    spec = {
        "replicas": workload["spec"].get("replicas", 1),
        "selector": {"matchLabels": labels},
        "template": {**template, "metadata": {**metadata, "labels": labels}},
    }
    named = {key: value for key, value in workload["metadata"].items() if key in {"name", "namespace"}}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": named, "spec": spec}


def _as_new(obj: Object) -> Object:
    """Return an object of a cluster without the fields that only its API server sets."""
    kept = {"name", "namespace", "labels", "annotations"}
    metadata = {key: value for key, value in obj["metadata"].items() if key in kept}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}
