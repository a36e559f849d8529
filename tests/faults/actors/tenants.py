"""Tenants: claims that are expensive to evaluate, claims with lost volumes, and deletion of all pods at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.resource_claims import CLAIMS as DEVICE_CLAIMS
from tests.faults.actors.actor import Actor
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object

_CLASSES, _VOLUME_CLAIMS = "deviceclasses.resource.k8s.io", "persistentvolumeclaims"
_DEAR = "dear"
_MOST = 10
_ITEMS = "[" + ",".join(str(number) for number in range(30)) + "]"
_EXPRESSIONS = (
    f"{_ITEMS}.all(a, {_ITEMS}.all(b, a + b >= 0)) && device.driver == 'gpu.example.com'",
    f"{_ITEMS}.all(a, {_ITEMS}.all(b, [1, 2, 3].all(c, a + b + c >= 0)))",
    "isQuantity('1234567890123456789e9999')",
)
"""None of these costs more than is allowed: else an attempt ends with an error, and the pod is tried again and again."""


class Tenants(Actor):
    """Those who ask for much, and clear away all they have."""

    name = "tenants"
    pause_seconds: ClassVar[tuple[float, float]] = (2.0, 15.0)

    def begin(self) -> None:
        self.stage.store.create(_CLASSES, {"metadata": {"name": _DEAR}, "spec": {}})

    async def act(self) -> None:
        self.weighted((3, self._claim_devices), (3, self._claim_lost_volume), (1, self._clear))()

    def calm(self) -> None:
        """What controllers find out, they have found out by now."""
        for claim in self.stage.store.list(_VOLUME_CLAIMS):
            if claim["spec"].get("volumeName", "").startswith("gone-"):
                self._lose(claim["metadata"]["name"])

    def _claim_devices(self) -> None:
        name = self._next("dear")
        selectors = [{"cel": {"expression": self.random.choice(_EXPRESSIONS)}}]
        exactly = {"deviceClassName": _DEAR, "count": 1, "selectors": selectors}
        wish = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        if name and self._created(DEVICE_CLAIMS, {"metadata": self._metadata(name), "spec": wish}):
            self._create_pod(name, resourceClaims=[{"name": "r", "resourceClaimName": name}])

    def _claim_lost_volume(self) -> None:
        """Make a claim that is bound to a volume which does not exist, or is lost a moment later."""
        name = self._next("lost")
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "lost",
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": f"gone-{name}",
        }
        claim: dict[str, Any] = {"metadata": self._metadata(name), "spec": spec}
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        if name and self._created(_VOLUME_CLAIMS, claim):
            self._create_pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])
            self.stage.later(self.random.choice((0.0, 0.5, 5.0)), self._lose, name)

    def _lose(self, name: str) -> None:
        if self.stage.store.find(_VOLUME_CLAIMS, name, "default") is not None:
            lost = {"status": {"phase": "Lost"}}
            self.stage.store.patch(_VOLUME_CLAIMS, name, lost, "default", subresource="status")

    def _clear(self) -> None:
        """Delete all pods of ours, in one turn of the loop."""
        pods = self.stage.our_pods()
        self.tell(f"delete all {len(pods)} pods")
        for pod in pods:
            metadata = pod["metadata"]
            self.stage.store.delete(
                "pods", metadata["name"], metadata["namespace"], grace_period_seconds=0, uid=metadata["uid"]
            )

    def _next(self, what: str) -> str:
        """Return the name of the next pod; "" where there are enough."""
        there = [pod for pod in self.stage.our_pods() if pod["metadata"]["name"].startswith("tenant-")]
        if len(there) >= _MOST:
            return ""
        self._count += 1
        return f"tenant-{self._count}-{what}"

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": "default"}

    def _created(self, resource: str, obj: Object) -> bool:
        try:
            self.stage.store.create(resource, obj)
        except StatusError as error:
            self.tell(f"{obj['metadata']['name']} is refused: {error}")
            return False
        return True

    def _create_pod(self, name: str, **spec: Any) -> None:
        scheduler_name = self.random.choice(self.stage.plan.scheduler_names)
        pod = pod_object(name, cpu="50m", scheduler_name=scheduler_name)
        pod["spec"] |= spec
        self.tell(f"create {name}")
        self.stage.cluster.add_pods(pod)
