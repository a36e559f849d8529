"""Nodes come and go, are cordoned, tainted, relabelled and resized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tests.faults.actors.actor import Actor
from tests.faults.stage import ODD_NODE_CPU
from tests.support.builders import node_object

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object

ZONES = ("a", "b")
DEDICATED = "dedicated"
HOSTNAME = "kubernetes.io/hostname"

_SIZES = (
    ("1", "2Gi"),
    ("2", "4Gi"),
    ("4", "8Gi"),
    ("4", "16Gi"),
    ("8", "16Gi"),
    ("16", "32Gi"),
    (ODD_NODE_CPU, "16Gi"),
)
_MOST_NODES = 14
_SHARE = 0.03


class Nodes(Actor):
    """Whoever looks after the machines."""

    name = "nodes"
    pause_seconds: ClassVar[tuple[float, float]] = (3.0, 20.0)

    def begin(self) -> None:
        for number in range(self.stage.plan.n_nodes):
            self._create(f"n{number}")
        self.stage.on_step(self._passing)

    async def act(self) -> None:
        self.weighted(
            (4, self._add),
            (3, self._remove),
            (2, self._recreate),
            (3, self._toggle_cordon),
            (3, self._resize),
            (3, self._toggle_taint),
            (2, self._relabel),
            (3, self._heartbeat),
        )()

    def _passing(self, step: str, pod: PodInfo) -> None:
        """Change a node while a pod is on its way to one."""
        if not self.stage.is_calm and self.random.random() < _SHARE:
            change = self.random.choice(
                (self._resize, self._relabel, self._toggle_taint, self._recreate, self._remove)
            )
            self.stage.soon(self.random.randint(0, 40), change)

    def _create(self, name: str) -> None:
        cpu, memory = self.random.choice(_SIZES)
        taints = [f"{DEDICATED}=batch:NoSchedule"] if self.random.random() < 0.2 else []
        self.stage.cluster.add_nodes(
            node_object(
                name,
                cpu=cpu,
                memory=memory,
                pods=self.random.choice((3, 8, 110, 110)),
                labels={"zone": self.random.choice(ZONES), HOSTNAME: name},
                taints=taints,
                unschedulable=self.random.random() < 0.1,
            )
        )

    def _add(self) -> None:
        there = {node["metadata"]["name"] for node in self.stage.store.list("nodes")}
        free = [f"n{number}" for number in range(_MOST_NODES) if f"n{number}" not in there]
        if free:
            self.tell(f"add {free[0]}")
            self._create(free[0])

    def _remove(self) -> None:
        node = self._any()
        if node:
            self._delete(node)

    def _recreate(self) -> None:
        """Take a node out, and another of its name in, at once or later."""
        node = self._any()
        if node:
            name = node["metadata"]["name"]
            self._delete(node)
            self.stage.later(self.random.choice((0.0, 0.5, 20.0)), self._create_again, name)

    def _create_again(self, name: str) -> None:
        if self.stage.store.find("nodes", name) is None:
            self.tell(f"add {name} again")
            self._create(name)

    def _delete(self, node: Object) -> None:
        self.tell(f"remove {node['metadata']['name']}")
        self.stage.store.delete("nodes", node["metadata"]["name"])

    def _toggle_cordon(self) -> None:
        node = self._any()
        if node:
            cordoned = not node["spec"].get("unschedulable", False)
            self.tell(f"{'cordon' if cordoned else 'uncordon'} {node['metadata']['name']}")
            self._patch(node, {"spec": {"unschedulable": cordoned or None}})

    def _resize(self) -> None:
        node = self._any()
        if node:
            cpu, memory = self.random.choice(_SIZES)
            self.tell(f"resize {node['metadata']['name']} to {cpu} {memory}")
            self._patch(node, {"status": {"allocatable": {"cpu": cpu, "memory": memory}}}, "status")

    def _toggle_taint(self) -> None:
        node = self._any()
        if node:
            taints = node["spec"].get("taints", [])
            effect = self.random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
            new = [] if taints else [{"key": DEDICATED, "value": "batch", "effect": effect}]
            self.tell(f"{'taint' if new else 'untaint'} {node['metadata']['name']}")
            self._patch(node, {"spec": {"taints": new}})

    def _relabel(self) -> None:
        node = self._any()
        if node:
            self.tell(f"relabel {node['metadata']['name']}")
            self._patch(node, {"metadata": {"labels": {"zone": self.random.choice(ZONES)}}})

    def _heartbeat(self) -> None:
        for node in self.stage.store.list("nodes"):
            beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": self.stage.store.timestamp()}
            self._patch(node, {"status": {"conditions": [beat]}}, "status")

    def _any(self) -> Object | None:
        found: Object | None = self.one_of(self.stage.store.list("nodes"))
        return found

    def _patch(self, node: Object, patch: dict[str, Any], subresource: str = "") -> None:
        self.stage.store.patch("nodes", node["metadata"]["name"], patch, subresource=subresource)


class Machines(Nodes):
    """Nodes that stay as they are."""

    name = "machines"

    def begin(self) -> None:
        for number in range(self.stage.plan.n_nodes):
            self._create(f"n{number}")

    async def act(self) -> None:
        self._heartbeat()
