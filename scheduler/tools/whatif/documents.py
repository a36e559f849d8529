"""Splits the bytes of a file into API objects, and converts these to the typed values of the daemon."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.configuration.yaml_text import read_all
from scheduler.errors import FieldError, ObjectError
from scheduler.kube.client import resources
from scheduler.kube.client.resources import Resource
from scheduler.objects.decode import decode_node, decode_object, decode_pod, without_nulls
from scheduler.objects.kinds import STRUCTS
from scheduler.objects.pod_defaults import default_pod
from scheduler.objects.v1 import Pod
from scheduler.objects.wording import entry, was

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Item(NamedTuple):
    """One API object, of which only the identity is decoded; a field that is no text is None.

    Attributes:
        where: its place in the file, for example `items[3]` or `document 2`.
        raw: its JSON.
        api_version: its own, or that of its list; the items of a NodeList do not repeat it.
        kind: its own, or that of its list.
    """

    where: str
    raw: bytes
    api_version: str | None
    kind: str | None
    namespace: str | None
    name: str | None
    uid: str | None


class FileContents(NamedTuple):
    """The objects of a file, and its errors."""

    items: list[Item]
    errors: list[FieldError]


class _Metadata(msgspec.Struct):
    name: Any = None
    namespace: Any = None
    uid: Any = None


class _Header(msgspec.Struct, rename="camel"):
    api_version: Any = None
    kind: Any = None
    metadata: _Metadata | None = None
    items: list[msgspec.Raw] | None = None


_HEADER = msgspec.json.Decoder(_Header)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_DOCUMENT = msgspec.json.Decoder(msgspec.Raw)


def read_documents(data: bytes) -> tuple[list[bytes], list[FieldError]]:
    """Read one or more JSON or YAML documents of any content.

    Returns:
        Each document as JSON, and the errors; one of the two is not empty.
    """
    try:
        if data.startswith(_UTF16_MARKS):  # PowerShell's > writes kubectl's output so
            data = data.decode("utf-16").encode()
        data = data.removeprefix(codecs.BOM_UTF8)
        text = data.decode()
    except UnicodeDecodeError as error:
        return [], [FieldError("", f"not UTF-8: byte {error.start}")]
    documents, errors = _documents(data, text)
    if not documents and not errors:
        errors.append(FieldError("", "is empty"))
    return documents, errors


def item_of(raw: bytes, where: str) -> Item:
    """Return one API object as an item.

    Raises:
        ValueError: it is no API object.
    """
    try:
        return _item(raw, where, _HEADER.decode(raw), None, None)
    except msgspec.ValidationError as error:
        raise ValueError(_what_is_wrong(raw, error)) from error
    except msgspec.DecodeError as error:  # an incomplete character or a malformed number
        raise ValueError(f"not JSON: {error}") from error


def read_items(data: bytes) -> FileContents:
    """Read API objects: the output of `kubectl get ... -o json` or `-o yaml`, or several outputs in one file.

    Lists are expanded at any depth; a document may also be a plain array of objects.
    """
    documents, errors = read_documents(data)
    contents = FileContents([], errors)
    for number, document in enumerate(documents):
        where = f"document {number + 1}" if len(documents) > 1 else ""
        try:
            _open(document, where, None, None, contents)
        except RecursionError:
            contents.errors.append(FieldError(where, "nested too deeply"))
    return contents


def _documents(data: bytes, text: str) -> tuple[list[bytes], list[FieldError]]:
    """Return each document as JSON; `text` is the decoded data."""
    looks_like_json = text.lstrip()[:1] in {"{", "["}
    if looks_like_json:
        try:
            return list(_json_documents(data, text)), []
        except json.JSONDecodeError as error:
            not_json = FieldError(f"line {error.lineno}, column {error.colno}", f"not JSON: {error.msg}")
        except RecursionError:
            not_json = FieldError("", "nested too deeply")
    parsed = read_all(text)
    errors = [
        FieldError(f"document {number + 1}, {error.path}" if len(parsed) > 1 else error.path, error.problem)
        for number, document in enumerate(parsed)
        for error in document.errors
    ]
    if errors and looks_like_json:
        return [], [not_json]
    return [msgspec.json.encode(document.value) for document in parsed if document.value is not None], errors


def _json_documents(data: bytes, text: str) -> Iterator[bytes]:
    """Split concatenated JSON texts.

    Raises:
        json.JSONDecodeError: not JSON.
        RecursionError: nested too deeply.
    """
    try:
        _DOCUMENT.decode(data)
    except msgspec.DecodeError:
        pass  # several texts, or an error: the slower parser finds out which and where
    else:
        yield data
        return
    decoder, position = json.JSONDecoder(), 0
    while rest := text[position:].lstrip():
        position = len(text) - len(rest)
        _, end = decoder.raw_decode(text, position)
        yield text[position:end].encode()
        position = end


def _open(raw: bytes, where: str, api_version: str | None, kind: str | None, contents: FileContents) -> None:
    """Collect an object or all objects of a list; `api_version` and `kind` are those that the list declares."""
    try:
        if raw.lstrip()[:1] == b"[":
            for index, one in enumerate(_LIST.decode(raw)):
                _open(bytes(one), entry(where, index), api_version, kind, contents)
            return
        header = _HEADER.decode(raw)
    except msgspec.ValidationError as error:
        contents.errors.append(FieldError(where, _what_is_wrong(raw, error)))
        return
    except msgspec.DecodeError as error:  # an incomplete character or a malformed number
        contents.errors.append(FieldError(where, f"not JSON: {error}"))
        return
    own_kind = _text(header.kind)
    if header.items is not None and (own_kind is None or own_kind.endswith("List")):
        of_items = (own_kind or "").removesuffix(
            "List"
        ) or None  # a plain List does not declare the kind of its items
        version = _text(header.api_version) if of_items else None
        for index, one in enumerate(header.items):
            place = entry(f"{where}, items" if where else "items", index)
            _open(bytes(one), place, version, of_items, contents)
        return
    contents.items.append(_item(raw, where, header, api_version, kind))


def _item(raw: bytes, where: str, header: _Header, api_version: str | None, kind: str | None) -> Item:
    metadata = header.metadata or _Metadata()
    return Item(
        where,
        raw,
        _text(header.api_version) or api_version,
        _text(header.kind) or kind,
        _text(metadata.namespace),
        _text(metadata.name),
        _text(metadata.uid),
    )


def _what_is_wrong(raw: bytes, error: msgspec.ValidationError) -> str:
    document = json.loads(raw)  # the most lenient parser
    if not isinstance(document, dict):
        return f"must be an API object, {was(document)}"
    for field, shape, expected in (("metadata", dict, "a mapping"), ("items", list, "a list")):
        value = document.get(field)
        if value is not None and not isinstance(value, shape):
            return f"{field}: must be {expected}, {was(value)}"
    return str(error)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


NODES = "v1/nodes"
PODS = "v1/pods"

_KNOWN = {
    (resource.api_version, resource.kind): resource
    for resource in vars(resources).values()
    if isinstance(resource, Resource)
}


class Identity(NamedTuple):
    """The identity of an item.

    Attributes:
        item: the item, with its namespace if its kind is namespaced.
        kind: its kind, as in plugins' `needs`.
        key: `namespace/name`, or `name`.
        is_complete: whether it has its own uid and namespace.
    """

    item: Item
    kind: str
    key: str
    is_complete: bool


def identify(item: Item) -> Identity:
    """Return the identity of an item.

    Raises:
        ValueError: a part of it is missing.
    """
    if item.kind is None or item.name is None or item.api_version is None:
        given = {"apiVersion": item.api_version, "kind": item.kind, "metadata.name": item.name}
        missing = ", ".join(field for field, value in given.items() if value is None)
        raise ValueError(f"{missing}: must be a string that is not empty")
    name = item.name
    resource = _KNOWN.get((item.api_version, item.kind))
    kind = f"{item.api_version}/{resource.plural if resource else plural(item.kind)}"
    is_complete = item.uid is not None and item.namespace is not None
    if resource is not None and resource.namespaced and item.namespace is None:
        item = item._replace(namespace="default")
    key = f"{item.namespace}/{name}" if item.namespace else name
    return Identity(item, kind, key, is_complete)


def is_known(item: Item) -> bool:
    """Return whether an item's kind is one of Kubernetes' kinds that schedulers read or write."""
    return (item.api_version, item.kind) in _KNOWN


def decoded_pod(identity: Identity) -> PodInfo:
    """Decode a pod; a pod without uid, which no API server has seen yet, gets the API server's defaults.

    Raises:
        ObjectError: it cannot be decoded.
    """
    return decode_pod(identity.item.raw) if identity.is_complete else _completed_pod(identity.item)


def decoded(identity: Identity) -> NodeObject | PodInfo | dict[str, object]:
    """Decode an object: a node or pod to its type, any other kind to JSON.

    Raises:
        ObjectError: it cannot be decoded.
    """
    if identity.kind == PODS:
        return decoded_pod(identity)
    if identity.kind == NODES:
        return decode_node(identity.item.raw)
    return decoded_object(identity.item.raw, identity.kind, identity.key)


def decoded_object(raw: bytes, kind: str, key: str) -> dict[str, object]:
    """Decode an object of another kind; its namespace is that of its key.

    Raises:
        ObjectError: it cannot be decoded.
    """
    found = decode_object(raw, STRUCTS.get(kind))
    namespace = key.rpartition("/")[0]
    if namespace:
        found["metadata"].setdefault("namespace", namespace)
    return found


def _completed_pod(item: Item) -> PodInfo:
    obj = decode_object(item.raw)
    identity = {"namespace": item.namespace, "uid": item.uid or f"{item.namespace}/{item.name}"}
    obj["metadata"].update(identity)
    pod = decode_pod(msgspec.json.encode(obj))
    if item.uid is not None:
        return pod
    obj = without_nulls(obj, Pod)
    try:
        default_pod(obj)
    except (AttributeError, TypeError) as error:  # in a part that scheduling does not read
        raise ObjectError(
            "Pod", pod.key, "spec", f"does not have the shape of a pod's spec: {error}"
        ) from error
    return decode_pod(msgspec.json.encode(obj))


def plural(kind: str) -> str:
    """Return the most likely plural of a kind in URLs.

    Source:
        apimachinery v0.36, pkg/api/meta/restmapper.go, UnsafeGuessKindToResource.
    """
    name = kind.lower()
    if name.endswith("endpoints"):
        return name
    if name.endswith("s"):
        return f"{name}es"
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}s"
