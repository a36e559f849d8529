"""The additional needs of the enabled plugins, and the watches and fields that follow from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.framework.interface import Needs
from scheduler.kube.client import resources
from scheduler.kube.client.resources import Resource
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import PodInfo, trim_bound_pod
from scheduler.objects.resources import DEFAULT_RULES
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    import msgspec

    from scheduler.engine.runtime.framework import Framework

_KNOWN = {
    f"{resource.api_version}/{resource.plural}": resource
    for resource in vars(resources).values()
    if isinstance(resource, Resource)
}


def needs_of(frameworks: Iterable[Framework]) -> Needs:
    """Return the combined needs of all plugins of all profiles."""
    return together(plugin.needs for framework in frameworks for plugin in framework.plugins.all())


def together(each: Iterable[Needs]) -> Needs:
    """Return needs that include all the given ones."""
    needs = list(each)
    return Needs(
        kinds=frozenset[str]().union(*(need.kinds for need in needs)),
        bound_pod_annotations=any(need.bound_pod_annotations for need in needs),
        bound_pod_objects=any(need.bound_pod_objects for need in needs),
        rights=frozenset[str]().union(*(need.rights for need in needs)),
        pod_rules=needs[0].pod_rules if needs else DEFAULT_RULES,
    )


class PodDecoder:
    """Decodes pods, and keeps only the needed fields of pods on nodes; implements `TypedDecoder`.

    Attributes:
        needs: the combined needs of all plugins; may be changed.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs = needs

    struct: type[msgspec.Struct] = Pod

    def __call__(self, raw: bytes, decoded: Pod | PodInfo | None = None) -> PodInfo:
        if isinstance(decoded, PodInfo):
            return decoded
        needs = self.needs
        pod = decode_pod(raw, needs.pod_rules, keeps_bound_objects=needs.bound_pod_objects, decoded=decoded)
        return trimmed(pod, needs)

    def in_steps(self, raw: bytes, decoded: Pod | None = None) -> Generator[None, None, PodInfo]:
        needs = self.needs
        pod = decode_pod(raw, needs.pod_rules, keeps_bound_objects=needs.bound_pod_objects, decoded=decoded)
        yield
        terms = yield from pod.read_affinity_terms()
        yield
        hash(terms)  # is stored, and needed when the pod is counted on its node
        yield
        return trimmed(pod, needs)

    def keep_also(self, needs: Needs) -> bool:
        """Keep more fields from now on; return whether that is a change, so that known pods must be read again."""
        before = self.needs
        self.needs = replace(
            before,
            bound_pod_annotations=before.bound_pod_annotations or needs.bound_pod_annotations,
            bound_pod_objects=before.bound_pod_objects or needs.bound_pod_objects,
        )
        return self.needs != before


def trimmed(pod: PodInfo, needs: Needs) -> PodInfo:
    """Return a pod on a node with only the needed fields; a pending pod stays complete."""
    if not pod.node_name:
        return pod
    return trim_bound_pod(
        pod, keep_annotations=needs.bound_pod_annotations, keep_object=needs.bound_pod_objects
    )


def resource_of(kind: str) -> Resource:
    """Return the resource of a kind.

    Args:
        kind: `version/plural` or `group/version/plural`, as plugins name it.

    Raises:
        ValueError: the text has another format.
    """
    parts = kind.split("/")
    if len(parts) not in {2, 3} or not all(parts):
        raise ValueError(f"a kind is version/plural or group/version/plural, was {kind!r}")
    group = parts[0] if len(parts) == 3 else ""
    return _KNOWN.get(kind) or Resource(group, parts[-2], parts[-1], parts[-1], namespaced=True)
