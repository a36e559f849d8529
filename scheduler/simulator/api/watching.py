"""Watches over HTTP: one line of JSON for each event, until a timeout.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/handlers/watch.go and
    pkg/storage/cacher.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.http_server.messages import ClientGoneError
from scheduler.simulator.api.listing import (
    NOT_OLDER_THAN,
    Presentation,
    bookmark,
    parse_version,
    refuse_list_options,
)
from scheduler.simulator.api.requests import RequestInfo, boolean_or_none
from scheduler.simulator.apimachinery.causes import forbidden_field, not_supported
from scheduler.simulator.apimachinery.status import StatusError, bad_request
from scheduler.simulator.storage import ADDED, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage import Entry, Storage

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
