"""What was asked of the server, kept for tests and for people who wonder."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request that was answered, or whose watch began.

    Attributes:
        at_seconds: when it came, by the server's monotonic clock.
        method: of HTTP.
        path: without the query.
        query: its parameters.
        status: of the answer; 0 when it was lost on purpose.
        body: as it came.
        user_agent: as it came.
        user: the name of who asked; "" for a token that is nobody's.
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
        """The body, decoded."""
        return msgspec.json.decode(self.body)


class RequestLog:
    """The last requests, oldest first."""

    def __init__(self, limit: int) -> None:
        self._requests: deque[LoggedRequest] = deque(maxlen=limit)
        self.count = 0
        """How many requests there ever were."""

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: LoggedRequest) -> None:
        """Keep a request; the oldest goes when there are too many."""
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
        """Forget all requests."""
        self._requests.clear()
