"""A sample cluster and sample pods to which every rule applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.meta import OwnerReference
from scheduler.snapshot import ClusterTable, object_key
from scheduler.testing.builders import node, pod
from scheduler.testing.devices import (
    allocation,
    claims_of,
    device_class,
    exactly,
    first_available,
    resource_claim,
    resource_slice,
    watch_devices,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo

Json = dict[str, Any]

DRIVER = "disk.example.com"
"""The default driver of volumes."""

_KINDS = {
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "PersistentVolume": ("v1", "persistentvolumes"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
    "CSINode": ("storage.k8s.io/v1", "csinodes"),
    "CSIDriver": ("storage.k8s.io/v1", "csidrivers"),
    "CSIStorageCapacity": ("storage.k8s.io/v1", "csistoragecapacities"),
    "VolumeAttachment": ("storage.k8s.io/v1", "volumeattachments"),
}  # kind -> version, plural


def watch_storage(table: ClusterTable, *objects: Json) -> None:
    """Make a table keep all kinds of storage, and add these objects."""
    for version, plural in _KINDS.values():
        table.watch_kind(f"{version}/{plural}")
    for each in objects:
        version, plural = _KINDS[each["kind"]]
        table.watch_kind(f"{version}/{plural}")[object_key(each)] = each


def mounted(*claims: str) -> list[Json]:
    """Return the volumes of a pod that uses these claims."""
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]


def claim(
    name: str,
    volume: str = "",
    *,
    namespace: str = "default",
    modes: Sequence[str] = ("ReadWriteOnce",),
    class_name: str | None = None,
    storage: str = "1Gi",
    annotations: Mapping[str, str] | None = None,
    owner: PodInfo | None = None,
    **more: Any,
) -> Json:
    """Return a PersistentVolumeClaim.

    Args:
        name: its name.
        volume: the PersistentVolume it is bound to; "" for none yet.
        namespace: its namespace.
        modes: its access modes.
        class_name: its StorageClass.
        storage: its requested size.
        annotations: annotations beside the one that marks it as bound.
        owner: the pod that it was created for.
        more: other fields of its spec, as in JSON.
    """
    spec: Json = {"accessModes": list(modes), "resources": {"requests": {"storage": storage}}, **more}
    metadata: Json = {"annotations": dict(annotations or {}), "uid": f"uid-of-claim-{name}"}
    if class_name is not None:
        spec["storageClassName"] = class_name
    if volume:
        spec["volumeName"] = volume
        metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": True}
        ]
    status = {"phase": "Bound" if volume else "Pending"}
    return _object("PersistentVolumeClaim", name, namespace=namespace, **metadata) | {
        "spec": spec,
        "status": status,
    }


def volume(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    driver: str = DRIVER,
    phase: str = "Bound",
    **source: Any,
) -> Json:
    """Return a PersistentVolume.

    Args:
        name: its name, and its volume handle.
        labels: its labels.
        driver: its CSI driver.
        phase: its phase; "Available" for an unbound volume.
        source: other fields of its spec, as in JSON; `csi=None` removes its driver.
    """
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": driver, "volumeHandle": name},
        **source,
    }
    return _object("PersistentVolume", name, labels=dict(labels or {})) | {
        "spec": {field: value for field, value in spec.items() if value is not None},
        "status": {"phase": phase},
    }


def only_on(key: str, *values: str) -> Json:
    """Return the node affinity of a volume that nodes with one of these labels can access."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def storage_class(
    name: str,
    *,
    mode: str | None = "WaitForFirstConsumer",
    provisioner: str = DRIVER,
    topologies: Sequence[Mapping[str, Sequence[str]]] = (),
) -> Json:
    """Return a StorageClass.

    Args:
        name: its name.
        mode: its volumeBindingMode; None for none.
        provisioner: its provisioner.
        topologies: allowed topologies: label -> values; one of them is enough.
    """
    allowed = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in each.items()]}
        for each in topologies
    ]
    found = _object("StorageClass", name) | {"provisioner": provisioner, "allowedTopologies": allowed}
    return found if mode is None else found | {"volumeBindingMode": mode}


def csi_driver(name: str = DRIVER, *, storage_capacity: bool | None = True, **spec: Any) -> Json:
    """Return a CSIDriver that reports its storage capacity, or not."""
    return _object("CSIDriver", name) | {"spec": {"storageCapacity": storage_capacity, **spec}}


def storage_capacity(
    name: str, class_name: str, capacity: str | None, *, labels: Mapping[str, str] | None = None, **more: Any
) -> Json:
    """Return the CSIStorageCapacity of a class on nodes with these labels; without labels, no node has access."""
    found = _object("CSIStorageCapacity", name, namespace="kube-system") | {"storageClassName": class_name}
    if labels is not None:
        found["nodeTopology"] = {"matchLabels": dict(labels)}
    return found | ({} if capacity is None else {"capacity": capacity}) | more


