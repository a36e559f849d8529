"""Resizes in place: of pods that run, of pods that are being bound; kubelets carry them out, put them off, or refuse them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

from tests.faults.actors.actor import Actor
from tests.faults.pod_facts import has_ended, taken_milli

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object
    from tests.faults.daemon_runs import Life

_CPU = ("50m", "100m", "250m", "750m", "1500m", "4")
_SHARE = 0.1


class Resizes(Actor):
    """Whoever sizes pods, with the kubelets' part of it."""

    name = "resizes"
    pause_seconds: ClassVar[tuple[float, float]] = (0.5, 5.0)

    def begin(self) -> None:
        self.stage.on_step(self._passing)

    async def act(self) -> None:
        pod = self.one_of(
            [pod for pod in self.stage.our_pods() if "deletionTimestamp" not in pod["metadata"]]
        )
        if pod is not None:
            self._resize(pod, "bound" if pod["spec"].get("nodeName") else "pending")

    def calm(self) -> None:
        """Let some resizes be under way in the end, so that pods take more than they ask for."""
        if self.random.random() < 0.5:
            for pod in [pod for pod in self.stage.our_pods() if pod["spec"].get("nodeName")]:
                metadata = pod["metadata"]
                cpu = self._resize(pod, "bound")
                self._answer(metadata["name"], metadata["namespace"], metadata["uid"], cpu)

    def _passing(self, step: str, pod: PodInfo) -> None:
        if self.stage.is_calm or self.random.random() >= _SHARE:
            return
        self.stage.soon(self.random.randint(0, 40), self._resize_passing, pod, step)

    def _resize_passing(self, pod: PodInfo, step: str) -> None:
        found = self.stage.store.find("pods", pod.name, pod.namespace)
        if found is not None and found["metadata"]["uid"] == pod.uid and not has_ended(found):
            self._resize(found, step)

    def _resize(self, pod: Object, step: str) -> str:
        """Ask for another size, and return it; the kubelet says later what becomes of it."""
        containers = deepcopy(pod["spec"]["containers"])
        requests = containers[0].setdefault("resources", {}).setdefault("requests", {})
        requests["cpu"] = self.random.choice(_CPU)
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        self.tell(f"{step} pod {name} asks for {requests['cpu']}")
        patch = {"spec": {"containers": containers}}
        self.stage.store.patch("pods", name, patch, namespace, subresource="resize")
        seconds = self.random.choice((0.0, 0.1, 2.0, 10.0))
        self.stage.later(seconds, self._answer, name, namespace, metadata["uid"], requests["cpu"])
        return str(requests["cpu"])

    def _answer(self, name: str, namespace: str, uid: str, cpu: str) -> None:
        """Write what the kubelet has given the pod, or why it has not."""
        pod = self.stage.store.find("pods", name, namespace)
        if pod is None or pod["metadata"]["uid"] != uid or has_ended(pod) or not pod["spec"].get("nodeName"):
            return
        how = self.random.choice(("done", "done", "in progress", "Deferred", "Infeasible"))
        others = [
            each
            for each in pod["status"].get("conditions", ())
            if each["type"] not in {"PodResizePending", "PodResizeInProgress"}
        ]
        status: dict[str, Any] = {"conditions": others}
        if how in {"Deferred", "Infeasible"}:
            others.append({"type": "PodResizePending", "status": "True", "reason": how})
        else:
            if how == "in progress":
                others.append({"type": "PodResizeInProgress", "status": "True"})
            given = cpu if how == "done" else self.random.choice(_CPU)
            container = pod["spec"]["containers"][0]["name"]
            known = next(iter(pod["status"].get("containerStatuses", ())), {"name": container, "ready": True})
            known = {**known, "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": given}}}
            status["containerStatuses"] = [known]
        self.tell(f"{how} is the resize of {name}")
        self.stage.store.patch("pods", name, {"status": status}, namespace, subresource="status")

    def check(self, life: Life) -> None:
        """What is requested of each node is what its pods take, by the largest of asked, allocated and actual."""
        snapshot = life.daemon.parts.cache.snapshot()
        wanted: dict[str, int] = {}
        for pod in self.stage.store.list("pods"):
            node = pod["spec"].get("nodeName")
            if node and not has_ended(pod):
                wanted[node] = wanted.get(node, 0) + taken_milli(pod)
        for row in snapshot.all_rows.tolist():
            name, found = snapshot.name_of(row), int(snapshot.requested["cpu"][row])
            if found != wanted.get(name, 0):
                self.stage.find(
                    f"{name}: {found} milliCPU are requested, its pods take {wanted.get(name, 0)}"
                )
