"""A cluster as a file: nodes, pods, and whatever else plugins read, checked completely before anything is judged."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scheduler.client import resources
from scheduler.client.resources import Resource
from scheduler.errors import FieldError, ObjectError, SchedulerError
from scheduler.objects.decode import decode_node, decode_object, decode_pod
from scheduler.objects.nulls import without_nulls
from scheduler.objects.pod import Pod
from scheduler.simulator.pod_defaults import default_pod
from scheduler.whatif.documents import Item, read_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

STANDARD_INPUT = "-"
_MOST_FAULTS_SHOWN = 50
_KNOWN = {
    (found.api_version, found.kind): found
    for found in vars(resources).values()
    if isinstance(found, Resource)
}


class ClusterFileError(SchedulerError):
    """Everything that is wrong with a file, all at once."""

    def __init__(self, source: str, faults: Sequence[FieldError]) -> None:
        self.source = source
        self.faults = tuple(faults)
        lines = [f"{source}: {fault}" for fault in self.faults[:_MOST_FAULTS_SHOWN]]
        if len(self.faults) > _MOST_FAULTS_SHOWN:
            lines.append(f"{source}: and {len(self.faults) - _MOST_FAULTS_SHOWN} more faults")
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a file says of a cluster.

    Attributes:
        nodes: in the file's order.
        pods: likewise, on nodes and pending, ended ones too.
        others: kind, as plugins name it in their `needs` -> `namespace/name` -> JSON.
    """

    nodes: list[NodeObject] = field(default_factory=list)
    pods: list[PodInfo] = field(default_factory=list)
    others: dict[str, dict[str, bytes]] = field(default_factory=dict)


def load(path: str) -> ClusterFile:
    """Read a file, or standard input if it is called `-`.

    Raises:
        ClusterFileError: it cannot be read, or everything that is wrong with what it says.
    """
    if path == STANDARD_INPUT:
        return parse(sys.stdin.buffer.read(), "standard input")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ClusterFileError(
            path, [FieldError("", f"cannot be read: {error.strerror or error}")]
        ) from error
    return parse(data, path)


def parse(data: bytes, source: str) -> ClusterFile:
    """Read API objects from JSON or YAML; `source` is what messages call them.

    Pods that no API server has seen yet, which have no uid, get what it would have filled in.

    Raises:
        ClusterFileError: everything that is wrong with them.
    """
    contents = read_items(data)
    reader = _Reader(contents.errors)
    for item in contents.items:
        reader.read(item)
    if reader.faults:
        raise ClusterFileError(source, reader.faults)
    return reader.found


class _Reader:
    """Items to typed objects; notes faults and goes on."""

    def __init__(self, faults: list[FieldError]) -> None:
        self.found = ClusterFile()
        self.faults = faults
        self._places: dict[tuple[str, str], str] = {}  # kind and namespace/name, or "uid" and uid -> where

    def read(self, item: Item) -> None:
        if item.kind is None or item.name is None or item.api_version is None:
            missing = [
                field
                for field, value in (
                    ("apiVersion", item.api_version),
                    ("kind", item.kind),
                    ("metadata.name", item.name),
                )
                if value is None
            ]
            self._fault(item, f"{', '.join(missing)}: must be text and not empty")
            return
        name = item.name
        resource = _KNOWN.get((item.api_version, item.kind))
        kind = f"{item.api_version}/{resource.plural if resource else plural(item.kind)}"
        is_complete = item.uid is not None and item.namespace is not None
        if resource is not None and resource.namespaced and item.namespace is None:
            item = item._replace(namespace="default")
        key = f"{item.namespace}/{name}" if item.namespace else name
        if self._is_taken(item, kind, key, f"{item.kind} {key} is given"):
            return
        try:
            if kind == "v1/nodes":
                self.found.nodes.append(decode_node(item.raw))
            elif kind == "v1/pods":
                self._note_pod(item, decode_pod(item.raw) if is_complete else _completed_pod(item))
            else:
                self.found.others.setdefault(kind, {})[key] = item.raw
        except ObjectError as error:
            self._fault(item, f"{error.path}: {error.problem}" if error.path else error.problem)

    def _note_pod(self, item: Item, pod: PodInfo) -> None:
        if not self._is_taken(item, "uid", pod.uid, f"metadata.uid {pod.uid} is"):
            self.found.pods.append(pod)

    def _is_taken(self, item: Item, kind: str, key: str, what: str) -> bool:
        first = self._places.setdefault((kind, key), item.where)
        if first == item.where:
            return False
        self._fault(item, f"{what} in {first} already")
        return True

    def _fault(self, item: Item, problem: str) -> None:
        name = f"{item.namespace}/{item.name}" if item.namespace else item.name
        who = " ".join(part for part in (item.kind, name) if part)
        place = f"{item.where} ({who})" if item.where and who else item.where or who
        self.faults.append(FieldError(place, problem))


def _completed_pod(item: Item) -> PodInfo:
    """Read a pod without namespace or uid; no API server has seen one without a uid, so it gets the defaults too.

    Raises:
        ObjectError: it cannot be understood.
    """
    found = decode_object(item.raw)
    identity = {"namespace": item.namespace, "uid": item.uid or f"{item.namespace}/{item.name}"}
    found["metadata"].update(identity)
    pod = decode_pod(msgspec.json.encode(found))
    if item.uid is not None:
        return pod
    found = without_nulls(found, Pod)
    try:
        default_pod(found)
    except (AttributeError, TypeError) as error:  # in parts of a pod that scheduling does not read
        raise ObjectError("Pod", pod.key, "spec", f"is not shaped as a pod's: {error}") from error
    return decode_pod(msgspec.json.encode(found))


def plural(kind: str) -> str:
    """Return what a kind is most likely called in URLs.

    Source:
        apimachinery v0.36, pkg/api/meta/restmapper.go, UnsafeGuessKindToResource.
    """
    name = kind.lower()
    if name.endswith("endpoints"):
        return name
    if name.endswith("s"):
        return f"{name}es"
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}s"
