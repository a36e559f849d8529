"""Objects in a recording: the fields that the scheduler reads, and no secrets.

Of pods and nodes, these are the decoded fields: no environment, no commands, and only the volumes that matter
for scheduling. Of other kinds, these are all fields except managedFields, kubectl's last applied
configuration, and the data of Secrets.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from scheduler.objects.decode import STRUCTS, decode_node, decode_object, decode_pod
from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.objects.resources import PodResources, pod_resources

APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The whole object as it was applied, with all of its values."""


class _Images(msgspec.Struct):
    images: msgspec.Raw = msgspec.Raw(b"[]")


class _WithImages(msgspec.Struct):
    status: _Images = msgspec.field(default_factory=_Images)


_images = msgspec.json.Decoder(_WithImages).decode
_RESOURCES: Final = tuple(PodResources.__dataclass_fields__)


def packed(obj: Any) -> Any:
    """Return an object as a recordable value."""
    if isinstance(obj, PodInfo):
        return _packed_pod(obj)
    if isinstance(obj, NodeObject):
        return (_without_applied(obj.node), bytes(_images(obj.raw).status.images))
    metadata = obj.get("metadata", {})
    if APPLIED in (metadata.get("annotations") or {}):
        annotations = {name: text for name, text in metadata["annotations"].items() if name != APPLIED}
        obj = {**obj, "metadata": {**metadata, "annotations": annotations}}
    if obj.get("kind") == "Secret":
        obj = {name: part for name, part in obj.items() if name not in {"data", "stringData"}}
    return obj


def _packed_pod(pod: PodInfo) -> tuple[Any, ...]:
    known = pod.pod
    if pod_resources(known) != pod.resources:  # a resize and the rules of the version are not recorded
        return _without_applied(known), [_plain(getattr(pod.resources, name)) for name in _RESOURCES]
    return (_without_applied(known),)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else dict(value)


def _without_applied(obj: Any) -> Any:
    annotations = obj.metadata.annotations
    if APPLIED not in annotations:
        return obj
    left = {name: text for name, text in annotations.items() if name != APPLIED}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=left))


def unpacked_pod(encoded: list[Any]) -> PodInfo:
    """Return a recorded pod.

    Raises:
        ObjectError: the pod cannot be decoded.
    """
    pod = decode_pod(msgspec.json.encode(encoded[0]))
    if len(encoded) > 1:
        return PodInfo(pod.pod, pod.raw, resources=PodResources(*encoded[1]))
    return pod


def unpacked_node(encoded: list[Any]) -> NodeObject:
    """Return a recorded node.

    Raises:
        ObjectError: the node cannot be decoded.
    """
    node, images = encoded
    node.setdefault("status", {})["images"] = msgspec.Raw(images)
    return decode_node(msgspec.json.encode(node))


def unpacked_object(encoded: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a recorded object of another kind.

    Raises:
        ObjectError: the object cannot be decoded.
    """
    return decode_object(msgspec.json.encode(encoded), STRUCTS.get(kind))
