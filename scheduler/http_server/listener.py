"""Accepts connections so that unknown clients cost little, and probes are answered at any load.

Probes and scrapes must be admitted at any load, and a client is known only after its first request. A new connection is
therefore never rejected: instead the longest-waiting connection of the peer with the most connections is closed.

Before its first byte a connection is only a socket. TLS begins after that, a few handshakes at a time, so that a flood of
handshakes does not block the loop, and silent clients use little memory. A separate `ConnectionLimiter` limits the connections that
wait in each state. A connection whose request is in progress is in none of them.

Source:
    for time limits of clients: kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/secure_serving.go.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Protocol, cast

from scheduler.http_server.http_session import (
    FIRST_BYTE_SECONDS,
    LONGEST_TARGET_BYTES,
    HttpSession,
    SessionReader,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from scheduler.http_server.messages import Handler

logger = logging.getLogger(__name__)

_BITS_OF_ONE_IPV6_PEER = 64
"""A client with one address of such a network usually has all of them."""


class LimitedConnection(Protocol):
    """A waiting connection.

    Attributes:
        peer: the peer of the connection.
    """

    @property
    def peer(self) -> str: ...


class ConnectionLimiter:
    """Connections in order of arrival, at most `limit` of them.

    Args:
        limit: the maximum number of waiting connections.
        reject: called with the connection to close, after its removal.
    """

    def __init__(self, limit: int, reject: Callable[[LimitedConnection], None]) -> None:
        self._limit = limit
        self._reject = reject
        self._by_peer: dict[str, dict[LimitedConnection, None]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def enter(self, connection: LimitedConnection) -> None:
        """Add a connection; beyond the limit, another one is removed."""
        if self._size >= self._limit:
            most = max(self._by_peer.values(), key=len)  # on a tie the peer that came first
            oldest = next(iter(most))
            self.leave(oldest)
            self._reject(oldest)
        self._by_peer.setdefault(connection.peer, {})[connection] = None
        self._size += 1

    def leave(self, connection: LimitedConnection) -> bool:
        """Remove a connection, and return whether it was present."""
        of_peer = self._by_peer.get(connection.peer, {})
        if connection not in of_peer:
            return False
        del of_peer[connection]
        if not of_peer:
            del self._by_peer[connection.peer]
        self._size -= 1
        return True

    def next(self) -> LimitedConnection:
        """Remove the first connection of the next peer, in rotation: a peer with many connections delays only itself."""
        peer, of_peer = next(iter(self._by_peer.items()))
        connection = next(iter(of_peer))
        self.leave(connection)
        if peer in self._by_peer:
            self._by_peer[peer] = self._by_peer.pop(peer)  # to the end
        return connection


def peer_of(address: str) -> str:
    """Return the peer of an address: an IPv4 address, or a /64 of IPv6; any other text stands for itself."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    network = int(found) >> (128 - _BITS_OF_ONE_IPV6_PEER) << (128 - _BITS_OF_ONE_IPV6_PEER)
    return f"{IPv6Address(network)}/{_BITS_OF_ONE_IPV6_PEER}"


CROWDED, LATE, UNSECURED = "crowded", "late", "no_tls"
"""Why the server closed a connection: over a limit; the client was too slow; TLS could not be negotiated."""

_SILENT = 256
"""Connections without a first byte, a few KiB each. A normal client sends it within a round trip."""
_QUEUED = 256
"""Connections that wait for the start of their handshake."""
_HANDSHAKES = 64
"""Connections within a handshake. A handshake is 0.3 ms of work, so this many take as long as a round trip."""
_UNKNOWN_CLIENTS = 128
"""Connections of unknown clients that the server waits for, for a request, its end, or the next one; TLS keeps 30 to
300 KiB of each."""
_KNOWN_CLIENTS = 400
"""The same for known clients. All limits together fit into the 1024 descriptors that a process may have."""
_ACCEPTED_AT_ONCE = 64
_HANDSHAKES_AT_ONCE = 4
"""Begun in one iteration of the loop; other work runs in between."""
_HANDSHAKE_SECONDS = 10.0
_CLOSING_SECONDS = 10.0
"""How long the end of a response may take to arrive."""
_UNKNOWN_CLIENTS_ANSWERED_A_SECOND = 1000
"""The rate of all kept connections of unknown clients together: busy connections wait longer when there are more of them.
Idle connections delay nobody."""
_LARGE_BODIES = 8
"""Over all connections at a time: 128 MiB of an extender's requests."""
_OUT_OF_DESCRIPTORS_SECONDS = 0.2
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - probes and scrapes come from outside the pod
_WAITING_CONNECTIONS = 1024
"""Connections that the kernel holds while the loop is busy; beyond that clients try again after a second."""
_LAST_ANSWERS_SECONDS = 5.0
_LOG_SECONDS = 60.0


