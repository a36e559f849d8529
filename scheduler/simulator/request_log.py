"""The requests to the server, kept for tests and for users."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request that was answered, or a watch that started.

    Attributes:
        at_seconds: time of the request, by the server's monotonic clock.
        method: HTTP method.
        path: path without the query.
        query: query parameters.
        status: HTTP status of the answer; 0 if a fault dropped it.
        body: body as received.
        user_agent: User-Agent as received.
        user: name of the user; "" for an unknown token.
    """

    at_seconds: float
    method: str
    path: str
    query: Mapping[str, str]
    status: int
    body: bytes
    user_agent: str = ""
    user: str = ""

    @property
    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.body)


class RequestLog:
    """The last requests, oldest first."""

    def __init__(self, limit: int) -> None:
        self._requests: deque[LoggedRequest] = deque(maxlen=limit)
        self.count = 0
        """The number of requests since the start."""

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: LoggedRequest) -> None:
        """Add a request; the oldest is dropped when there are too many."""
        self._requests.append(request)
        self.count += 1

    def matching(self, *, method: str = "", path: str = "") -> list[LoggedRequest]:
        """Return requests of a method whose path ends in `path`; "" matches any."""
        return [
            request
            for request in self._requests
            if (not method or request.method == method) and request.path.endswith(path)
        ]

    def clear(self) -> None:
        """Drop all requests."""
        self._requests.clear()
