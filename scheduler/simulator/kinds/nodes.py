"""Nodes: only defaults are particular; taints are the business of a controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.strategy import Cluster, Strategy

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object


class NodeStrategy(Strategy):
    """The rules of nodes; unlike others, a new node keeps the status it comes with."""

    has_status = True

    def default(self, obj: Object) -> None:
        status = obj["status"]
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        """Leave a new node as it is."""
