"""Matching of volumes and claims.

Source:
    kube-controller-manager v1.36, staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go, FindMatchingVolume,
    and pkg/controller/volume/persistentvolume/pv_controller.go, checkVolumeSatisfyClaim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.objects.quantity import parse_quantity
from scheduler.simulator.apimachinery.objects import is_terminating, key_of, labels_of
from scheduler.simulator.apimachinery.selectors import label_rule
from scheduler.simulator.kinds.persistent_volume_claims import class_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.quantity import Quantity
    from scheduler.simulator.apimachinery.objects import Object


def matching_volume(claim: Object, volumes: Iterable[Object]) -> Object | None:
    """Return the volume reserved for a claim, else the smallest that matches; None if there is none."""
    spec, asked = claim["spec"], _size(claim)
    selector = label_rule(spec["selector"]) if "selector" in spec else None
    best: tuple[Quantity, Object] | None = None
    for volume in volumes:
        own, size = volume["spec"], capacity_of(volume)
        is_reserved = "claimRef" in own
        if is_reserved and not is_for(volume, claim):
            continue
        if size < asked or _fixed(own) != _fixed(spec) or is_terminating(volume):
            continue
        if not set(spec["accessModes"]) <= set(own["accessModes"]):
            continue
        if is_reserved:
            return volume
        if volume["status"].get("phase") != "Available":
            continue
        if selector is not None and not selector.matches(labels_of(volume)):
            continue
        if (class_of(volume) or "") == (class_of(claim) or "") and (best is None or size < best[0]):
            best = (size, volume)
    return None if best is None else best[1]


def mismatch(claim: Object, volume: Object) -> str:
    """Return why a claim cannot be bound to the volume it names; "" if it can."""
    spec, own = claim["spec"], volume["spec"]
    problems = (
        (is_terminating(volume), f'the volume is marked for deletion "{key_of(volume)[1]}"'),
        (capacity_of(volume) < _size(claim), "requested PV is too small"),
        ((class_of(volume) or "") != (class_of(claim) or ""), "storageClassName does not match"),
        (
            own.get("volumeAttributesClassName", "") != spec.get("volumeAttributesClassName", ""),
            "volumeAttributesClassName does not match",
        ),
        (own["volumeMode"] != spec["volumeMode"], "incompatible volumeMode"),
        (not set(spec["accessModes"]) <= set(own["accessModes"]), "incompatible accessMode"),
    )
    return next((text for is_wrong, text in problems if is_wrong), "")


def is_for(volume: Object, claim: Object) -> bool:
    """Return whether a volume is reserved for a claim, or bound to it."""
    reference = volume["spec"].get("claimRef", {})
    if (reference.get("namespace", ""), reference.get("name", "")) != key_of(claim):
        return False
    return reference.get("uid", "") in {"", claim["metadata"]["uid"]}


def capacity_of(volume: Object) -> Quantity:
    """Return the capacity of a volume."""
    return parse_quantity(volume["spec"]["capacity"]["storage"])


def _size(claim: Object) -> Quantity:
    return parse_quantity(claim["spec"]["resources"]["requests"]["storage"])


def _fixed(spec: Object) -> tuple[str, str]:
    """Return the fields that must be equal for a volume and its claim."""
    return spec["volumeMode"], spec.get("volumeAttributesClassName", "")
