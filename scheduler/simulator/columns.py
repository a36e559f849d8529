"""What tables of `kubectl get` are made of, and the columns that many kinds share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from scheduler.simulator.durations import age
from scheduler.simulator.scale import selector_text
from scheduler.simulator.structure import field_description

Object = dict[str, Any]
Cells = Callable[[Object, datetime], list[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: its heading.
        description: text, or the (model, field) whose documentation it is.
        type: as in OpenAPI.
        priority: 0 is always shown, 1 with `-o wide`.
        format: as in OpenAPI.
    """

    name: str
    description: str | tuple[str, str]
    type: str = "string"
    priority: int = 0
    format: str = ""

    def definition(self) -> Object:
        """Return the metav1.TableColumnDefinition."""
        text = self.description if isinstance(self.description, str) else field_description(*self.description)
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": text,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Printer:
    """How one kind is shown: its columns, and the cells of an object at a time."""

    columns: Sequence[Column]
    cells: Cells


NAME: Final = Column("Name", ("V1ObjectMeta", "name"), format="name")
AGE: Final = Column("Age", ("V1ObjectMeta", "creationTimestamp"))
CONTAINERS: Final = Column("Containers", "Names of each container in the template.", priority=1)
SELECTOR: Final = Column("Selector", "Which pods are its own, by their labels.", priority=1)
IMAGES: Final = Column("Images", "Images referenced by each container in the template.", priority=1)


def created(obj: Object, now: datetime) -> str:
    """Return how old an object is."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def template_cells(obj: Object) -> list[Any]:
    """Return what CONTAINERS, IMAGES and SELECTOR show of a workload."""
    containers = obj["spec"]["template"]["spec"].get("containers", ())
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        selector_text(obj["spec"].get("selector") or {}),
    ]
