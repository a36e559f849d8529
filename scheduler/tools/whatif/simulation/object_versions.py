"""Changed versions and copies of nodes and pods, made without JSON if no plugin reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.decode import decode_node
from scheduler.objects.pod import PodInfo
from scheduler.objects.resources import pod_resources
from scheduler.objects.v1 import PodStatus
from scheduler.tools.simulator.controllers.replicas import deletion_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.objects.meta import OwnerReference
    from scheduler.objects.node import NodeObject
    from scheduler.objects.resources import PodResources, PodRules
    from scheduler.objects.v1 import Container


def edited(node: NodeObject, edit: Callable[[dict[str, Any]], None]) -> NodeObject:
    """Return a node after a change to its JSON in place."""
    obj: dict[str, Any] = msgspec.json.decode(node.raw)
    edit(obj)
    return decode_node(msgspec.json.encode(obj))


def cordoned(node: NodeObject, *, wanted: bool = True) -> NodeObject:
    """Return a node that is cordoned, or uncordoned."""

    def mark(obj: dict[str, Any]) -> None:
        obj.setdefault("spec", {})["unschedulable"] = wanted

    return edited(node, mark)


_NEW_STATUS = PodStatus(phase="Pending")
_COPIED = (
    "_affinity_terms",
    "_host_ports",
    "key",
    "required_node_affinity",
    "storage_uses",
    "written_node_affinity",
    "_storage_volumes",
    "_claims",
)  # values computed from parts that do not change


def changed(pod: PodInfo, version: str, *, node_name: str | None = None, **status: Any) -> PodInfo:
    """Return a pod with another status, and on a node if one is given; its JSON stays the same."""
    replace = msgspec.structs.replace
    made = pod.pod
    return _like(
        pod,
        replace(
            made,
            metadata=replace(made.metadata, resource_version=version),
            spec=made.spec if node_name is None else replace(made.spec, node_name=node_name),
            status=replace(made.status, **status),
        ),
    )


def terminating(pod: PodInfo, at: str, version: str) -> PodInfo:
    """Return a pod that is being deleted."""
    replace, metadata = msgspec.structs.replace, pod.pod.metadata
    return _like(
        pod,
        replace(pod.pod, metadata=replace(metadata, resource_version=version, deletion_timestamp=at)),
    )


def annotated(pod: PodInfo, annotations: Mapping[str, str | None], version: str) -> PodInfo:
    """Return a pod with other annotations; None removes one."""
    replace, metadata = msgspec.structs.replace, pod.pod.metadata
    merged = {**metadata.annotations, **annotations}
    kept = {name: value for name, value in merged.items() if value is not None}
    raw = None if pod.raw is None else _edited(pod.raw, annotations=kept)
    made = replace(pod.pod, metadata=replace(metadata, resource_version=version, annotations=kept))
    return _like(pod, made, raw)


def with_requests(
    containers: tuple[Container, ...], name: str, requests: Mapping[str, str]
) -> tuple[Container, ...]:
    """Return containers of which one, the first without a name, has other requests; requests that are not given stay."""
    replace, resized = msgspec.structs.replace, name or containers[0].name

    def of(container: Container) -> Container:
        asked = {**container.resources.requests, **requests}
        return replace(container, resources=replace(container.resources, requests=asked))

    return tuple(of(each) if each.name == resized else each for each in containers)


def resized(
    pod: PodInfo, containers: tuple[Container, ...], rules: PodRules, version: str, **status: Any
) -> PodInfo:
    """Return a pod whose containers request other amounts, with another status; `rules` decide what it requests."""
    replace, made, raw = msgspec.structs.replace, pod.pod, pod.raw
    if raw is not None:
        obj = msgspec.json.decode(raw)
        for its, container in zip(obj["spec"]["containers"], containers, strict=True):
            its["resources"] = {**its.get("resources", {}), "requests": container.resources.requests}
        raw = msgspec.json.encode(obj)
    other = replace(
        made,
        metadata=replace(made.metadata, resource_version=version),
        spec=replace(made.spec, containers=containers),
        status=replace(made.status, **status),
    )
    return _like(pod, other, raw, pod_resources(other, rules))


def with_status_of(known: PodInfo, pod: PodInfo, version: str) -> PodInfo:
    """Return a pod with the status of its known version."""
    replace, made = msgspec.structs.replace, pod.pod
    metadata = replace(made.metadata, resource_version=version)
    return PodInfo(replace(made, metadata=metadata, status=known.pod.status), pod.raw)


def pending(pod: PodInfo) -> PodInfo:
    """Return a pod as it was before it was placed."""
    made = named(pod, pod.name)
    metadata = msgspec.structs.replace(made.pod.metadata, uid=pod.uid)
    return PodInfo(msgspec.structs.replace(made.pod, metadata=metadata), made.raw)


def named(
    pod: PodInfo, name: str, *, owners: tuple[OwnerReference, ...] | None = None, number: int = 0
) -> PodInfo:
    """Return a pending copy of a pod.

    Args:
        pod: the original.
        name: name of the copy.
        owners: owners of the copy; None for the same.
        number: distinguishes successive copies with the same name.
    """
    replace, metadata, spec = msgspec.structs.replace, pod.pod.metadata, pod.pod.spec
    uid = f"uid-of-{metadata.namespace}/{name}" + (f"-{number}" if number else "")
    made = replace(
        pod.pod,
        metadata=replace(
            metadata,
            name=name,
            uid=uid,
            resource_version="",
            deletion_timestamp="",
            owner_references=metadata.owner_references if owners is None else owners,
        ),
        spec=spec if not spec.node_name else replace(spec, node_name=""),
        status=_NEW_STATUS,
    )
    raw = None if pod.raw is None else _pending(_edited(pod.raw, name=name, uid=uid))
    return PodInfo(made, raw, node_name="", resources=pod.resources)


def for_scheduler(pod: PodInfo, scheduler_name: str) -> PodInfo:
    """Return a pod with another schedulerName."""
    spec = msgspec.structs.replace(pod.pod.spec, scheduler_name=scheduler_name)
    return _like(pod, msgspec.structs.replace(pod.pod, spec=spec))


def controller_of(pod: PodInfo) -> OwnerReference | None:
    """Return the owner that replaces a pod; None if there is none."""
    return next((owner for owner in pod.pod.metadata.owner_references if owner.controller), None)


def in_order_of_removal(pods: Sequence[PodInfo]) -> list[PodInfo]:
    """Return pods of a controller, given from the oldest to the newest, in the order in which a scale-down removes them.

    Pending pods come first, then those with a lower deletion cost, then the newest ones.
    """
    newest_first = pods[::-1]
    return sorted(newest_first, key=lambda pod: (bool(pod.node_name), deletion_cost(pod.annotations)))


def with_replicas(controller: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a controller that wants another number of pods."""
    return {**controller, "spec": {**controller["spec"], "replicas": number}}


def goes_with_node(pod: PodInfo) -> bool:
    """Return whether a pod belongs to its node, as a DaemonSet's or a static pod does."""
    owner = controller_of(pod)
    return owner is not None and owner.kind in {"DaemonSet", "Node"}


def _like(
    pod: PodInfo, made: Any, raw: bytes | None = None, resources: PodResources | None = None
) -> PodInfo:
    version = PodInfo(made, raw or pod.raw, resources=resources or pod.resources)
    version.take_derived_from(pod, _COPIED)
    return version


def _pending(raw: bytes) -> bytes:
    obj = msgspec.json.decode(raw)
    obj["spec"].pop("nodeName", None)
    for gone in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
        obj["metadata"].pop(gone, None)
    return msgspec.json.encode({**obj, "status": {"phase": _NEW_STATUS.phase}})


def _edited(raw: bytes, **metadata: Any) -> bytes:
    obj = msgspec.json.decode(raw)
    obj["metadata"] = {**obj["metadata"], **metadata}
    return msgspec.json.encode(obj)
