"""A cluster as a file: nodes, pods, and other objects that plugins read; all errors are found before anything is evaluated."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.configuration.manifests import Item, read_items
from scheduler.errors import FieldError, ObjectError, SchedulerError
from scheduler.objects.decode import decode_node
from scheduler.tools.whatif.documents import NODES, PODS, decoded_pod, identify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

STANDARD_INPUT = "-"
_MOST_FAULTS_SHOWN = 50


class ClusterFileError(SchedulerError):
    """All errors of a file."""

    def __init__(self, source: str, faults: Sequence[FieldError]) -> None:
        self.source = source
        self.faults = tuple(faults)
        lines = [f"{source}: {fault}" for fault in self.faults[:_MOST_FAULTS_SHOWN]]
        if len(self.faults) > _MOST_FAULTS_SHOWN:
            lines.append(f"{source}: and {len(self.faults) - _MOST_FAULTS_SHOWN} more errors")
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The content of a file.

    Attributes:
        nodes: in the file's order.
        pods: in the file's order: on nodes, pending and ended.
        others: kind, as in plugins' `needs` -> `namespace/name` -> JSON.
    """

    nodes: list[NodeObject] = field(default_factory=list)
    pods: list[PodInfo] = field(default_factory=list)
    others: dict[str, dict[str, bytes]] = field(default_factory=dict)


def load(path: str) -> ClusterFile:
    """Read a file, or standard input for `-`.

    Raises:
        ClusterFileError: all errors of the file.
    """
    return parse(*read(path))


def read(path: str) -> tuple[bytes, str]:
    """Return the bytes of a file, or of standard input for `-`, and its name for messages.

    Raises:
        ClusterFileError: it cannot be read.
    """
    if path == STANDARD_INPUT:
        return sys.stdin.buffer.read(), "standard input"
    try:
        return Path(path).read_bytes(), path
    except OSError as error:
        raise ClusterFileError(
            path, [FieldError("", f"cannot be read: {error.strerror or error}")]
        ) from error


def parse(data: bytes, source: str) -> ClusterFile:
    """Read API objects from JSON or YAML; `source` is the name for messages.

    Pods without a uid, which no API server has seen yet, get the API server's defaults.

    Raises:
        ClusterFileError: all errors of the file.
    """
    contents = read_items(data)
    reader = _Reader(contents.errors)
    for item in contents.items:
        reader.read(item)
    if reader.faults:
        raise ClusterFileError(source, reader.faults)
    return reader.cluster


class _Reader:
    """Converts items to typed objects, and collects errors."""

    def __init__(self, faults: list[FieldError]) -> None:
        self.cluster = ClusterFile()
        self.faults = faults
        self._places: dict[tuple[str, str], str] = {}  # (kind, namespace/name) or ("uid", uid) -> place

    def read(self, item: Item) -> None:
        try:
            identity = identify(item)
        except ValueError as error:
            self._fault(item, str(error))
            return
        item = identity.item
        if self._is_taken(item, identity.kind, identity.key, f"{item.kind} {identity.key} is defined"):
            return
        try:
            if identity.kind == NODES:
                self.cluster.nodes.append(decode_node(item.raw))
            elif identity.kind == PODS:
                self._note_pod(item, decoded_pod(identity))
            else:
                self.cluster.others.setdefault(identity.kind, {})[identity.key] = item.raw
        except ObjectError as error:
            self._fault(item, f"{error.path}: {error.problem}" if error.path else error.problem)

    def _note_pod(self, item: Item, pod: PodInfo) -> None:
        if not self._is_taken(item, "uid", pod.uid, f"metadata.uid {pod.uid} is"):
            self.cluster.pods.append(pod)

    def _is_taken(self, item: Item, kind: str, key: str, what: str) -> bool:
        first = self._places.setdefault((kind, key), item.where)
        if first == item.where:
            return False
        self._fault(item, f"{what} already in {first}")
        return True

    def _fault(self, item: Item, problem: str) -> None:
        name = f"{item.namespace}/{item.name}" if item.namespace else item.name
        who = " ".join(part for part in (item.kind, name) if part)
        place = f"{item.where} ({who})" if item.where and who else item.where or who
        self.faults.append(FieldError(place, problem))
