"""Lets peers in, so that those whom nobody knows cost next to nothing and probes are answered whatever others do.

A connection is a socket and nothing more until its first byte is there. Only then TLS begins, a few at a time, so that
a flood of handshakes leaves the loop its time, and as little as possible is kept of those who then say nothing. How
many wait is bounded in each state by a `Crowd` of its own; who is being answered waits for us and is in none.

Source:
    of how long a client may take: kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/secure_serving.go.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from scheduler.server.conversation import FIRST_BYTE_SECONDS, LONGEST_HEAD_BYTES, Conversation
from scheduler.server.crowd import Crowd, peer_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from scheduler.server.crowd import Connection
    from scheduler.server.messages import Handler

logger = logging.getLogger(__name__)

CROWDED, LATE, UNSECURED = "crowded", "late", "no_tls"
"""Why a connection was closed on our side: gave way to others; said nothing, or not all, in time; no TLS came about."""

_SILENT = 256
"""Connections without a first byte, a few KiB each. A peer that means it speaks within a round trip."""
_IN_LINE = 256
"""Those whose handshake has not begun."""
_HANDSHAKES = 64
"""Those whose handshake has. A handshake is 0.3 ms of work, so this is as much as a round trip can take."""
_STRANGERS = 128
"""Those from whom a request, its end, or the next one is waited for, and of whom nobody is known to be behind it; TLS
keeps 30 to 300 KiB of each."""
_KNOWN = 400
"""The same of those that were let in. With all others it fits into the 1024 descriptors that a process may have."""
_ACCEPTED_AT_ONCE = 64
_HANDSHAKES_AT_ONCE = 4
"""Begun in one turn of the loop, whose other work comes between."""
_HANDSHAKE_SECONDS = 10.0
_CLOSING_SECONDS = 10.0
"""How long the last of an answer may take to arrive."""
_STRANGERS_ANSWERED_A_SECOND = 1000
"""Of connections that are kept, together: who asks on and on waits the longer, the more others do the same. Connections that
ask for nothing make nobody wait."""
_LARGE_BODIES = 8
"""Of all connections together at a time: of an extender's requests, 128 MiB."""
_OUT_OF_DESCRIPTORS_SECONDS = 0.2
_LAST_ANSWERS_SECONDS = 5.0
_COMPLAINT_SECONDS = 60.0