def csi_node(name: str, limits: Mapping[str, int | None], *, migrated: Sequence[str] = ()) -> Json:
    """Return the CSINode of a node.

    Args:
        name: name of the node.
        limits: driver -> number of volumes that it can attach; None for no limit.
        migrated: in-tree plugins that are migrated to drivers.
    """
    drivers = [
        {"name": driver, "nodeID": name, **({} if limit is None else {"allocatable": {"count": limit}})}
        for driver, limit in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)} if migrated else {}
    return _object("CSINode", name, annotations=annotations) | {"spec": {"drivers": drivers}}


def volume_attachment(name: str, *, node: str, volume: str | None, attacher: str = DRIVER) -> Json:
    """Return the VolumeAttachment of a PersistentVolume to a node; None for an inline volume."""
    source = {} if volume is None else {"persistentVolumeName": volume}
    spec = {"attacher": attacher, "nodeName": node, "source": source}
    return _object("VolumeAttachment", name) | {"spec": spec}


def _object(kind: str, name: str, **metadata: Any) -> Json:
    return {"apiVersion": _KINDS[kind][0], "kind": kind, "metadata": {"name": name, **metadata}}


def node_topology(
    node_name: str,
    *zones: Mapping[str, str],
    policy: str = "single-numa-node",
    scope: str = "container",
    attributes: Mapping[str, str] | None = None,
) -> Json:
    """Return the NodeResourceTopology of a node.

    Args:
        node_name: name of the node.
        zones: what is available in each NUMA zone: resource -> quantity.
        policy: the policy of the Topology Manager.
        scope: its scope.
        attributes: further attributes.
    """
    settings = {"topologyManagerPolicy": policy, "topologyManagerScope": scope, **(attributes or {})}
    listed = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                for name, amount in zone.items()
            ],
        }
        for number, zone in enumerate(zones)
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node_name},
        "attributes": [{"name": name, "value": value} for name, value in settings.items()],
        "zones": listed,
    }


GIB = 1024**3
_ZONE = "topology.kubernetes.io/zone"


