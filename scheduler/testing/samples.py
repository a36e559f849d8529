"""A sample cluster and sample pods to which every rule applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.snapshot import ClusterTable
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
from scheduler.testing.storage import (
    DRIVER,
    claim,
    csi_driver,
    csi_node,
    mounted,
    only_on,
    storage_capacity,
    storage_class,
    volume,
    watch_storage,
)

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

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
    table.watch_kind("v1/services")["default/web"] = {"spec": {"selector": _WEB}}
    table.watch_kind("scheduling.x-k8s.io/v1alpha1/elasticquotas")["default/team"] = {
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"min": {"cpu": "1k", "memory": "1Ti", "ephemeral-storage": "1Ti", "nvidia.com/gpu": 99}},
    }
    table.watch_kind("custom-scheduler.io/v1alpha1/queues")["team"] = {
        "metadata": {"name": "team"},
        "spec": {"namespaces": ["default"], "max": {"memory": "8Gi"}},
    }
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


def _affinity(**fields: Any) -> dict[str, Any]:
    return {"nodeAffinity": fields}


def _named(*names: str) -> dict[str, Any]:
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names
    ]
    return _affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": terms})