def listening_socket(host: str, port: int) -> socket.socket:
    """Listen on an address; `0.0.0.0`, `::` and "" are all addresses, of IPv4 and of IPv6.

    Raises:
        OSError: the address cannot be listened on.
    """
    listening = _listening(host, port)
    listening.setblocking(False)
    # Connections inherit it. Without it the last small piece of a response waits for the client's delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _listening(host: str, port: int) -> socket.socket:
    if host in _EVERYWHERE and socket.has_dualstack_ipv6():
        with suppress(OSError):  # a kernel without IPv6; for any other error IPv4 fails as well
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_WAITING_CONNECTIONS
            )
    family, *_, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address, family=family, backlog=_WAITING_CONNECTIONS)


def listening_unix_socket(path: Path) -> socket.socket:
    """Listen on a Unix socket, in place of one that an ended process left.

    Raises:
        OSError: the path cannot be listened on.
    """
    with suppress(FileNotFoundError):
        if path.is_socket():
            path.unlink()
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        listening.listen(_WAITING_CONNECTIONS)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


class Listener:
    """One listening address.

    Args:
        listening: a listening socket.
        handler: answers requests.
        longest_body_bytes: limit of a request's body.
        tls: None for plain HTTP.
        connection_rejected: called with the reason of each connection that the server closed before a response.
        longest_target_bytes: limit of a request's path and query.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: Handler,
        longest_body_bytes: int,
        tls: ssl.SSLContext | None,
        connection_rejected: Callable[[str], None],
        longest_target_bytes: int = LONGEST_TARGET_BYTES,
    ) -> None:
        self._listening = listening
        self._handler = handler
        self._longest_body_bytes = longest_body_bytes
        self._longest_target_bytes = longest_target_bytes
        self._tls = tls
        self._connection_rejected = connection_rejected
        self._loop = asyncio.get_running_loop()
        self._silent = ConnectionLimiter(_SILENT, self._close_for_another)
        self._queued = ConnectionLimiter(_QUEUED, self._close_for_another)
        self._handshaking = ConnectionLimiter(_HANDSHAKES, self._close_for_another)
        self.unknown_clients = ConnectionLimiter(_UNKNOWN_CLIENTS, self._close_for_another)
        self.known = ConnectionLimiter(_KNOWN_CLIENTS, self._close_for_another)
        self.large_bodies = asyncio.Semaphore(_LARGE_BODIES)
        self._connections: dict[Connection, None] = {}  # in the order in which they were accepted
        self._reopening: asyncio.TimerHandle | None = None
        self._is_beginning = False
        # The end of all responses so far, at the rate for unknown clients.
        self._unknown_clients_answered_until = 0.0
        self._closed_for_others = 0  # since the last log message
        self._logged_at = -_LOG_SECONDS

    def open(self) -> None:
        """Accept connections from now on."""
        self._reopening = None
        self._loop.add_reader(self._listening, self._accept)

    async def close(self) -> None:
        """Stop accepting; requests in progress have 5 seconds."""
        if self._reopening is not None:
            self._reopening.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for connection in [connection for connection in self._connections if connection.is_idle]:
            self._close(connection)
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_LAST_ANSWERS_SECONDS)
            for task in late:
                task.cancel()

    def unknown_client_pause_seconds(self) -> float:
        """Count a response to an unknown client; return the delay before the connection's next request is read."""
        now = self._loop.time()
        self._unknown_clients_answered_until = (
            max(now, self._unknown_clients_answered_until) + 1 / _UNKNOWN_CLIENTS_ANSWERED_A_SECOND
        )
        return self._unknown_clients_answered_until - now

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connected, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            connected.setblocking(False)
            connection = Connection(self, connected, peer_of(address[0] if address else ""))
            self._connections[connection] = None
            connection.move_to(self._silent)
            connection.limit = self._loop.call_later(FIRST_BYTE_SECONDS, self._on_timeout, connection)
            self._loop.add_reader(connected, self._on_first_byte, connection)

    def _rest(self, error: OSError) -> None:
        """Stop accepting for a moment: no descriptor is left, and further attempts would take all the time."""
        if self._may_log():
            logger.warning("Cannot accept a connection", extra={"error": str(error)})
        self._loop.remove_reader(self._listening)
        self._reopening = self._loop.call_later(_OUT_OF_DESCRIPTORS_SECONDS, self.open)

    def _on_first_byte(self, connection: Connection) -> None:
        """Handle a connection's first byte or its end."""
        assert connection.socket is not None
        try:
            has_left = not connection.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            has_left = True
        self._stop_listening(connection)
        if has_left:
            self._close(connection)
            return
        connection.move_to(self._queued)
        if not self._is_beginning:
            self._is_beginning = True
            self._loop.call_soon(self._begin_some)  # after all connections of this iteration are in line

    def _begin_some(self) -> None:
        for _ in range(min(_HANDSHAKES_AT_ONCE, len(self._queued))):
            connection = cast("Connection", self._queued.next())
            connection.move_to(self._handshaking)
            connection.task = self._loop.create_task(self._receive(connection), name="conversation")
            connection.task.add_done_callback(partial(self._forget, connection))
        self._is_beginning = bool(len(self._queued))
        if self._is_beginning:
            self._loop.call_soon(self._begin_some)

    async def _receive(self, connection: Connection) -> None:
        try:
            reader, writer = await self._streams(connection.take_socket())
        except (TimeoutError, ConnectionAbortedError):  # ConnectionAbortedError: a timeout of the transport
            self._connection_rejected(LATE)
            return
        except OSError:  # includes ssl.SSLError
            self._connection_rejected(UNSECURED)
            return
        connection.session = HttpSession(
            reader,
            writer,
            self._handler,
            self._longest_body_bytes,
            self._longest_target_bytes,
            connection,
        )
        try:
            if await connection.session.run():
                writer.close()
                with suppress(OSError):  # includes TimeoutError
                    async with asyncio.timeout(_CLOSING_SECONDS):
                        await writer.wait_closed()
            else:
                self._connection_rejected(LATE)
        except Exception:
            logger.exception("Response failed")
        finally:
            writer.transport.abort()

    async def _streams(self, connected: socket.socket) -> tuple[SessionReader, asyncio.StreamWriter]:
        reader = SessionReader(self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        limits: dict[str, Any] = {}
        if self._tls is not None:
            limits = {"ssl_handshake_timeout": _HANDSHAKE_SECONDS, "ssl_shutdown_timeout": _CLOSING_SECONDS}
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, connected, ssl=self._tls, **limits
            )
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    def _on_timeout(self, connection: Connection) -> None:
        self._connection_rejected(LATE)
        self._close(connection)

    def _stop_listening(self, connection: Connection) -> None:
        if connection.limit is not None and connection.socket is not None:
            connection.limit.cancel()
            connection.limit = None
            self._loop.remove_reader(connection.socket)

    def _close(self, connection: Connection) -> None:
        """Close a connection in any state."""
        if connection.task is not None:
            connection.task.cancel()
            return
        self._stop_listening(connection)
        self._forget(connection)

    def _forget(self, connection: Connection, _task: asyncio.Task[None] | None = None) -> None:
        connection.move_to(None)
        self._connections.pop(connection, None)
        # These refer to the visitor: TLS's memory must be freed now, and not by the next garbage collection.
        connection.task = connection.session = None
        if connection.socket is not None:
            connection.socket.close()

    def _close_for_another(self, connection: LimitedConnection) -> None:
        connection = cast("Connection", connection)
        self._close(connection)
        self._connection_rejected(CROWDED)
        self._closed_for_others += 1
        if self._may_log():
            fields = {"connections": self._closed_for_others, "most_from": connection.peer}
            logger.warning("Too many connections wait; the oldest are closed", extra=fields)
            self._closed_for_others = 0

    def _may_log(self) -> bool:
        """Return whether nothing was logged for a minute."""
        now = self._loop.time()
        is_due = now - self._logged_at >= _LOG_SECONDS
        if is_due:
            self._logged_at = now
        return is_due


