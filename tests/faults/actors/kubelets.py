"""Kubelets: they run pods or reject them, pods come to their end, and lost nodes' pods are cleared away."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scheduler.tools.simulator.node_agents.kubelet import Kubelet, KubeletOptions
from tests.faults.actors.actor import Actor
from tests.faults.pod_facts import has_ended

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object


class Kubelets(Actor):
    """The simulator's kubelets, run here so that they outlive a restart of the server."""

    name = "kubelets"
    pause_seconds: ClassVar[tuple[float, float]] = (1.0, 12.0)

    def begin(self) -> None:
        admit_seconds = self.random.choice((0.0, 0.05, 2.0))
        # The actor Resizes reports those.
        options = KubeletOptions(admit_seconds=admit_seconds, resizes=False)
        self._kubelet = Kubelet(self.stage.store, options)
        self._kubelet.start()

    async def act(self) -> None:
        self.weighted((4, self._finish), (2, self._clear_ended), (1, self._clear_lost))()

    def end(self) -> None:
        self._kubelet.stop()

    def _finish(self) -> None:
        """Let a pod that runs come to its end."""
        running = [pod for pod in self.stage.store.list("pods") if pod["status"].get("phase") == "Running"]
        pod = self.one_of(running)
        if pod is not None:
            phase = self.random.choice(("Succeeded", "Failed"))
            self.tell(f"{pod['metadata']['name']} has {phase.lower()}")
            patch = {"status": {"phase": phase}}
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            self.stage.store.patch("pods", name, patch, namespace, subresource="status")

    def _clear_ended(self) -> None:
        pod = self.one_of([pod for pod in self.stage.store.list("pods") if has_ended(pod)])
        if pod is not None:
            self._remove(pod)

    def _clear_lost(self) -> None:
        """Remove the pods of nodes that are gone, as pod garbage collection does."""
        nodes = {node["metadata"]["name"] for node in self.stage.store.list("nodes")}
        for pod in self.stage.store.list("pods"):
            if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in nodes:
                self._remove(pod)

    def _remove(self, pod: Object) -> None:
        self.tell(f"clear {pod['metadata']['name']} away")
        metadata = pod["metadata"]
        self.stage.store.delete("pods", metadata["name"], metadata["namespace"], grace_period_seconds=0)
