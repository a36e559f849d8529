"""Copies the cluster of a daemon to a child process: pieces of MessagePack on the child's standard input.

Objects have the form of recordings: the fields that decisions read, and no secrets.
"""

from __future__ import annotations

import asyncio
import struct
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Final

import msgspec

from scheduler.daemon.app.needs import trimmed
from scheduler.daemon.recording.recorded_objects import packed, unpacked_node, unpacked_object, unpacked_pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.tools.whatif.offline import OfflineScheduler

_AT_A_TIME: Final = 100
"""Objects in a piece, which take a few milliseconds."""
_REST: Final = 3
"""After each piece the copy pauses for this multiple of its time."""
_LENGTH: Final = struct.Struct("!I")
_encode = msgspec.msgpack.Encoder().encode

NODE, BOUND, PENDING, OTHER = "node", "bound", "pending", "other"


class ChildTask(msgspec.Struct):
    """The first piece.

    Attributes:
        configuration: the active configuration, as YAML; with secrets, because plugins fetch data with them.
        folder: folder that its relative paths start from.
        body: the body of the request.
        query: the query of the request.
        memory_bytes: limit of the child's memory.
        evictions: as `RecentEvictions.kept`.
    """

    configuration: str
    folder: str
    body: bytes
    query: dict[str, list[str]]
    memory_bytes: int
    evictions: list[tuple[float, str, str]]


async def pieces(task: ChildTask, daemon: Daemon) -> AsyncIterator[bytes]:
    """Yield the input of a child; the objects are those of the time of the first piece, which do not change."""
    cache, needs = daemon.parts.cache, daemon.generations.active.needs
    nodes, bound, queued = list(cache.table.nodes), list(cache.pods()), list(daemon.parts.queue.pods())
    others = [(kind, list(cache.table.watch_kind(kind).items())) for kind in needs.kinds]
    objects = chain(
        ((NODE, packed(node)) for node in nodes),
        ((OTHER, packed(obj), kind, key) for kind, known in others for key, obj in known),
        ((BOUND, packed(pod), pod.node_name) for pod in bound),
        ((PENDING, packed(each.pod)) for each in queued if not each.pod.node_name),
    )
    yield _framed(_encode(task))
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        some = list(islice(objects, _AT_A_TIME))
        if not some:
            return
        piece = _framed(_encode(some))
        spent = clock() - began
        yield piece
        await asyncio.sleep(_REST * spent)


def _framed(piece: bytes) -> bytes:
    return _LENGTH.pack(len(piece)) + piece


def read_pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a child's input."""
    while head := stream.read(_LENGTH.size):
        yield stream.read(*_LENGTH.unpack(head))


def fill(scheduler: OfflineScheduler, given: Iterator[bytes], task: ChildTask) -> None:
    """Add the copied cluster to a scheduler without objects.

    Raises:
        ObjectError: an object cannot be decoded.
    """
    cache, needs = scheduler.cache, scheduler.needs
    for kind in needs.kinds:
        cache.table.watch_kind(kind)
    for piece in given:
        for what, obj, *more in msgspec.msgpack.decode(piece):
            if what == NODE:
                cache.add_node(unpacked_node(obj))
            elif what == OTHER:
                kind, key = more
                cache.table.watch_kind(kind)[key] = unpacked_object(obj, kind)
            elif what == BOUND:
                pod = unpacked_pod(obj)
                cache.add_pod(trimmed(pod if pod.node_name else pod.placed_on(more[0]), needs))
            else:
                scheduler.queue.add(unpacked_pod(obj))
    while cache.is_behind:
        cache.work()
    scheduler.cycles.preemptions.recent.resume(task.evictions)
