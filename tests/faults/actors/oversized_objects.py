"""Oversized objects that a tenant may create: nested without end, or with far too many entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tests.faults.actors.actor import Actor
from tests.faults.actors.nodes import HOSTNAME
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object

_DEPTH = 3000
_DEEP = b'"annotations":{"monster":"deep"}'
_MOST = 8


class Monsters(Actor):
    """A hostile tenant, or one with a careless template."""

    name = "monsters"
    pause_seconds: ClassVar[tuple[float, float]] = (2.0, 25.0)

    def begin(self) -> None:
        # No client of the simulated server can write what real ones keep: fields managed by nested paths.
        nested = b'{"f:a":' * _DEPTH + b"{}" + b"}" * _DEPTH
        self.stage.garbled[_DEEP] = _DEEP + b',"managedFields":[{"manager":"m","fieldsV1":' + nested + b"}]"

    async def act(self) -> None:
        there = [
            pod for pod in self.stage.store.list("pods") if pod["metadata"]["name"].startswith("monster-")
        ]
        if len(there) >= _MOST:
            self._delete(there[0])
        self._create(
            self.weighted(
                (3, self._deep),
                (2, self._picky),
                (2, self._hungry),
                (2, self._lonely),
                (1, self._tolerant),
                (2, self._crowded),
            )()
        )

    def _create(self, pod: Object) -> None:
        self.tell(f"create {pod['metadata']['name']}")
        self.stage.cluster.add_pods(pod)
        if "nodeName" in pod["spec"]:
            there = self.stage.store.get("pods", pod["metadata"]["name"])
            self.stage.story.foreign.add(there["metadata"]["uid"])

    def _delete(self, pod: Object) -> None:
        self.stage.store.delete("pods", pod["metadata"]["name"], grace_period_seconds=0)

    def _pod(self, what: str, **fields: Any) -> Object:
        self._count += 1
        name = self.random.choice(self.stage.plan.scheduler_names)
        return pod_object(f"monster-{self._count}-{what}", cpu="50m", scheduler_name=name, **fields)

    def _deep(self) -> Object:
        pod = self._pod("deep")
        pod["metadata"]["annotations"] = {"monster": "deep"}
        return pod

    def _picky(self) -> Object:
        """Wants hundreds of labels to be absent, which they are, or one to be there that never is."""
        operator = self.random.choice(("DoesNotExist", "DoesNotExist", "Exists"))
        expressions = [{"key": f"monster.io/{number}", "operator": operator} for number in range(400)]
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        return self._pod(
            "picky", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        )

    def _hungry(self) -> Object:
        pod = self._pod("hungry")
        amounts = {f"monster.io/{self._count}-{number}": "1" for number in range(300)}
        pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        return pod

    def _lonely(self) -> Object:
        """Would like to be alone in a hundred sorts of places, most of which there are not."""
        keys = [HOSTNAME, "zone", *(f"monster.io/{number}" for number in range(100))]
        preferred = [
            {
                "weight": 1 + number % 100,
                "podAffinityTerm": {"topologyKey": key, "labelSelector": {}, "namespaceSelector": {}},
            }
            for number, key in enumerate(keys)
        ]
        return self._pod(
            "lonely",
            affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        )

    def _tolerant(self) -> Object:
        tolerations = [{"key": f"monster.io/{number}", "operator": "Exists"} for number in range(500)]
        return self._pod("tolerant", tolerations=tolerations)

    def _crowded(self) -> Object:
        """Is on its node from the start, with more affinity terms than are counted at once, no two alike."""
        node = self.one_of(self.stage.store.list("nodes"))
        kinds = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        )
        affinity: dict[str, dict[str, Any]] = {"podAffinity": {}, "podAntiAffinity": {}}
        for terms in affinity.values():
            terms[kinds[0]] = [self._term(number) for number in range(70)]
            terms[kinds[1]] = [
                {"weight": 1 + number % 100, "podAffinityTerm": self._term(number)}
                for number in range(70, 140)
            ]
        if self.random.random() < 0.3:
            own = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"turn": "3"}}}
            affinity["podAntiAffinity"][kinds[0]].append(own)
        pod = self._pod("crowded", affinity=affinity, node=node["metadata"]["name"] if node else "n13")
        pod["spec"]["schedulerName"] = "default-scheduler"
        return pod

    def _term(self, number: int) -> Object:
        label = {"key": f"monster.io/{self._count}-{number}", "operator": "Exists"}
        return {
            "topologyKey": self.random.choice((HOSTNAME, "zone")),
            "labelSelector": {"matchExpressions": [label]},
            "namespaceSelector": {},
        }
