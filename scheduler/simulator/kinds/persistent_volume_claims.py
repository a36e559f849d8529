"""PersistentVolumeClaims: their class, their protection, and which fields can change.

Source:
    kube-apiserver v1.36, pkg/registry/core/persistentvolumeclaim/strategy.go, pkg/apis/core/validation/validation.go,
    plugin/pkg/admission/storage/{persistentvolume/resize,storageclass/setdefault,storageobjectinuseprotection}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.pod_defaults import default_claim_spec
from scheduler.objects.quantity import parse_quantity
from scheduler.simulator.apimachinery.causes import (
    Cause,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from scheduler.simulator.apimachinery.objects import clone, json_text
from scheduler.simulator.apimachinery.selectors import validate_label_selector
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.apimachinery.strategy import Strategy
from scheduler.simulator.kinds.persistent_volumes import (
    VOLUME_MODES,
    immutable,
    protect,
    validate_access_modes,
    validate_class_name,
    validate_positive,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.objects.quantity import Quantity
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

PROTECTION: Final = "kubernetes.io/pvc-protection"

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_IS_DEFAULT: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
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
        protect(obj, PROTECTION)
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

    def validate(self, obj: Object) -> Sequence[Cause]:
        return list(validate_claim_spec(obj["spec"], "spec"))

    def validate_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        return [*validate_claim_spec(obj["spec"], "spec"), *_validate_change(obj, old)]

    def validate_part_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        return [
            invalid_value(
                f"status.capacity[{name}]", str(quantity.value()), "must be a valid resource quantity"
            )
            for name, text in obj["status"].get("capacity", {}).items()
            if (quantity := parse_quantity(text)).unscaled < 0
        ]


def class_of(claim: Object) -> str | None:
    """Return the class of a claim or volume: "" for no class, None if it is not set."""
    annotation: str | None = claim["metadata"].get("annotations", {}).get(_BETA_CLASS)
    return claim["spec"].get("storageClassName") if annotation is None else annotation


def default_class(classes: Iterable[Object]) -> str:
    """Return the class of claims that name none: the newest default class; "" if there is none.

    Source:
        kube-apiserver v1.36, pkg/volume/util/storageclass.go, GetDefaultClass.
    """
    youngest: tuple[str, str] = ("", "")
    for class_ in sorted(classes, key=lambda one: str(one["metadata"]["name"])):
        metadata = class_["metadata"]
        if is_default_class(class_) and metadata["creationTimestamp"] > youngest[0]:
            youngest = (metadata["creationTimestamp"], metadata["name"])
    return youngest[1]


def is_default_class(class_: Object) -> bool:
    """Return whether a class is a default class."""
    annotations = class_["metadata"].get("annotations", {})
    return any(annotations.get(name) == "true" for name in _IS_DEFAULT)


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
        annotation = old["metadata"].get("annotations", {}).get(_BETA_CLASS)
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
