"""Volumes are added and withdrawn, claims come with pods or too late, and provisioning fails now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.volumes import Attachments, StorageProtection, VolumeController
from scheduler.tools.simulator.node_agents.volume_drivers import (
    Provisioner,
    ProvisionerOptions,
    ProvisioningFault,
    ProvisioningFaults,
)
from tests.faults.actors.actor import Actor
from tests.faults.actors.nodes import HOSTNAME
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object
    from tests.faults.daemon_runs import Life

_CLAIMS, _VOLUMES = "persistentvolumeclaims", "persistentvolumes"
_CSI_NODES, _ATTACHMENTS = "csinodes.storage.k8s.io", "volumeattachments.storage.k8s.io"
_DRIVER = "csi.example.com"
_LOCAL, _PROVISIONED, _FOREIGN = "local", "provisioned", "foreign"
_PROVISIONERS = {_LOCAL: "kubernetes.io/no-provisioner", _PROVISIONED: _DRIVER}
_SIZES = ("1Gi", "2Gi", "5Gi")
_MOST_CLAIMS = 40


class Volumes(Actor):
    """Whoever looks after storage: the stand-ins of its controllers, run here so that they outlive the server, and people."""

    name = "volumes"
    pause_seconds: ClassVar[tuple[float, float]] = (1.0, 8.0)
    classes: ClassVar[tuple[str, ...]] = (_LOCAL, _PROVISIONED)

    def begin(self) -> None:
        self._deleted: set[str] = set()
        self._faults = ProvisioningFaults()
        self._failing: list[ProvisioningFault] = []
        self.stage.on_step(self._passing)
        store = self.stage.store
        for name, provisioner in _PROVISIONERS.items():
            store.create(
                "storageclasses.storage.k8s.io",
                {
                    "metadata": {"name": name},
                    "provisioner": provisioner,
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
            )
        options = ProvisionerOptions(seconds=self.random.choice((0.0, 1.0, 30.0)))
        self._controllers = (
            VolumeController(store),
            Provisioner(store, options, self._faults),
            StorageProtection(store),
        )
        for each in self._controllers:
            each.start()
        for _ in range(self.random.randint(0, 4)):
            self._add_volume()

    async def act(self) -> None:
        self.weighted(
            (6, self._deploy),
            (3, self._add_volume),
            (2, self._delete_claim),
            (1, self._delete_volume),
            (2, self._fail_provisioning),
        )()

    def end(self) -> None:
        for each in self._controllers:
            each.stop()

    def _deploy(self) -> None:
        """Create pods with claims, which are there before, at the same time, or later; some share one."""
        claims = []
        for _ in range(self.random.choice((1, 1, 2))):
            self._count += 1
            claims.append(f"data-{self._count}")
        late = self.random.choice((0.0, 0.0, 0.0, 2.0))
        for name in claims:
            claim = self._claim(name)
            if late:
                self.stage.later(late, self._create_claim, claim)
            else:
                self._create_claim(claim)
        for turn in range(self.random.choice((1, 1, 1, 2))):
            self._create_pod(f"stateful-{self._count}-{turn}", claims)

    def _claim(self, name: str) -> Object:
        return {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": [self.random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))],
                "storageClassName": self.random.choice(self.classes),
                "resources": {"requests": {"storage": self.random.choice(_SIZES)}},
            },
        }

    def _create_claim(self, claim: Object) -> None:
        if len(self.stage.store.list(_CLAIMS)) < _MOST_CLAIMS:
            self.stage.store.create(_CLAIMS, claim)

    def _create_pod(self, name: str, claims: list[str]) -> None:
        pod = pod_object(name, cpu="50m", scheduler_name=self.random.choice(self.stage.plan.scheduler_names))
        pod["spec"]["volumes"] = [
            {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
        ]
        self.tell(f"create {name} with {', '.join(claims)}")
        self.stage.cluster.add_pods(pod)

    def _add_volume(self) -> None:
        node = self.one_of(self.stage.store.list("nodes"))
        if node is None:
            return
        self._count += 1
        host = {"key": HOSTNAME, "operator": "In", "values": [node["metadata"]["name"]]}
        self.stage.store.create(
            _VOLUMES,
            {
                "metadata": {"name": f"pv-{self._count}"},
                "spec": {
                    "capacity": {"storage": self.random.choice(_SIZES)},
                    "accessModes": [
                        self.random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))
                    ],
                    "storageClassName": _LOCAL,
                    "local": {"path": "/data"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
                },
            },
        )
        self.tell(f"add pv-{self._count} on {node['metadata']['name']}")

    def _delete_claim(self) -> None:
        self._delete(_CLAIMS, self.one_of(self.stage.store.list(_CLAIMS)))

    def _delete_volume(self) -> None:
        volumes = [
            each
            for each in self.stage.store.list(_VOLUMES)
            if "claimRef" not in each["spec"] and each["spec"]["storageClassName"] == _LOCAL
        ]
        self._delete(_VOLUMES, self.one_of(volumes))

    def _delete(self, resource: str, obj: Object | None) -> None:
        if obj is None:
            return
        metadata = obj["metadata"]
        self.tell(f"delete {metadata['name']}")
        self._deleted.add(metadata["name"])
        try:
            self.stage.store.delete(resource, metadata["name"], metadata.get("namespace", ""))
        except StatusError:
            return  # it is gone already

    def _fail_provisioning(self) -> None:
        node = self.one_of(self.stage.store.list("nodes"))
        if node is not None:
            times = self.random.randint(1, 3)
            self.tell(f"provisioning fails {times} times on {node['metadata']['name']}")
            fault = ProvisioningFault(node=node["metadata"]["name"], times=times)
            self._failing.append(self._faults.add(fault))

    def calm(self) -> None:
        """Let all volumes be provisioned: many failures on one node, half a minute each, would last beyond the calm."""
        for fault in self._failing:
            self._faults.remove(fault)

    def _passing(self, step: str, pod: PodInfo) -> None:
        if step == "bound":
            # One that is deleted while the Binding is on its way is nobody's fault.
            for claim in [claim for claim in pod.claims if claim.name not in self._deleted]:
                self._check_bound(pod, self.stage.store.find(_CLAIMS, claim.name, pod.namespace), claim.name)

    def _check_bound(self, pod: PodInfo, claim: Object | None, name: str) -> None:
        """A pod is bound when its claims are, to volumes that its node can reach."""
        volume_name = "" if claim is None else claim["spec"].get("volumeName", "")
        volume: Any = self.stage.store.find(_VOLUMES, volume_name) if volume_name else None
        if claim is None or volume is None:
            self.stage.find(f"{pod.key} is bound, its claim {name} is not", pod.uid)
            return
        if volume["spec"].get("claimRef", {}).get("uid") != claim["metadata"]["uid"]:
            self.stage.find(f"{pod.key} is bound, {volume_name} is not for its claim {name}", pod.uid)
        hosts = _hosts(volume)
        if hosts is not None and pod.node_name not in hosts:
            self.stage.find(f"{pod.key} is on {pod.node_name}, its volume {volume_name} on {hosts}", pod.uid)


def _hosts(volume: Object) -> list[str] | None:
    """Return the nodes a local volume can be reached from; None for others."""
    terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
    for term in terms:
        for expression in term.get("matchExpressions", ()):
            if expression["key"] == HOSTNAME:
                hosts: list[str] = expression["values"]
                return hosts
    return None


class VolumeLimits(Volumes):
    """The same, with limits of how many volumes a node can have attached, which come late and change."""

    name = "volume limits"
    pause_seconds: ClassVar[tuple[float, float]] = (0.3, 3.0)
    classes: ClassVar[tuple[str, ...]] = (_LOCAL, *4 * (_PROVISIONED,))

    def begin(self) -> None:
        super().begin()
        self._attachments = Attachments(self.stage.store)
        self._attachments.start()
        for node in self.stage.store.list("nodes"):
            self._limit(node["metadata"]["name"])
        self.stage.judges.append(self._judge)

    async def act(self) -> None:
        if self.random.random() < 0.6:
            await super().act()
        else:
            self.weighted((4, self._change_limit), (3, self._attach), (2, self._detach))()

    def end(self) -> None:
        self._attachments.stop()
        super().end()

    def _change_limit(self) -> None:
        node = self.one_of(self.stage.store.list("nodes"))
        if node is None:
            return
        name = node["metadata"]["name"]
        if self.stage.store.find(_CSI_NODES, name) is not None:
            self.tell(f"remove the limit of {name}")
            self.stage.store.delete(_CSI_NODES, name)
        self.stage.later(self.random.choice((0.0, 0.0, 2.0)), self._limit, name)

    def _limit(self, node_name: str) -> None:
        if self.stage.store.find(_CSI_NODES, node_name) is None:
            count = self.random.choice((0, 1, 1, 2, 4))
            self.tell(f"limit {node_name} to {count} volumes")
            driver = {"name": _DRIVER, "nodeID": node_name, "allocatable": {"count": count}}
            self.stage.store.create(
                _CSI_NODES, {"metadata": {"name": node_name}, "spec": {"drivers": [driver]}}
            )

    def _attach(self) -> None:
        """Attach a volume that no pod uses, as somebody by hand does, or one that pods use on another node."""
        node = self.one_of(self.stage.store.list("nodes"))
        if node is None:
            return
        self._count += 1
        volumes = [each for each in self.stage.store.list(_VOLUMES) if "csi" in each["spec"]]
        volume = self.one_of(volumes) if self.random.random() < 0.5 else None
        volume_name = self._add_foreign() if volume is None else volume["metadata"]["name"]
        node_name = node["metadata"]["name"]
        spec = {"attacher": _DRIVER, "nodeName": node_name, "source": {"persistentVolumeName": volume_name}}
        self.tell(f"attach {volume_name} to {node_name}")
        self.stage.store.create(_ATTACHMENTS, {"metadata": {"name": f"own-{self._count}"}, "spec": spec})

    def _add_foreign(self) -> str:
        """Create a volume of the driver that is for no claim, and return its name."""
        name = f"foreign-{self._count}"
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": _FOREIGN,
            "csi": {"driver": _DRIVER, "volumeHandle": name},
        }
        self.stage.store.create(_VOLUMES, {"metadata": {"name": name}, "spec": spec})
        return name

    def _detach(self) -> None:
        own = [
            each
            for each in self.stage.store.list(_ATTACHMENTS)
            if each["metadata"]["name"].startswith("own-")
        ]
        attachment = self.one_of(own)
        if attachment is not None:
            self.tell(f"detach {attachment['spec']['source']['persistentVolumeName']}")
            self.stage.store.delete(_ATTACHMENTS, attachment["metadata"]["name"])

    def _judge(
        self, life: Life, pod: PodInfo, node_name: str, there: Mapping[str, Mapping[str, PodInfo]]
    ) -> None:
        """No choice exceeds the limit of a node, by what the daemon's watches have shown."""

        def objects(kind: str) -> Mapping[str, Any]:
            return life.daemon.parts.cache.table.objects(f"{kind}") or {}

        csi_node = objects("storage.k8s.io/v1/csinodes").get(node_name)
        claims, volumes = objects("v1/persistentvolumeclaims"), objects("v1/persistentvolumes")

        def handle(claim_name: str, namespace: str) -> str:
            """Return what is attached for a claim: its volume, or, before that is there, itself; "" where nothing is."""
            claim = claims.get(f"{namespace}/{claim_name}")
            if claim is None or claim["spec"].get("storageClassName") != _PROVISIONED:
                return ""
            volume = volumes.get(claim["spec"].get("volumeName", ""))
            return f"{namespace}/{claim_name}" if volume is None else str(volume["metadata"]["name"])

        def handles(each: PodInfo) -> set[str]:
            return {handle(claim.name, each.namespace) for claim in each.claims} - {""}

        others = [each for uid, each in there.get(node_name, {}).items() if uid != pod.uid]
        before: set[str] = set().union(*(handles(each) for each in others))
        before |= {
            each["spec"]["source"]["persistentVolumeName"]
            for each in objects("storage.k8s.io/v1/volumeattachments").values()
            if each["spec"]["nodeName"] == node_name
            and each["spec"]["attacher"] == _DRIVER
            and each["spec"]["source"]["persistentVolumeName"] in volumes
        }
        new = handles(pod) - before
        if csi_node is None or not new:
            return
        most = csi_node["spec"]["drivers"][0]["allocatable"]["count"]
        if len(before) + len(new) > most:
            self.stage.find(
                f"{pod.key} goes to {node_name}: {sorted(before)} + {sorted(new)} > {most}", pod.uid
            )
