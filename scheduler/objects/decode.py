"""Decodes objects of the API server: typed, with everything that scheduling reads, or an ObjectError.

A decoder recurses at every level, so it fails on JSON that nests deeper than the stack, wherever the nesting
is; an API server stores 10,000 levels. This module counts all brackets at once instead, and leaves out
unreadable parts.

All values derived from a pod or node are computed here, so that an invalid object is found on arrival and not
in the middle of a scheduling cycle.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from msgspec import inspect

from scheduler.errors import ObjectError
from scheduler.objects.dynamic_resources import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler.objects.meta import ObjectMeta
from scheduler.objects.node import NodeObject, node_with_images
from scheduler.objects.pod import PodInfo, UnannotatedJson, spec_digest
from scheduler.objects.resources import DEFAULT_RULES, pod_resources
from scheduler.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler.objects.v1 import Node, Pod, PodCondition, PodSchedulingGate, PodSpec, PodStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from scheduler.objects.resources import PodRules

STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "v1/persistentvolumeclaims": PersistentVolumeClaim,
    "v1/persistentvolumes": PersistentVolume,
    "storage.k8s.io/v1/storageclasses": StorageClass,
    "storage.k8s.io/v1/csinodes": CSINode,
    "storage.k8s.io/v1/csidrivers": CSIDriver,
    "storage.k8s.io/v1/csistoragecapacities": CSIStorageCapacity,
    "storage.k8s.io/v1/volumeattachments": VolumeAttachment,
    "resource.k8s.io/v1/resourceclaims": ResourceClaim,
    "resource.k8s.io/v1/resourceslices": ResourceSlice,
    "resource.k8s.io/v1/deviceclasses": DeviceClass,
    "resource.k8s.io/v1/devicetaintrules": DeviceTaintRule,
}
"""Kind, as in a plugin's `needs` -> its type; objects that do not match the type are ignored."""


def without_nulls(found: Any, kind: type[msgspec.Struct]) -> Any:
    """Return untyped JSON without its nulls, in the fields of a type.

    A null field is left out. A null in a list or map becomes a zero value: an empty object, an empty string,
    a quantity of 0.
    """
    return _cleaned(found, _type_info(kind))


_type_info = cache(inspect.type_info)  # takes milliseconds


