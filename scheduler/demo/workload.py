"""What the demo asks the scheduler to place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.simulator.server import ApiServer

PAUSE_SECONDS = 1.0
"""Between the steps of a workload, for the eye."""


class Workload(Protocol):
    """Objects that are applied one after the other, and what should become of them.

    Attributes:
        puzzle: a pod that waits, for which the demo shows why; "" if all should run.
        scheduler_names: which schedulers its pods ask for.
    """

    puzzle: str
    scheduler_names: frozenset[str]

    async def apply(self, server: ApiServer) -> None:
        """Apply all of it; returns after the last step."""

    def commands(self, program: str, daemon: str) -> list[str]:
        """Return what to try from another terminal.

        Args:
            program: what runs this program.
            daemon: the daemon's URL.
        """

    def outstanding(self, pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
        """Return what is not yet as it should be, in words; empty when every pod is where it belongs.

        Args:
            pods: name -> pod.
            nodes: name -> node.
        """


def why_it_waits(pod: PodInfo) -> str:
    """Return what the scheduler said of its last attempt; "" if it was not tried or is bound."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason in {"Unschedulable", "SchedulerError"}:
            return condition.message
    return ""
