"""The daemon's own objects without an API server; the state comes from a file."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.clock import SystemClock
from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.assembly import Cycles, Parts
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.engine.cycle.event_handlers import NodeHandler
from scheduler.engine.cycle.explanation import NODES_OF_A_KIND
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.preemption import NotedPreemptions
from scheduler.engine.cycle.sampling import NodeSampling
from scheduler.framework.preemption import Preemptions
from scheduler.tools.whatif.documents import NODES, PODS, decoded_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.generation import Generation
    from scheduler.engine.cycle.event_handlers import EventHandler
    from scheduler.framework.interface import Plugin
    from scheduler.tools.whatif.cluster_file import ClusterFile


class OfflineScheduler:
    """Profiles, cache and queue, filled from a file; with `refresh`, plugins fetch their background data.

    Attributes:
        frameworks: schedulerName -> profile.
        cache: the nodes and their pods.
        queue: the pending pods of these profiles.
        parts: all parts of the scheduler.
        cycles: the cycles; they carry out nothing.
        nominator: the nominated pods.
        needs: the objects that plugins read beside nodes and pods.
        nodes_of_a_kind: number of nodes rejected for the same reason that get details.

    Args:
        stops_plugins: whether calls of third-party plugins have the budget of an attempt; only in the main thread, and until
            the budget's clock is given back.
        parts: the parts to use, for example with another clock; None for the daemon's.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        ObjectError: an object that a plugin needs is malformed.
    """

    def __init__(
        self,
        cluster: ClusterFile,
        configuration: Configuration,
        *,
        in_tree: Mapping[str, type[Plugin]] = IN_TREE,
        refresh: bool = True,
        nodes_of_a_kind: float = NODES_OF_A_KIND,
        stops_plugins: bool = False,
        parts: Parts | None = None,
    ) -> None:
        self.parts = parts or Parts(SystemClock(), NoObserver(), in_tree)
        if stops_plugins:
            self.parts.budget.take_clock()
        self.cycles = Cycles(
            self.parts,
            NO_API_SERVER,
            is_leading=lambda: False,
            random=Random(0),
            sampling=NodeSampling({each.scheduler_name: 100 for each in configuration.settings.profiles}),
            preemptions=NotedPreemptions(),
        )
        active = self.parts.build(configuration, own={Preemptions: self.cycles.preemptions})
        self.parts.activate(active)
        self.frameworks, self.needs = active.frameworks, active.needs
        self.cache, self.nominator, self.queue = self.parts.cache, self.parts.nominator, self.parts.queue
        for kind in self.needs.kinds:
            self.cache.table.watch_kind(kind)  # some plugins read objects when they refresh their data
        if refresh and any(active.refreshing()):
            asyncio.run(self._refresh(active))
        self.nodes_of_a_kind = nodes_of_a_kind
        self.fill(cluster)

    def fill(self, cluster: ClusterFile) -> None:
        """Add a cluster to the state; for callers that need the plugins' `needs` before they read the cluster.

        Raises:
            ObjectError: an object that a plugin needs is malformed.
        """
        there = [pod for pod in cluster.pods if not pod.is_terminal]
        self.parts.fill(
            self.needs,
            nodes=cluster.nodes,
            bound_pods=(pod for pod in there if pod.node_name),
            others={
                kind: {
                    key: decoded_object(raw, kind, key) for key, raw in cluster.others.get(kind, {}).items()
                }
                for kind in self.needs.kinds
            },
        )
        for pod in there:
            if not pod.node_name and pod.scheduler_name in self.frameworks:
                self.queue.add(pod.under(self.needs.pod_rules))

    def handler_of(self, kind: str) -> EventHandler[Any] | None:
        """Return the handler for changes of a kind; None if no plugin reads it."""
        if kind == NODES:
            return NodeHandler(self.parts)
        if kind == PODS:
            return self.cycles.pod_handler
        return self.parts.object_handler(kind) if kind in self.needs.kinds else None

    async def _refresh(self, active: Generation) -> None:
        await active.refresh_once()
        await self.parts.web.close()
