"""Leases: leader election relies on the resourceVersion, so an update requires one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.causes import Cause, invalid_value
from scheduler.simulator.apimachinery.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.objects import Object


class LeaseStrategy(Strategy):
    """The rules of leases."""

    unconditional_update = False
    create_on_update = True

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        duration, transitions = spec.get("leaseDurationSeconds", 1), spec.get("leaseTransitions", 0)
        if duration <= 0:
            yield invalid_value("spec.leaseDurationSeconds", str(duration), "must be greater than 0")
        if transitions < 0:
            problem = "must be greater than or equal to 0"
            yield invalid_value("spec.leaseTransitions", str(transitions), problem)
