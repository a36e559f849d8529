"""Lists and watches over HTTP, and the encoding of their objects: whole, as table rows, or metadata only.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/handlers/watch.go and
    pkg/storage/cacher.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from scheduler.http_server.messages import ClientGoneError
from scheduler.tools.simulator.api.requests import RequestInfo, accepted_types, boolean_or_none
from scheduler.tools.simulator.apimachinery.causes import Cause, forbidden_field, not_supported
from scheduler.tools.simulator.apimachinery.status import StatusError, bad_request, expired, invalid
from scheduler.tools.simulator.printing.printers import printer_of
from scheduler.tools.simulator.storage import ADDED, Entry, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.tools.simulator.apimachinery.kinds import Kind
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.selectors import Selector
    from scheduler.tools.simulator.registry.registry import Registry
    from scheduler.tools.simulator.storage import Storage

META_API_VERSION: Final = "meta.k8s.io/v1"
_INITIAL_EVENTS_END: Final = {"k8s.io/initial-events-end": "true"}


class Presentation(Protocol):
    """A form in which the objects of a kind are shown."""

    def one(self, entry: Entry) -> bytes:
        """Return one object."""
        ...

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        """Return a list with its metav1.ListMeta."""
        ...

    def event(self, type_: str, entry: Entry) -> bytes:
        """Return one line of a watch."""
        ...


class AsObjects:
    """Whole objects."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        head = {"kind": kind.list_kind or f"{kind.kind}List", "apiVersion": kind.api_version}
        self._list_head = msgspec.json.encode(head)[:-1]

    def one(self, entry: Entry) -> bytes:
        return entry.raw(self._kind)

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        kind = self._kind
        items = b",".join([kind.item(entry.raw(kind)) for entry in entries])
        return b'%b,"metadata":%b,"items":[%b]}' % (self._list_head, msgspec.json.encode(metadata), items)

    def event(self, type_: str, entry: Entry) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), entry.raw(self._kind))


class AsMetadata:
    """Metadata only: metav1.PartialObjectMetadata."""

    def one(self, entry: Entry) -> bytes:
        return msgspec.json.encode(partial_metadata(entry.object))

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": META_API_VERSION, "metadata": metadata}
        return msgspec.json.encode({**head, "items": [partial_metadata(entry.object) for entry in entries]})

    def event(self, type_: str, entry: Entry) -> bytes:
        return msgspec.json.encode({"type": type_, "object": partial_metadata(entry.object)}) + b"\n"


class AsTable:
    """Rows for `kubectl get`: metav1.Table."""

    def __init__(self, kind: Kind, clock: Clock, include_object: str) -> None:
        """Set up; `include_object` is the object in each row: `Metadata`, `Object` or `None`."""
        self._kind = kind
        self._clock = clock
        self._include = include_object
        self._printer = kind.printer or printer_of(kind.group_resource)
        self._columns_are_known = False

    def one(self, entry: Entry) -> bytes:
        return msgspec.json.encode(self._table([entry], {"resourceVersion": str(entry.version)}))

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        return msgspec.json.encode(self._table(entries, metadata))

    def event(self, type_: str, entry: Entry) -> bytes:
        """Return one line of a watch; only the first one has the column definitions."""
        rows = [] if type_ == "BOOKMARK" else [entry]
        table = self._table(rows, {"resourceVersion": str(entry.version)})
        if self._columns_are_known:
            table["columnDefinitions"] = None
        self._columns_are_known = True
        return msgspec.json.encode({"type": type_, "object": table}) + b"\n"

    def _table(self, entries: Sequence[Entry], metadata: Object) -> Object:
        now = self._clock.utc_now()
        return {
            "kind": "Table",
            "apiVersion": META_API_VERSION,
            "metadata": metadata,
            "columnDefinitions": [column.definition() for column in self._printer.columns],
            "rows": [self._row(entry, self._printer.cells(entry.object, now)) for entry in entries],
        }

    def _row(self, entry: Entry, cells: list[Any]) -> Object:
        row: Object = {"cells": cells}
        phase = entry.object.get("status", {}).get("phase") if self._kind.kind == "Pod" else None
        if phase in {"Succeeded", "Failed"}:
            message = f"The pod has {'completed successfully' if phase == 'Succeeded' else 'failed'}."
            row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
        if self._include == "Object":
            row["object"] = self._kind.view(entry.object)
        elif self._include == "Metadata":
            row["object"] = partial_metadata(entry.object)
        return row


