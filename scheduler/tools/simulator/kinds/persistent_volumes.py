"""PersistentVolumes and PersistentVolumeClaims: defaults, class, protection, and which fields can change.

Source:
    kube-apiserver v1.36, pkg/registry/core/persistentvolume/strategy.go, pkg/apis/core/validation/validation.go and
    plugin/pkg/admission/storage/storageobjectinuseprotection.
    kube-apiserver v1.36, pkg/registry/core/persistentvolumeclaim/strategy.go, pkg/apis/core/validation/validation.go,
    plugin/pkg/admission/storage/{persistentvolume/resize,storageclass/setdefault,storageobjectinuseprotection}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.errors import AdmissionError
from scheduler.objects.admission import BETA_CLASS, class_of, default_class
from scheduler.objects.limit_ranges import check_claim
from scheduler.objects.pod_defaults import default_claim_spec
from scheduler.objects.quantity import parse_quantity
from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from scheduler.tools.simulator.apimachinery.objects import clone, json_text
from scheduler.tools.simulator.apimachinery.selectors import validate_label_selector, validate_node_selector
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.strategy import Strategy, dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.objects.quantity import Quantity
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
VOLUME_MODES: Final = ("Block", "Filesystem")

_RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")
_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_NO_SOURCES: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


class PersistentVolumeStrategy(Strategy):
    """The rules of PersistentVolumes."""

    has_status = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        if "hostPath" in spec:
            spec["hostPath"].setdefault("type", "")
        obj["status"].setdefault("phase", "Pending")

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        protect(obj, VOLUME_PROTECTION)

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": cluster.timestamp()}

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        super().prepare_part_update(subresource, obj, old, cluster)
        status, before = obj["status"], old["status"]
        changed = before.get("lastPhaseTransitionTime")
        if status.get("phase") == before.get("phase"):
            if changed is not None:
                status.setdefault("lastPhaseTransitionTime", changed)
        elif status.get("lastPhaseTransitionTime", changed) == changed:
            status["lastPhaseTransitionTime"] = cluster.timestamp()

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        modes = spec.get("accessModes", ())
        if not modes:
            yield required("spec.accessModes")
        yield from validate_access_modes(modes, "spec.accessModes")
        yield from _validate_capacity(spec.get("capacity", {}))
        policy = spec["persistentVolumeReclaimPolicy"]
        if policy not in _RECLAIM_POLICIES:
            yield not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES)
        affinity = spec.get("nodeAffinity", {"required": None})
        if "required" not in affinity:
            yield required("spec.nodeAffinity.required", "must specify required node constraints")
        elif affinity["required"] is not None:
            yield from validate_node_selector(affinity["required"], "spec.nodeAffinity.required")
        yield from _validate_source(spec)
        yield from validate_class_name(spec.get("storageClassName", ""), "spec.storageClassName")
        if spec["volumeMode"] not in VOLUME_MODES:
            yield not_supported("spec.volumeMode", spec["volumeMode"], VOLUME_MODES)
        yield from _validate_attributes_class(spec)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        spec, before = obj["spec"], old["spec"]
        yield from self.validate(obj)
        if _source(spec) != _source(before):
            problem = "spec.persistentvolumesource is immutable after creation\n"
            shown = f"- {json_text(_source(before))}\n+ {json_text(_source(spec))}"
            yield forbidden_field("spec.persistentvolumesource", problem + shown)
        yield from immutable(spec, before, "volumeMode")
        if "nodeAffinity" in before and spec.get("nodeAffinity") != before["nodeAffinity"]:
            shown = json_text(spec.get("nodeAffinity"))
            problem = "field is immutable, except for updating from beta label to GA"
            yield invalid_value("nodeAffinity", shown, problem)
        if "volumeAttributesClassName" in before and "volumeAttributesClassName" not in spec:
            problem = "update from non-nil value to nil is forbidden"
            yield forbidden_field("spec.volumeAttributesClassName", problem)


def protect(obj: Object, finalizer: str) -> None:
    """Add a finalizer to a new object, which protects it while it is used."""
    finalizers = obj["metadata"].get("finalizers", [])
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def immutable(obj: Object, old: Object, field: str, path: str = "") -> Iterator[Cause]:
    """Yield an error if a field has changed."""
    if obj.get(field) != old.get(field):
        yield invalid_value(path or field, json_text(obj.get(field)), "field is immutable")


def validate_access_modes(modes: Sequence[str], path: str) -> Iterator[Cause]:
    """Yield the errors of access modes."""
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(path, mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and {*modes} & {*_ACCESS_MODES} != {"ReadWriteOncePod"}:
        yield forbidden_field(path, "may not use ReadWriteOncePod with other access modes")


def validate_class_name(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of the name of a class."""
    if name and (problem := dns_subdomain(name)):
        yield invalid_value(path, f'"{name}"', problem)


