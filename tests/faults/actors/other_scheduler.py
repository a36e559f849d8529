"""A foreign scheduler with its own pods; now and then it binds one of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.faults.actors.actor import Actor
from tests.faults.pod_facts import is_pending
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object


class Foreigners(Actor):
    """Binds wherever it likes, room or not."""

    name = "foreigners"
    pause_seconds: ClassVar[tuple[float, float]] = (2.0, 15.0)

    def begin(self) -> None:
        self.stage.on_step(self._passing)

    async def act(self) -> None:
        self.weighted((4, self._bind_own), (2, self._static), (2, self._steal), (4, self._delete_own))()

    def _passing(self, step: str, pod: PodInfo) -> None:
        """Take a pod while our daemon binds it."""
        if step in {"assumed", "held", "binding"} and self.random.random() < 0.02:
            seconds = self.random.choice((0.0, 0.0, 0.1, 1.0))
            turns = self.random.randint(0, 40)
            self.stage.later(seconds, self.stage.soon, turns, self._take, pod.key, pod.uid)

    def _bind_own(self) -> None:
        node = self._node()
        name = self._create("")
        if node:
            self._bind(self.stage.store.get("pods", name), node)

    def _static(self) -> None:
        """A kubelet's own pod, there from the start; perhaps on a node that is yet to come."""
        self._create(self._node() or "n13")

    def _create(self, node: str) -> str:
        self._count += 1
        name = f"foreign-{self._count}"
        cpu = self.random.choice(("100m", "500m", "1", "2"))
        port = self.random.choice((0, 0, 80))
        pod = pod_object(name, cpu=cpu, scheduler_name="default-scheduler", node=node)
        if port:
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
        self.tell(f"create {name}{f' on {node}' if node else ''}")
        created = self.stage.store.create("pods", pod)
        self.stage.story.foreign.add(created["metadata"]["uid"])
        return name

    def _steal(self) -> None:
        pod = self.one_of([pod for pod in self.stage.our_pods() if is_pending(pod)])
        node = self._node()
        if pod is not None and node:
            self._bind(pod, node)

    def _take(self, key: str, uid: str) -> None:
        namespace, _, name = key.partition("/")
        pod, node = self.stage.store.find("pods", name, namespace), self._node()
        if pod is not None and pod["metadata"]["uid"] == uid and node:
            self._bind(pod, node)

    def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        try:
            self.stage.store.bind(metadata["name"], node, metadata["namespace"], uid=metadata["uid"])
        except StatusError:
            return  # it is bound already, gated, or about to go
        self.stage.story.foreign.add(metadata["uid"])
        self.tell(f"bind {metadata['namespace']}/{metadata['name']} to {node}")

    def _delete_own(self) -> None:
        own = self.stage.store.list("pods", fields="spec.schedulerName=default-scheduler")
        pod = self.one_of(own)
        if pod is not None:
            self.tell(f"delete {pod['metadata']['name']}")
            self.stage.store.delete("pods", pod["metadata"]["name"], grace_period_seconds=0)

    def _node(self) -> str:
        node = self.one_of(self.stage.store.list("nodes"))
        return node["metadata"]["name"] if node else ""
