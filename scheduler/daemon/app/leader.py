"""Connects to the leading daemon from outside the cluster: found by its lease, reached by port forwarding.

The client sends a token of a ServiceAccount that may only read explanations, never the user's own token, which would
give the receiver all rights of the user. The certificate is not verified behind a forwarded port: the API server already
ensures that the connection reaches the requested pod.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from scheduler.daemon.app.rights import Named
from scheduler.errors import ApiError, SchedulerError
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.lease import Lease
from scheduler.kube.client.port_forward import forwarded
from scheduler.kube.client.resources import LEASES, PODS, Resource
from scheduler.kube.http.client import origin
from scheduler.kube.http.endpoint import Endpoint, proxy_of
from scheduler.kube.http.request import Request
from scheduler.kube.tls import client_context
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from scheduler.kube.client.login import Headers
    from scheduler.kube.client.port_forward import Forwarded

ASKING_ACCOUNT: Final = "custom-scheduler-why"
"""The ServiceAccount whose tokens are sent; in the namespace of the lease."""
_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
_TOKEN_SECONDS: Final = 600
_LABEL: Final = "app.kubernetes.io/name=custom-scheduler"
_PORT: Final = 10259
_PORT_NAME: Final = "https"
_NOT_FOUND: Final = 404
_UNIQUE: Final = re.compile(r"_[^_]*$|-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""What follows the name of the host: in the identity of a process, and in the name of one of several active replicas."""
_WHAT_IF_SECONDS: Final = 120.0
"""Longer than the daemon needs: it ends its own evaluation, and says so."""


class NoLeaderError(SchedulerError):
    """No daemon could be reached; the message says why."""


class Bearer:
    """A bearer token; an `Authorization`."""

    def __init__(self, token: str) -> None:
        self._headers = (("Authorization", f"Bearer {token}"),)

    def headers(self) -> Headers:
        return self._headers

    def rejected(self) -> None:
        return


class Leader:
    """A reachable daemon.

    Attributes:
        name: its name in messages.
        other: connects to another replica with an identity; None if that is impossible.
    """

    other: Callable[[str], Awaitable[Leader]] | None = None

    def __init__(self, name: str, connection: ApiConnection, way: Forwarded | None = None) -> None:
        self.name = name
        self._connection = connection
        self._way = way
        self._others: dict[str, Leader] = {}

    async def explain_group(self, key: str) -> dict[str, Any] | None:
        """Return the daemon's explanation of the groups named `namespace/name`; None if it knows none.

        Raises:
            NoLeaderError: it does not answer, or rejects the client.
        """
        return await self.explain(f"groups/{key}")

    async def explain(self, key: str) -> dict[str, Any] | None:
        """Return `/debug/explain` of a pod; None if the daemon does not know the pod.

        If several replicas place pods, this is the answer of the replica that decides about the pod.

        Raises:
            NoLeaderError: it does not answer, or rejects the client.
        """
        request = Request("GET", f"/debug/explain/{quote(key)}")
        answer = await self._answer(request)
        replica = None if answer is None else answer.get("replica")
        if replica is None or self.other is None:
            return answer
        if replica not in self._others:
            self._others[replica] = await self.other(replica)
        return await self._others[replica].explain(key)

    async def what_if(self, body: bytes) -> dict[str, Any] | None:
        """Return the answer to a what-if request; None if the daemon serves none.

        Raises:
            NoLeaderError: it does not answer, or rejects the client or the request.
        """
        request = Request("POST", "/v1/whatif", body, timeout_seconds=_WHAT_IF_SECONDS)
        return await self._answer(request)

    async def _answer(self, request: Request) -> dict[str, Any] | None:
        """Send a request; return None for status 404.

        Raises:
            NoLeaderError: it does not answer, or rejects the client.
        """
        try:
            answer = await self._connection.send(request)
            found: dict[str, Any] = msgspec.json.decode(answer.body)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            problem = self._way.problem if self._way and not error.status else ""
            what = "refuses the request" if error.status else "did not answer"
            raise NoLeaderError(f"{self.name} {what}: {problem or error}") from error
        except msgspec.DecodeError as error:
            raise NoLeaderError(f"{self.name} answered what is no JSON: {error}") from error
        return found


