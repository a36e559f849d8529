"""The objects of a cluster: generated nodes, a default StorageClass and devices, or the manifests of users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from scheduler.configuration.yaml_text import read_all
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.wording import child, entry, was

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.server import ApiServer


def read_manifests(path: str | Path) -> list[Object]:
    """Return the objects of a file.

    Raises:
        ConfigurationError: all errors of the file.
    """
    errors: list[FieldError] = []
    objects = objects_of(str(path), Path(), "", errors)
    if errors:
        raise ConfigurationError(errors, str(path))
    return objects


def objects_of(manifest: str | Object, folder: Path, where: str, errors: list[FieldError]) -> list[Object]:
    """Return an object, or those of a file, in their order; a List counts as its items.

    Args:
        manifest: an object, or the path of a YAML or JSON file.
        folder: base of relative paths.
        where: field that names it, for the errors.
        errors: errors are appended.
    """
    if isinstance(manifest, str):
        try:
            documents = read_all((folder / manifest).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            errors.append(FieldError(where, f"cannot be read: {error}"))
            return []
        errors += [
            FieldError(f"{where}: {manifest}", str(error))
            for document in documents
            for error in document.errors
        ]
        found = [document.value for document in documents if document.value is not None]
    else:
        found = [manifest]
    flat: list[Object] = []
    for one in found:
        is_list = isinstance(one, dict) and isinstance(one.get("items"), list)
        flat += one["items"] if is_list else [one]
    for index, one in enumerate(flat):
        errors += _object_faults(one, where if len(flat) == 1 else entry(where or "objects", index))
    return flat


def _object_faults(obj: Any, where: str) -> list[FieldError]:
    if not isinstance(obj, dict):
        return [FieldError(where, f"must be an object, {was(obj)}")]
    metadata = obj.get("metadata")
    faults = [
        FieldError(child(where, field), f"must be text, {was(obj[field])}" if field in obj else "is missing")
        for field in ("apiVersion", "kind")
        if not isinstance(obj.get(field), str)
    ]
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        faults.append(FieldError(child(child(where, "metadata"), "name"), "is missing"))
    return faults


GPU: Final = "nvidia.com/gpu"
GPU_TAINT: Final = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}

_REGION: Final = "eu-west-1"
_ZONES: Final = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
_KUBELET_VERSION: Final = "v1.36.2"


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A machine type.

    Attributes:
        instance_type: its name.
        cores: total CPUs.
        memory_gib: total memory.
        pods: pod limit of its kubelet.
        weight: relative frequency.
        gpus: number of GPUs; machines with GPUs are tainted.
        arch: value of the label kubernetes.io/arch.
    """

    instance_type: str
    cores: int
    memory_gib: int
    pods: int
    weight: int
    gpus: int = 0
    arch: str = "amd64"


SHAPES: Final = (
    NodeShape("general.large", 4, 16, 58, 40),
    NodeShape("general.2xlarge", 8, 32, 58, 25),
    NodeShape("compute.4xlarge", 16, 32, 110, 12),
    NodeShape("memory.2xlarge", 8, 64, 58, 10),
    NodeShape("arm.2xlarge", 8, 32, 58, 8, arch="arm64"),
    NodeShape("gpu.8xlarge", 32, 128, 110, 5, gpus=4),
)


def uniform(count: int, *, cpu: str = "4", memory: str = "16Gi", pods: int = 110) -> list[Object]:
    """Return identical nodes, distributed over the zones in turn.

    Args:
        count: number of nodes.
        cpu: allocatable CPU of each, as a quantity.
        memory: allocatable memory of each, as a quantity.
        pods: pod limit of each.
    """
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    return [
        _node(f"node-{place:04}", _ZONES[place % len(_ZONES)], "uniform", resources, resources, {})
        for place in range(count)
    ]


def heterogeneous(count: int, seed: int = 0) -> list[Object]:
    """Return nodes like those of a cluster that has grown for some years.

    Several machine types, uneven zones, reserved resources, tainted GPU machines and one cordoned
    node. From a dozen nodes on there is one of every type; the same seed gives the same cluster.

    Args:
        count: number of nodes.
        seed: seed of all random choices.
    """
    random = Random(seed)
    shapes = random.choices(SHAPES, weights=[shape.weight for shape in SHAPES], k=count)
    if count >= 2 * len(SHAPES):
        shapes[: len(SHAPES)] = SHAPES
        random.shuffle(shapes)
    nodes = []
    for place, shape in enumerate(shapes):
        zone = random.choices(_ZONES, weights=(5, 4, 3))[0]
        nodes.append(_machine(f"node-{place:04}", zone, shape))
    plain = [node for node in nodes if "taints" not in node["spec"]]
    if count > 1 and plain:
        random.choice(plain)["spec"]["unschedulable"] = True
    return nodes


