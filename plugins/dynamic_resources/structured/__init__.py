"""Allocates devices on a node to the claims of a pod.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured; of its three variants the one called
    incubating, which is what the default feature gates choose.
"""

from plugins.dynamic_resources.structured.allocator import Allocator
from plugins.dynamic_resources.structured.constraints import (
    AllocationError,
    Alternatives,
    DeviceRefusal,
    InvalidPoolsError,
    OutOfTimeError,
    Verdict,
)
from plugins.dynamic_resources.structured.device_features import OPTIONAL_NODE_OPERATIONS, DeviceFeatures
from plugins.dynamic_resources.structured.inventory import Inventory
from plugins.dynamic_resources.structured.node_use import NodeUse, UsedDevice, is_mapped, node_use_of
from plugins.dynamic_resources.structured.pools import AllocatedDevices, DeviceID

__all__ = [
    "OPTIONAL_NODE_OPERATIONS",
    "AllocatedDevices",
    "AllocationError",
    "Allocator",
    "Alternatives",
    "DeviceFeatures",
    "DeviceID",
    "DeviceRefusal",
    "InvalidPoolsError",
    "Inventory",
    "NodeUse",
    "OutOfTimeError",
    "UsedDevice",
    "Verdict",
    "is_mapped",
    "node_use_of",
]
