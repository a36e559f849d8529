"""Versions of objects, and their counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object


class Versions:
    """The common counter of resourceVersions."""

    def __init__(self) -> None:
        self.current = 0

    def next(self) -> int:
        self.current += 1
        return self.current


class Entry:
    """One version of one object; neither it nor its dict ever changes.

    Attributes:
        key: its sort key in lists: `namespace/name`, or the name for cluster-scoped kinds.
        object: as stored.
        version: its resourceVersion.
    """

    __slots__ = ("_raw", "key", "name", "namespace", "object", "version")

    def __init__(self, key: str, namespace: str, name: str, obj: Object, version: int) -> None:
        self.key = key
        self.namespace = namespace
        self.name = name
        self.object = obj
        self.version = version
        self._raw: dict[str, bytes] = {}  # apiVersion -> JSON

    def raw(self, kind: Kind) -> bytes:
        """Return its JSON, encoded once per apiVersion."""
        raw = self._raw.get(kind.api_version)
        if raw is None:
            raw = self._raw[kind.api_version] = kind.encode(self.object)
        return raw

    def unstored(self, obj: Object) -> Entry:
        """Return a copy of the entry with another object, which is not stored."""
        return Entry(self.key, self.namespace, self.name, obj, self.version)

    def at_version(self, version: int) -> Entry:
        """Return the same object with another version."""
        metadata = self.object["metadata"] | {"resourceVersion": str(version)}
        return Entry(self.key, self.namespace, self.name, self.object | {"metadata": metadata}, version)