def sample_table(n_nodes: int = 24) -> ClusterTable:
    """Return a cluster of different nodes: sizes, zones, taints, cordons, devices, images, pods with ports and disks."""
    table = ClusterTable()
    for number in range(n_nodes):
        name = f"node-{number}"
        row = table.add_node(
            node(
                name,
                cpu=str(2 + number % 5),
                memory=f"{4 + number % 7}Gi",
                pods=1 + number % 4,
                allocatable={"nvidia.com/gpu": str(number % 3), "alibabacloud.com/gpu-count": str(number % 5)}
                if number % 2
                else {},
                labels={
                    _ZONE: f"zone-{number % 3}",
                    "disk": "ssd" if number % 2 else "hdd",
                    **({"alibabacloud.com/gpu-card-model": _GPU_MODELS[number % 3]} if number % 2 else {}),
                    **({"rack": f"rack-{number % 4}"} if number % 4 else {}),
                },
                taints=_TAINTS[number % len(_TAINTS)],
                unschedulable=number % 6 == 5,
                images=_IMAGES[: number % 4],
                declaredFeatures=_FEATURES[: number % 3],
            )
        )
        for index in range(number % 3):
            container: dict[str, Any] = {
                "name": "c",
                "resources": {"requests": {"cpu": f"{300 * (index + 1)}m"}},
            }
            if number % 4 == 1:
                container["ports"] = [{"hostPort": 8080 + index, "protocol": "TCP"}]
            wish: dict[str, Any] = {"affinity": _QUIET} if index == 1 and number % 4 == 2 else {}
            if index == 0:
                wish["volumes"] = [*mounted(f"data-{name}"), _disk(f"disk-{number % 5}")]
            if number % 4 == 3:
                wish["annotations"] = {"alibabacloud.com/gpu-milli": "600"}
            placed = pod(f"on-{name}-{index}", node=name, containers=[container], labels=_WEB, **wish)
            table.add_pod(row, placed)
        watch_storage(table, claim(f"data-{name}", f"volume-{name}"), volume(f"volume-{name}"))
        if number % 4:
            watch_storage(table, csi_node(name, {DRIVER: number % 4}))
    watch_storage(
        table,
        claim("in-a-zone", "in-zone-1"),
        volume("in-zone-1", labels={_ZONE: "zone-1"}),
        claim("for-one-pod", "for-one-pod", modes=["ReadWriteOncePod"]),
        volume("for-one-pod"),
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        *(_local_volume(f"node-{number}") for number in range(0, n_nodes, 5)),
        claim("for-a-local-volume", class_name="local"),
        claim("on-ssd", "on-ssd"),
        volume("on-ssd", nodeAffinity=only_on("disk", "ssd")),
        storage_class("made", topologies=[{_ZONE: ["zone-0", "zone-1"]}]),
        csi_driver(),
        storage_capacity("room-in-zone-1", "made", "10Gi", labels={_ZONE: "zone-1"}),
        claim("to-be-made", class_name="made", storage="5Gi"),
    )
    table.watch_kind("apps/v1/replicasets")["default/web-1"] = {
        "metadata": {
            "name": "web-1",
            "namespace": "default",
            "annotations": {"custom-scheduler.io/node-preference": _ON_SSD},
        },
        "spec": {"replicas": 40, "selector": {"matchLabels": _WEB}},
    }
    table.watch_kind("v1/services")["default/web"] = {"spec": {"selector": _WEB}}
    table.watch_kind("scheduling.x-k8s.io/v1alpha1/elasticquotas")["default/team"] = {
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"min": {"cpu": "1k", "memory": "1Ti", "ephemeral-storage": "1Ti", "nvidia.com/gpu": 99}},
    }
    table.watch_kind("custom-scheduler.io/v1alpha1/queues")["team"] = {
        "metadata": {"name": "team"},
        "spec": {"namespaces": ["default"], "max": {"memory": "8Gi"}},
    }
    topologies = table.watch_kind("topology.node.k8s.io/v1alpha2/noderesourcetopologies")
    for number in range(0, n_nodes, 3):
        topologies[f"node-{number}"] = node_topology(
            f"node-{number}",
            {"cpu": str(1 + number % 2), "memory": "2Gi"},
            {"cpu": "500m", "memory": "1Gi"},
            scope="pod" if number % 2 else "container",
        )
    watch_devices(
        table,
        device_class("gpu", extended_resource="example.com/gpu"),
        device_class("slow"),
        *(resource_slice(f"node-{number}", number % 3) for number in range(0, n_nodes, 2)),
        resource_claim("taken", allocated=allocation("gpu-0", node="node-4")),
        resource_claim("a-gpu"),
        resource_claim("two-gpus", exactly(count=2)),
        resource_claim("any-gpu", first_available("r0", "gpu", "slow")),
    )
    return table


_ON_SSD = '{"sets": [{"name": "ssd", "matchLabels": {"disk": "ssd"}, "maxReplicas": "20%"}]}'
_GPU_MODELS = ("T4", "V100M16", "G2")
_TAINTS: tuple[list[str], ...] = (
    [],
    ["dedicated=gpu:NoSchedule"],
    [],
    ["spot=yes:PreferNoSchedule", "old:PreferNoSchedule"],
    ["spot=yes:PreferNoSchedule"],
)
_IMAGES = [
    {"names": ["registry.example/app:1"], "sizeBytes": GIB},
    {"names": ["registry.example/base:latest"], "sizeBytes": GIB // 2},
    {"names": ["registry.example/data:1"], "sizeBytes": 2 * GIB},
]
_FEATURES = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]
_WEB = {"app": "web"}
_LOUD = {"app": "loud"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_QUIET = {"podAntiAffinity": {_REQUIRED: [{"labelSelector": {"matchLabels": _LOUD}, "topologyKey": _ZONE}]}}
_TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}


