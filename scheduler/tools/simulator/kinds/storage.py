"""The kinds of storage.k8s.io: their defaults, and which fields can change.

Source:
    kube-apiserver v1.36, pkg/registry/storage, pkg/apis/storage/v1/defaults.go and
    pkg/apis/storage/validation/validation.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import parse_quantity
from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from scheduler.tools.simulator.apimachinery.objects import json_text
from scheduler.tools.simulator.apimachinery.selectors import validate_label_selector
from scheduler.tools.simulator.apimachinery.strategy import Strategy, dns_subdomain, validate_label_name
from scheduler.tools.simulator.kinds.devices import duplicates
from scheduler.tools.simulator.kinds.persistent_volumes import (
    immutable,
    protect,
    validate_class_name,
    validate_driver_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
ATTRIBUTES_CLASS_PROTECTION: Final = "kubernetes.io/vac-protection"

_BINDING_MODES: Final = ("Immediate", WAIT_FOR_FIRST_CONSUMER)
_RECLAIM_POLICIES: Final = ("Delete", "Retain")
_FS_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES: Final = ("Persistent", "Ephemeral")
_LONGEST_NODE_ID: Final = 256


class StorageClassStrategy(Strategy):
    """The rules of StorageClasses."""

    returns_deleted = True

    def default(self, obj: Object) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Object) -> Iterator[Cause]:
        yield from _validate_provisioner(obj["provisioner"], "provisioner")
        for field, supported in (("reclaimPolicy", _RECLAIM_POLICIES), ("volumeBindingMode", _BINDING_MODES)):
            if obj[field] not in supported:
                yield not_supported(field, obj[field], supported)
        seen: list[Mapping[str, set[str]]] = []
        for index, term in enumerate(obj.get("allowedTopologies", ())):
            path = f"allowedTopologies[{index}].matchLabelExpressions"
            values: dict[str, set[str]] = {}
            for place, requirement in enumerate(term.get("matchLabelExpressions", ())):
                yield from _validate_topology(requirement, f"{path}[{place}]")
                key = requirement.get("key", "")
                if key in values:
                    yield duplicate(f"{path}[{place}].key", key)
                values[key] = set(requirement.get("values", ()))
            if values in seen:
                yield duplicate(path, "")
            seen.append(values)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            yield from immutable(obj, old, field)


class VolumeAttributesClassStrategy(Strategy):
    """The rules of VolumeAttributesClasses."""

    returns_deleted = True

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        protect(obj, ATTRIBUTES_CLASS_PROTECTION)

    def validate(self, obj: Object) -> Iterator[Cause]:
        yield from _validate_provisioner(obj["driverName"], "driverName")
        if not obj.get("parameters"):
            yield required("parameters", "must contain at least one key/value pair")

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        for field in ("driverName", "parameters"):
            if obj.get(field) != old.get(field):
                yield forbidden_field(field, f"updates to {field} are forbidden.")
        yield from self.validate(obj)


class CSINodeStrategy(Strategy):
    """The rules of CSINodes."""

    returns_deleted = True
    unconditional_update = False

    def validate(self, obj: Object) -> Iterator[Cause]:
        seen: set[str] = set()
        for index, driver in enumerate(obj["spec"].get("drivers", ())):
            path, name, node_id = f"spec.drivers[{index}]", driver.get("name", ""), driver.get("nodeID", "")
            yield from validate_driver_name(name, f"{path}.name")
            if not node_id:
                yield required(f"{path}.nodeID")
            elif len(node_id) > _LONGEST_NODE_ID:
                yield invalid_value(
                    f"{path}.nodeID", f'"{node_id}"', f"must be {_LONGEST_NODE_ID} characters or less"
                )
            count = driver.get("allocatable", {}).get("count", 0)
            if count < 0:
                yield invalid_value(
                    f"{path}.allocatable.count", str(count), "must be greater than or equal to 0"
                )
            if name in seen:
                yield duplicate(f"{path}.name", name)
            seen.add(name)
            keys = driver.get("topologyKeys", ())
            for place, key in enumerate(keys):
                if not key:
                    yield required(path)
                if key in keys[:place]:
                    yield duplicate(path, key)
                yield from validate_label_name(key, path)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from self.validate(obj)
        present = {one.get("name"): one for one in obj["spec"].get("drivers", ())}
        for driver in old["spec"].get("drivers", ()):
            kept = present.get(driver["name"])
            if kept is not None and kept | {"allocatable": None} != driver | {"allocatable": None}:
                yield invalid_value("spec.drivers", json_text(kept), "field is immutable")


class CSIDriverStrategy(Strategy):
    """The rules of CSIDrivers."""

    returns_deleted = True
    unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("attachRequired", True)
        for field in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
            spec.setdefault(field, False)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        spec.setdefault("volumeLifecycleModes", ["Persistent"])

    def prepare_update(self, obj: Object, old: Object) -> None:
        """Count the generation, which begins with the first change."""
        if self.spec_differs(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        if spec["fsGroupPolicy"] not in _FS_GROUP_POLICIES:
            yield not_supported("spec.fsGroupPolicy", spec["fsGroupPolicy"], _FS_GROUP_POLICIES)
        for mode in spec["volumeLifecycleModes"]:
            if mode not in _LIFECYCLE_MODES:
                yield not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLE_MODES)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        spec, before = obj["spec"], old["spec"]
        yield from self.validate(obj)
        yield from immutable(spec, before, "attachRequired", "spec.attachedRequired")
        yield from immutable(spec, before, "volumeLifecycleModes", "spec.volumeLifecycleModes")


class CSIStorageCapacityStrategy(Strategy):
    """The rules of CSIStorageCapacities."""

    unconditional_update = False

    def validate(self, obj: Object) -> Iterator[Cause]:
        yield from validate_label_selector(obj.get("nodeTopology", {}), "nodeTopology")
        name, text = obj["storageClassName"], obj.get("capacity", "0")
        if problem := dns_subdomain(name):
            yield invalid_value("storageClassName", f'"{name}"', problem)
        if parse_quantity(text).unscaled < 0:
            yield invalid_value("capacity", f'"{text}"', "must be greater than or equal to 0")

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from immutable(obj, old, "nodeTopology")
        yield from immutable(obj, old, "storageClassName")


class VolumeAttachmentStrategy(Strategy):
    """The rules of VolumeAttachments."""

    has_status = True
    returns_deleted = True
    unconditional_update = False

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        yield from validate_driver_name(spec.get("attacher", ""), "spec.attacher")
        source = spec.get("source", {})
        if set(source) & {"inlineVolumeSpec", "persistentVolumeName"} == set():
            yield required(
                "spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
            )
        elif len(source) > 1:
            problem = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
            yield forbidden_field("spec.source", problem)
        elif source.get("persistentVolumeName") == "":
            yield required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
        if problem := dns_subdomain(spec.get("nodeName", "")):
            yield invalid_value("spec.nodeName", f'"{spec.get("nodeName", "")}"', problem)
        yield from validate_class_name(
            source.get("persistentVolumeName", ""), "spec.source.persistentVolumeName"
        )

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from self.validate(obj)
        yield from immutable(obj, old, "spec")


def _validate_topology(requirement: Object, path: str) -> Iterator[Cause]:
    values = requirement.get("values", ())
    if not values:
        yield required(f"{path}.values")
    yield from duplicates(values, f"{path}.values")
    yield from validate_label_name(requirement.get("key", ""), f"{path}.key")


def _validate_provisioner(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
    else:
        yield from validate_label_name(name.lower(), path)