class Door:
    """One address that is listened on.

    Args:
        listening: a socket that listens.
        handler: who answers.
        longest_body_bytes: of a request.
        tls: None for plain HTTP.
        turned_away: is told of each connection that was closed on our side before it was answered, and why.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: Handler,
        longest_body_bytes: int,
        tls: ssl.SSLContext | None,
        turned_away: Callable[[str], None],
    ) -> None:
        self._listening = listening
        self._handler = handler
        self._longest_body_bytes = longest_body_bytes
        self._tls = tls
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._silent = Crowd(_SILENT, self._gives_way)
        self._in_line = Crowd(_IN_LINE, self._gives_way)
        self._handshaking = Crowd(_HANDSHAKES, self._gives_way)
        self.strangers = Crowd(_STRANGERS, self._gives_way)
        self.known = Crowd(_KNOWN, self._gives_way)
        self.large_bodies = asyncio.Semaphore(_LARGE_BODIES)
        self._visitors: set[Visitor] = set()
        self._reopening: asyncio.TimerHandle | None = None
        self._is_beginning = False
        self._strangers_answered_until = 0.0  # all answers so far, at the rate that strangers have
        self._gave_way = 0  # since the last complaint
        self._complained_at = -_COMPLAINT_SECONDS

    def open(self) -> None:
        """Let peers in from now on."""
        self._reopening = None
        self._loop.add_reader(self._listening, self._accept)

    async def close(self) -> None:
        """Let nobody in any more; what is being answered has 5 seconds."""
        if self._reopening is not None:
            self._reopening.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for visitor in [visitor for visitor in self._visitors if visitor.is_idle]:
            self._send_off(visitor)
        tasks = [visitor.task for visitor in self._visitors if visitor.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_LAST_ANSWERS_SECONDS)
            for task in late:
                task.cancel()

    def stranger_pause_seconds(self) -> float:
        """Count an answer to a stranger, and return how long the next request of the same connection is not looked at."""
        now = self._loop.time()
        self._strangers_answered_until = (
            max(now, self._strangers_answered_until) + 1 / _STRANGERS_ANSWERED_A_SECOND
        )
        return self._strangers_answered_until - now

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
            visitor = Visitor(self, connected, peer_of(address[0]))
            self._visitors.add(visitor)
            visitor.go_to(self._silent)
            visitor.limit = self._loop.call_later(FIRST_BYTE_SECONDS, self._is_late, visitor)
            self._loop.add_reader(connected, self._spoke, visitor)

    def _rest(self, error: OSError) -> None:
        """Accept nobody for a moment: no descriptor is left, and to try on would take all the time there is."""
        if self._may_complain():
            logger.warning("Cannot accept a connection", extra={"error": str(error)})
        self._loop.remove_reader(self._listening)
        self._reopening = self._loop.call_later(_OUT_OF_DESCRIPTORS_SECONDS, self.open)

    def _spoke(self, visitor: Visitor) -> None:
        """Its first byte is there, or its end."""
        assert visitor.socket is not None
        try:
            has_left = not visitor.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            has_left = True
        self._stop_listening(visitor)
        if has_left:
            self._send_off(visitor)
            return
        visitor.go_to(self._in_line)
        if not self._is_beginning:
            self._is_beginning = True
            self._loop.call_soon(self._begin_some)  # when all that came in this turn are in line

    def _begin_some(self) -> None:
        for _ in range(min(_HANDSHAKES_AT_ONCE, len(self._in_line))):
            visitor = cast("Visitor", self._in_line.next())
            visitor.go_to(self._handshaking)
            visitor.task = self._loop.create_task(self._receive(visitor), name="conversation")
            visitor.task.add_done_callback(partial(self._has_gone, visitor))
        self._is_beginning = bool(len(self._in_line))
        if self._is_beginning:
            self._loop.call_soon(self._begin_some)

    async def _receive(self, visitor: Visitor) -> None:
        try:
            reader, writer = await self._streams(visitor.take_socket())
        except (TimeoutError, ConnectionAbortedError):  # the latter is the transport's own word for it
            self._turned_away(LATE)
            return
        except OSError:  # ssl.SSLError is one
            self._turned_away(UNSECURED)
            return
        visitor.conversation = Conversation(reader, writer, self._handler, self._longest_body_bytes, visitor)
        try:
            if await visitor.conversation.run():
                writer.close()
                with suppress(OSError):  # a TimeoutError is one
                    async with asyncio.timeout(_CLOSING_SECONDS):
                        await writer.wait_closed()
            else:
                self._turned_away(LATE)
        except Exception:
            logger.exception("Answer broke off")
        finally:
            writer.transport.abort()

    async def _streams(self, connected: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader(LONGEST_HEAD_BYTES, self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        limits: dict[str, Any] = {}
        if self._tls is not None:
            limits = {"ssl_handshake_timeout": _HANDSHAKE_SECONDS, "ssl_shutdown_timeout": _CLOSING_SECONDS}
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, connected, ssl=self._tls, **limits
            )
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    def _is_late(self, visitor: Visitor) -> None:
        self._turned_away(LATE)
        self._send_off(visitor)

    def _stop_listening(self, visitor: Visitor) -> None:
        if visitor.limit is not None and visitor.socket is not None:
            visitor.limit.cancel()
            visitor.limit = None
            self._loop.remove_reader(visitor.socket)

    def _send_off(self, visitor: Visitor) -> None:
        """Close a connection, whatever it is in the middle of."""
        if visitor.task is not None:
            visitor.task.cancel()
            return
        self._stop_listening(visitor)
        self._has_gone(visitor)

    def _has_gone(self, visitor: Visitor, _task: asyncio.Task[None] | None = None) -> None:
        visitor.go_to(None)
        self._visitors.discard(visitor)
        # These lead back to the visitor: what TLS has kept is to go now, and not with the next look for garbage.
        visitor.task = visitor.conversation = None
        if visitor.socket is not None:
            visitor.socket.close()

    def _gives_way(self, connection: Connection) -> None:
        visitor = cast("Visitor", connection)
        self._send_off(visitor)
        self._turned_away(CROWDED)
        self._gave_way += 1
        if self._may_complain():
            fields = {"connections": self._gave_way, "most_from": visitor.peer}
            logger.warning("Too many connections wait, so the oldest are closed", extra=fields)
            self._gave_way = 0

    def _may_complain(self) -> bool:
        """Whether nothing was said for a minute."""
        now = self._loop.time()
        is_due = now - self._complained_at >= _COMPLAINT_SECONDS
        if is_due:
            self._complained_at = now
        return is_due


class Visitor:
    """One connection, from accept to close.

    Attributes:
        peer: whose it is.
        socket: all there is of it before its first byte; None once a transport has it, which closes it.
        limit: the timer that runs until its first byte is there.
        task: what it runs in; None before its first byte.
        conversation: None before that.
        is_known: whether the API server, or a certificate, said who it is, and it may be here.
    """

    __slots__ = ("_crowd", "_door", "conversation", "is_known", "limit", "peer", "socket", "task")

    def __init__(self, door: Door, connected: socket.socket, peer: str) -> None:
        self.peer = peer
        self.socket: socket.socket | None = connected
        self.limit: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.conversation: Conversation | None = None
        self.is_known = False
        self._door = door
        self._crowd: Crowd | None = None

    def take_socket(self) -> socket.socket:
        """Hand its socket over to who closes it from now on."""
        connected, self.socket = self.socket, None
        assert connected is not None
        return connected

    @property
    def is_idle(self) -> bool:
        """Whether no request of its is being answered."""
        return self.conversation is None or self.conversation.is_idle

    def pause_seconds(self) -> float:
        """Count an answer, and return how long the next request is not looked at."""
        return 0.0 if self.is_known else self._door.stranger_pause_seconds()

    @property
    def large_bodies(self) -> asyncio.Semaphore:
        """Taken while a large body is read, by all connections together."""
        return self._door.large_bodies

    def waited_for(self) -> None:
        """Note that from now on we wait for it."""
        self.go_to(self._door.known if self.is_known else self._door.strangers)

    def waits(self) -> None:
        """Note that from now on it waits for us, and so gives way to nobody."""
        self.go_to(None)

    def go_to(self, crowd: Crowd | None) -> None:
        """Leave the crowd it is in for another one; None for none."""
        if self._crowd is not None:
            self._crowd.leave(self)
        self._crowd = crowd
        if crowd is not None:
            crowd.enter(self)
