"""Additions to generated clusters: a default StorageClass, and the devices of GPU machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.scenarios.clusters import GPU

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.server import ApiServer

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
