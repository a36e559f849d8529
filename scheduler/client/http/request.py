"""A request and its answer, as values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request to the API server.

    Attributes:
        method: of HTTP.
        path: from the server's root, as `Resource.path` gives it.
        body: None for a request without one.
        content_type: of the body.
        params: the query.
        timeout_seconds: until the answer is there, connecting included.
        accept: the form the answer is to have.
        limited_seconds: how long it was held back on this side before it was sent.
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
        """Return it as one that was held back for so much longer."""
        return msgspec.structs.replace(self, limited_seconds=self.limited_seconds + seconds)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Response(msgspec.Struct, frozen=True, gc=False):
    """A 2xx answer."""

    status: int
    body: bytes