class Connection:
    """One connection, from accept to close.

    Attributes:
        peer: the peer of the connection.
        socket: its socket before the first byte; None once a transport owns and closes it.
        limit: timer until the first byte.
        task: the task that serves it; None before the first byte.
        session: the HTTP session; None before the handshake.
        is_known: whether the API server or a certificate identified the client, and it was admitted.
    """

    __slots__ = ("_limiter", "_listener", "is_known", "limit", "peer", "session", "socket", "task")

    def __init__(self, listener: Listener, connected: socket.socket, peer: str) -> None:
        self.peer = peer
        self.socket: socket.socket | None = connected
        self.limit: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.session: HttpSession | None = None
        self.is_known = False
        self._listener = listener
        self._limiter: ConnectionLimiter | None = None

    def take_socket(self) -> socket.socket:
        """Pass the socket to its new owner, who closes it."""
        connected, self.socket = self.socket, None
        assert connected is not None
        return connected

    @property
    def is_idle(self) -> bool:
        """Whether no request of the connection is in progress."""
        return self.session is None or self.session.is_idle

    def pause_seconds(self) -> float:
        """Count a response, and return the delay before the next request is read."""
        return 0.0 if self.is_known else self._listener.unknown_client_pause_seconds()

    @property
    def large_bodies(self) -> asyncio.Semaphore:
        """Limits the large bodies that are read at a time, over all connections."""
        return self._listener.large_bodies

    def we_wait(self) -> None:
        """Record that the server waits for the client."""
        self.move_to(self._listener.known if self.is_known else self._listener.unknown_clients)

    def peer_waits(self) -> None:
        """Record that the client waits for the server, so that the connection is not closed for others."""
        self.move_to(None)

    def move_to(self, limiter: ConnectionLimiter | None) -> None:
        """Leave the current crowd and enter another one; None for none."""
        if self._limiter is not None:
            self._limiter.leave(self)
        self._limiter = limiter
        if limiter is not None:
            limiter.enter(self)
