"""Recordings of kube-scheduler-simulator's recorder as workloads.

Source:
    github.com/kubernetes-sigs/kube-scheduler-simulator, simulator/recorder/recorder.go (Record): JSON lines of
    {time, event: Add|Update|Delete, resource}, for deletions only with the name; simulator/replayer/replayer.go reads them.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.manifests import item_of
from scheduler.errors import ObjectError, SchedulerError
from scheduler.objects.decode import decode_node
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.documents import NODES, PODS, decoded_object, decoded_pod, identify
from scheduler.tools.whatif.simulation.object_versions import pending
from scheduler.tools.whatif.simulation.workload import (
    Arrival,
    NodeGoes,
    NodeIsThere,
    ObjectGoes,
    ObjectIsThere,
    PodGoes,
    PodIsAnother,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.documents import Identity
    from scheduler.tools.whatif.simulation.workload import TimelineEvent

_EVENTS = ("Add", "Update", "Delete")


class RecorderFileError(SchedulerError):
    """A recording cannot be read; the message names file, line and error."""


class _Record(msgspec.Struct):
    time: datetime
    event: str
    resource: msgspec.Raw


_DECODER = msgspec.json.Decoder(_Record)


@dataclass(slots=True)
class _Life:
    """One pod of a recording."""

    pod: PodInfo
    came: float
    was_there: bool
    bound: float | None = None


def is_recording(path: str) -> bool:
    """Return whether a file looks like a recording, or a directory may contain some."""
    if Path(path).is_dir():
        return True
    try:
        first = next(iter(_lines(Path(path))), b"")
        return isinstance(_DECODER.decode(first), _Record)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, RecorderFileError):
        return False


def read_recording(path: str) -> Workload:
    """Read a recording: a file, possibly compressed by gzip, or a directory of them, read by name.

    Objects created before the recording began exist from the beginning, pods on their nodes. Other pods arrive as pending
    when they were added. Each runs as long as recorded once it is placed; pods that were never placed are removed when they
    were. An incomplete last line is ignored.

    Raises:
        RecorderFileError: the file, line and field that cannot be read.
    """
    reader = _Reader()
    files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]
    for file in files:
        try:
            for number, line in _complete(file):
                reader.read(line, f"{file}:{number}")
        except (OSError, EOFError, zlib.error) as error:
            raise RecorderFileError(f"{file}: cannot be read: {error}") from error
    if reader.began is None:
        raise RecorderFileError(f"{path}: contains no record")
    return reader.workload()


def _complete(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines and their numbers; the last line only if it is complete."""
    held: tuple[int, bytes] | None = None
    for number, line in enumerate(_lines(path), start=1):
        if held is not None:
            yield held
        held = (number, line) if line.strip() else None
    if held is not None and (held[1].endswith(b"\n") or _is_whole(held[1])):
        yield held


def _is_whole(line: bytes) -> bool:
    try:
        _DECODER.decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if is_packed else path.open("rb") as lines:
        try:
            yield from lines
        except EOFError:  # a truncated compressed file: the lines up to there count
            return


def _read(line: bytes) -> _Record:
    """Return a record.

    Raises:
        ValueError: it is not a record.
    """
    record = _DECODER.decode(line)
    if record.event not in _EVENTS:
        raise ValueError(f"event: must be one of {', '.join(_EVENTS)}, was {record.event!r:.40}")
    if record.time.tzinfo is None:
        raise ValueError("time: must have a time zone")
    return record


class _Reader:
    def __init__(self) -> None:
        self.began: datetime | None = None
        self._cluster = ClusterFile()
        self._nodes: dict[str, NodeObject] = {}
        self._lives: dict[str, _Life] = {}
        self._arrivals: list[Arrival] = []
        self._events: list[TimelineEvent] = []

    def read(self, line: bytes, where: str) -> None:
        try:
            record = _read(line)
            self.began = self.began or record.time
            at = max(0.0, (record.time - self.began).total_seconds())
            identity = identify(item_of(bytes(record.resource), ""))
            self._take(identity, at, is_there=record.event != "Delete")
        except (msgspec.DecodeError, ObjectError, ValueError) as error:
            raise RecorderFileError(f"{where}: {error}") from error

    def workload(self) -> Workload:
        """Return the workload."""
        for life in list(self._lives.values()):
            self._end(life, None)
        return Workload(
            self._cluster,
            sorted(self._arrivals, key=lambda each: (each.at, each.pod.key)),
            sorted(self._events, key=lambda each: each.at),
        )

    def _take(self, identity: Identity, at: float, *, is_there: bool) -> None:
        if identity.kind == NODES:
            self._take_node(identity, at, is_there=is_there)
        elif identity.kind == PODS:
            self._take_pod(identity, at, is_there=is_there)
        elif not is_there:
            self._events.append(ObjectGoes(at, identity.kind, identity.key))
        else:
            obj = decoded_object(identity.item.raw, identity.kind, identity.key)
            if self._is_old(obj["metadata"]):
                self._cluster.others.setdefault(identity.kind, {}).setdefault(identity.key, identity.item.raw)
            self._events.append(ObjectIsThere(at, identity.kind, obj))

    def _take_node(self, identity: Identity, at: float, *, is_there: bool) -> None:
        known = self._nodes.pop(identity.key, None)
        if not is_there:
            self._events.append(NodeGoes(at, identity.key))
            return
        node = self._nodes[identity.key] = decode_node(identity.item.raw)
        if known is None and self._is_old({"creationTimestamp": node.node.metadata.creation_timestamp}):
            self._cluster.nodes.append(node)
        elif known is None or not node.is_heartbeat_of(known):
            self._events.append(NodeIsThere(at, node))

    def _take_pod(self, identity: Identity, at: float, *, is_there: bool) -> None:
        life = self._lives.get(identity.key)
        if not is_there:
            if life is not None:
                self._end(self._lives.pop(identity.key), at)
            return
        pod = decoded_pod(identity)
        if life is not None and life.pod.uid != pod.uid:
            self._end(self._lives.pop(identity.key), at)
            life = None
        if pod.is_terminal:
            if life is not None:
                self._end(self._lives.pop(identity.key), at)
            return
        if life is None:
            was_there = bool(pod.node_name) and self._is_old(
                {"creationTimestamp": pod.pod.metadata.creation_timestamp}
            )
            life = self._lives[identity.key] = _Life(pod, at, was_there)
            if was_there:
                self._cluster.pods.append(pod)
        elif not pod.node_name and pod.pod.spec != life.pod.pod.spec:  # for example, a gate was removed
            self._events.append(PodIsAnother(at, pending(pod)))
        if pod.node_name and life.bound is None:
            life.bound = at

    def _end(self, life: _Life, at: float | None) -> None:
        """Note that a pod ends; None if it existed at the end."""
        if life.was_there:
            if at is not None:
                self._events.append(PodGoes(at, life.pod.key))
            return
        runs = inf if at is None or life.bound is None else max(at - life.bound, 0.0)
        self._arrivals.append(Arrival(pending(life.pod), life.came, runs))
        if at is not None and life.bound is None:
            self._events.append(PodGoes(at, life.pod.key))

    def _is_old(self, metadata: Any) -> bool:
        """Return whether an object was created before the recording began."""
        created = metadata.get("creationTimestamp")
        if not created:
            return False
        assert self.began is not None
        made = datetime.fromisoformat(created)
        if made.tzinfo is None:
            raise ValueError("metadata.creationTimestamp: must have a time zone")
        return made <= self.began