def _cleaned(found: Any, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.UnionType):
        # Unions here are quantities, and optional structs.
        kind = next((each for each in kind.types if isinstance(each, inspect.StructType)), kind)
    if isinstance(kind, inspect.StructType) and isinstance(found, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        return {
            name: _cleaned(value, known[name]) if name in known else value
            for name, value in found.items()
            if value is not None
        }
    if isinstance(kind, inspect.DictType) and isinstance(found, dict):
        return {name: _in_its_place(value, kind.value_type) for name, value in found.items()}
    if isinstance(kind, inspect.VarTupleType) and isinstance(found, list):
        return [_in_its_place(value, kind.item_type) for value in found]
    return found


def _in_its_place(value: Any, kind: inspect.Type) -> Any:
    if value is not None:
        return _cleaned(value, kind)
    if isinstance(kind, inspect.StructType):
        return {}
    return "0" if isinstance(kind, inspect.UnionType) else ""


UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of a decoder that fails on the whole."""

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_TEXT = msgspec.json.Decoder(str)


def members(raw: bytes) -> dict[str, bytes]:
    """Return the raw members of an object; those with unreadable names are left out.

    Raises:
        ValueError: the bytes are not a complete object.
    """
    starts, ends, colons = _parts(raw)
    is_empty = len(starts) == 1 and not raw[starts[0] : ends[0]].strip()
    if raw[starts[0] - 1 : starts[0]] != b"{" or len(colons) != (0 if is_empty else len(starts)):
        raise ValueError("no JSON object")
    found = {}
    for start, colon, end in zip(starts, colons, ends, strict=False):  # an empty object has no colon
        try:
            name = _TEXT.decode(raw[start:colon])
        except UNREADABLE:
            continue
        found[name] = raw[colon + 1 : end].strip()
    return found


def elements(raw: bytes) -> list[bytes]:
    """Return the raw elements of a list.

    Raises:
        ValueError: the bytes are not a complete list.
    """
    starts, ends, _ = _parts(raw)
    if raw[starts[0] - 1 : starts[0]] != b"[":
        raise ValueError("no JSON list")
    found = [raw[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return found if found != [b""] else []


def legible(raw: bytes, levels: int = 1) -> dict[str, Any]:
    """Return the readable parts of an object, as untyped JSON.

    Args:
        raw: the object.
        levels: number of levels at which objects are read in parts; deeper unreadable objects are left out.

    Raises:
        ValueError: the bytes are not a complete object.
    """
    found = {}
    for name, part in members(raw).items():
        try:
            found[name] = msgspec.json.decode(part)
        except UNREADABLE:
            if levels:
                with suppress(ValueError):
                    found[name] = legible(part, levels - 1)
    return found


def without_managed_fields(raw: bytes) -> bytes:
    """Return an object without managedFields, whatever they contain.

    Raises:
        ValueError: the bytes are not a complete object.
    """
    fields = members(raw)
    if "metadata" in fields:
        metadata = members(fields["metadata"])
        metadata.pop("managedFields", None)
        fields["metadata"] = _joined(metadata)
    return _joined(fields)


def _joined(parts: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join([msgspec.json.encode(name) + b":" + part for name, part in parts.items()]) + b"}"


def _parts(raw: bytes) -> tuple[list[int], list[int], list[int]]:
    """Return the starts and ends of the parts of an object or list, and the colons in them."""
    plain = _ESCAPED.sub(b"__", raw) if b"\\" in raw else raw  # then each quote begins or ends a string
    cells = np.frombuffer(plain, dtype=np.uint8)
    outside: NDArray[np.bool_] = ~np.logical_xor.accumulate(cells == ord('"'))
    # As bytes, { and [ differ by one bit, and so do } and ].
    opens, closes = (((cells | 0x20) == ord(bracket)) & outside for bracket in "{}")
    depth = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    whole = np.flatnonzero(closes & (depth == 0))
    first = int(opens.argmax()) if len(cells) else 0
    if not whole.size or not opens[first]:
        raise ValueError("no whole JSON object or list")
    between = outside & (depth == 1)
    end = int(whole[0])
    brackets = raw[first : first + 1] + raw[end : end + 1]
    if brackets not in {b"{}", b"[]"} or raw[:first].strip() or raw[end + 1 :].strip():
        raise ValueError("no JSON object or list")
    commas, colons = (np.flatnonzero(between[:end] & (cells[:end] == ord(sign))).tolist() for sign in ",:")
    return [first + 1, *(comma + 1 for comma in commas)], [*commas, end], colons


_T = TypeVar("_T", Pod, Node)
_S = TypeVar("_S", bound=msgspec.Struct)

_SHARED_BYTES: Final = 2048
"""The size of the parts that equal pods share."""
_LARGE_POD_BYTES: Final = 32 * 1024
"""The size of pods that share their whole spec with equal ones."""
_SHARED: WeakValueDictionary[tuple[type, bytes], Any] = WeakValueDictionary()  # by type and digest
_LARGE_PODS: WeakValueDictionary[bytes, PodInfo] = WeakValueDictionary()  # by the digest of the spec
_ENCODER = msgspec.msgpack.Encoder()

_POD = msgspec.json.Decoder(Pod)


def decode_pod(
    raw: bytes,
    rules: PodRules = DEFAULT_RULES,
    *,
    keeps_bound_objects: bool = True,
    decoded: Pod | None = None,
) -> PodInfo:
    """Decode a v1.Pod; the kept bytes have no managedFields.

    Args:
        raw: its JSON.
        rules: the rules for its requests.
        keeps_bound_objects: whether the bytes of a pod on a node are kept.
        decoded: the pod, if it was decoded with its envelope.

    Raises:
        ObjectError: malformed JSON, a field of the wrong type, an invalid quantity, no name or no uid.

    Source:
        kube-scheduler v1.36, pkg/scheduler/scheduler.go, newPodInformer.
    """
    try:
        pod = _POD.decode(raw) if decoded is None else decoded
    except UNREADABLE:
        raw, pod = _decode_patiently(raw, Pod)
    metadata = pod.metadata
    if not metadata.name or not metadata.uid:
        missing = "uid" if metadata.name else "name"
        key = f"{metadata.namespace or '?'}/{metadata.name or '?'}"
        raise ObjectError("Pod", key, f"metadata.{missing}", "expected text, found none")
    size = len(raw)
    keeps_object = keeps_bound_objects or not pod.spec.node_name
    if size > (_SHARED_BYTES if keeps_object else _LARGE_POD_BYTES):  # `trim_bound_pod` shares smaller parts
        pod = _sharing_large_parts(pod)
    digest = b""
    if size > _LARGE_POD_BYTES:
        digest = spec_digest(pod.spec)
        if (equal := _LARGE_PODS.get(digest)) is not None:
            pod = msgspec.structs.replace(pod, spec=equal.pod.spec)
    try:
        resources = pod_resources(pod, rules)
    except ObjectError as error:
        error.found = _decode_untyped(raw, "Pod")[1]
        raise
    kept = None
    if keeps_object:
        is_large = size > _LARGE_POD_BYTES and bool(metadata.annotations)
        kept = _without_managed_fields(raw, nor_annotations=is_large)
    found = PodInfo(pod, kept, resources=resources)
    if digest:
        found.spec_digest = digest
        _LARGE_PODS[digest] = found  # the newest one is likely to exist longest
    return found


def decode_node(raw: bytes) -> NodeObject:
    """Decode a v1.Node.

    Raises:
        ObjectError: malformed JSON, a field of the wrong type, an invalid quantity or no name.
    """
    images: dict[str, int] | None = None
    try:
        node, images = node_with_images(raw)
    except UNREADABLE:
        raw, node = _decode_patiently(raw, Node)
    if not node.metadata.name:
        raise ObjectError("Node", "?", "metadata.name", "expected text, found none")
    found = NodeObject(node, raw, images=images)
    _ = found.allocatable  # computed now: it may raise
    return found


def typed_object(obj: Mapping[str, Any], struct: type[_S]) -> _S:
    """Convert an untyped object to a type; JSON nulls are absent fields.

    Raises:
        ObjectError: a field has another type.
    """
    try:
        return msgspec.convert(obj, struct)
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(without_nulls(obj, struct), struct)
    except msgspec.ValidationError as error:
        _raise_from(error, struct, dict(obj))


def decode_object(raw: bytes, struct: type[msgspec.Struct] | None = None) -> dict[str, Any]:
    """Decode an object of any kind as untyped JSON, without managedFields.

    Args:
        raw: its JSON.
        struct: the type that plugins read it as, if any.

    Raises:
        ObjectError: malformed JSON, no JSON object, or a field has another type than in the struct.
    """
    found = _decode_untyped(raw, "Object" if struct is None else struct.__name__)[1]
    metadata = found.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    if struct is not None:
        typed_object(found, struct)
    return found


def _sharing_large_parts(pod: Pod) -> Pod:
    """Return a pod that shares large parts with equal pods, as those of one Deployment or group are."""
    spec = pod.spec
    if spec.affinity is None and not (spec.topology_spread_constraints or spec.volumes):
        return pod
    shared = msgspec.structs.replace(
        spec,
        affinity=spec.affinity and _shared(spec.affinity),
        topology_spread_constraints=tuple(map(_shared, spec.topology_spread_constraints)),
        volumes=tuple(
            [
                each if each.rbd is None else msgspec.structs.replace(each, rbd=_shared(each.rbd))
                for each in spec.volumes
            ]
        ),
    )
    return msgspec.structs.replace(pod, spec=shared)


def _shared(part: _S) -> _S:
    """Return an equal part of another pod while one exists."""
    content = _ENCODER.encode(part)
    if len(content) < _SHARED_BYTES:
        return part
    return cast("_S", _SHARED.setdefault((type(part), sha256(content).digest()), part))


def _without_managed_fields(raw: bytes, *, nor_annotations: bool) -> bytes | UnannotatedJson:
    """Remove managedFields, which no plugin, extender or WebAssembly guest needs, and which are often half of an object.

    Args:
        raw: an object.
        nor_annotations: whether the annotations, which it has, are removed too.
    """
    if not nor_annotations and b'"managedFields"' not in raw:
        return raw
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(fields["metadata"], type=dict[str, msgspec.Raw])
    except RecursionError:
        return without_managed_fields(raw)
    metadata.pop("managedFields", None)
    if nor_annotations:
        size = memoryview(metadata.pop("annotations")).nbytes
        del fields["metadata"]
        return UnannotatedJson.of(msgspec.json.encode({"metadata": metadata, **fields}), size)
    written = msgspec.json.encode({**fields, "metadata": metadata})
    return bytes(memoryview(written))  # a copy: what an encoder returns may have reserved half as much again


def _decode_untyped(raw: bytes, kind: str) -> tuple[bytes, dict[str, Any]]:
    """Decode an object; its managedFields need not be readable.

    Returns:
        Its readable bytes, and the object.
    """
    found: Any
    try:
        found = msgspec.json.decode(raw)
    except UNREADABLE as error:
        try:
            raw = without_managed_fields(raw)
        except ValueError:
            problem = f"expected JSON, found {_shortened(raw)}: {error}"
            raise ObjectError(kind, "?", "", problem) from error
        found = _decode_in_pieces(raw, kind)
    if not isinstance(found, dict):
        raise ObjectError(kind, "?", "", f"expected a JSON object, found {_shortened(raw)}")
    return raw, found


def _decode_in_pieces(raw: bytes, kind: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE as error:
        found = legible(raw)
        problem = "nests too deeply" if isinstance(error, RecursionError) else f"expected JSON: {error}"
        raise ObjectError(kind, _key(found, kind), "", problem, found=found) from error


def _decode_patiently(raw: bytes, kind: type[_T]) -> tuple[bytes, _T]:
    """Decode an object that the typed decoder rejected: JSON nulls are absent fields, as in Go."""
    raw, found = _decode_untyped(raw, kind.__name__)
    try:
        return raw, msgspec.convert(without_nulls(found, kind), kind)
    except msgspec.ValidationError as error:
        _raise_from(error, kind, found)


def _raise_from(error: msgspec.ValidationError, kind: type, found: dict[str, Any]) -> NoReturn:
    problem, place, path = str(error).rpartition(" - at `")
    if not place:
        problem, path = path, ""
    path = path.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    description = problem[:1].lower() + problem[1:]
    raise ObjectError(kind.__name__, _key(found, kind.__name__), path, description, found=found) from error


def _key(found: dict[str, Any], kind: str) -> str:
    """Return `namespace/name`, or `name` for nodes, as far as readable."""
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        return "?"
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not (name and isinstance(name, str)):
        return "?"
    if namespace and isinstance(namespace, str):
        return f"{namespace}/{name}"
    return f"?/{name}" if kind == "Pod" else name


def _shortened(raw: bytes) -> str:
    return repr(raw[:40]) + ("..." if len(raw) > 40 else "")


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
