"""Decodes objects of the API server: typed, with everything that scheduling reads, or an ObjectError.

All values derived from a pod or node are computed here, so that an invalid object is found on arrival and not
in the middle of a scheduling cycle.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec

from scheduler.errors import ObjectError
from scheduler.objects.node import NodeObject
from scheduler.objects.nulls import without_nulls
from scheduler.objects.pieces import UNREADABLE, legible, without_managed_fields
from scheduler.objects.pod import PodInfo
from scheduler.objects.v1 import Node, Pod

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T", Pod, Node)
_S = TypeVar("_S", bound=msgspec.Struct)

_SHARED_BYTES: Final = 2048
"""The size of the parts that equal pods share."""
_SHARED: WeakValueDictionary[tuple[type, bytes], Any] = WeakValueDictionary()  # by type and digest
_ENCODER = msgspec.msgpack.Encoder()

_POD = msgspec.json.Decoder(Pod)
_NODE = msgspec.json.Decoder(Node)


def decode_pod(raw: bytes) -> PodInfo:
    """Decode a v1.Pod; the kept bytes have no managedFields.

    Raises:
        ObjectError: malformed JSON, a field of the wrong type, an invalid quantity, no name or no uid.

    Source:
        kube-scheduler v1.36, pkg/scheduler/scheduler.go, newPodInformer.
    """
    try:
        pod = _POD.decode(raw)
    except UNREADABLE:
        raw, pod = _decode_patiently(raw, Pod)
    metadata = pod.metadata
    if not metadata.name or not metadata.uid:
        missing = "uid" if metadata.name else "name"
        key = f"{metadata.namespace or '?'}/{metadata.name or '?'}"
        raise ObjectError("Pod", key, f"metadata.{missing}", "expected text, found none")
    if len(raw) > _SHARED_BYTES:
        pod = _sharing_large_parts(pod)
    info = PodInfo(pod, _without_managed_fields(raw))
    try:
        _ = info.resources  # computed now: it may raise
    except ObjectError as error:
        error.found = _decode_untyped(raw, "Pod")[1]
        raise
    return info


def decode_node(raw: bytes) -> NodeObject:
    """Decode a v1.Node.

    Raises:
        ObjectError: malformed JSON, a field of the wrong type, an invalid quantity or no name.
    """
    try:
        node = _NODE.decode(raw)
    except UNREADABLE:
        raw, node = _decode_patiently(raw, Node)
    if not node.metadata.name:
        raise ObjectError("Node", "?", "metadata.name", "expected text, found none")
    found = NodeObject(node, raw)
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
    if spec.affinity is None and not spec.topology_spread_constraints:
        return pod
    shared = msgspec.structs.replace(
        spec,
        affinity=spec.affinity and _shared(spec.affinity),
        topology_spread_constraints=tuple(map(_shared, spec.topology_spread_constraints)),
    )
    return msgspec.structs.replace(pod, spec=shared)


def _shared(part: _S) -> _S:
    """Return an equal part of another pod while one exists."""
    content = _ENCODER.encode(part)
    if len(content) < _SHARED_BYTES:
        return part
    return cast("_S", _SHARED.setdefault((type(part), sha256(content).digest()), part))


def _without_managed_fields(raw: bytes) -> bytes:
    """Remove managedFields, which no plugin, extender or WebAssembly guest needs, and which are often half of an object."""
    if b'"managedFields"' not in raw:
        return raw
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(fields["metadata"], type=dict[str, msgspec.Raw])
    except RecursionError:
        return without_managed_fields(raw)
    metadata.pop("managedFields", None)
    return msgspec.json.encode({**fields, "metadata": metadata})


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
