"""One watch event from a file.

    {"type": "ADDED" | "MODIFIED" | "DELETED", "object": {...}, "oldObject": {...} (of MODIFIED only)}

The format is the API server's, with the previous object, which a watch does not send.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.feature_gates import VERSIONS, features_of
from scheduler.configuration.manifests import item_of, read_documents
from scheduler.errors import FieldError, ObjectError
from scheduler.objects.wording import was
from scheduler.tools.whatif.cluster_file import ClusterFileError, read
from scheduler.tools.whatif.documents import NODES, PODS, Identity, decoded, identify, is_known

if TYPE_CHECKING:
    from collections.abc import Container

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.cluster_file import ClusterFile

_OBJECT = "object"
_OLD_OBJECT = "oldObject"
_FIELDS = ("type", _OBJECT, _OLD_OBJECT)
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class EventType(Enum):
    """Type of the change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class FileWatchEvent:
    """One event.

    Attributes:
        type: type of the change.
        kind: kind of the object, as in plugins' `needs`.
        key: `namespace/name` or `name` of the object.
        obj: the object; for a deletion, its last state. A PodInfo, a NodeObject, or JSON.
        old: the previous object for a modification; else None.
    """

    type: EventType
    kind: str
    key: str
    obj: Any
    old: Any = None


def load(path: str, cluster: ClusterFile, *, kinds: Container[str] = ()) -> FileWatchEvent:
    """Read a file, or standard input for `-`; see `parse`.

    Raises:
        ClusterFileError: all errors of the file.
    """
    data, source = read(path)
    return parse(data, source, cluster, kinds=kinds)


def parse(data: bytes, source: str, cluster: ClusterFile, *, kinds: Container[str] = ()) -> FileWatchEvent:
    """Read one watch event from JSON or YAML; `kinds` are the kinds that plugins read beside Kubernetes' own.

    Raises:
        ClusterFileError: all errors of the file.
    """
    reader = _Reader(cluster, kinds)
    event = reader.read(data)
    if event is None:
        raise ClusterFileError(source, reader.faults)
    return event


