"""The readable parts of a pod that cannot be decoded as a whole, to report the error to its user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scheduler.objects.meta import ObjectMeta
from scheduler.objects.pod import PodInfo
from scheduler.objects.v1 import Pod, PodCondition, PodSchedulingGate, PodSpec, PodStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


def outline_pod(found: Mapping[str, Any]) -> PodInfo | None:
    """Return a pod with only its identity, scheduler, gates, node, phase and conditions.

    Values of a wrong type are left out. The pod must not be scheduled: it has no requests.

    Args:
        found: the object as untyped JSON.

    Returns:
        None if it has no name or no uid.
    """
    metadata, spec, status = (_mapping(found.get(part)) for part in ("metadata", "spec", "status"))
    name, uid = _text(metadata.get("name")), _text(metadata.get("uid"))
    if not name or not uid:
        return None
    generation = metadata.get("generation")
    return PodInfo(
        Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=_text(metadata.get("namespace")),
                uid=uid,
                resource_version=_text(metadata.get("resourceVersion")),
                generation=generation if isinstance(generation, int) else 0,
            ),
            spec=PodSpec(
                node_name=_text(spec.get("nodeName")),
                scheduler_name=_text(spec.get("schedulerName")) or PodSpec().scheduler_name,
                scheduling_gates=_all_of(PodSchedulingGate, spec.get("schedulingGates")),
            ),
            status=PodStatus(
                phase=_text(status.get("phase")), conditions=_all_of(PodCondition, status.get("conditions"))
            ),
        )
    )


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""


def _all_of(kind: type[T], found: object) -> tuple[T, ...]:
    try:
        return tuple(msgspec.convert(found, list[kind]))  # type: ignore[valid-type]
    except msgspec.ValidationError:
        return ()
