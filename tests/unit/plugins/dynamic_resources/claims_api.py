"""An API server with ResourceClaims only, which may reject writes, lose responses, or contain changes by other clients."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOST = ApiError(0, "", "connection lost")
CONFLICT = ApiError(409, "Conflict", "the object has been modified")


class Write(NamedTuple):
    """One request as received."""

    method: str
    path: str
    body: Any


class ClaimsApi:
    """Implements `ApiWrite` and `ApiGet`.

    Attributes:
        claims: `namespace/name` -> object.
        writes: the received writes, rejected or not.
        reads: the paths that were read.
        refusals: raised by the next writes before they have an effect; None accepts one.
        lost: whether the responses of the next writes get lost after they took effect; None responds.
        unread: raised by the next reads.
        meanwhile: called before the next writes, one for each.
    """

    def __init__(self, *claims: Mapping[str, Any]) -> None:
        self.claims: dict[str, dict[str, Any]] = {_key(each): deepcopy(dict(each)) for each in claims}
        self.writes: list[Write] = []
        self.reads: list[str] = []
        self.refusals: list[ApiError | None] = []
        self.lost: list[ApiError | None] = []
        self.unread: list[ApiError | None] = []
        self.meanwhile: list[Callable[[], None]] = []
        self._version = 100

    def change(self, key: str, **status: Any) -> None:
        """Change a claim's status as another client would."""
        self.claims[key].setdefault("status", {}).update(status)
        self._touch(self.claims[key])

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        self.reads.append(path)
        error = self.unread.pop(0) if self.unread else None
        if error is None and _named(path) not in self.claims:
            error = ApiError(404, "NotFound", f"{path} not found")
        if error is not None:
            raise OSError(f"GET {path}: {error}") from error
        return msgspec.json.encode(self.claims[_named(path)])

    async def api_write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **_options: Any
    ) -> Mapping[str, Any]:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        sent = msgspec.json.decode(msgspec.json.encode(body))
        self.writes.append(Write(method, path, sent))
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        answer = self._done(method, path, sent)
        lost = self.lost.pop(0) if self.lost else None
        if lost is not None:
            raise lost
        return deepcopy(answer)

    def _done(self, method: str, path: str, body: Any) -> dict[str, Any]:
        if path.startswith("/api/v1/"):
            return dict(body)
        if method == "POST":
            metadata = body["metadata"]
            metadata |= {"name": f"{metadata['generateName']}xyz", "uid": "uid-of-new"}
            self.claims[_key(body)] = body
            return self._touch(body)
        key = _named(path.removesuffix("/status"))
        if key not in self.claims:
            raise ApiError(404, "NotFound", f"{key} not found")
        if method == "DELETE":
            return self.claims.pop(key)
        known = self.claims[key]
        if method == "PATCH":
            gone = {each["uid"] for each in body["status"]["reservedFor"]}
            reserved = known["status"].get("reservedFor", [])
            known["status"]["reservedFor"] = [each for each in reserved if each["uid"] not in gone]
            return self._touch(known)
        if body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            raise CONFLICT
        part = "status" if path.endswith("/status") else "metadata"
        known[part] = body.get(part, {})
        return self._touch(known)

    def _touch(self, claim: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        claim["metadata"]["resourceVersion"] = str(self._version)
        return claim


def _key(claim: Mapping[str, Any]) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _named(path: str) -> str:
    parts = path.split("/")
    return f"{parts[5]}/{parts[7]}"
