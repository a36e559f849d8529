"""Nodes: their defaults, and validation of their taints and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.strategy import Cluster, Strategy
from scheduler.simulator.kinds.placement_rules import validate_taints
from scheduler.simulator.kinds.resource_rules import validate_amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.causes import Cause
    from scheduler.simulator.apimachinery.objects import Object


class NodeStrategy(Strategy):
    """The rules of nodes; unlike other kinds, a new node keeps its status."""

    has_status = True

    def default(self, obj: Object) -> None:
        status = obj["status"]
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))

    def validate(self, obj: Object) -> Iterator[Cause]:
        yield from validate_taints(obj["spec"].get("taints", ()), "metadata.taints")
        yield from _validate_amounts(obj)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from self.validate(obj)
        # Upstream reports these errors twice.
        yield from validate_taints(obj["spec"].get("taints", ()), "metadata.taints")

    def validate_part_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        return _validate_amounts(obj)

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        """Keep a new node unchanged."""


def _validate_amounts(node: Object) -> Iterator[Cause]:
    for field in ("capacity", "allocatable"):
        for name, text in node["status"].get(field, {}).items():
            yield from validate_amount(name, text, f"status.{field}.{name}")