def validate_positive(text: str, path: str) -> Iterator[Cause]:
    """Yield an error if a quantity is not positive."""
    if parse_quantity(text).unscaled <= 0:
        yield invalid_value(path, f'"{text}"', "must be greater than zero")


def validate_driver_name(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of the name of a driver.

    Source:
        kube-apiserver v1.36, pkg/apis/core/validation/validation.go, ValidateCSIDriverName.
    """
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield Cause("FieldValueTooLong", path, "Too long: may not be more than 63 bytes")
    if problem := dns_subdomain(name.lower()):
        yield invalid_value(path, f'"{name}"', problem)


def _validate_capacity(capacity: Object) -> Iterator[Cause]:
    if not capacity:
        yield required("spec.capacity")
    if set(capacity) != {"storage"}:
        problem = f'Unsupported value: {json_text(capacity or None)}: supported values: "storage"'
        yield Cause("FieldValueNotSupported", "spec.capacity", problem)
    for name, text in capacity.items():
        yield from validate_positive(text, f"spec.capacity[{name}]")


def _validate_attributes_class(spec: Object) -> Iterator[Cause]:
    name, path = spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName"
    if name is None:
        return
    if not name:
        yield required(path, "an empty string is disallowed")
    yield from validate_class_name(name, path)
    if "csi" not in spec:
        yield required("spec.csi", "has to be specified when using volumeAttributesClassName")


def _source(spec: Object) -> Object:
    """Return the volume source of a spec."""
    return {name: value for name, value in spec.items() if name not in _NO_SOURCES}


def _validate_source(spec: Object) -> Iterator[Cause]:
    sources = _source(spec)
    if not sources:
        yield required("spec", "must specify a volume type")
    for name in sorted(sources, key=_last_of_sources)[1:]:
        yield forbidden_field(f"spec.{name}", "may not specify more than 1 volume type")
    for name in ("hostPath", "local"):
        if name in sources:
            yield from _validate_path(sources[name].get("path", ""), f"spec.{name}.path")
    if "local" in sources and "nodeAffinity" not in spec:
        yield required("spec.nodeAffinity", "Local volume requires node affinity")
    csi = sources.get("csi")
    if csi is not None:
        yield from validate_driver_name(csi.get("driver", ""), "spec.csi.driver")
        if not csi.get("volumeHandle"):
            yield required("spec.csi.volumeHandle")


def _last_of_sources(name: str) -> tuple[bool, bool]:
    """Sort key for sources in upstream's order: hostPath first, csi last."""
    return name == "csi", name != "hostPath"


def _validate_path(path: str, field: str) -> Iterator[Cause]:
    if not path:
        yield required(field)
    elif ".." in path.split("/"):
        yield invalid_value(field, f'"{path}"', "must not contain '..'")


CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"

_SOURCE_KINDS: Final = frozenset(
    {("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")}
)


class PersistentVolumeClaimStrategy(Strategy):
    """The rules of PersistentVolumeClaims."""

    has_status = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        default_claim_spec(obj["spec"])
        obj["status"].setdefault("phase", "Pending")

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        try:
            check_claim(obj, cluster.each("limitranges"))
        except AdmissionError as error:
            raise _refused(obj, str(error)) from error
        protect(obj, CLAIM_PROTECTION)
        class_ = default_class(cluster.each("storageclasses"))
        if class_ and class_of(obj) is None:
            obj["spec"]["storageClassName"] = class_

    def check_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        if not _size(old["spec"]) < _size(obj["spec"]):
            return
        if old["status"].get("phase") != "Bound":
            raise _refused(obj, "Only bound persistent volume claims can be expanded")
        name = class_of(old)
        class_ = cluster.find("storageclasses", name) if name and name == class_of(obj) else None
        if class_ is None or not class_.get("allowVolumeExpansion"):
            problem = (
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc"
            )
            raise _refused(obj, f"{problem} must support resize")

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        obj["status"] = {"phase": "Pending"}
        _normalize_data_sources(obj["spec"])

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        _normalize_data_sources(obj["spec"])

    def validate(self, obj: Object) -> Iterator[Cause]:
        return validate_claim_spec(obj["spec"], "spec")

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from self.validate(obj)
        yield from _validate_change(obj, old)

    def validate_part_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        for name, text in obj["status"].get("capacity", {}).items():
            if (quantity := parse_quantity(text)).unscaled < 0:
                problem = "must be a valid resource quantity"
                yield invalid_value(f"status.capacity[{name}]", str(quantity.value()), problem)


def validate_claim_spec(spec: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the spec of a claim, or of a template of claims."""
    modes = spec.get("accessModes", ())
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    if "selector" in spec:
        yield from validate_label_selector(spec["selector"], f"{path}.selector")
    yield from validate_access_modes(modes, f"{path}.accessModes")
    size = spec["resources"].get("requests", {}).get("storage")
    if size is None:
        yield required(f"{path}.resources[storage]")
    else:
        yield from validate_positive(size, f"{path}.resources[storage]")
    yield from validate_class_name(spec.get("storageClassName", ""), f"{path}.storageClassName")
    if spec["volumeMode"] not in VOLUME_MODES:
        yield not_supported(f"{path}.volumeMode", spec["volumeMode"], VOLUME_MODES)
    yield from validate_class_name(
        spec.get("volumeAttributesClassName", ""), f"{path}.volumeAttributesClassName"
    )


def _validate_change(obj: Object, old: Object) -> Iterator[Cause]:
    """Yield the changes of a claim that are not allowed.

    Source:
        kube-apiserver v1.36, pkg/apis/core/validation/validation.go, ValidatePersistentVolumeClaimUpdate.
    """
    spec, before = clone(obj["spec"]), dict(old["spec"])
    is_bound = obj["status"].get("phase") == "Bound"
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName")
    if "storageClassName" in spec and "storageClassName" not in before:
        annotation = old["metadata"].get("annotations", {}).get(BETA_CLASS)
        if annotation in {None, spec["storageClassName"]}:
            before["storageClassName"] = spec["storageClassName"]
    if is_bound:
        if "requests" in spec["resources"]:
            spec["resources"]["requests"]["storage"] = before["resources"]["requests"]["storage"]
        spec["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
    if _without_none(spec) != _without_none(before):
        problem = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound"
        shown = f"- {json_text(old['spec'])}\n+ {json_text(obj['spec'])}"
        yield forbidden_field("spec", f"{problem} claims\n{shown}")
    size, capacity = _size(obj["spec"]), old["status"].get("capacity", {}).get("storage", 0)
    if size < _size(old["spec"]) and not parse_quantity(capacity) < size:
        problem = "field can not be less than status.capacity"
        yield forbidden_field("spec.resources.requests.storage", problem)
    yield from immutable(obj["spec"], old["spec"], "volumeMode")
    if "currentVolumeAttributesClassName" in old["status"]:
        present = obj["spec"].get("volumeAttributesClassName")
        if not present:
            what = "nil" if present is None else "empty string"
            problem = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
            yield forbidden_field("spec.volumeAttributesClassName", problem)


def _without_none(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if value is not None}


def _size(spec: Object) -> Quantity:
    return parse_quantity(spec["resources"].get("requests", {}).get("storage", 0))


def _normalize_data_sources(spec: Object) -> None:
    """Remove a source of an unknown kind, and make dataSource and dataSourceRef equal.

    Source:
        kube-apiserver v1.36, pkg/api/persistentvolumeclaim/util.go.
    """
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        if (source.get("apiGroup", ""), source.get("kind", "")) in _SOURCE_KINDS:
            spec["dataSourceRef"] = dict(source)
        else:
            del spec["dataSource"]
    elif source is None and reference is not None and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def _refused(claim: Object, problem: str) -> StatusError:
    name = claim["metadata"]["name"]
    details = {"name": name, "kind": "persistentvolumeclaims"}
    return StatusError(403, "Forbidden", f'persistentvolumeclaims "{name}" is forbidden: {problem}', details)
