"""Requests and responses of the HTTP server, and its endpoints by path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from scheduler.errors import SchedulerError

JSON = "application/json"


class RequestTooLongError(SchedulerError):
    """The body of a request exceeds the limit."""


class ClientGoneError(Exception):
    """The client closed the connection, or is too slow."""


class ReadObject(NamedTuple):
    """An object of the API that a client wants to read."""

    group: str
    resource: str
    namespace: str
    name: str


MayRead = Callable[[ReadObject], Awaitable[bool]]
"""Returns whether the client of a request may read an object, or raises ApiError if that cannot be determined."""


async def _may_not(_read: ReadObject) -> bool:
    return False


@dataclass(slots=True, eq=False)
class ServerRequest:
    """A request.

    Attributes:
        method: the HTTP method.
        path: the path without the query, decoded.
        query: name -> values.
        headers: name in lower case -> value; repeated headers are joined by commas.
        peer: the peer, by its address.
        shows_certificate: whether the client has a verified certificate.
        read: returns the body; raises RequestTooLongError or ClientGoneError.
        parts: placeholder in the endpoint's path -> segment of the request's path.
        is_let_in: whether the client was identified and admitted; set by the access control.
        header_values: name in lower case -> values; a repeated header has several.
        has_left: returns whether the client has closed the connection.
        may_read: returns whether the client may read an object; set by the access control, without it nobody may.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    peer: str
    shows_certificate: bool
    read: Callable[[], Awaitable[bytes]]
    parts: Mapping[str, str] = field(default_factory=dict)
    is_let_in: bool = False
    header_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    has_left: Callable[[], bool] = lambda: False
    may_read: MayRead = _may_not

    @property
    def is_of_another_site(self) -> bool:
        """Whether a browser sends the request on behalf of another site.

        A browser sends `Sec-Fetch-Site`. One that does not know that header sends the site's origin with all methods except GET
        and HEAD.
        """
        site, origin = self.headers.get("sec-fetch-site", "none"), self.headers.get("origin")
        if site != "none":
            return site != "same-origin"
        return origin is not None and not self._is_own(origin)

    def _is_own(self, origin: str) -> bool:
        try:
            host = urlsplit(origin).netloc
        except ValueError:  # an incomplete IPv6 address
            return False
        return bool(host) and host.lower() == self.headers.get("host", "").lower()


Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Uses a connection in another protocol; the connection is closed afterwards."""


class ServerResponse(NamedTuple):
    """A response; between the pieces of a body other tasks run.

    A body of awaited pieces lasts as long as the client wants: its task is cancelled when the client closes the connection. It
    does not count as a request in progress when the server closes. The same holds for a switch of protocols, of status 101.
    """

    body: bytes | Iterable[bytes] | AsyncGenerator[bytes, None] | Conversation
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


def json_answer(content: Any, status: int = 200) -> ServerResponse:
    """Return a JSON response."""
    return ServerResponse(msgspec.json.encode(content), status, JSON)


def status_answer(code: int, reason: str, message: str, **more: Any) -> ServerResponse:
    """Return an error response in the format of Kubernetes."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        **more,
    }
    return json_answer(body, code)


Handler = Callable[[ServerRequest], Awaitable[ServerResponse]]


class Page(NamedTuple):
    """One endpoint.

    Attributes:
        path: its path; a segment in braces matches any segment that is not empty.
        handler: answers requests.
        methods: the accepted methods; empty for all.
    """

    path: str
    handler: Handler
    methods: tuple[str, ...] = ("GET", "HEAD")

    def parts_of(self, path: str) -> Mapping[str, str] | None:
        """Return the segments in place of the braces; None if the path does not match."""
        wanted, found = self.path.split("/"), path.split("/")
        if len(wanted) != len(found):
            return None
        differing = [(name, value) for name, value in zip(wanted, found, strict=True) if name != value]
        if not all(name.startswith("{") and value for name, value in differing):
            return None
        return {name[1:-1]: value for name, value in differing}
