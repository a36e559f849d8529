"""What is asked over HTTP, what is answered, and the pages that a path may mean."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from scheduler.errors import SchedulerError

JSON = "application/json"


class RequestTooLongError(SchedulerError):
    """There is more in a request than is read."""


class ClientGoneError(Exception):
    """The client went away, or takes too long."""


@dataclass(slots=True, eq=False)
class Request:
    """A request.

    Attributes:
        method: of HTTP.
        path: without the query, and with nothing encoded.
        query: name -> values.
        headers: name in lower case -> value; several of a name with commas between.
        peer: who asks, as far as addresses tell.
        shows_certificate: whether the client showed one, and it is good.
        read: returns the body; raises RequestTooLongError or ClientGoneError.
        parts: placeholder in the page's path -> what stands there.
        is_let_in: whether who asks may ask what not everybody may: set by who found out.
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

    @property
    def is_of_another_site(self) -> bool:
        """Whether a browser sends it on behalf of a page that is not ours.

        A browser says so in `Sec-Fetch-Site`. One that does not know that header names the page's origin whenever it sends
        anything but GET and HEAD.
        """
        site, origin = self.headers.get("sec-fetch-site", "none"), self.headers.get("origin")
        if site != "none":
            return site != "same-origin"
        return origin is not None and not self._is_own(origin)

    def _is_own(self, origin: str) -> bool:
        try:
            host = urlsplit(origin).netloc
        except ValueError:  # an unfinished IPv6 address
            return False
        return bool(host) and host.lower() == self.headers.get("host", "").lower()


class Answer(NamedTuple):
    """An answer; of a body in pieces others have their turn between two of them.

    One whose pieces are waited for goes on for as long as the client likes, and counts as nothing that is still to be
    answered when the server closes.
    """

    body: bytes | Iterable[bytes] | AsyncGenerator[bytes, None]
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


def json_answer(content: Any, status: int = 200) -> Answer:
    """Return what can be written as JSON."""
    return Answer(msgspec.json.encode(content), status, JSON)


def status_answer(code: int, reason: str, message: str, **more: Any) -> Answer:
    """Return a refusal in Kubernetes' words."""
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


Handler = Callable[[Request], Awaitable[Answer]]


class Page(NamedTuple):
    """What is answered at a path.

    Attributes:
        path: a segment in braces stands for any that is not empty.
        handler: who answers.
        methods: those that are taken; empty for all.
    """

    path: str
    handler: Handler
    methods: tuple[str, ...] = ("GET", "HEAD")

    def parts_of(self, path: str) -> Mapping[str, str] | None:
        """Return what stands in place of the braces; None if the path is another page's."""
        wanted, found = self.path.split("/"), path.split("/")
        if len(wanted) != len(found):
            return None
        differing = [(name, value) for name, value in zip(wanted, found, strict=True) if name != value]
        if not all(name.startswith("{") and value for name, value in differing):
            return None
        return {name[1:-1]: value for name, value in differing}
