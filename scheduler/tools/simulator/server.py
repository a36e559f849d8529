"""The server: HTTP access to the objects, on TCP or a Unix socket; its log of requests, and forwarded ports.

Source:
    Kubernetes v1.36, staging/src/k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go.

It runs in the caller's event loop and takes all time from that loop and one clock, so that it also works
with simulated time. It starts no threads and makes no DNS requests.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from contextlib import aclosing, suppress
from dataclasses import dataclass
from email.utils import format_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from scheduler.clock import Clock, SystemClock
from scheduler.configuration.feature_gates import DEFAULT_VERSION, accepted_gates, features_of
from scheduler.http_server.listener import Listener, listening_socket, listening_unix_socket
from scheduler.http_server.messages import ClientGoneError, RequestTooLongError, ServerResponse
from scheduler.kube.certificates import Issued, issue
from scheduler.kube.http.websocket import WebSocket, accept_of
from scheduler.kube.tls import load_key_pair
from scheduler.tools.simulator.access.authentication import write_kubeconfig
from scheduler.tools.simulator.access.rbac_defaults import bootstrap_rbac
from scheduler.tools.simulator.access.security import Security, is_review
from scheduler.tools.simulator.api.handlers import JSON, Answer, Api, Request, answer_of_error
from scheduler.tools.simulator.api.lists_and_watches import WatchStream, is_from_storage, parse_version
from scheduler.tools.simulator.api.requests import request_info
from scheduler.tools.simulator.apimachinery.status import (
    StatusError,
    bad_request,
    too_large_request,
    too_large_version,
)
from scheduler.tools.simulator.controllers.accounts import RoleAggregation, ServiceAccounts
from scheduler.tools.simulator.external_controllers import (
    DeviceOptions,
    KubeletOptions,
    ProvisionerOptions,
    simulated_controllers,
)
from scheduler.tools.simulator.faults import Faults
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds, group_kinds
from scheduler.tools.simulator.node_agents.device_drivers import DeviceDrivers
from scheduler.tools.simulator.node_agents.volume_drivers import ProvisioningFaults
from scheduler.tools.simulator.registry.registry import Registry
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping
    from types import TracebackType

    from scheduler.http_server.messages import ServerRequest
    from scheduler.tools.simulator.access.rbac import User
    from scheduler.tools.simulator.api.requests import RequestInfo
    from scheduler.tools.simulator.controllers.controller import Controller
    from scheduler.tools.simulator.registry.registry import Backup

logger = logging.getLogger(__name__)


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


PROTOCOL: Final = "v4.channel.k8s.io"
_PIECE: Final = 2**16


async def forward(
    asked: int, port: int, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
) -> None:
    """Relay a WebSocket for a pod's port to a port of this machine, until either side ends it."""
    stream = WebSocket(from_client, to_client, is_client=False)
    encoded = asked.to_bytes(2, "little")
    for channel in (b"\0", b"\1"):
        await stream.send(channel + encoded)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        await stream.send(b"\1" + f"error forwarding port: {error}".encode())
        await stream.close()
        return
    answering = asyncio.create_task(_answer(reader, stream))
    try:
        async for message in stream.messages():
            if message[:1] == b"\0":
                writer.write(message[1:])
                await writer.drain()
    finally:
        answering.cancel()
        writer.close()


async def _answer(reader: asyncio.StreamReader, stream: WebSocket) -> None:
    with suppress(ConnectionError):  # the client disconnected
        while piece := await reader.read(_PIECE):
            await stream.send(b"\0" + piece)
        await stream.close()


_FRESH_SECONDS: Final = 3.0
_FRESH_POLL_SECONDS: Final = 0.05
_TURNS_TO_END: Final = 4
"""Loop iterations until the ends of all watches are written."""
_LONGEST_BODY_BYTES: Final = 3 * 2**20
_LONGEST_TARGET_BYTES: Final = 2**16