@asynccontextmanager
async def at_url(url: str, token: str, *, verifies: bool = False) -> AsyncIterator[Leader]:
    """Connect to a daemon with HTTP endpoints at a URL.

    Args:
        url: the URL.
        token: the token to send; "" for none.
        verifies: whether the system's authorities must have signed its certificate.

    Raises:
        NoLeaderError: it is not a URL.
    """
    try:
        endpoint = Endpoint(url.rstrip("/"), client_context(verifies=verifies), proxy=proxy_of(origin(url)))
    except ValueError as error:
        raise NoLeaderError(f"{shown_url(url)}: {error}") from error
    async with ApiConnection(endpoint, authorization=Bearer(token) if token else None) as connection:
        yield Leader(shown_url(url), connection)


@asynccontextmanager
async def leader(connection: ApiConnection, lease: Named, token: str) -> AsyncIterator[Leader]:
    """Connect to the daemon that holds a lease.

    Args:
        connection: connection to the API server.
        lease: the lease.
        token: the token to send; "" for one of `ASKING_ACCOUNT`.

    Raises:
        NoLeaderError: the lease has no holder, the holder is not a pod, or no token can be obtained.
    """
    identity = await _holder(connection, lease)
    pod = await _pod_of(connection, lease, identity)
    token = token or await _token(connection, Named(lease.namespace, ASKING_ACCOUNT))

    async def other(stack: AsyncExitStack, identity: str) -> Leader:
        """Connect to another replica."""
        its_pod = await _pod_of(connection, lease, identity)
        return await stack.enter_async_context(_replica(connection, lease.namespace, its_pod, token))

    async with AsyncExitStack() as stack, _replica(connection, lease.namespace, pod, token) as found:
        found.other = partial(other, stack)
        yield found


@asynccontextmanager
async def _replica(
    connection: ApiConnection, namespace: str, pod: Mapping[str, Any], token: str
) -> AsyncIterator[Leader]:
    """Connect to the daemon in a pod."""
    name = pod["metadata"]["name"]
    async with (
        forwarded(connection, namespace, name, _port(pod)) as way,
        ApiConnection(
            Endpoint("https://localhost", client_context(verifies=False), unix_socket=way.path),
            authorization=Bearer(token),
        ) as to_pod,
    ):
        yield Leader(f"pod {namespace}/{name}", to_pod, way)


async def _holder(connection: ApiConnection, lease: Named) -> str:
    """Return the identity of the holder of a lease."""
    try:
        answer = await connection.send(Request("GET", LEASES.path(*lease)))
    except ApiError as error:
        problem = "is not there" if error.status == _NOT_FOUND else f"cannot be read: {error}"
        raise NoLeaderError(f"lease {lease} {problem}") from error
    holder = Lease.decode(answer.body, str(lease)).record.holder
    if not holder:
        raise NoLeaderError(f"lease {lease} is held by nobody")
    return holder


async def _pod_of(connection: ApiConnection, lease: Named, holder: str) -> Mapping[str, Any]:
    """Return the pod of a replica with an identity."""
    host = _UNIQUE.sub("", holder)
    # A pod on the host network has its node's host name.
    for selectors in (
        {"fieldSelector": f"metadata.name={host}"},
        {"fieldSelector": f"spec.nodeName={host}", "labelSelector": _LABEL},
    ):
        try:
            pods = await connection.send(Request("GET", PODS.path(lease.namespace), params=selectors))
        except ApiError as error:
            raise NoLeaderError(f"the pod that holds lease {lease} cannot be read: {error}") from error
        items: list[dict[str, Any]] = msgspec.json.decode(pods.body).get("items") or []
        if items:
            return items[0]
    raise NoLeaderError(f"{holder}, which holds lease {lease}, is no pod of {lease.namespace}")


async def _token(connection: ApiConnection, account: Named) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    path = _ACCOUNTS.path(account.namespace, account.name, "token")
    request = Request(
        "POST", path, msgspec.json.encode({**body, "spec": {"expirationSeconds": _TOKEN_SECONDS}})
    )
    try:
        answer = await connection.send(request)
    except ApiError as error:
        raise NoLeaderError(f"no token of ServiceAccount {account} can be had: {error}") from error
    return str(msgspec.json.decode(answer.body)["status"]["token"])


def _port(pod: Mapping[str, Any]) -> int:
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports") or ()]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == _PORT_NAME), _PORT)
