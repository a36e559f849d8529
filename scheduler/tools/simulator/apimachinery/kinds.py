"""Registration of the served kinds, and the columns of their tables for `kubectl get`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.objects.api_types import api_type
from scheduler.tools.simulator.apimachinery.objects import Object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.objects.api_types import ApiType
    from scheduler.tools.simulator.apimachinery.disabled_fields import DisabledFields
    from scheduler.tools.simulator.apimachinery.strategy import Strategy

Cell = Callable[[Object, datetime], Any]
Cells = Callable[[Object, datetime], list[Any]]


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column.

    Attributes:
        name: its heading.
        description: text, or (model, field) of kubernetes_asyncio whose documentation is used.
        type: as in OpenAPI.
        priority: 0 is always shown, 1 with `-o wide`.
        format: as in OpenAPI.
        cell: returns the cell of an object at a time; unused if the printer makes whole rows.
    """

    name: str
    description: str | tuple[str, str]
    type: str = "string"
    priority: int = 0
    format: str = ""
    cell: Cell = lambda _, __: None

    def definition(self) -> Object:
        """Return the metav1.TableColumnDefinition."""
        text = self.description if isinstance(self.description, str) else _documentation(*self.description)
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": text,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Printer:
    """The table columns of a kind.

    Attributes:
        columns: the columns.
        row: returns all cells of an object; None to ask each column.
    """

    columns: Sequence[PrinterColumn]
    row: Cells | None = None

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return the cells of an object."""
        if self.row is not None:
            return self.row(obj, now)
        return [column.cell(obj, now) for column in self.columns]


def _documentation(model: str, field: str) -> str:
    # Imported on first use: the import takes half a second.
    from kubernetes_asyncio.client import models

    class_ = getattr(models, model)
    attribute = next(attribute for attribute, name in class_.attribute_map.items() if name == field)
    text = (getattr(class_, attribute).__doc__ or "").split("# noqa: E501")[1]
    return text.strip().replace("  ", "\n\n")  # the generator joins paragraphs into one line


def created(obj: Object, now: datetime) -> str:
    """Return the age of an object."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def at(path: str, default: Any = "") -> Cell:
    """Return a cell function for a field of an object, for example `spec.nodeName`, with a default."""
    *steps, last = path.split(".")

    def cell(obj: Object, _: datetime) -> Any:
        for step in steps:
            obj = obj.get(step) or {}
        return obj.get(last, default)

    return cell


NAME: Final = PrinterColumn(
    "Name", ("V1ObjectMeta", "name"), format="name", cell=lambda obj, _: obj["metadata"]["name"]
)
AGE: Final = PrinterColumn("Age", ("V1ObjectMeta", "creationTimestamp"), cell=created)


def age(timestamp: str | None, now: datetime) -> str:
    """Return the time since an RFC 3339 timestamp; `<unknown>` if there is none."""
    if not timestamp:
        return "<unknown>"
    return human_duration((now - datetime.fromisoformat(timestamp)).total_seconds())


def pairs_text(pairs: Mapping[str, str]) -> str:
    """Return an equality selector as text."""
    return ",".join(f"{key}={value}" for key, value in sorted(pairs.items())) or "<none>"