class ApiServer:
    """A simulated API server.

    Attributes:
        store: its objects, for use in the same process.
        faults: the active faults.
        provisioner: delays of storage drivers.
        provisioning_faults: the active faults of volume provisioning.
        devices: the devices of nodes.
        ports: `namespace/name` of pods -> the port of this machine to which their forwarded ports lead.
        requests: the request log.
        grants: the RBAC grants that were used, and the rejected actions of each user.
        authority: the certificate that clients must trust, PEM; empty without TLS.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        socket_path: str | Path = "",
        token: str | None = None,
        user: str = "admin",
        users: Mapping[str, User] | None = None,
        tls: bool = False,
        rbac: bool = False,
        seed: int = 0,
        kubelet: bool | KubeletOptions = False,
        controllers: bool = False,
        provisioner: ProvisionerOptions | None = None,
        devices: DeviceOptions | None = None,
        version: str = DEFAULT_VERSION,
        feature_gates: Mapping[str, bool] = MappingProxyType({}),
        normal_events: bool = False,
        history: int = 20_000,
        logged_requests: int = 10_000,
    ) -> None:
        """Set up; `start` makes it listen.

        Args:
            clock: source of timestamps; None for the system clock.
            host: the IP address to listen on.
            port: port; 0 for a free one.
            socket_path: a Unix socket to listen on instead.
            token: the owner's token, which permits everything. With None no token is needed, unless TLS, other users or
                RBAC require tokens: then one is generated, and written to the kubeconfig.
            user: name of the token's user.
            users: further tokens: token -> user.
            tls: whether to serve HTTPS, with a generated certificate and authority. kubectl sends tokens over
                HTTPS only.
            rbac: whether roles and bindings decide on permissions; otherwise every known user may do everything.
            seed: seed of uids, names, addresses and random faults.
            kubelet: whether, and with which delays, bound pods are run.
            controllers: whether the controllers are simulated: Deployments create pods, claims are bound to volumes,
                cordoned nodes are tainted, namespaces are emptied, dependents are collected, and so on.
            provisioner: delays of storage drivers.
            devices: delays of device drivers.
            version: the Kubernetes version, one of `VERSIONS`.
            feature_gates: gate -> value; the others have the defaults of this scheduler in that version.
            normal_events: whether controllers and kubelets also record what went well, as in a real cluster: for users
                who read events.
            history: number of kept changes per kind, for watches that resume.
            logged_requests: number of requests kept in `requests`.
        """
        self._clock = clock or SystemClock()
        self._features = features_of(feature_gates, version)
        self._gates = feature_gates
        self._host = host
        self._port = port
        self._socket_path = Path(socket_path) if socket_path else None
        self._user = user
        self._issued = _issued(host) if tls else None
        self._registry = Registry(
            clock=self._clock, kinds=builtin_kinds(self._features), seed=seed, history=history
        )
        self._security = Security(
            self._registry,
            token=token,
            owner=user,
            users=users or {},
            rbac=rbac,
            is_open=token is None and not (tls or users or rbac),
            kept_refusals=logged_requests,
        )
        self.grants = self._security.grants
        self._streams: dict[WatchStream, None] = {}
        self._listener: Listener | None = None
        self._api = Api(self._registry, host, version)
        self._date = (0, "")
        self.store = Store(self._registry, normal_events=normal_events)
        self.store.bootstrap()
        if rbac:
            bootstrap_rbac(self.store)
        self.faults = Faults(self._registry, self._streams, seed)
        self.ports: dict[str, int] = {}
        self.requests = RequestLog(logged_requests)
        self.provisioner = provisioner or ProvisionerOptions()
        self.provisioning_faults = ProvisioningFaults()
        self.devices = DeviceDrivers(self.store, devices or DeviceOptions())
        self._make_controllers = partial(
            self._controllers_of, kubelet=kubelet, controllers=controllers, roles=rbac or controllers
        )
        self._controllers = self._make_controllers()

    def _controllers_of(
        self, *, kubelet: bool | KubeletOptions, controllers: bool, roles: bool
    ) -> list[Controller[Any]]:
        made = simulated_controllers(
            self.store,
            kubelet=kubelet,
            controllers=controllers,
            provisioner=self.provisioner,
            faults=self.provisioning_faults,
            devices=self.devices,
        )
        if roles:
            return [*made, RoleAggregation(self.store), ServiceAccounts(self.store, self.authority)]
        return [*made]

    @property
    def url(self) -> str:
        """The URL; with a Unix socket the host is only a name."""
        scheme = "http" if self._issued is None else "https"
        return f"{scheme}://localhost" if self._socket_path else f"{scheme}://{self._host}:{self._port}"

    @property
    def authority(self) -> bytes:
        return b"" if self._issued is None else self._issued.authority

    @property
    def socket_path(self) -> Path | None:
        return self._socket_path

    async def start(self) -> None:
        """Listen, and start the simulated controllers."""
        if self._socket_path:
            listening = listening_unix_socket(self._socket_path)
        else:
            listening = listening_socket(self._host, self._port)
            self._port = listening.getsockname()[1]
        tls = None if self._issued is None else _tls_context(self._issued)
        self._listener = Listener(
            listening, self._handle, _LONGEST_BODY_BYTES, tls, _ignore, _LONGEST_TARGET_BYTES
        )
        self._listener.open()
        self._api = Api(self._registry, self.url.partition("//")[2], self._features.version)
        for controller in self._controllers:
            controller.start()
        logger.info("API server listens", extra={"url": self.url, "socket": str(self._socket_path or "")})

    async def stop(self) -> None:
        """End all watches and close all connections; the objects stay."""
        for controller in self._controllers:
            controller.stop()
        if self._listener is None:
            return
        for stream in list(self._streams):
            stream.end()
        for _ in range(_TURNS_TO_END):
            await asyncio.sleep(0)
        await self._listener.close()
        self._listener = None
        if self._socket_path:
            with suppress(FileNotFoundError):
                self._socket_path.unlink()

    def backup(self) -> Backup:
        """Return a backup of all objects, like a snapshot of etcd; clients do not notice."""
        return self._registry.backup()

    def restore(self, backup: Backup) -> None:
        """Restore a backup while the server is stopped, like etcd: resourceVersions go back with the objects.

        Kinds defined later stay served. The simulated controllers restart; other watches of this process see
        the difference as changes.

        Raises:
            RuntimeError: the server runs.
        """
        if self._listener is not None:
            raise RuntimeError("an API server is not restored while it runs: stop it first")
        self._registry.restore(backup)
        self._controllers = self._make_controllers()

    def upgrade(self, version: str) -> None:
        """Serve another Kubernetes version from the next start on; the other objects stay.

        Feature gates that the version does not accept are left out.

        Args:
            version: one of `VERSIONS`.

        Raises:
            RuntimeError: the server runs, or has Workloads or PodGroups, which are not converted between versions.
        """
        if self._listener is not None:
            raise RuntimeError("an API server is not upgraded while it runs: stop it first")
        old, features = self._features, features_of(accepted_gates(self._gates, version)[0], version)
        groups = {kind.group_resource for kind in group_kinds(old)}
        left = sorted(name for name in groups if self._registry.each(name))
        if left:
            raise RuntimeError(f"delete these objects first: {', '.join(left)}")
        new = builtin_kinds(features)
        gone = [
            kind for kind in builtin_kinds(old) if new.at(kind.group, kind.version, kind.resource) is None
        ]
        self._registry.kinds.replace(gone, new)
        self._security.guard(self._registry.kinds)
        self._features = features

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def write_kubeconfig(self, path: str | Path, *, token: str = "", user: str = "") -> Path:
        """Write a kubeconfig for this server.

        kubectl sends tokens over TLS only, so without TLS it cannot use a server that needs one.

        Args:
            path: the file.
            token: a user's token; the server's own when empty.
            user: the user's name; the owner of the server's own token when empty.
        """
        return write_kubeconfig(
            path, self.url, token or self._security.token, user or self._user, self.authority
        )

    async def _handle(self, http: ServerRequest) -> ServerResponse:
        """Handle one HTTP request."""
        http.is_let_in = True  # the limits of unknown clients are the daemon's
        query = {name: values[0] for name, values in http.query.items()}
        info = request_info(http.method, http.path, query, self._registry.kinds)
        content_type, accept, user_agent = (
            http.headers.get(name, "") for name in ("content-type", "accept", "user-agent")
        )
        request = Request(info, b"", content_type, accept, user_agent)
        came = self._clock.monotonic()
        answer: Answer
        name = ""
        try:
            request.body = await _read(http)
            user = self._security.identify(http.header_values)
            name = user.name
            self._security.authorize(user, info)
            await self._delay(http, info)
            self.faults.check(info)
            if info.verb == "watch" and info.is_resource and not is_review(info):
                return await self._watch(request, came, name)
            if info.subresource == "portforward" and f"{info.namespace}/{info.name}" in self.ports:
                return self._forward(http, info)
            if info.verb in {"get", "list"} and info.query.get("resourceVersion"):
                version = parse_version(info.query["resourceVersion"])
                await self._wait_fresh(version, 0.0 if is_from_storage(info.query) else _FRESH_SECONDS)
            answer = self._security.answer(self._api, request, user)
        except StatusError as error:
            answer = answer_of_error(error)
        except ClientGoneError:
            raise
        except Exception as error:
            logger.exception("Request failed", extra={"method": info.method, "path": info.path})
            answer = answer_of_error(
                StatusError(500, "InternalError", f"Internal error occurred: {error!r}", {})
            )
        if self.faults.loses_answer(info):
            self._log(request, came, 0, name)
            raise ClientGoneError
        self._log(request, came, answer.code, name)
        headers = {"Date": self._date_header(), **answer.headers}
        return ServerResponse(answer.body, answer.code, answer.content_type, headers)

    async def _delay(self, http: ServerRequest, info: RequestInfo) -> None:
        delay = self.faults.delay_of(info)
        if delay:
            await asyncio.sleep(delay)
            if http.has_left():
                raise ClientGoneError

    async def _watch(self, request: Request, came: float, user: str) -> ServerResponse:
        """Return a watch, which is served until it ends."""
        kind, presentation = self._api.kind(request.info), self._api.presentation(request)
        stream = WatchStream(self._registry, kind, request.info, presentation)
        await self._wait_fresh(stream.awaited_version)
        self._log(request, came, 200, user)
        headers = {"Date": self._date_header(), "Cache-Control": "no-cache, private"}
        return ServerResponse(self._pieces(stream), content_type=JSON, headers=headers)

    async def _pieces(self, stream: WatchStream) -> AsyncGenerator[bytes, None]:
        stream.is_stalled = self.faults.stalls(stream)
        self._streams[stream] = None
        try:
            async with aclosing(stream.run()) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            del self._streams[stream]

    def _forward(self, http: ServerRequest, info: RequestInfo) -> ServerResponse:
        """Relay a connection to a pod's forwarded port."""
        asked, key = info.query.get("ports", ""), http.headers.get("sec-websocket-key", "")
        if not asked.isdecimal() or not 0 < int(asked) < 2**16:
            raise bad_request("one port is to be forwarded")
        if not key:
            raise bad_request("unable to upgrade: a WebSocket is expected")
        headers = {
            "Upgrade": "websocket",
            "Sec-WebSocket-Accept": accept_of(key),
            "Sec-WebSocket-Protocol": PROTOCOL,
        }
        conversation = partial(forward, int(asked), self.ports[f"{info.namespace}/{info.name}"])
        return ServerResponse(conversation, HTTPStatus.SWITCHING_PROTOCOLS, headers=headers)

    async def _wait_fresh(self, version: int, seconds: float = _FRESH_SECONDS) -> None:
        """Wait for a version.

        Raises:
            StatusError: 504, it was not reached in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._registry.versions.current < version:
            if loop.time() >= deadline:
                raise too_large_version(version, self._registry.versions.current, 1 if seconds else 0)
            await asyncio.sleep(_FRESH_POLL_SECONDS)

    def _log(self, request: Request, came: float, status: int, user: str) -> None:
        info, agent = request.info, request.user_agent
        self.requests.add(
            LoggedRequest(came, info.method, info.path, info.query, status, request.body, agent, user)
        )

    def _date_header(self) -> str:
        """Return the time of the injected clock, formatted once per second."""
        now = self._clock.utc_now()
        second = int(now.timestamp())
        if self._date[0] != second:
            self._date = (second, format_datetime(now, usegmt=True))
        return self._date[1]


def _issued(host: str) -> Issued:
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    return issue("kube-apiserver", dns_names=names, addresses=sorted({"127.0.0.1", host}))


def _tls_context(issued: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_key_pair(context, issued.serving)
    return context


async def _read(http: ServerRequest) -> bytes:
    try:
        return await http.read()
    except RequestTooLongError as error:
        raise too_large_request(_LONGEST_BODY_BYTES) from error


def _ignore(_reason: str) -> None:
    """Do not count closed connections."""