def sample_pods() -> list[PodInfo]:
    """Return pending pods with different requirements; some of them are identical."""
    app = _container("registry.example/app:1", 8080)
    return [
        pod("asks-for-nothing"),
        pod("small", cpu="100m", memory="128Mi"),
        pod("small-too", cpu="100m", memory="128Mi"),
        pod("small-in-other-words", cpu="0.1", memory="131072Ki"),
        pod("large", cpu="5", memory="9Gi"),
        pod("impossible", cpu="500", memory="900Gi"),
        pod("gpu", cpu="1", requests={"nvidia.com/gpu": 2}),
        pod("guaranteed", containers=[_limited(cpu="1500m", memory="1Gi")]),
        pod("claims-a-gpu", resourceClaims=claims_of("a-gpu")),
        pod("claims-gpus", resourceClaims=claims_of("two-gpus", "taken")),
        pod("claims-any-gpu", resourceClaims=claims_of("any-gpu")),
        pod("claims-what-is-taken", resourceClaims=claims_of("taken")),
        pod("claims-what-is-not-there", resourceClaims=claims_of("none")),
        pod("gpu-by-name", requests={"example.com/gpu": 1}),
        pod("tolerant", cpu="1", tolerations=[{"operator": "Exists"}]),
        pod("tolerates-spot", cpu="1", tolerations=[{"key": "spot", "operator": "Exists", "effect": ""}]),
        pod("in-a-zone", nodeSelector={"topology.kubernetes.io/zone": "zone-1"}),
        pod("nowhere", nodeSelector={"topology.kubernetes.io/zone": "zone-9"}),
        pod(
            "required-ssd",
            affinity=_affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [_TERM]}),
        ),
        pod(
            "prefers-ssd",
            affinity=_affinity(
                preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 10, "preference": _TERM}]
            ),
        ),
        pod("on-two-nodes", affinity=_named("node-3", "node-8", "node-none")),
        pod("names-its-node", nodeName="node-7"),
        pod("with-port-and-image", containers=app),
        pod("with-another-port-and-image", containers=_container("registry.example/base", 8081)),
        pod("with-an-address", containers=_container("registry.example/base", 8080, "10.0.0.1")),
        pod("with-two-images", containers=[*app, *_container("registry.example/data:1", 443)]),
        pod("with-user-namespaces-on-the-host-network", hostNetwork=True, hostUsers=False),
        pod("spread-by-a-service", labels=_WEB),
        _owned(pod("of-a-replica-set", labels=_WEB)),
        _owned(pod("of-the-same-replica-set", labels=_WEB)),
        pod("spread-over-zones", labels=_WEB, topologySpreadConstraints=[_spread(_ZONE, "DoNotSchedule")]),
        pod("spread-over-racks", labels=_WEB, topologySpreadConstraints=[_spread("rack", "DoNotSchedule")]),
        pod("rather-spread", labels=_WEB, topologySpreadConstraints=[_spread("rack", "ScheduleAnyway")]),
        pod("near-others", affinity={"podAffinity": {_REQUIRED: [_near("rack")]}}),
        pod("far-from-others", affinity={"podAntiAffinity": {_REQUIRED: [_near("rack")]}}),
        pod(
            "rather-near-others",
            affinity={
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 10, "podAffinityTerm": _near(_ZONE)}
                    ]
                }
            },
        ),
        pod("disliked", labels=_LOUD),
        pod("with-a-volume-in-a-zone", volumes=mounted("in-a-zone")),
        pod("with-two-volumes", volumes=mounted("data-node-1", "for-one-pod")),
        pod("with-a-disk", volumes=[_disk("disk-1")]),
        pod("without-its-claim", volumes=mounted("nowhere")),
        pod("with-a-claim-for-a-local-volume", volumes=mounted("for-a-local-volume")),
        pod("with-a-volume-on-ssd", volumes=mounted("on-ssd")),
        pod("with-a-volume-to-be-made", volumes=mounted("to-be-made")),
        pod("with-half-a-gpu", cpu="1", annotations={"alibabacloud.com/gpu-milli": "500"}),
        pod(
            "with-three-gpus-of-a-model",
            cpu="1",
            annotations={"alibabacloud.com/gpu-count": "3", "alibabacloud.com/gpu-card-model": "T4|G2"},
        ),
        pod("with-a-gpu-annotation-that-is-none", annotations={"alibabacloud.com/gpu-milli": "half"}),
        pod("gated", gates=["example.com/wait"]),
    ]


def _owned(each: PodInfo) -> PodInfo:
    """Return a pod of the ReplicaSet web-1."""
    owner = OwnerReference("apps/v1", "ReplicaSet", "web-1", controller=True)
    metadata = msgspec.structs.replace(each.pod.metadata, owner_references=(owner,))
    return type(each)(msgspec.structs.replace(each.pod, metadata=metadata), each.raw)


def _local_volume(node_name: str) -> dict[str, Any]:
    host = only_on("kubernetes.io/hostname", node_name)
    return volume(f"local-{node_name}", phase="Available", nodeAffinity=host, storageClassName="local")


def _near(key: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": _WEB}}


def _spread(key: str, action: str) -> dict[str, Any]:
    selector = {"matchLabels": _WEB}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector}


def _disk(name: str) -> dict[str, Any]:
    return {"name": name, "awsElasticBlockStore": {"volumeID": name}}


def _container(image: str, port: int, address: str = "") -> list[dict[str, Any]]:
    return [{"name": "c", "image": image, "ports": [{"hostPort": port, "hostIP": address}]}]


def _limited(**amounts: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": amounts, "limits": amounts}}


def _affinity(**fields: Any) -> dict[str, Any]:
    return {"nodeAffinity": fields}


def _named(*names: str) -> dict[str, Any]:
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names
    ]
    return _affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": terms})
