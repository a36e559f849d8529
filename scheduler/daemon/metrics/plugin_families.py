"""The families that plugins declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from scheduler.daemon.metrics.families import Families, Family

F = TypeVar("F", bound="Family")


class PluginFamilies:
    """Adds the families that plugins declare, each once: plugins are built for each profile, and at each reload.

    Args:
        families: all families.
    """

    def __init__(self, families: Families) -> None:
        self._families = families
        self._declared: dict[str, tuple[tuple[object, ...], Family]] = {}  # name -> declaration, family

    def declared(self, kind: type[F], name: str, text: str, labels: str, *more: Any) -> F:
        """Return the family with a name.

        Raises:
            ValueError: the name belongs to a metric of the scheduler, or was declared otherwise.
        """
        declaration = (kind, tuple(labels.split()), *map(tuple, more))
        if name in self._declared:
            known, family = self._declared[name]
            if known != declaration or not isinstance(family, kind):
                raise ValueError(f"the metric {name} is declared twice, with another type, labels or buckets")
            return family
        if any(each.name == name for each in self._families):
            raise ValueError(f"the metric {name} belongs to the scheduler; choose another name")
        created = kind(name, text, labels.split(), *more)
        self._families.append(created)
        self._declared[name] = declaration, created
        return created
