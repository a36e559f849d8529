"""The envelopes around objects on the wire: watch lines, list pages, error answers.

Only the envelope is decoded here. The object stays bytes until its own decoder reads it, so that an object
nobody understands does not take its neighbours with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the objects a watch began with."""


class ObjectIdentity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Which object, and which version of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for what has no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Identified(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectIdentity


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, frozen=True):
    """One answer to a list; `items` is null where Go wrote an empty slice."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


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


decode_watch_event = msgspec.json.Decoder(WatchEvent).decode
decode_list_page = msgspec.json.Decoder(ListPage).decode
_decode_identified = msgspec.json.Decoder(_Identified).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_status = msgspec.json.Decoder(_Status).decode


def decode_identity(raw: bytes | msgspec.Raw) -> ObjectIdentity:
    """Read which object this is, and nothing else of it; what is no text there counts as absent.

    Raises:
        msgspec.DecodeError: it is no JSON.
        UnicodeDecodeError: it is no UTF-8.
    """
    try:
        return _decode_identified(raw).metadata
    except msgspec.ValidationError:
        found = msgspec.json.decode(raw)
        metadata = found.get("metadata") if isinstance(found, dict) else None
        texts = metadata if isinstance(metadata, dict) else {}
        fields = {
            "name": "name",
            "namespace": "namespace",
            "uid": "uid",
            "resource_version": "resourceVersion",
        }
        return ObjectIdentity(
            **{field: texts[name] for field, name in fields.items() if isinstance(texts.get(name), str)}
        )


def ends_initial_events(bookmark: msgspec.Raw) -> bool:
    """Say whether a bookmark tells that all objects the watch began with have been sent."""
    annotations = _decode_bookmark(bookmark).metadata.annotations or {}
    return annotations.get(INITIAL_EVENTS_END) == "true"


def answer_error(request: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Turn a refusal into an error.

    Args:
        request: what was asked, as in `POST /api/v1/...`.
        status: the answer's HTTP status.
        headers: the answer's.
        body: a Status object, if it comes from the API server itself.
    """
    parsed = _parse_status(body)
    retry_after = _seconds(headers.get("Retry-After"))
    if retry_after is None and parsed.details is not None:
        retry_after = parsed.details.retry_after_seconds
    said = parsed.message or body[:256].decode(errors="replace").strip() or "no explanation"
    return ApiError(status, parsed.reason, f"{request}: {status}: {said}", retry_after_seconds=retry_after)


def event_error(request: str, status_object: msgspec.Raw) -> ApiError:
    """Turn the Status inside a watch's ERROR event into an error."""
    parsed = _parse_status(status_object)
    retry_after = parsed.details.retry_after_seconds if parsed.details is not None else None
    # A Status without a code is a server's own mistake.
    code = parsed.code or 500
    return ApiError(
        code, parsed.reason, f"{request}: {code}: {parsed.message}", retry_after_seconds=retry_after
    )


def _parse_status(body: bytes | msgspec.Raw) -> _Status:
    """Read a Status; proxies on the way answer with anything, so what is none is an empty one."""
    try:
        return _decode_status(body)
    except msgspec.DecodeError:
        return _Status()


def _seconds(header: str | None) -> float | None:
    """Read Retry-After; the API server sends whole seconds, and a date from some proxy is no reason to fail."""
    try:
        return None if header is None else float(max(0, int(header)))
    except ValueError:
        return None
