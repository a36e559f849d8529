"""What the enabled plugins read beyond the usual, and what follows for what is watched and kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.client import resources
from scheduler.client.resources import Resource
from scheduler.framework.events import EventResource
from scheduler.framework.interface import Needs
from scheduler.objects.decode import decode_pod
from scheduler.objects.trim import trim_bound_pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework

_KNOWN = {
    f"{resource.api_version}/{resource.plural}": resource
    for resource in vars(resources).values()
    if isinstance(resource, Resource)
}


def needs_of(frameworks: Iterable[Framework]) -> Needs:
    """Return what all plugins of all profiles need together."""
    return together(plugin.needs for framework in frameworks for plugin in framework.plugins.all())


def together(each: Iterable[Needs]) -> Needs:
    """Return what meets all needs."""
    needs = list(each)
    return Needs(
        kinds=frozenset[str]().union(*(need.kinds for need in needs)),
        bound_pod_annotations=any(need.bound_pod_annotations for need in needs),
        bound_pod_objects=any(need.bound_pod_objects for need in needs),
        rights=frozenset[str]().union(*(need.rights for need in needs)),
    )


class PodDecoder:
    """Decodes pods, and keeps of those on nodes no more than is needed.

    Attributes:
        needs: of all plugins together; may be changed.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs = needs

    def __call__(self, raw: bytes) -> PodInfo:
        return trimmed(decode_pod(raw), self.needs)

    def keep_also(self, needs: Needs) -> bool:
        """Keep more from now on; whether it is more than before, so that what is known is to be read anew."""
        before = self.needs
        self.needs = replace(
            before,
            bound_pod_annotations=before.bound_pod_annotations or needs.bound_pod_annotations,
            bound_pod_objects=before.bound_pod_objects or needs.bound_pod_objects,
        )
        return self.needs != before


def trimmed(pod: PodInfo, needs: Needs) -> PodInfo:
    """Return a pod with no more than is needed, if it is on a node; a pending one stays whole."""
    if not pod.node_name:
        return pod
    return trim_bound_pod(
        pod, keep_annotations=needs.bound_pod_annotations, keep_object=needs.bound_pod_objects
    )


def resource_of(kind: str) -> tuple[Resource, EventResource | None]:
    """Return where a kind lives, and what its events are called.

    Args:
        kind: `version/plural` or `group/version/plural`, as plugins name it.

    Returns:
        For a kind of kube-scheduler's, its event's resource too; any other kind's events are of no resource.

    Raises:
        ValueError: it has another shape.
    """
    parts = kind.split("/")
    if len(parts) not in {2, 3} or not all(parts):
        raise ValueError(f"a kind is version/plural or group/version/plural, was {kind!r}")
    known = _KNOWN.get(kind)
    if known is None:
        group = parts[0] if len(parts) == 3 else ""
        return Resource(group, parts[-2], parts[-1], parts[-1], namespaced=True), None
    name = f"{known.group}/{known.kind}" if known.group else known.kind
    return known, next((event for event in EventResource if event.value == name), None)
