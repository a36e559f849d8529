"""What plugins add to an explanation: which object keeps a pod from a node, and what would help.

They are asked about the cluster as it is by now, with pods that are expected there if it takes those to say why, and about some nodes of each kind of refusal only: nobody reads a
thousand answers, and the loop has other work.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scheduler.objects.selector_words import some_of
from scheduler.runtime.budget import LoopBudget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.cycle.explanation import Explanation
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Snapshot

logger = logging.getLogger(__name__)

_NONE: Mapping[int, Sequence[PodInfo]] = MappingProxyType({})

NODES_OF_A_KIND: Final = 20
"""About how many nodes that were refused for the same reason a plugin is asked, unless somebody wants all."""


class RefusalDetails:
    """Asks the plugins of a profile.

    Args:
        plugins: all of the profile's.
        clock: for the time that it may take.
        seconds: after so long nobody is asked any more; the one that is being asked may take longer.
        nodes_of_a_kind: about how many nodes of each plugin and reason are asked about.
        budget: stops a plugin that goes on and on, and asks it no more for a while.
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
        """Give refusals in an explanation their `details`: none where there are no more, empty where nothing is in the way.

        Args:
            explanation: of a decision.
            pod: whose it is.
            snapshot: the cluster.
            nominated: row -> other pods of equal or higher priority that are expected there soon.
        """
        end = self._clock.monotonic() + self._seconds
        if explanation["preFilter"]:
            explanation["preFilter"] = self._detailed(explanation["preFilter"], pod, snapshot, None)
        asked: Counter[int] = Counter()
        nodes = explanation["nodes"]
        for name, verdict in nodes.items():
            kind = id(verdict)  # nodes that were refused alike share what is said of them
            if verdict["feasible"] or asked[kind] >= self._most or verdict["plugin"] not in self._plugins:
                continue
            row = snapshot.row_of(name)
            if row is None:
                continue  # it is gone
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
        """Ask about a node as if the pods that are expected there had come."""
        crowded = snapshot.overlay(add=[(row, other) for other in others])
        detailed = self._detailed(refusal, pod, crowded, crowded.node_info(row))
        if detailed.get("details"):
            detailed["details"].append(
                f"counting what is expected here: {some_of([each.key for each in others])}"
            )
        return detailed

    def _detailed(
        self, refusal: dict[str, Any], pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None
    ) -> dict[str, Any]:
        plugin = self._plugins.get(refusal["plugin"])
        details = None if plugin is None else _said(self._budget, plugin, pod, snapshot, node)
        return refusal if details is None else {**refusal, "details": details}


def _said(
    budget: LoopBudget, plugin: Plugin, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None
) -> list[str] | None:
    try:
        said = budget.call(plugin, plugin.why, pod, snapshot, node, often="why")
        if said is None:
            return None
        if isinstance(said, str) or not all(isinstance(each, str) for each in said):
            return [f"{plugin.name} could not say more: expected is a list of texts, was {said!r:.200}"]
        return list(said)
    except Exception as error:
        logger.exception("Plugin failed to explain", extra={"plugin": plugin.name, "pod": pod.key})
        return [f"{plugin.name} could not say more: {type(error).__name__}: {error}"]
