"""From a file's bytes to API objects, one by one: JSON or YAML, lists within lists, several documents."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.configuration.yaml_text import read_all
from scheduler.errors import FieldError
from scheduler.objects.wording import entry, was

if TYPE_CHECKING:
    from collections.abc import Iterator

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Item(NamedTuple):
    """One API object, unread but for what says which one it is. What is no text is None here.

    Attributes:
        where: its place in the file, as in `items[3]` or `document 2`.
        raw: its JSON.
        api_version: its own, or that of the list it is in; a NodeList does not repeat it.
        kind: likewise.
    """

    where: str
    raw: bytes
    api_version: str | None
    kind: str | None
    namespace: str | None
    name: str | None
    uid: str | None


class Contents(NamedTuple):
    """What a file holds, and what of it cannot be read."""

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
    """Read JSON or YAML documents, one or several, whatever they hold.

    Returns:
        Each document as JSON, and what of the data cannot be read; one of the two is not empty.
    """
    try:
        if data.startswith(_UTF16_MARKS):  # what PowerShell's > makes of kubectl's output
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
    """Return a single API object as an item.

    Raises:
        ValueError: it is none.
    """
    try:
        return _item(raw, where, _HEADER.decode(raw), None, None)
    except msgspec.ValidationError as error:
        raise ValueError(_what_is_wrong(raw, error)) from error
    except msgspec.DecodeError as error:  # half a character, or a number that is none
        raise ValueError(f"not JSON: {error}") from error


def read_items(data: bytes) -> Contents:
    """Read API objects: what `kubectl get ... -o json` or `-o yaml` writes, or several such texts in one.

    Lists of any kind are opened, however deep; a document may also be a bare list of objects.
    """
    documents, errors = read_documents(data)
    contents = Contents([], errors)
    for number, document in enumerate(documents):
        where = f"document {number + 1}" if len(documents) > 1 else ""
        try:
            _open(document, where, None, None, contents)
        except RecursionError:
            contents.errors.append(FieldError(where, "nested too deeply"))
    return contents


def _documents(data: bytes, text: str) -> tuple[list[bytes], list[FieldError]]:
    """Return each document as JSON; `text` is the data decoded."""
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
    """Split JSON texts that follow one another.

    Raises:
        json.JSONDecodeError: not JSON.
        RecursionError: nested too deeply.
    """
    try:
        _DOCUMENT.decode(data)
    except msgspec.DecodeError:
        pass  # several, or broken: the slower reader knows which, and where
    else:
        yield data
        return
    decoder, position = json.JSONDecoder(), 0
    while rest := text[position:].lstrip():
        position = len(text) - len(rest)
        _, end = decoder.raw_decode(text, position)
        yield text[position:end].encode()
        position = end


def _open(raw: bytes, where: str, api_version: str | None, kind: str | None, contents: Contents) -> None:
    """Note an object, or all that are in a list; `api_version` and `kind` are what its list says of it."""
    try:
        if raw.lstrip()[:1] == b"[":
            for index, one in enumerate(_LIST.decode(raw)):
                _open(bytes(one), entry(where, index), api_version, kind, contents)
            return
        header = _HEADER.decode(raw)
    except msgspec.ValidationError as error:
        contents.errors.append(FieldError(where, _what_is_wrong(raw, error)))
        return
    except msgspec.DecodeError as error:  # half a character, or a number that is none
        contents.errors.append(FieldError(where, f"not JSON: {error}"))
        return
    own_kind = _text(header.kind)
    if header.items is not None and (own_kind is None or own_kind.endswith("List")):
        of_items = (own_kind or "").removesuffix("List") or None  # a plain List says nothing of its items
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
    document = json.loads(raw)  # of all readers the most lenient
    if not isinstance(document, dict):
        return f"must be an API object, {was(document)}"
    for field, shape, expected in (("metadata", dict, "a mapping"), ("items", list, "a list")):
        value = document.get(field)
        if value is not None and not isinstance(value, shape):
            return f"{field}: must be {expected}, {was(value)}"
    return str(error)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
