"""Discovery: the Kubernetes version of an API server, and the versions in which it serves kinds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.http.request import JSON, Request
from scheduler.retries import REFUSALS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from scheduler.kube.client.resources import Resource
    from scheduler.kube.http.request import Response

    Send = Callable[[Request], Awaitable[Response]]
    """`Requests.send`."""

S = TypeVar("S", bound=msgspec.Struct)

_AGAIN_SECONDS: Final = 300.0
"""Interval of questions about a kind that the server does not serve: the answer may have a megabyte."""
_AGGREGATED: Final = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{JSON}"
_UNREADABLE: Final = "UnreadableAnswer"


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to `/version`."""

    major: str = ""
    minor: str = ""
    git_version: str = ""


async def read_server_version(send: Send) -> ServerVersion:
    """Read the version of the API server.

    Raises:
        ApiError: refused, not answered, or answered with something else.
    """
    request = Request("GET", "/version")
    return _decoded(request, (await send(request)).body, ServerVersion)


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _ServedResource(msgspec.Struct, frozen=True):
    resource: str = ""


class _ServedVersion(msgspec.Struct, frozen=True):
    version: str = ""
    resources: tuple[_ServedResource, ...] = ()


class _ServedGroup(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()
    versions: tuple[_ServedVersion, ...] = ()


class _Groups(msgspec.Struct, frozen=True):
    kind: str = ""
    items: tuple[_ServedGroup, ...] = ()


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_ServedVersion, ...] = ()


class _ResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_Named, ...] = ()


class ServedVersions:
    """The versions in which the API server serves the kinds that have several; see `Resource.versions`.

    Args:
        send: sends a request.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._served: dict[str, frozenset[str]] = {}  # resource, as text -> versions, as of the last question
        self._asked_at: dict[str, float] = {}  # resource, as text -> the loop's time

    def of(self, resource: Resource) -> Resource:
        """Return a kind in the best version that the server serves as far as known, without a request."""
        served = self._served.get(str(resource), frozenset())
        best = next((version for version in resource.versions if version in served), None)
        return resource if best in {None, resource.version} else replace(resource, version=best)

    async def find(self, resource: Resource) -> Resource:
        """Return `of` after a question, unless the last answer was that the server does not serve the kind.

        A client that may not ask gets the versions that are known already.

        Raises:
            ApiError: not answered.
        """
        name, now = str(resource), asyncio.get_running_loop().time()
        is_absent = not self._served.get(name, frozenset(resource.versions))
        if not is_absent or now - self._asked_at.get(name, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
            self._asked_at[name] = now
            try:
                self._served[name] = await served_versions(self._send, resource)
            except ApiError as error:
                if error.status not in REFUSALS:
                    raise
        return self.of(resource)

    def forget(self) -> None:
        """Ask again about every kind: the server may be another one now."""
        self._served.clear()


async def served_versions(send: Send, resource: Resource) -> frozenset[str]:
    """Ask the API server in which of a kind's versions it serves the kind; none if it does not serve it.

    Raises:
        ApiError: refused or not answered.
    """
    served = await served_kinds(send, [resource.group])
    return frozenset(
        version
        for version in resource.versions or (resource.version,)
        if (resource.group, version, resource.plural) in served
    )


async def served_kinds(send: Send, groups: Iterable[str]) -> frozenset[tuple[str, str, str]]:
    """Return group, version and plural of each kind that the API server serves in these groups, the core group aside.

    A server without aggregated discovery answers with the names of its groups alone; then each group is asked.

    Raises:
        ApiError: refused or not answered.
    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/discovery/aggregated/wrapper.go.
    """
    request = Request("GET", "/apis", accept=_AGGREGATED)
    answer = _decoded(request, (await send(request)).body, _Groups)
    wanted = sorted({*groups} - {""})
    if answer.kind != "APIGroupDiscoveryList":
        return frozenset([kind for group in wanted async for kind in _kinds_of_group(send, group)])
    return frozenset(
        (group.metadata.name, version.version, kind.resource)
        for group in answer.items
        if group.metadata.name in wanted
        for version in group.versions
        for kind in version.resources
    )


async def _kinds_of_group(send: Send, group: str) -> AsyncIterator[tuple[str, str, str]]:
    request = Request("GET", f"/apis/{group}")
    try:
        versions = _decoded(request, (await send(request)).body, _Group).versions
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return
        raise
    for each in versions:
        request = Request("GET", f"/apis/{group}/{each.version}")
        for kind in _decoded(request, (await send(request)).body, _ResourceList).resources:
            yield group, each.version, kind.name


def _decoded(request: Request, body: bytes, struct: type[S]) -> S:
    try:
        return msgspec.json.decode(body, type=struct)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(0, _UNREADABLE, f"{request}: unreadable answer: {error}") from error