def _machine(name: str, zone: str, shape: NodeShape) -> Object:
    """Return a node of a machine type; the system reserve grows with the machine."""
    capacity = {
        "cpu": str(shape.cores),
        "memory": f"{shape.memory_gib}Gi",
        "ephemeral-storage": "100Gi",
        "pods": str(shape.pods),
    }
    allocatable = capacity | {
        "cpu": f"{shape.cores * 1000 - 60 - 5 * shape.cores}m",
        "memory": f"{shape.memory_gib * 1024 - 255 - 11 * shape.pods - 100}Mi",
        "ephemeral-storage": "90Gi",
    }
    labels = {"kubernetes.io/arch": shape.arch}
    if shape.gpus:
        for resources in (capacity, allocatable):
            resources[GPU] = str(shape.gpus)
        labels["accelerator"] = "nvidia"
    node = _node(name, zone, shape.instance_type, capacity, allocatable, labels)
    if shape.gpus:
        node["spec"]["taints"] = [dict(GPU_TAINT)]
    return node


def _node(
    name: str,
    zone: str,
    instance_type: str,
    capacity: dict[str, str],
    allocatable: dict[str, str],
    labels: dict[str, str],
) -> Object:
    labels = {
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": _REGION,
        **labels,
    }
    node = ready_node(name, zone, labels, {}, capacity, allocatable)
    node["status"]["nodeInfo"] = {
        "architecture": node["metadata"]["labels"]["kubernetes.io/arch"],
        "operatingSystem": "linux",
        "kubeletVersion": _KUBELET_VERSION,
    }
    return node


def ready_node(
    name: str,
    zone: str,
    labels: dict[str, str],
    spec: Object,
    capacity: dict[str, str],
    allocatable: dict[str, str],
) -> Object:
    """Return a ready Node; the labels are added to those that every node has."""
    usual = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": zone,
    }
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": usual | labels},
        "spec": spec,
        "status": {"capacity": dict(capacity), "allocatable": dict(allocatable), "conditions": [ready]},
    }


DISK_DRIVER: Final = "disk.example.com"
GPU_DRIVER: Final = "gpu.example.com"

_MOST_VOLUMES: Final = 25
_ZONE: Final = "topology.kubernetes.io/zone"
_GPU_MEMORY: Final = "40Gi"


def furnish(server: ApiServer, nodes: Iterable[Object]) -> None:
    """Create the drivers, classes and devices for the nodes of a generated cluster.

    Raises:
        StatusError: the server rejects an object.
    """
    for obj in (_DRIVER, _STORAGE_CLASS, _DEVICE_CLASS):
        server.store.apply(obj)
    for node in nodes:
        name = node["metadata"]["name"]
        driver = {
            "name": DISK_DRIVER,
            "nodeID": name,
            "allocatable": {"count": _MOST_VOLUMES},
            "topologyKeys": [_ZONE],
        }
        csi_node = {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
        server.store.create("csinodes.storage.k8s.io", csi_node)
        devices = gpus_of(node)
        if devices:
            server.devices.publish(name, GPU_DRIVER, devices)


def gpus_of(node: Object) -> list[Object]:
    """Return the GPUs of a node as devices, in the format of ResourceSlices."""
    return [
        {
            "name": f"gpu-{place}",
            "attributes": {"model": {"string": "a100"}, "index": {"int": place}},
            "capacity": {"memory": {"value": _GPU_MEMORY}},
        }
        for place in range(int(node["status"]["capacity"].get(GPU, 0)))
    ]


_DRIVER: Final[Object] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": DISK_DRIVER},
    "spec": {},
}
_STORAGE_CLASS: Final[Object] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": DISK_DRIVER,
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowVolumeExpansion": True,
}
_DEVICE_CLASS: Final[Object] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": GPU_DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{GPU_DRIVER}"'}}]},
}
