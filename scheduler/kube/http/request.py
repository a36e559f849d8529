"""A request and its answer, as values, and as text on a connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from scheduler.version import VERSION

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
USER_AGENT = f"custom-scheduler/{VERSION}"
_IN_A_URL = "/?&=%:@!$'()*+,;~[]"
_PLAIN = re.compile("[!-~]*").fullmatch


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request to the API server.

    Attributes:
        method: the HTTP method.
        path: path from the server's root, as `Resource.path` returns it.
        body: None for a request without a body.
        content_type: media type of the body.
        params: the query parameters.
        timeout_seconds: time limit for the answer, connecting included.
        accept: media type of the answer.
        limited_seconds: how long the client's own limits delayed the request.
    """

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON
    params: Mapping[str, str] = {}
    timeout_seconds: float = 30.0
    accept: str = JSON
    limited_seconds: float = 0.0

    def held_back(self, seconds: float) -> Request:
        """Return a copy of the request that the client's limits delayed for some more seconds."""
        return msgspec.structs.replace(self, limited_seconds=self.limited_seconds + seconds)

    def within(self, seconds: float) -> Request:
        """Return a copy of the request with a time limit, for the API server too."""
        params = {**self.params, "timeout": f"{seconds:g}s"}
        return msgspec.structs.replace(
            self, params=params, timeout_seconds=min(seconds, self.timeout_seconds)
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole answer."""

    status: int
    body: bytes


def target(path: str) -> str:
    """Return the path and query of a URL as a request may have them: in ASCII, and without spaces."""
    return path if _PLAIN(path) else quote(path, safe=_IN_A_URL)
