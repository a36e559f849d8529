"""The daemon's own objects without an API server: what a file says is all that ever happens."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scheduler.app.capabilities import capabilities
from scheduler.app.in_tree import IN_TREE
from scheduler.app.needs import needs_of, trimmed
from scheduler.app.victim_review import ExtenderReview
from scheduler.app.web_client import WebClient
from scheduler.clock import SystemClock
from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.preemption import NoPreemptions
from scheduler.objects.decode import decode_object
from scheduler.queue.observer import NoObserver
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.runtime.profiles import build_frameworks
from scheduler.runtime.registry import Registry
from scheduler.runtime.waiting_pods import WaitingPodsMap
from scheduler.state.cache import Cache
from scheduler.wasm.library import GuestLibrary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework
    from scheduler.whatif.cluster_file import ClusterFile

logger = logging.getLogger(__name__)


class OfflineScheduler:
    """Profiles, cache and queue, filled from a file.

    Args:
        cluster: what there is.
        configuration: what to run.
        in_tree: name -> class, of plugins that need no path.
        refresh: whether plugins may fetch their background data.

    Attributes:
        frameworks: schedulerName -> profile.
        cache: the nodes and the pods on them.
        queue: the pending pods of these profiles.
        bus: who spreads what happens in the cluster.
        waiting_pods: the pods held at Permit; there are none.
        needs: what the plugins read beyond the usual.

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
    ) -> None:
        clock = SystemClock()
        self.frameworks: dict[str, Framework] = {}
        self.cache = Cache()
        self.queue = SchedulingQueue(
            sort_key=lambda queued: self.frameworks[queued.pod.scheduler_name].sort_key(queued),
            pre_enqueue=lambda pod: self.frameworks[pod.scheduler_name].run_pre_enqueue(pod),
            hints=lambda profile: self.frameworks[profile].events,
            clock=clock,
            observer=NoObserver(),
        )
        self.bus, self.waiting_pods = EventBus(self.queue), WaitingPodsMap()
        self._web = WebClient()
        self.frameworks.update(
            build_frameworks(
                configuration,
                Registry(in_tree, GuestLibrary()),
                lambda _profile: capabilities(
                    binder=_BindsNothing(),
                    queue=self.queue,
                    bus=self.bus,
                    waiting_pods=self.waiting_pods,
                    web=self._web,
                    api=_ReadsNothing(),
                    clock=clock,
                    events=_RecordsNothing(),
                    preemptions=NoPreemptions(),
                    review=ExtenderReview(lambda: None),
                ),
            )
        )
        self.needs = needs_of(self.frameworks.values())
        if refresh:
            self._refresh()
        self._fill(cluster)

    def _fill(self, cluster: ClusterFile) -> None:
        for kind in self.needs.kinds:
            store = self.cache.table.watch_kind(kind)
            store.update((key, decode_object(raw)) for key, raw in cluster.others.get(kind, {}).items())
        for node in cluster.nodes:
            self.cache.add_node(node)
        for pod in cluster.pods:
            if pod.is_terminal:
                continue
            if pod.node_name:
                self.cache.add_pod(trimmed(pod, self.needs))
            elif pod.scheduler_name in self.frameworks:
                self.queue.add(pod)

    def _refresh(self) -> None:
        """Let plugins fetch their background data once."""
        plugins = [
            plugin
            for framework in self.frameworks.values()
            for plugin in framework.plugins.all()
            if plugin.refresh_seconds is not None
        ]
        if plugins:
            asyncio.run(self._refresh_all(plugins))

    async def _refresh_all(self, plugins: list[Plugin]) -> None:
        for plugin in plugins:
            try:
                await plugin.refresh()
            except Exception:
                logger.exception("Plugin could not refresh its data", extra={"plugin": plugin.name})
        await self._web.close()


class _BindsNothing:
    """Fulfils PodBinder where no decision is carried out."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        raise AssertionError(f"pod {pod.key}: there is no API server to bind it to {node_name}")


class _ReadsNothing:
    """Fulfils ApiGet where there is no API server."""

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        raise OSError(f"GET {path}: there is no API server")


class _RecordsNothing:
    """Fulfils PodEvents where nobody would read them."""

    def record(self, regarding: PodInfo, *, type_: str, reason: str, action: str, note: str) -> None:
        return