def partial_metadata(obj: Object) -> Object:
    """Return the metav1.PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_API_VERSION, "metadata": obj["metadata"]}


def bookmark(kind: Kind, version: int, *, initial_events_end: bool = False) -> Entry:
    """Return the object of a BOOKMARK: a resourceVersion, and Go's zero values."""
    metadata: Object = {"resourceVersion": str(version)}
    if initial_events_end:
        metadata["annotations"] = _INITIAL_EVENTS_END
    blank = kind.strategy.to_storage({} if kind.type is None else dict(kind.type.zero))
    return Entry("", "", "", kind.head(blank | {"metadata": metadata}), version)


def negotiate(kind: Kind, accept: str, clock: Clock, include_object: str) -> Presentation:
    """Return the first supported form that a client accepts.

    Raises:
        StatusError: 406, no accepted form is supported.
    """
    for media_type, asked in accepted_types(accept or "application/json"):
        if media_type not in {"application/json", "application/*", "*/*"}:
            continue
        shape = asked.get("as", "")
        if not shape:
            return AsObjects(kind)
        if asked.get("g") != "meta.k8s.io" or asked.get("v") != "v1":
            continue
        if shape == "Table":
            return AsTable(kind, clock, include_object or "Metadata")
        if shape in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
            return AsMetadata()
    problem = "only the following media types are accepted: application/json"
    raise StatusError(406, "NotAcceptable", problem)


EXACT: Final = "Exact"
NOT_OLDER_THAN: Final = "NotOlderThan"

_TOKEN_FORMAT: Final = "meta.k8s.io/v1"  # noqa: S105 - a version of continue tokens
_CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter."
)


@dataclass(frozen=True, slots=True)
class ListChunk:
    """One page of a list.

    Attributes:
        entries: entries of the page.
        metadata: metav1.ListMeta of the list.
    """

    entries: list[Entry]
    metadata: dict[str, Any]


