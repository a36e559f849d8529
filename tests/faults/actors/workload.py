"""The pods that the daemon is there for: bursts, groups that are scaled, gates that are lifted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tests.faults.actors.actor import Actor
from tests.faults.actors.nodes import DEDICATED, ZONES
from tests.faults.pod_facts import is_pending
from tests.faults.stage import ODD_POD_CPU
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object

FINALIZER = "example.com/slow-to-go"

_CPU = ("50m", "100m", "250m", "500m", "1", "1500m", "3")
_MEMORY = (None, "64Mi", "512Mi", "1Gi", "3Gi")
_PRIORITIES = (0, 0, 0, 10, 1000)
_TOLERATION = {"key": DEDICATED, "operator": "Equal", "value": "batch"}
_MOST_PODS = 90


class Workload(Actor):
    """Whoever deploys."""

    name = "workload"
    pause_seconds: ClassVar[tuple[float, float]] = (0.2, 4.0)

    def begin(self) -> None:
        self._groups: dict[str, tuple[dict[str, Any], int]] = {}  # name -> what its pods are, replicas
        for _ in range(self.random.randint(1, 3)):
            self._burst()

    async def act(self) -> None:
        self.weighted(
            (5, self._burst),
            (4, self._scale),
            (4, self._lift_gate),
            (2, self._recreate),
            (2, self._tolerate),
            (2, self._relabel),
            (1, self._let_go),
        )()

    def calm(self) -> None:
        """Let go whatever waits for its finalizer. Nothing else is touched, for a touch may bring back what was lost."""
        for pod in self.stage.our_pods():
            if pod["metadata"].get("finalizers"):
                self._patch(pod, {"metadata": {"finalizers": None}})

    def _burst(self) -> None:
        fields = self._fields()
        for _ in range(self.random.choice((1, 1, 2, 3, 8))):
            self._count += 1
            self._create(f"p{self._count}", fields)
            if self.random.random() < 0.7:
                fields = self._fields()

    def _scale(self) -> None:
        """Give a group of pods alike another size."""
        name = self.random.choice(("g1", "g2", "g3"))
        fields, _ = self._groups.setdefault(name, (self._fields(), 0))
        replicas = self.random.choice((0, 1, 3, 6))
        self._groups[name] = (fields, replicas)
        self.tell(f"scale {name} to {replicas}")
        wanted = {f"{name}-{number}" for number in range(replicas)}
        there = {pod["metadata"]["name"] for pod in self.stage.store.list("pods")}
        for pod in self.stage.our_pods():
            pod_name = pod["metadata"]["name"]
            if pod_name.startswith(f"{name}-") and pod_name not in wanted:
                self.stage.store.delete("pods", pod_name)
        for missing in sorted(wanted - there):
            self._create(missing, fields)

    def _recreate(self) -> None:
        """Delete a pod, and make another by its name at once, or when it is gone."""
        pod = self.one_of(
            [
                pod
                for pod in self.stage.our_pods()
                if "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["namespace"] == "default"
            ]
        )
        if pod is None:
            return
        name = pod["metadata"]["name"]
        self.tell(f"recreate {name}")
        self._patch(pod, {"metadata": {"finalizers": None}})
        self.stage.store.delete("pods", name, grace_period_seconds=0)
        self.stage.later(self.random.choice((0.0, 0.0, 0.01, 3.0)), self._create, name, self._fields())

    def _lift_gate(self) -> None:
        pod = self.one_of([pod for pod in self._pending() if pod["spec"].get("schedulingGates")])
        if pod is not None:
            gates = pod["spec"]["schedulingGates"][1:]
            self.tell(f"lift a gate of {pod['metadata']['name']}")
            self._patch(pod, {"spec": {"schedulingGates": gates}})

    def _tolerate(self) -> None:
        pod = self.one_of(self._pending())
        if pod is not None:
            tolerations = [*pod["spec"].get("tolerations", ()), _TOLERATION]
            self.tell(f"let {pod['metadata']['name']} tolerate {DEDICATED}")
            self._patch(pod, {"spec": {"tolerations": tolerations}})

    def _relabel(self) -> None:
        pod = self.one_of(self.stage.our_pods())
        if pod is not None:
            self.tell(f"relabel {pod['metadata']['name']}")
            self._patch(pod, {"metadata": {"labels": {"turn": str(self.random.randint(0, 9))}}})

    def _let_go(self) -> None:
        """Take the finalizer off pods that are to go."""
        for pod in self.stage.our_pods():
            if "deletionTimestamp" in pod["metadata"]:
                self._patch(pod, {"metadata": {"finalizers": None}})

    def _pending(self) -> list[Object]:
        return [pod for pod in self.stage.our_pods() if is_pending(pod)]

    def _fields(self) -> dict[str, Any]:
        """Draw what a pod is like."""
        draw = self.random
        fields: dict[str, Any] = {
            "cpu": draw.choice(_CPU),
            "memory": draw.choice(_MEMORY),
            "priority": draw.choice(_PRIORITIES),
            "scheduler_name": draw.choice(self.stage.plan.scheduler_names),
        }
        if draw.random() < 0.15:
            fields["cpu"] = ODD_POD_CPU
        if draw.random() < 0.2:
            fields["tolerations"] = [_TOLERATION]
        if draw.random() < 0.15:
            fields["gates"] = [f"example.com/{number}" for number in range(draw.randint(1, 2))]
        if draw.random() < 0.1:
            fields["node_selector"] = {"zone": draw.choice(ZONES)}
        if draw.random() < 0.1:
            fields["affinity"] = {"nodeAffinity": _in_zone(draw.choice(ZONES))}
        if draw.random() < 0.1:
            fields["port"] = draw.choice((80, 443))
        if draw.random() < 0.1:
            fields["finalizer"] = True
        return fields

    def _create(self, name: str, fields: dict[str, Any]) -> None:
        found = self.stage.store.list("pods")
        if len(found) >= _MOST_PODS or name in {pod["metadata"]["name"] for pod in found}:
            return
        fields = dict(fields)
        port, finalizer = fields.pop("port", None), fields.pop("finalizer", False)
        pod = pod_object(name, **fields)
        if port is not None:
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
        if finalizer:
            pod["metadata"]["finalizers"] = [FINALIZER]
        self.stage.cluster.add_pods(pod)

    def _patch(self, pod: Object, patch: dict[str, Any]) -> None:
        self.stage.store.patch("pods", pod["metadata"]["name"], patch, pod["metadata"]["namespace"])


def _in_zone(zone: str) -> dict[str, Any]:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}
