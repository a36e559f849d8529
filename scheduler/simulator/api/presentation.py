"""Encoding of objects in responses: whole, as table rows, or metadata only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from scheduler.simulator.api.request_info import accepted_types
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.printing.printers import printer_of
from scheduler.simulator.storage.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.clock import Clock
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object

META_API_VERSION: Final = "meta.k8s.io/v1"
_INITIAL_EVENTS_END: Final = {"k8s.io/initial-events-end": "true"}


class Presentation(Protocol):
    """A form in which the objects of a kind are shown."""

    def one(self, entry: Entry) -> bytes:
        """Return one object."""
        ...

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        """Return a list with its metav1.ListMeta."""
        ...

    def event(self, type_: str, entry: Entry) -> bytes:
        """Return one line of a watch."""
        ...


class AsObjects:
    """Whole objects."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        head = {"kind": kind.list_kind or f"{kind.kind}List", "apiVersion": kind.api_version}
        self._list_head = msgspec.json.encode(head)[:-1]

    def one(self, entry: Entry) -> bytes:
        return entry.raw(self._kind)

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        kind = self._kind
        items = b",".join([kind.item(entry.raw(kind)) for entry in entries])
        return b'%b,"metadata":%b,"items":[%b]}' % (self._list_head, msgspec.json.encode(metadata), items)

    def event(self, type_: str, entry: Entry) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), entry.raw(self._kind))


class AsMetadata:
    """Metadata only: metav1.PartialObjectMetadata."""

    def one(self, entry: Entry) -> bytes:
        return msgspec.json.encode(partial_metadata(entry.object))

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": META_API_VERSION, "metadata": metadata}
        return msgspec.json.encode({**head, "items": [partial_metadata(entry.object) for entry in entries]})

    def event(self, type_: str, entry: Entry) -> bytes:
        return msgspec.json.encode({"type": type_, "object": partial_metadata(entry.object)}) + b"\n"


class AsTable:
    """Rows for `kubectl get`: metav1.Table."""

    def __init__(self, kind: Kind, clock: Clock, include_object: str) -> None:
        """Set up; `include_object` is the object in each row: `Metadata`, `Object` or `None`."""
        self._kind = kind
        self._clock = clock
        self._include = include_object
        self._printer = kind.printer or printer_of(kind.group_resource)
        self._columns_are_known = False

    def one(self, entry: Entry) -> bytes:
        return msgspec.json.encode(self._table([entry], {"resourceVersion": str(entry.version)}))

    def many(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        return msgspec.json.encode(self._table(entries, metadata))

    def event(self, type_: str, entry: Entry) -> bytes:
        """Return one line of a watch; only the first one has the column definitions."""
        rows = [] if type_ == "BOOKMARK" else [entry]
        table = self._table(rows, {"resourceVersion": str(entry.version)})
        if self._columns_are_known:
            table["columnDefinitions"] = None
        self._columns_are_known = True
        return msgspec.json.encode({"type": type_, "object": table}) + b"\n"

    def _table(self, entries: Sequence[Entry], metadata: Object) -> Object:
        now = self._clock.utc_now()
        return {
            "kind": "Table",
            "apiVersion": META_API_VERSION,
            "metadata": metadata,
            "columnDefinitions": [column.definition() for column in self._printer.columns],
            "rows": [self._row(entry, self._printer.cells(entry.object, now)) for entry in entries],
        }

    def _row(self, entry: Entry, cells: list[Any]) -> Object:
        row: Object = {"cells": cells}
        phase = entry.object.get("status", {}).get("phase") if self._kind.kind == "Pod" else None
        if phase in {"Succeeded", "Failed"}:
            message = f"The pod has {'completed successfully' if phase == 'Succeeded' else 'failed'}."
            row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
        if self._include == "Object":
            row["object"] = self._kind.view(entry.object)
        elif self._include == "Metadata":
            row["object"] = partial_metadata(entry.object)
        return row


def partial_metadata(obj: Object) -> Object:
    """Return the metav1.PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_API_VERSION, "metadata": obj["metadata"]}


def bookmark(kind: Kind, version: int, *, initial_events_end: bool = False) -> Entry:
    """Return the object of a BOOKMARK: a resourceVersion, and Go's zero values."""
    metadata: Object = {"resourceVersion": str(version)}
    if initial_events_end:
        metadata["annotations"] = _INITIAL_EVENTS_END
    blank = kind.strategy.to_storage({} if kind.type is None else dict(kind.type.zero))
    return Entry("", "", "", kind.head(blank | {"metadata": metadata}), version)


def negotiate(kind: Kind, accept: str, clock: Clock, include_object: str) -> Presentation:
    """Return the first supported form that a client accepts.

    Raises:
        StatusError: 406, no accepted form is supported.
    """
    for media_type, asked in accepted_types(accept or "application/json"):
        if media_type not in {"application/json", "application/*", "*/*"}:
            continue
        shape = asked.get("as", "")
        if not shape:
            return AsObjects(kind)
        if asked.get("g") != "meta.k8s.io" or asked.get("v") != "v1":
            continue
        if shape == "Table":
            return AsTable(kind, clock, include_object or "Metadata")
        if shape in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
            return AsMetadata()
    problem = "only the following media types are accepted: application/json"
    raise StatusError(406, "NotAcceptable", problem)
