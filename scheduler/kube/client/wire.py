"""The envelopes around objects on the wire: watch lines, list pages, error answers.

Only the envelope is decoded here. The object stays bytes until its own decoder reads it, so that one
unreadable object does not make the others unreadable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.errors import ApiError
from scheduler.objects.decode import UNREADABLE, elements, legible, members, without_managed_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"

_OPENINGS = {
    type_: f'{{"type":"{type_}","object":'.encode() for type_ in (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)
}

_UNNAMED = b'{"metadata":'
"""Beginning of an object of a built-in type without its kind, as Go writes it."""

LONGEST_RETRY_SECONDS = 30.0
"""Upper bound of Retry-After: a server, or a proxy, may ask for more than its cause lasts."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark after the initial objects of a watch."""


class ObjectIdentity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Identity and version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for an object without a namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Identified(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectIdentity


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch: the type of the event, the object's identity, and the object's own JSON.

    Attributes:
        decoded: the object as a struct; None if it was not decoded with the line.
    """

    type: str
    identity: ObjectIdentity
    object: bytes
    decoded: Any = None


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    type: str
    object: _Identified


class _RawEnvelope(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, frozen=True, rename="camel"):
    """One answer to a list; `items` is null where Go wrote an empty slice."""

    api_version: str = ""
    kind: str = ""
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None

    def objects(self) -> Iterator[bytes]:
        """Yield each item in the form of a watch event's object: built-in types have their kind there, but not in a list."""
        names = {"kind": self.kind.removesuffix("List"), "apiVersion": self.api_version}
        opening = msgspec.json.encode(names)[:-1] + b","
        for item in self.items or ():
            found = bytes(item)
            yield opening + found[1:] if found.startswith(_UNNAMED) else found


class _BookmarkMeta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _BookmarkMeta = _BookmarkMeta()


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after_seconds(self) -> float | None:
        seconds = None if self.details is None else self.details.retry_after_seconds
        return None if seconds is None else _bounded(seconds)


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_raw_envelope = msgspec.json.Decoder(_RawEnvelope).decode
_decode_list_page = msgspec.json.Decoder(ListPage).decode
_decode_identified = msgspec.json.Decoder(_Identified).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_status = msgspec.json.Decoder(_Status).decode


def decode_watch_event(line: bytes) -> WatchEvent:
    """Decode the envelope of a watch line; the object stays raw JSON, except one that nests too deeply to be read.

    Raises:
        msgspec.DecodeError: the line is not JSON, or not an event.
        UnicodeDecodeError: the line is not UTF-8.
    """
    try:
        return _decode_event(line)
    except UNREADABLE as error:
        try:
            parts = members(line)
            raw = without_managed_fields(parts["object"])
            return WatchEvent(msgspec.json.decode(parts["type"], type=str), decode_identity(raw), raw)
        except (ValueError, LookupError):  # not even readable in parts
            raise _as_unreadable(error) from error


def _decode_event(line: bytes) -> WatchEvent:
    try:
        envelope = _decode_envelope(line)
    except msgspec.ValidationError:  # the object has no usual identity, or the line has more fields
        raw = _decode_raw_envelope(line)
        return WatchEvent(raw.type, decode_identity(raw.object), bytes(raw.object))
    # As Go writes it, the object is the rest of the line, so its end need not be searched.
    opening = _OPENINGS.get(envelope.type)
    if opening is not None and line.startswith(opening) and line.endswith(b"}"):
        return WatchEvent(envelope.type, envelope.object.metadata, line[len(opening) : -1])
    return WatchEvent(envelope.type, envelope.object.metadata, bytes(_decode_raw_envelope(line).object))


def typed_event_decoder(struct: type[msgspec.Struct]) -> Callable[[bytes], WatchEvent]:
    """Return a `decode_watch_event` that decodes the object with the line, which takes less time than one after the other.

    An object that the struct does not fit, or a line that is not as Go writes it, is decoded as by `decode_watch_event`.
    """
    envelope = msgspec.defstruct(
        "Envelope", [("type", str), ("object", struct)], forbid_unknown_fields=True, frozen=True
    )
    decode = msgspec.json.Decoder(envelope).decode

    def decode_event(line: bytes) -> WatchEvent:
        try:
            found: Any = decode(line)
        except UNREADABLE:
            return decode_watch_event(line)
        opening = _OPENINGS.get(found.type)
        if opening is None or not (line.startswith(opening) and line.endswith(b"}")):
            return decode_watch_event(line)
        metadata = found.object.metadata
        identity = ObjectIdentity(metadata.name, metadata.namespace, metadata.uid, metadata.resource_version)
        return WatchEvent(found.type, identity, line[len(opening) : -1], found.object)

    return decode_event


def decode_list_page(body: bytes) -> ListPage:
    """Decode an answer to a list; its objects stay raw JSON.

    Raises:
        msgspec.DecodeError: the body is not JSON, or not a list.
        UnicodeDecodeError: the body is not UTF-8.
    """
    try:
        return _decode_list_page(body)
    except UNREADABLE as error:
        try:
            parts = members(body)
            items = parts.pop("items")
            found = [] if items == b"null" else elements(items)
            return msgspec.structs.replace(
                msgspec.convert({name: msgspec.json.decode(part) for name, part in parts.items()}, ListPage),
                items=[msgspec.Raw(item) for item in found],
            )
        except (ValueError, LookupError, RecursionError):
            raise _as_unreadable(error) from error


def decode_identity(raw: bytes | msgspec.Raw) -> ObjectIdentity:
    """Read only the identity of an object; a value that is not a string counts as absent.

    Raises:
        msgspec.DecodeError: it is not JSON.
        UnicodeDecodeError: it is not UTF-8.
    """
    try:
        return _decode_identified(raw).metadata
    except UNREADABLE as error:
        try:
            metadata = legible(bytes(raw)).get("metadata")
        except ValueError:
            raise _as_unreadable(error) from error
        fields = metadata if isinstance(metadata, dict) else {}
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        return msgspec.convert(texts, ObjectIdentity)


def _as_unreadable(error: Exception) -> Exception:
    """Return the reason why bytes cannot be read, as one of the two documented errors."""
    return msgspec.DecodeError("it nests too deeply") if isinstance(error, RecursionError) else error


def ends_initial_events(bookmark: bytes) -> bool:
    """Return whether a bookmark marks the end of the initial objects of a watch; an unreadable one does not."""
    try:
        annotations = _decode_bookmark(bookmark).metadata.annotations or {}
    except UNREADABLE:
        return False
    return annotations.get(INITIAL_EVENTS_END) == "true"


def answer_error(request: str, status: int, retry_after: str | None, body: bytes) -> ApiError:
    """Turn an error answer into an `ApiError`.

    Args:
        request: the request, as in `POST /api/v1/...`.
        status: the answer's HTTP status.
        retry_after: the answer's header, None for none.
        body: a Status object, if the answer comes from the API server itself.
    """
    parsed = _parse_status(body)
    seconds = _seconds(retry_after)
    if seconds is None:
        seconds = parsed.retry_after_seconds
    text = parsed.message or body[:256].decode(errors="replace").strip() or "no explanation"
    return ApiError(status, parsed.reason, f"{request}: {status}: {text}", retry_after_seconds=seconds)


def event_error(request: str, status_object: bytes) -> ApiError:
    """Turn the Status inside a watch's ERROR event into an error."""
    parsed = _parse_status(status_object)
    # A Status without a code is an error of the server.
    code = parsed.code or 500
    text = f"{request}: {code}: {parsed.message}"
    return ApiError(code, parsed.reason, text, retry_after_seconds=parsed.retry_after_seconds)


def _parse_status(body: bytes) -> _Status:
    """Read a Status; proxies answer with any body, so another body gives an empty Status."""
    try:
        return _decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Status()


def _seconds(header: str | None) -> float | None:
    """Read Retry-After; the API server sends whole seconds, and a proxy's date is ignored."""
    try:
        return None if header is None else _bounded(int(header))
    except ValueError:
        return None


def _bounded(seconds: float) -> float:
    return float(min(max(0, seconds), LONGEST_RETRY_SECONDS))
