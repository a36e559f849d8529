"""Pods are deleted at every step of their way: pending, assumed, held at Permit, being bound, bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tests.faults.actors.actor import Actor

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object

_SHARE = 0.08
_TURNS = 40
"""So many turns of the loop are more than a Binding takes from the choice to the answer."""


class Deletions(Actor):
    """Whoever changes their mind."""

    name = "deletions"
    pause_seconds: ClassVar[tuple[float, float]] = (1.0, 10.0)

    def begin(self) -> None:
        self.stage.on_step(self._passing)

    async def act(self) -> None:
        pods = self.stage.our_pods()
        preempting = [pod for pod in pods if pod["status"].get("nominatedNodeName")]
        if preempting and self.random.random() < 0.5:
            self._delete(self.one_of(preempting), "which waits for its victims to go")
        elif pods:
            self._delete(self.one_of(pods), "which may be anywhere")

    def _passing(self, step: str, pod: PodInfo) -> None:
        share = _SHARE if step in {"assumed", "bound"} else 3 * _SHARE  # few come by there
        if self.stage.is_calm or self.random.random() >= share:
            return
        seconds = self.random.choice((0.0, 0.0, 0.0, 0.02, 0.2, 2.0))
        turns = self.random.randint(0, _TURNS)
        self.stage.later(seconds, self.stage.soon, turns, self._delete_uid, pod.key, pod.uid, step)

    def _delete_uid(self, key: str, uid: str, step: str) -> None:
        namespace, _, name = key.partition("/")
        pod = self.stage.store.find("pods", name, namespace)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._delete(pod, f"which was {step}")

    def _delete(self, pod: Object, step: str) -> None:
        metadata = pod["metadata"]
        grace = self.random.choice((None, None, 0, 1))
        self.tell(f"delete {metadata['namespace']}/{metadata['name']} {metadata['uid'][:8]}, {step}")
        self.stage.store.delete(
            "pods", metadata["name"], metadata["namespace"], grace_period_seconds=grace, uid=metadata["uid"]
        )
