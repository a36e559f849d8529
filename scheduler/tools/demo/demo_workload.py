"""The interface of the demo's workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.simulator.server import ApiServer

PAUSE_SECONDS = 1.0
"""Pause between the steps of a workload, so that a user can follow."""


class DemoWorkload(Protocol):
    """Objects that are applied one after another, and their expected result.

    Attributes:
        puzzle: a pending pod that the demo explains; "" if all should run.
        scheduler_names: schedulerNames of its pods.
    """

    puzzle: str
    scheduler_names: frozenset[str]

    async def apply(self, server: ApiServer) -> None:
        """Apply all objects; returns after the last step."""

    def commands(self, program: str, daemon: str) -> list[str]:
        """Return commands to try in another terminal.

        Args:
            program: the command line of this program.
            daemon: the daemon's URL.
        """

    def outstanding(self, pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
        """Return texts about what is not yet as expected; empty when every pod is where it should be.

        Args:
            pods: name -> pod.
            nodes: name -> node.
        """


def why_it_waits(pod: PodInfo) -> str:
    """Return the scheduler's message about its last attempt; "" if there was none or the pod is bound."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason in {"Unschedulable", "SchedulerError"}:
            return condition.message
    return ""
