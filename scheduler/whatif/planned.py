"""What is not created yet: the pods that would come of manifests, as controllers and the API server would make them.

The simulator's own stand-ins make them, in a store of their own, so pods have their owners, claims and defaults.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from secrets import randbits
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.app.needs import resource_of
from scheduler.clock import SystemClock
from scheduler.simulator.apimachinery.objects import clone, key_of
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.daemonset import DaemonSetController
from scheduler.simulator.controllers.deployment import DeploymentController
from scheduler.simulator.controllers.ephemeral_volumes import EphemeralVolumes
from scheduler.simulator.controllers.job import JobController
from scheduler.simulator.controllers.replicaset import ReplicaSetController
from scheduler.simulator.controllers.resource_claims import ResourceClaims
from scheduler.simulator.controllers.statefulset import StatefulSetController
from scheduler.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.simulator.registry.registry import Registry
from scheduler.simulator.registry.store import Store

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


@dataclass(slots=True)
class Planned:
    """One object of a manifest that brings pods.

    Attributes:
        kind: its own, as in `Deployment`.
        namespace: where it would be.
        name: its own.
        pods: that would come of it, as JSON values.
        problem: why there are none; "" if there are.
        in_order: whether each of them waits for the one before to be ready.
    """

    kind: str
    namespace: str
    name: str
    pods: list[Object] = field(default_factory=list)
    problem: str = ""
    in_order: bool = False


class Plan:
    """Makes pods of manifests; there must be a running loop.

    Args:
        namespace: of what names none.
        given: what there is already and pods are made from: PriorityClasses, StorageClasses,
            ResourceClaimTemplates, and nodes.
        replicas: how many pods of each object, whatever it says itself; None for what it says.

    Attributes:
        problems: what of the manifests the API server would not take.
    """

    def __init__(self, namespace: str, given: Iterable[bytes], replicas: int | None = None) -> None:
        self.problems: list[str] = []
        self._namespace = namespace
        self._replicas = replicas
        seed = randbits(64)  # uids are to be no other pod's, in a simulated cluster either
        registry = Registry(clock=SystemClock(), kinds=builtin_kinds(), seed=seed, history=_HISTORY)
        self._store = Store(registry)
        self._store.bootstrap()
        for raw in given:
            self._take(_as_new(msgspec.json.decode(raw)))
        self._controllers = [controller(self._store) for controller in _CONTROLLERS]

    async def make(self, manifests: Iterable[Object]) -> list[Planned]:
        """Return what would come of manifests, in their order.

        What brings no pods is there for those that do, whichever comes first.
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
        """Return what would be there beside the pods: kind, as plugins name it -> `namespace/name` -> JSON."""
        found: dict[str, dict[str, bytes]] = {}
        for kind in kinds:
            resource = resource_of(kind)[0]
            try:
                objects = self._store.list(str(resource))
            except (StatusError, LookupError):
                continue  # of a kind that only plugins know
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
        """Make a pod of a template by hand, and return what is wrong with it."""
        template = workload["spec"]["template"]
        metadata = {**(template.get("metadata") or {}), "name": _name(workload)}
        pod = {"metadata": metadata, "spec": template["spec"]}
        try:
            made = self._store.create("pods", pod, namespace=workload["metadata"]["namespace"])
        except StatusError as error:
            return error.message
        self._store.remove(made, grace_period_seconds=0)
        return "it asks for no pods here"

    async def _quiet(self) -> None:
        """Wait until the controllers have nothing more to do."""
        version = -1
        while version != self._store.version:
            version = self._store.version
            for _ in range(_TURNS_UNTIL_QUIET):
                await asyncio.sleep(0)

    def _take(self, obj: Object) -> None:
        """Have an object in the store, if its kind is served and it is not there."""
        if not self._store.serves(obj):
            return
        try:
            self._store.apply(obj)
        except StatusError as error:
            self.problems.append(f"{obj['kind']} {obj['metadata'].get('name', '')}: {error.message}")

    def _placed(self, manifest: Object) -> Object:
        """Return an object with the namespace it would be in, if its kind is in any."""
        metadata = dict(manifest.get("metadata") or {})
        if self._store.is_namespaced(manifest):
            metadata["namespace"] = metadata.get("namespace") or self._namespace
        return {**manifest, "metadata": metadata}

    def _workloads(self, manifest: Object) -> list[Object]:
        """Return an object that brings pods as what the stand-ins understand; nothing of one that brings none."""
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
        spec.pop("suspend", None)  # judged as if they were to begin now
        spec.pop("paused", None)
        if manifest["kind"] == "StatefulSet":
            spec["podManagementPolicy"] = "Parallel"  # else the second would not be made here
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
    """Return a ReplicaSet of the pods of some other kind of object with a template."""
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
    """Return an object of a cluster without what only its API server may say of it."""
    kept = {"name", "namespace", "labels", "annotations"}
    metadata = {key: value for key, value in obj["metadata"].items() if key in kept}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}