def parse_version(text: str) -> int:
    """Read a resourceVersion; "" is 0.

    Raises:
        StatusError: 500, as upstream: it is not a number.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        problem = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise StatusError(500, "", f'resourceVersion: Invalid value: "{text}": {problem}')
    return int(text)


def check_list_options(query: Mapping[str, str]) -> None:
    """Reject invalid combinations of list parameters.

    Raises:
        StatusError: 422.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/apis/meta/internalversion/validation.
    """
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    problems = []
    if match:
        if not version:
            problems.append("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if query.get("continue"):
            problems.append("resourceVersionMatch is forbidden when continue is provided")
        if match == EXACT and version == "0":
            problems.append('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    causes = [forbidden_field("resourceVersionMatch", problem) for problem in problems]
    if match not in {"", EXACT, NOT_OLDER_THAN}:
        causes.append(not_supported("resourceVersionMatch", match, (EXACT, NOT_OLDER_THAN, "")))
    if "sendInitialEvents" in query:
        causes.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    refuse_list_options(causes)


def is_from_storage(query: Mapping[str, str]) -> bool:
    """Return whether a list of one object bypasses the watch cache, which would wait for a future version.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go, ShouldDelegateExactRV.
    """
    return query.get("resourceVersionMatch") == EXACT and "metadata.name=" in query.get("fieldSelector", "")


def refuse_list_options(causes: list[Cause]) -> None:
    """Raise 422 if the parameters of a list or watch are invalid."""
    if causes:
        raise invalid("meta.k8s.io", "ListOptions", "", causes)


def list_page(registry: Registry, kind: Kind, selector: Selector, query: Mapping[str, str]) -> ListChunk:
    """List the selected objects.

    Raises:
        StatusError: 400, a bad continue token or limit; 410, a version that is no longer kept.
    """
    limit = _limit(query)
    token = query.get("continue", "")
    version = parse_version(query.get("resourceVersion", ""))
    storage = registry.storage(kind)
    start = ""
    if token:
        version, start = _read_token(token)
        try:
            entries = storage.entries_at(version, selector)
        except StatusError as error:
            fresh = _token(registry.versions.current, start)
            raise expired(_CONTINUE_EXPIRED, fresh) from error
    elif version and (
        query.get("resourceVersionMatch") == EXACT or (limit and not query.get("resourceVersionMatch"))
    ):
        entries = storage.entries_at(version, selector)
    else:
        entries, version = storage.entries(selector), registry.versions.current
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if start:
        entries = [entry for entry in entries if entry.key >= start]
    if limit and len(entries) > limit:
        metadata["continue"] = _token(version, entries[limit - 1].key + "\0")
        if not selector.has_predicates:
            metadata["remainingItemCount"] = len(entries) - limit
        entries = entries[:limit]
    return ListChunk(entries, metadata)


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "") or "0"
    try:
        return max(0, int(text))
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def _token(version: int, start: str) -> str:
    fields = msgspec.json.encode({"v": _TOKEN_FORMAT, "rv": version, "start": f"/{start}"})
    return base64.urlsafe_b64encode(fields).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        fields = msgspec.json.decode(base64.urlsafe_b64decode(padded.encode()))
        version, start, format_ = fields["rv"], fields["start"], fields["v"]
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if format_ != _TOKEN_FORMAT or not isinstance(version, int) or not str(start).startswith("/"):
        raise bad_request("invalid continue token: continue key is not valid: server key is not recognized")
    return version, str(start)[1:]


BOOKMARK: Final = "BOOKMARK"

_BOOKMARK_SECONDS: Final = 60.0
_BOOKMARK_BEFORE_END_SECONDS: Final = 2.0
_LEAST_TIMEOUT_SECONDS: Final = 1800


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of a watch.

    Attributes:
        version: resourceVersion to continue from; 0 for none.
        initial_events: whether it begins with all existing objects.
        marks_initial_end: whether a bookmark marks the end of these.
        bookmarks: whether bookmarks are sent.
        timeout_seconds: timeout; 0 for the server's default.
    """

    version: int
    initial_events: bool
    marks_initial_end: bool
    bookmarks: bool
    timeout_seconds: int