class _Reader:
    """Collects errors, and continues as far as possible."""

    def __init__(self, cluster: ClusterFile, kinds: Container[str]) -> None:
        self.faults: list[FieldError] = []
        self._cluster = cluster
        self._kinds = kinds

    def read(self, data: bytes) -> FileWatchEvent | None:
        """Return the event; None if there are errors."""
        fields = self._fields(data)
        if fields is None:
            return None
        for name in fields:
            if name not in _FIELDS:
                self._fault(name, f"unknown field; a watch event has {', '.join(_FIELDS)}")
        type_ = self._type(fields)
        new = self._object(_OBJECT, fields)
        if type_ is None or new is None:
            return None
        old = self._old_object(fields, type_, new)
        if not self.faults:
            self._check_against_cluster(type_, new)
        now = self._decoded(_OBJECT, new)
        before = None if old is None else self._decoded(_OLD_OBJECT, old)
        if not self.faults and type_ is not EventType.ADDED and new.kind == PODS:
            self._check_uid(*((_OBJECT, now) if before is None else (_OLD_OBJECT, before)))
            self._check_version(before, now)
        return None if self.faults else FileWatchEvent(type_, new.kind, new.key, now, before)

    def _fields(self, data: bytes) -> dict[str, bytes] | None:
        documents, self.faults = read_documents(data)
        if self.faults:
            return None
        if len(documents) > 1:
            self._fault("", f"must be one watch event, was {len(documents)} documents")
            return None
        try:
            event = _RAW_FIELDS.decode(documents[0])
        except msgspec.DecodeError:
            expected = "must be a watch event, which has type and object"
            self._fault("", f"{expected}, {was(msgspec.json.decode(documents[0]))}")
            return None
        return {name: bytes(raw) for name, raw in event.items() if bytes(raw) != b"null"}

    def _type(self, fields: dict[str, bytes]) -> EventType | None:
        given = msgspec.json.decode(fields.get("type", b"null"))
        try:
            return EventType(given)
        except ValueError:
            known = ", ".join(each.value for each in EventType)
            self._fault("type", f"must be one of {known}, {'was absent' if given is None else was(given)}")
            return None

    def _object(self, field: str, fields: dict[str, bytes]) -> Identity | None:
        raw = fields.get(field)
        if raw is None:
            self._fault(field, "must be an API object, was absent")
            return None
        try:
            identity = identify(item_of(raw, field))
        except ValueError as error:
            self._fault(field, str(error))
            return None
        if not self._is_of_a_kind_one_knows(identity):
            self._fault(
                field,
                f"{identity.item.kind} of {identity.item.api_version} is a kind that no plugin of the profiles reads "
                "and Kubernetes does not have; check kind and apiVersion",
            )
            return None
        return identity

    def _is_of_a_kind_one_knows(self, identity: Identity) -> bool:
        if is_known(identity.item) or identity.kind in self._kinds:
            return True
        from scheduler.tools.simulator.kinds.builtin_kinds import (
            builtin_kinds,  # rarely asked for, slow to import
        )

        kinds = {
            (kind.api_version, kind.kind)
            for version in VERSIONS
            for kind in builtin_kinds(features_of({}, version))
        }
        return (identity.item.api_version, identity.item.kind) in kinds

    def _old_object(self, fields: dict[str, bytes], type_: EventType, new: Identity) -> Identity | None:
        if type_ is not EventType.MODIFIED:
            if _OLD_OBJECT in fields:
                self._fault(_OLD_OBJECT, f"must be absent: {type_.value} has no previous object")
            return None
        if _OLD_OBJECT not in fields:
            self._fault(
                _OLD_OBJECT, "must be the previous object: requeueing after MODIFIED depends on the change"
            )
            return None
        old = self._object(_OLD_OBJECT, fields)
        if old is not None and (old.kind, old.key) != (new.kind, new.key):
            self._fault(_OLD_OBJECT, f"must be {_name(new)} before the change, was {_name(old)}")
        return old

    def _check_against_cluster(self, type_: EventType, new: Identity) -> None:
        is_there = new.key in _keys(self._cluster, new.kind)
        if type_ is EventType.ADDED and is_there:
            self._fault(_OBJECT, f"{_name(new)} is already in the cluster, so it cannot be {type_.value}")
        if type_ is not EventType.ADDED and not is_there:
            self._fault(_OBJECT, f"{_name(new)} is not in the cluster, so it cannot be {type_.value}")

    def _check_uid(self, field: str, pod: PodInfo) -> None:
        """Check the uid: a pod with another uid is another pod, so the event would requeue nothing."""
        uid = next(each.uid for each in self._cluster.pods if each.key == pod.key)
        if pod.uid != uid:
            self._fault(f"{field}.metadata.uid", f"must be {uid} as in the cluster, was {pod.uid}")

    def _check_version(self, old: PodInfo | None, new: PodInfo) -> None:
        """Check the version: the scheduler ignores an update with the resourceVersion that it knows."""
        if old is not None and old.resource_version and old.resource_version == new.resource_version:
            problem = f"must differ from oldObject's, was {new.resource_version} too"
            self._fault(f"{_OBJECT}.metadata.resourceVersion", problem)

    def _decoded(self, field: str, identity: Identity) -> Any:
        try:
            return decoded(identity)
        except ObjectError as error:
            path = f"{field}.{error.path}" if error.path else field
            self._fault(path, error.problem)
            return None

    def _fault(self, path: str, problem: str) -> None:
        self.faults.append(FieldError(path, problem))


def _name(identity: Identity) -> str:
    return f"{identity.item.kind} {identity.key}"


def _keys(cluster: ClusterFile, kind: str) -> Container[str]:
    if kind == NODES:
        return {node.name for node in cluster.nodes}
    if kind == PODS:
        return {pod.key for pod in cluster.pods}
    return cluster.others.get(kind, {})
