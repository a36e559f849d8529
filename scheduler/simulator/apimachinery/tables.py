"""Columns of tables for `kubectl get`, and common columns: names and ages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from scheduler.simulator.apimachinery.objects import Object

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
