"""Devices come and are withdrawn, claims are shared, made from templates, or come too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.resource_claims import CLAIMS, ResourceClaims
from scheduler.tools.simulator.node_agents.device_drivers import SLICES
from tests.faults.actors.actor import Actor
from tests.faults.pod_facts import has_ended
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object

DRIVER = "gpu.example.com"
_CLASS, _TEMPLATE = "gpu", "one-gpu"
_SLOW_DRIVER, _ANY, _SLOW_DEVICES = "slow.example.com", "any", 6
_MOST_CLAIMS = 40


class Devices(Actor):
    """Whoever looks after devices: the stand-in of the controller of claims, a driver, and people."""

    name = "devices"
    pause_seconds: ClassVar[tuple[float, float]] = (1.0, 8.0)

    def begin(self) -> None:
        self._generations: dict[str, int] = {}  # node -> of its pool
        self._without_claim: set[str] = set()  # uids of pods for which deleted claims were reserved
        self.stage.on_step(self._passing)
        store = self.stage.store
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        store.create(
            "deviceclasses.resource.k8s.io", {"metadata": {"name": _CLASS}, "spec": {"selectors": [selector]}}
        )
        template = {"metadata": {"name": _TEMPLATE, "namespace": "default"}, "spec": {"spec": self._wish()}}
        store.create("resourceclaimtemplates.resource.k8s.io", template)
        self._claims = ResourceClaims(store)
        self._claims.start()
        for node in store.list("nodes"):
            if self.random.random() < 0.6:
                self._publish(node["metadata"]["name"])

    async def act(self) -> None:
        self.weighted((6, self._deploy), (3, self._change_slice), (2, self._delete_claim))()

    def end(self) -> None:
        self._claims.stop()

    def _wish(self) -> Object:
        exactly = {"deviceClassName": _CLASS, "count": self.random.choice((1, 1, 2))}
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    def _deploy(self) -> None:
        """Create pods: each with a claim from a template, or all with one that is there before, or comes later."""
        self._count += 1
        if len(self.stage.store.list(CLAIMS)) >= _MOST_CLAIMS:
            return
        if self.random.random() < 0.5:
            self._create_pod(f"gpu-{self._count}", {"resourceClaimTemplateName": _TEMPLATE})
            return
        name = f"claim-{self._count}"
        claim = {"metadata": {"name": name, "namespace": "default"}, "spec": self._wish()}
        late = self.random.choice((0.0, 0.0, 2.0))
        if late:
            self.stage.later(late, self.stage.store.create, CLAIMS, claim)
        else:
            self.stage.store.create(CLAIMS, claim)
        for turn in range(self.random.choice((1, 1, 2, 3))):
            self._create_pod(f"gpu-{self._count}-{turn}", {"resourceClaimName": name})

    def _create_pod(self, name: str, claim: dict[str, str]) -> None:
        pod = pod_object(name, cpu="50m", scheduler_name=self.random.choice(self.stage.plan.scheduler_names))
        pod["spec"]["resourceClaims"] = [{"name": "gpu", **claim}]
        self.tell(f"create {name} with {claim}")
        self.stage.cluster.add_pods(pod)

    def _change_slice(self) -> None:
        """Withdraw the devices of a node, or publish others, also of a node that has gone."""
        node = self.one_of(self.stage.store.list("nodes"))
        if node is None:
            return
        name = node["metadata"]["name"]
        if self.random.random() < 0.4:
            self._withdraw(name)
        else:
            self._publish(name)

    def _withdraw(self, node_name: str) -> None:
        if self.stage.store.find(SLICES, node_name) is not None:
            self.tell(f"withdraw the devices of {node_name}")
            self.stage.store.delete(SLICES, node_name)

    def _publish(self, node_name: str) -> None:
        self._withdraw(node_name)
        generation = self._generations[node_name] = self._generations.get(node_name, 0) + 1
        devices = [{"name": f"gpu-{number}"} for number in range(self.random.randint(1, 3))]
        pool = {"name": node_name, "generation": generation, "resourceSliceCount": 1}
        self.stage.store.create(
            SLICES,
            {
                "metadata": {"name": node_name},
                "spec": {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": devices},
            },
        )
        self.tell(f"{node_name} has {len(devices)} devices")

    def _delete_claim(self) -> None:
        claim = self.one_of(self.stage.store.list(CLAIMS))
        if claim is None:
            return
        self.tell(f"delete {claim['metadata']['name']}")
        self._without_claim |= {each["uid"] for each in claim.get("status", {}).get("reservedFor", ())}
        try:
            self.stage.store.delete(CLAIMS, claim["metadata"]["name"], "default")
        except StatusError:
            return  # it is gone already

    def _passing(self, step: str, pod: PodInfo) -> None:
        if step != "bound" or pod.uid in self._without_claim:
            return  # a daemon may learn late that it bound a pod
        now: Any = self.stage.store.find("pods", pod.name, pod.namespace)
        if now is None or has_ended(now):
            return  # and has given back what it had, before the daemon learnt that it was bound
        made = now["status"].get("resourceClaimStatuses", [])
        names = {each["name"]: each.get("resourceClaimName") for each in made}
        for wish in pod.pod.spec.resource_claims:
            name = wish.resource_claim_name or names.get(wish.name)
            if name:
                self._check_reserved(pod, self.stage.store.find(CLAIMS, name, pod.namespace), name)

    def _check_reserved(self, pod: PodInfo, claim: Object | None, name: str) -> None:
        """A pod is bound when its claims are allocated on its node, and reserved for it."""
        status = {} if claim is None else claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        if not results:
            self.stage.find(f"{pod.key} is bound, its claim {name} is not allocated", pod.uid)
        elsewhere = {result["pool"] for result in results} - {pod.node_name}
        if elsewhere:
            self.stage.find(f"{pod.key} is on {pod.node_name}, its devices are on {elsewhere}", pod.uid)
        if pod.uid not in {each["uid"] for each in status.get("reservedFor", ())}:
            self.stage.find(f"{pod.key} is bound, its claim {name} is not reserved for it", pod.uid)


class SlowClaims(Devices):
    """The same, with claims whose search takes long: none of the many combinations of devices may satisfy them."""

    name = "slow claims"

    async def act(self) -> None:
        self.weighted(
            (4, self._deploy),
            (6, self._deploy_slow),
            (3, self._change_slice),
            (2, self._delete_claim),
            (3, self._allocate),
            (3, self._deallocate),
        )()

    def _publish(self, node_name: str) -> None:
        """Publish devices of another driver as well, each with a mark of its own, or with that of its neighbour."""
        super()._publish(node_name)
        name = f"slow-{node_name}"
        is_paired = self.random.random() < 0.5
        devices = [
            {
                "name": f"slow-{number}",
                "attributes": {"mark": {"string": f"mark-{number // 3 if is_paired else number}"}},
            }
            for number in range(_SLOW_DEVICES)
        ]
        pool = {"name": node_name, "generation": self._generations[node_name], "resourceSliceCount": 1}
        spec = {"driver": _SLOW_DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
        self.stage.store.create(SLICES, {"metadata": {"name": name}, "spec": spec})

    def _withdraw(self, node_name: str) -> None:
        super()._withdraw(node_name)
        if self.stage.store.find(SLICES, f"slow-{node_name}") is not None:
            self.stage.store.delete(SLICES, f"slow-{node_name}")

    def _deploy_slow(self) -> None:
        """Create a claim of several devices with the same mark, and pods with it."""
        self._count += 1
        if len(self.stage.store.list(CLAIMS)) >= _MOST_CLAIMS:
            return
        name = f"slow-{self._count}"
        selector = {"cel": {"expression": f"device.driver == '{_SLOW_DRIVER}'"}}
        requests = [
            {"name": f"r{number}", "exactly": {"deviceClassName": _ANY, "selectors": [selector], "count": 1}}
            for number in range(self.random.choice((2, 3)))
        ]
        constraint = {
            "requests": [each["name"] for each in requests],
            "matchAttribute": f"{_SLOW_DRIVER}/mark",
        }
        spec = {"devices": {"requests": requests, "constraints": [constraint]}}
        self.stage.store.create(CLAIMS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        for turn in range(self.random.choice((1, 1, 2))):
            self._create_pod(f"{name}-{turn}", {"resourceClaimName": name})

    def begin(self) -> None:
        self.stage.store.create("deviceclasses.resource.k8s.io", {"metadata": {"name": _ANY}, "spec": {}})
        super().begin()

    def _passing(self, step: str, pod: PodInfo) -> None:
        """Change a claim that is being searched for, or whose allocation is being written."""
        super()._passing(step, pod)
        if step == "assumed" and pod.pod.spec.resource_claims and self.random.random() < 0.3:
            act = self.random.choice(
                (self._delete_claim, self._allocate, self._deallocate, self._change_slice)
            )
            self.stage.soon(self.random.randint(0, 40), act)

    def _allocate(self) -> None:
        """Allocate a claim as another scheduler does, with a device that no slice shows."""
        claims = [
            claim
            for claim in self.stage.store.list(CLAIMS)
            if "allocation" not in claim.get("status", {}) and "deletionTimestamp" not in claim["metadata"]
        ]
        claim, node = self.one_of(claims), self.one_of(self.stage.store.list("nodes"))
        if claim is None or node is None:
            return
        self._count += 1
        node_name, name = node["metadata"]["name"], claim["metadata"]["name"]
        request = claim["spec"]["devices"]["requests"][0]["name"]
        result = {
            "request": request,
            "driver": "other.example.com",
            "pool": node_name,
            "device": f"o{self._count}",
        }
        field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        allocation = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
        self.tell(f"allocate {name} on {node_name}")
        self._write(claim, {"allocation": allocation})

    def _deallocate(self) -> None:
        """Take the devices from a claim that no pod uses."""
        claims = [
            claim
            for claim in self.stage.store.list(CLAIMS)
            if "allocation" in claim.get("status", {}) and not claim["status"].get("reservedFor")
        ]
        claim = self.one_of(claims)
        if claim is not None:
            self.tell(f"deallocate {claim['metadata']['name']}")
            self._write(claim, {"allocation": None})

    def _write(self, claim: Object, status: dict[str, Any]) -> None:
        patch = {"status": status}
        self.stage.store.patch(CLAIMS, claim["metadata"]["name"], patch, "default", subresource="status")