def watch_options(query: Mapping[str, str]) -> WatchOptions:
    """Read the parameters of a watch.

    Raises:
        StatusError: 400, 422 or 500.
    """
    initial = boolean_or_none(query.get("sendInitialEvents"))
    match = query.get("resourceVersionMatch", "")
    causes = []
    if initial is not None and match != NOT_OLDER_THAN:
        problem = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
        causes.append(forbidden_field("resourceVersionMatch", problem))
    if match and initial is None:
        problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden_field("resourceVersionMatch", problem))
    if match not in {"", NOT_OLDER_THAN}:
        causes.append(not_supported("resourceVersionMatch", match, (NOT_OLDER_THAN,)))
    refuse_list_options(causes)
    timeout = query.get("timeoutSeconds", "") or "0"
    if not (timeout.isascii() and timeout.lstrip("-").isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{timeout}": invalid syntax')
    version = parse_version(query.get("resourceVersion", ""))
    bookmarks = bool(boolean_or_none(query.get("allowWatchBookmarks")))
    return WatchOptions(
        version=version,
        initial_events=bool(initial) if initial is not None else not version,
        marks_initial_end=bool(initial) and bookmarks,
        bookmarks=bookmarks,
        timeout_seconds=max(0, int(timeout)),
    )


class WatchStream:
    """One running watch.

    Attributes:
        info: the request.
        is_stalled: while True nothing is sent, but the connection stays open.
    """

    def __init__(
        self,
        registry: Registry,
        kind: Kind,
        info: RequestInfo,
        presentation: Presentation,
    ) -> None:
        self.info = info
        self._is_stalled = False
        self._registry = registry
        self._kind = kind
        self._presentation = presentation
        self._options = watch_options(info.query)
        self._selector = info.selector(kind)
        self._woken = asyncio.Event()
        self._ended = self._is_dropped = False

    @property
    def awaited_version(self) -> int:
        """The resourceVersion that must exist before it starts."""
        return self._options.version if self._options.initial_events else 0

    @property
    def is_stalled(self) -> bool:
        return self._is_stalled

    @is_stalled.setter
    def is_stalled(self, value: bool) -> None:
        self._is_stalled = value
        self._woken.set()

    def end(self) -> None:
        """End it, as after a timeout."""
        self._ended = True
        self._woken.set()

    def drop(self) -> None:
        """Close its connection."""
        self._is_dropped = True
        self._woken.set()

    async def run(self) -> AsyncGenerator[bytes, None]:
        """Yield lines until the end.

        Raises:
            ClientGoneError: the watch was dropped.
        """
        storage = self._registry.storage(self._kind)
        try:
            watch, first = self._start(storage)
        except StatusError as error:
            yield msgspec.json.encode({"type": "ERROR", "object": error.body()}) + b"\n"
            return
        try:
            async with aclosing(self._pump(watch, first)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            storage.unwatch(watch)

    def _start(self, storage: Storage) -> tuple[Watch, list[bytes]]:
        """Begin to watch; return the initial lines."""
        options, presentation = self._options, self._presentation
        after = None if options.initial_events or not options.version else options.version
        watch, past = storage.watch(self._selector, self._woken.set, after=after)
        if options.initial_events:
            past = [(ADDED, entry) for entry in storage.entries(self._selector)]
        # The client knows everything before the requested version, even if that is in the future: until it is reached, nothing is
        # sent, and there is no error.

        lines = [presentation.event(type_, entry) for type_, entry in past]
        if options.marks_initial_end:
            lines.append(self._bookmark(initial_events_end=True))
        return watch, lines

    async def _pump(self, watch: Watch, lines: list[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield lines, then new events and bookmarks, until the timeout."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (
            self._options.timeout_seconds or _LEAST_TIMEOUT_SECONDS * (1 + self._registry.random.random())
        )
        marks = _bookmark_times(loop.time(), end) if self._options.bookmarks else deque()
        present, floor = self._presentation.event, self._options.version
        while not self._is_dropped:
            if not self.is_stalled:
                lines += [present(type_, entry) for type_, entry in watch.take() if entry.version > floor]
                if marks and loop.time() >= marks[0] and self._registry.versions.current >= floor:
                    lines.append(self._bookmark())
                while marks and loop.time() >= marks[0]:
                    marks.popleft()
                if lines:
                    piece, lines = b"".join(lines), []
                    yield piece
            if self._ended or not watch.is_open or loop.time() >= end:
                return
            timer = loop.call_at(marks[0] if marks and not self.is_stalled else end, self._woken.set)
            try:
                await self._woken.wait()
            finally:
                timer.cancel()
            self._woken.clear()
        raise ClientGoneError

    def _bookmark(self, *, initial_events_end: bool = False) -> bytes:
        entry: Entry = bookmark(
            self._kind, self._registry.versions.current, initial_events_end=initial_events_end
        )
        return self._presentation.event(BOOKMARK, entry)


def _bookmark_times(start: float, end: float) -> deque[float]:
    """Return the times of bookmarks: every minute, and shortly before the end."""
    minutes = int((end - start) / _BOOKMARK_SECONDS)
    times = {start + _BOOKMARK_SECONDS * number for number in range(1, minutes + 1)}
    last = end - _BOOKMARK_BEFORE_END_SECONDS
    return deque(sorted(times | ({last} if last > start else set())))
