"""Reads files of API objects: JSON or YAML, several documents, lists. All readers of such files use it."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.configuration.yaml_text import read_all
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.wording import entry, was

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        # A plain List does not declare the kind of its items.
        of_items = (own_kind or "").removesuffix("List") or None
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


def read_manifests(path: str | Path) -> list[dict[str, Any]]:
    """Return the objects of a file, for an API server.

    Raises:
        ConfigurationError: all errors of the file.
    """
    objects, errors = objects_of(str(path), Path())
    if errors:
        raise ConfigurationError(errors, str(path))
    return objects


def objects_of(manifest: str | dict[str, Any], folder: Path) -> tuple[list[dict[str, Any]], list[FieldError]]:
    """Return an object, or the objects of a file in their order, and the errors.

    Args:
        manifest: an object, or the path of a YAML or JSON file.
        folder: base of relative paths.
    """
    try:
        data = (
            (folder / manifest).read_bytes() if isinstance(manifest, str) else msgspec.json.encode(manifest)
        )
    except OSError as error:
        return [], [FieldError("", f"cannot be read: {error.strerror or error}")]
    contents = read_items(data)
    objects, errors = [], contents.errors
    for item in contents.items:
        obj = msgspec.json.decode(item.raw)
        metadata = obj.get("metadata") or {}
        name = item.name or _text(metadata.get("generateName"))
        given = {"apiVersion": item.api_version, "kind": item.kind, "metadata.name": name}
        errors += [
            FieldError(f"{item.where}, {field}" if item.where else field, "is missing")
            for field, value in given.items()
            if value is None
        ]
        objects.append({**obj, "apiVersion": item.api_version, "kind": item.kind})
    return objects, errors