def human_duration(seconds: float) -> str:
    """Return a short form of a duration; one second in the future still counts as now.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/util/duration/duration.go, HumanDuration.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    steps = (
        (whole < 120, f"{max(whole, 0)}s"),
        (minutes < 10, _two(minutes, "m", whole % 60, "s")),
        (minutes < 180, f"{minutes}m"),
        (hours < 8, _two(hours, "h", minutes % 60, "m")),
        (hours < 48, f"{hours}h"),
        (days < 8, _two(days, "d", hours % 24, "h")),
        (days < 365 * 2, f"{days}d"),
        (days < 365 * 8, _two(days // 365, "y", days % 365, "d")),
    )
    return next((text for fits, text in steps if fits), f"{days // 365}y")


def _two(great: int, great_unit: str, small: int, small_unit: str) -> str:
    return f"{great}{great_unit}{small}{small_unit}" if small else f"{great}{great_unit}"


VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
REVIEW_VERBS = ("create",)
"""Verbs of reviews, which are answered but not stored."""


def selectable(*labels: str, **defaults: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the field selectors of a kind beside its name: label -> (path, value when absent)."""
    return {label: (tuple(label.split(".")), defaults.get(label.rpartition(".")[2], "")) for label in labels}


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind in one version.

    Attributes:
        group: API group; "" for core.
        version: for example `v1`.
        resource: plural in paths, for example `pods`.
        kind: for example `Pod`.
        namespaced: whether its objects are in namespaces.
        strategy: its particular rules.
        subresources: for example `status`.
        selectable: field selectors beside metadata.name and metadata.namespace.
        stored_as: (group, resource) whose storage it shares; None for its own.
        verbs: verbs in discovery.
        singular_name: singular; "" for the kind in lower case.
        list_kind: kind of its lists; "" for the kind with `List`.
        printer: table columns; None for the built-in ones.
        is_custom: whether it is a custom resource: without a built-in type, and with kind and apiVersion in lists.
        disabled: the fields of features that are off.
    """

    group: str
    version: str
    resource: str
    kind: str
    namespaced: bool
    strategy: Strategy
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    selectable: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    stored_as: tuple[str, str] | None = None
    verbs: tuple[str, ...] = VERBS
    singular_name: str = ""
    list_kind: str = ""
    printer: Printer | None = None
    is_custom: bool = False
    disabled: Sequence[DisabledFields] = ()

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def type(self) -> ApiType | None:
        """The type of its objects; None for custom resources."""
        return None if self.is_custom else api_type(self.api_version, self.kind)

    @cached_property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @cached_property
    def group_resource(self) -> str:
        """The name in messages: `leases.coordination.k8s.io`, `pods`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @cached_property
    def storage(self) -> tuple[str, str]:
        return self.stored_as or (self.group, self.resource)

    @cached_property
    def fields(self) -> Mapping[str, tuple[tuple[str, ...], str]]:
        """All field selectors: label -> (path, value when absent)."""
        names = ("metadata.name", "metadata.namespace") if self.namespaced else ("metadata.name",)
        return {**selectable(*names), **self.selectable}

    @cached_property
    def prefix(self) -> bytes:
        """Beginning of the JSON of every object."""
        return b'{"kind":"%b","apiVersion":"%b",' % (self.kind.encode(), self.api_version.encode())

    def head(self, obj: Object) -> Object:
        """Return an object with this kind and apiVersion first."""
        rest = {name: value for name, value in obj.items() if name not in {"kind", "apiVersion"}}
        return {"kind": self.kind, "apiVersion": self.api_version, **rest}

    def view(self, stored: Object) -> Object:
        """Return a stored object in this version; it may be the stored object itself."""
        return self.strategy.from_storage(stored)

    def encode(self, stored: Object) -> bytes:
        """Return the JSON of a stored object in this version; it begins with `prefix`."""
        return msgspec.json.encode(self.view(stored))

    def item(self, raw: bytes) -> bytes:
        """Return an encoded object as an item of a list; items of built-in kinds lack kind and apiVersion."""
        if self.is_custom:
            return raw
        return b"{" + raw[len(self.prefix) :]

    def key(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name

    def __repr__(self) -> str:
        return f"Kind({self.group_resource}/{self.version})"


class Place(NamedTuple):
    """The target of a request.

    Attributes:
        kind: kind of the object.
        namespace: namespace; "" for cluster-scoped kinds.
        name: name; "" if it is to be generated.
        subresource: subresource; "" for the object itself.
    """

    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        return self.kind.key(self.namespace, self.name)


class Kinds:
    """All served kinds; they can change while the server runs."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_name: dict[str, Kind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_path.values())

    def __contains__(self, resource: object) -> bool:
        """Return whether `named` finds a kind."""
        return resource in self._by_name

    def add(self, kind: Kind) -> None:
        """Register a kind."""
        self._by_path[kind.group, kind.version, kind.resource] = kind
        self._by_name.setdefault(kind.resource, kind)
        self._by_name.setdefault(kind.group_resource, kind)

    def remove(self, kind: Kind) -> None:
        """Remove a kind."""
        self.replace([kind], [])

    def replace(self, gone: Iterable[Kind], new: Iterable[Kind]) -> None:
        """Remove kinds, and register others, which take the places of kinds with the same paths."""
        for kind in gone:
            del self._by_path[kind.group, kind.version, kind.resource]
        for kind in new:
            self._by_path[kind.group, kind.version, kind.resource] = kind
        self._by_name = {}
        for kind in list(self):
            self.add(kind)

    def at(self, group: str, version: str, resource: str) -> Kind | None:
        """Return the kind at a path."""
        return self._by_path.get((group, version, resource))

    def named(self, resource: str) -> Kind:
        """Return the kind named `pods`, or with its group `events.events.k8s.io`.

        Raises:
            KeyError: there is none.
        """
        try:
            return self._by_name[resource]
        except KeyError:
            raise KeyError(f"no kind {resource!r} is served; there are {', '.join(self._by_name)}") from None

    def groups(self) -> dict[str, list[str]]:
        """Return the groups with their versions, in the order of registration."""
        groups: dict[str, list[str]] = {}
        for group, version, _ in self._by_path:
            versions = groups.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return groups

    def of(self, group: str, version: str) -> list[Kind]:
        """Return the kinds of a group and version."""
        return [kind for kind in self if (kind.group, kind.version) == (group, version)]
