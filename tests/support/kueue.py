"""A stand-in for Kueue: it writes what Kueue's webhook, its job reconcilers and its topology ungater write.

It decides nothing: tests say who is admitted, to which flavor and to which domains of a topology. It writes over HTTP, as
Kueue's own ServiceAccount with the rights that Kueue has for pods and Jobs, under its user agent and field manager; its
merge patches carry the resourceVersion they were made from.

Source:
    kueue, August 2026: pkg/controller/jobs/pod (webhook, Run, Stop, Finalize), pkg/controller/jobs/job (RunWithPodSetsInfo,
    Stop), pkg/controller/tas/topology_ungater.go, pkg/podset/podset.go, pkg/util/client/client.go.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from tests.integration.simulator.simulator_client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from tests.support.daemon_harness import Cluster

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
MANAGED: Final = "kueue.x-k8s.io/managed"
HOSTNAME: Final = "kubernetes.io/hostname"
OWNER_TOKEN: Final = "token of the cluster's owner"

_ACCOUNT = "system:serviceaccount:kueue-system:kueue-controller-manager"
_RULES: Final = [
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "update", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["get", "update", "patch"]},
]


@dataclass(frozen=True)
class Flavor:
    """A ResourceFlavor.

    Attributes:
        labels: of its nodes.
        tolerations: its pods get.
        topology: whether it names a Topology, so that its pods' domains are chosen for them.
    """

    labels: Mapping[str, str]
    tolerations: tuple[Mapping[str, str], ...] = ()
    topology: bool = False


class Kueue:
    """Kueue, in a cluster whose owner has the token above.

    Any of its writes is refused, and fails the test, where somebody else has written since the object was read.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def queued_pod(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pod as the webhook leaves it: labelled, held by a finalizer, gated twice."""
        changed = deepcopy(dict(pod))
        metadata, spec = changed["metadata"], changed["spec"]
        metadata["labels"] = metadata.get("labels", {}) | {QUEUE: "team", MANAGED: "true"}
        metadata["finalizers"] = [MANAGED]
        spec["schedulingGates"] = [*spec.get("schedulingGates", ()), *_gates(ADMISSION_GATE, TOPOLOGY_GATE)]
        return changed

    def queued_job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Return a Job as the webhook leaves it: suspended."""
        changed = deepcopy(dict(job))
        changed["metadata"]["labels"] = changed["metadata"].get("labels", {}) | {QUEUE: "team"}
        changed["spec"]["suspend"] = True
        return changed

    async def admit(self, pods: Iterable[Mapping[str, Any]], flavor: Flavor) -> None:
        """Let pods go to a flavor; where it has a topology, they stay gated until their domains are known."""

        def run(pod: dict[str, Any]) -> None:
            _merge(pod["spec"], flavor)
            _ungate(pod, ADMISSION_GATE)
            if not flavor.topology:
                _ungate(pod, TOPOLOGY_GATE)

        for pod in pods:
            await self._patch(pod, run)

    async def ungate(self, pods: Iterable[Mapping[str, Any]], domain: Mapping[str, str]) -> None:
        """Send pods to one domain of a topology: the labels of its lowest level, or of its levels."""

        def send(pod: dict[str, Any]) -> None:
            pod["spec"]["nodeSelector"] = pod["spec"].get("nodeSelector", {}) | domain
            _ungate(pod, TOPOLOGY_GATE)

        for pod in pods:
            await self._patch(pod, send)

    async def stop(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """End pods whose workload is evicted; gated ones stay as they are, for they hold nothing."""
        condition = {
            "type": "TerminationTarget",
            "status": "True",
            "lastTransitionTime": "2026-08-01T10:00:00Z",
            "reason": "WorkloadEvictedDueToPreempted",
            "message": "Preempted to accommodate a workload",
        }
        for pod in pods:
            if ADMISSION_GATE in gates_of(pod):
                continue
            metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "uid")}
            config = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
            await self._ask(
                "PATCH",
                f"{_path(pod)}/status?fieldManager=kueue&force=true",
                config | {"status": {"conditions": [condition]}},
                "application/apply-patch+yaml",
            )
            await self._ask("DELETE", _path(pod))

    async def let_go(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Take the finalizer from pods, which go when they have ended."""
        for pod in pods:
            await self._patch(pod, lambda each: each["metadata"].pop("finalizers"))

    async def start_job(self, job: Mapping[str, Any], flavor: Flavor) -> None:
        """Let a Job make its pods, for a flavor."""

        def run(each: dict[str, Any]) -> None:
            each["spec"]["suspend"] = False
            template = each["spec"]["template"]["spec"]
            _merge(template, flavor)
            if flavor.topology:
                template["schedulingGates"] = _gates(TOPOLOGY_GATE)

        await self._patch(job, run)

    async def suspend_job(self, job: Mapping[str, Any]) -> None:
        """Take a Job's pods from it, for its workload is evicted."""
        await self._patch(job, lambda each: each["spec"].update(suspend=True))

    async def restore_job(self, job: Mapping[str, Any], original: Mapping[str, Any]) -> None:
        """Make a suspended Job's template what it was; its controller has taken away its startTime before."""
        template = original["spec"]["template"]["spec"]

        def restore(each: dict[str, Any]) -> None:
            for name in ("nodeSelector", "tolerations", "schedulingGates"):
                each["spec"]["template"]["spec"].pop(name, None)
                if name in template:
                    each["spec"]["template"]["spec"][name] = template[name]

        await self._patch(job, restore)

    async def _patch(self, obj: Mapping[str, Any], change: Callable[[dict[str, Any]], Any]) -> None:
        """Write a change to an object that was read."""
        after = deepcopy(dict(obj))
        change(after)
        patch = _difference(obj, after)
        patch.setdefault("metadata", {})["resourceVersion"] = obj["metadata"]["resourceVersion"]
        await self._ask("PATCH", _path(obj), patch, "application/merge-patch+json")

    async def _ask(self, method: str, path: str, body: Any = None, content_type: str = "") -> dict[str, Any]:
        headers = {"Content-Type": content_type} if content_type else {}
        status, answer = await self._client.ask(method, path, body, **headers)
        assert status == 200, f"{method} {path}: {answer}"
        return dict(answer)


@asynccontextmanager
async def kueue(it: Cluster) -> AsyncIterator[Kueue]:
    """Run the stand-in in a cluster."""
    group = "rbac.authorization.k8s.io"
    it.server.store.create(f"clusterroles.{group}", {"metadata": {"name": "kueue"}, "rules": _RULES})
    it.server.store.create(
        f"clusterrolebindings.{group}",
        {
            "metadata": {"name": "kueue"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "kueue"},
            "subjects": [{"kind": "User", "apiGroup": group, "name": _ACCOUNT}],
        },
    )
    headers = {
        "Authorization": f"Bearer {OWNER_TOKEN}",
        "Impersonate-User": _ACCOUNT,
        "User-Agent": "kueue/v0.14.0 (linux/amd64) ff69552",
    }
    connector = aiohttp.UnixConnector(str(it.server.socket_path))
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield Kueue(Client(session))


def gates_of(pod: Mapping[str, Any]) -> list[str]:
    """The names of a pod's scheduling gates."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def _gates(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def _ungate(pod: dict[str, Any], gate: str) -> None:
    left = [each for each in pod["spec"].get("schedulingGates", ()) if each["name"] != gate]
    pod["spec"].pop("schedulingGates", None)
    if left:  # Go leaves out an empty list, so a merge patch says null
        pod["spec"]["schedulingGates"] = left


def _merge(spec: dict[str, Any], flavor: Flavor) -> None:
    """Add to a pod's spec what a flavor says of its nodes."""
    spec["nodeSelector"] = spec.get("nodeSelector", {}) | flavor.labels
    present = spec.get("tolerations", [])
    spec["tolerations"] = [*present, *(dict(each) for each in flavor.tolerations if each not in present)]


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch from one object to another."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := _difference(old, value):
                patch[name] = inner
        elif value != old:
            patch[name] = value
    return patch


def _path(obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    base, plural = ("/apis/batch/v1", "jobs") if obj["kind"] == "Job" else ("/api/v1", "pods")
    return f"{base}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
