"""Adds details of plugins to an explanation: the object that keeps a pod from a node, and possible solutions.

Plugins are called on the current cluster, with nominated pods if the details depend on them. They are called only for
some nodes of each kind of rejection, because a thousand answers are of no use and the event loop has other work.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scheduler.engine.runtime.budget import LoopBudget
from scheduler.loop_work import loop_work
from scheduler.objects.label_index import some_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Snapshot

logger = logging.getLogger(__name__)

_NONE: Mapping[int, Sequence[PodInfo]] = MappingProxyType({})

NODES_OF_A_KIND: Final = 20
"""Default number of nodes with the same rejection for which a plugin is called."""


class RefusalDetails:
    """Calls the plugins of a profile for details.

    Args:
        plugins: all plugins of the profile.
        clock: measures the time limit.
        seconds: time after which no further plugin is called; a running call may take longer.
        nodes_of_a_kind: maximum number of nodes with the same rejection for which a plugin is called.
        budget: interrupts endless plugins, and suspends them for a while.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin],
        clock: Clock,
        *,
        seconds: float = math.inf,
        nodes_of_a_kind: float = NODES_OF_A_KIND,
        budget: LoopBudget | None = None,
    ) -> None:
        self._plugins = {plugin.name: plugin for plugin in plugins}
        self._clock = clock
        self._seconds = seconds
        self._most = nodes_of_a_kind
        self._budget = budget or LoopBudget(clock.monotonic)

    def add_to(
        self,
        explanation: Explanation,
        pod: PodInfo,
        snapshot: Snapshot,
        nominated: Mapping[int, Sequence[PodInfo]] = _NONE,
    ) -> None:
        """Add `details` to the rejections in an explanation; they are empty if nothing keeps the pod from the node now.

        Args:
            explanation: the explanation of a decision.
            pod: the pod of the decision.
            snapshot: the cluster.
            nominated: row -> other pods of equal or higher priority that are nominated to the node.
        """
        end = self._clock.monotonic() + self._seconds
        if explanation["preFilter"]:
            explanation["preFilter"] = self._detailed(explanation["preFilter"], pod, snapshot, None)
        asked: Counter[int] = Counter()
        nodes = explanation["nodes"]
        for name, verdict in nodes.items():
            kind = id(verdict)  # nodes with the same rejection share one value
            if verdict["feasible"] or asked[kind] >= self._most or verdict["plugin"] not in self._plugins:
                continue
            row = snapshot.row_of(name)
            if row is None:
                continue  # the node was deleted
            if self._clock.monotonic() > end:
                return
            asked[kind] += 1
            detailed = self._detailed(verdict, pod, snapshot, snapshot.node_info(row))
            if row in nominated and detailed.get("details") == []:
                detailed = self._when_crowded(verdict, pod, snapshot, row, nominated[row])
            nodes[name] = detailed

    def _when_crowded(
        self, refusal: dict[str, Any], pod: PodInfo, snapshot: Snapshot, row: int, others: Sequence[PodInfo]
    ) -> dict[str, Any]:
        """Return the details of a node with its nominated pods."""
        crowded = snapshot.overlay(add=[(row, other) for other in others])
        detailed = self._detailed(refusal, pod, crowded, crowded.node_info(row))
        if detailed.get("details"):
            detailed["details"].append(
                f"including the pods nominated to this node: {some_of([each.key for each in others])}"
            )
        return detailed

    def _detailed(
        self, refusal: dict[str, Any], pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None
    ) -> dict[str, Any]:
        plugin = self._plugins.get(refusal["plugin"])
        details = None if plugin is None else _details_of(self._budget, plugin, pod, snapshot, node)
        return refusal if details is None else {**refusal, "details": details}


@loop_work("request", lambda plugin: f"plugin {plugin.name} at why")
def _details_of(
    budget: LoopBudget, plugin: Plugin, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None
) -> list[str] | None:
    try:
        details = budget.call(plugin, plugin.why, pod, snapshot, node, often="why")
        if details is None:
            return None
        if isinstance(details, str) or not all(isinstance(each, str) for each in details):
            return [
                f"{plugin.name} returned no valid details: expected a list of strings, was {details!r:.200}"
            ]
        return list(details)
    except Exception as error:
        logger.exception("Plugin failed to explain", extra={"plugin": plugin.name, "pod": pod.key})
        return [f"{plugin.name} returned no valid details: {type(error).__name__}: {error}"]
