"""The daemon: waits until elected, schedules, and shuts down in order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.configuration.validation import BINDING_SECONDS
from scheduler.daemon.app.api_access import ApiClient
from scheduler.daemon.app.assembly import Cycles, Parts, limited
from scheduler.daemon.app.capabilities import StatusWrites
from scheduler.daemon.app.consistency.checker import ConsistencyChecker
from scheduler.daemon.app.gauges import show_groups, show_queue, show_state
from scheduler.daemon.app.generations import Generations
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.object_statuses import PluginStatuses, StatusAccess
from scheduler.daemon.app.ports import Ports
from scheduler.daemon.app.watches import Watches
from scheduler.daemon.sharding.former_replicas import FormerReplicas
from scheduler.daemon.sharding.replica import ShardReplica
from scheduler.engine.cycle.sampling import NodeSampling, percentages_of
from scheduler.engine.cycle.shard_changes import ShardChanges
from scheduler.engine.sharding.holding import BucketState
from scheduler.engine.sharding.shards import OwnShard
from scheduler.errors import LeadershipLostError
from scheduler.extensions.extenders import Extenders
from scheduler.kube.client.events import CONTROLLER
from scheduler.kube.client.lease import LeaderElector, Leadership, new_identity
from scheduler.kube.client.requests import DryRunRequests, GuardedRequests
from scheduler.loop_work import run_to_end
from scheduler.worker_thread import Aside, at_once

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import LeaderElection
    from scheduler.daemon.app.generation import Generation
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.runtime.registry import Registry
    from scheduler.framework.interface import Plugin
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.events import EventRecorder, EventSeries

logger = logging.getLogger(__name__)

_DRAIN_SECONDS = 10.0
SCHEDULING, REJECTIONS, BUCKETS = "scheduling", "kubelet rejections", "buckets"
_STANDBY_INTERVAL, _SHARD_INTERVAL = 0.1, 0.05
"""`ApiConnection.watch_interval` of a replica that most pods do not concern: it need not wake up for each event."""
SLICE_SECONDS = 0.002
"""The longest time that the queue works before the lease, the watches and the HTTP endpoints run."""


class Daemon:
    """One scheduler, connected to one API server.

    Args:
        connection: connection to the API server; the caller closes it.
        random: breaks ties, spreads retries.
        aside: runs slow work of a reload, such as the import of plugins.
        max_in_unschedulable_seconds: after this time a rejected pod is tried again without an event.
        ports: the connections of the engine; None for those to the real world.
        no_bind: decide, explain and count, but write nothing, not even the lease.

    Attributes:
        connection: the connection to the API server.
        leadership: whether writes are allowed: only the holder of the lease writes.
        metrics: all metrics.
        parts: state, profiles and queue.
        cycles: the scheduling and binding cycles.
        writer: writes about pods, events and statuses; only the leader's are sent.
        watches: the watches of the API server.
        generations: the active configuration, and earlier ones that have not ended.
        consistency: compares the daemon's state with the cluster.
        aside: runs slow work.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """

    def __init__(
        self,
        connection: ApiConnection,
        configuration: Configuration,
        *,
        clock: Clock,
        random: Random,
        in_tree: Mapping[str, type[Plugin]] = IN_TREE,
        no_bind: bool = False,
        aside: Aside = at_once,
        max_in_unschedulable_seconds: float = 300.0,
        ports: Ports | None = None,
    ) -> None:
        settings = configuration.settings
        self.connection = connection
        self.shard_changes: ShardChanges | None = None
        self._former_replicas: FormerReplicas | None = None
        ports = ports or Ports(clock)
        self.metrics = ports.metrics()
        connection.observer = self.metrics.rest_client
        self.parts = Parts(
            clock,
            self.metrics,
            in_tree,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            slice_seconds=SLICE_SECONDS,
            ports=ports,
        )
        self.leadership = Leadership()
        if settings.sharding.enabled and not no_bind:
            self.leadership = self._replica(settings.leader_election, clock, random)
        elif settings.leader_election.leader_elect and not no_bind:
            self.leadership = self._elector(settings.leader_election, clock, random)
            self._former_replicas = FormerReplicas(
                connection,
                settings.leader_election,
                check=self.leadership.check,
                pods_version=self._pods_version,
            )
        guarded = GuardedRequests(connection, self.leadership.check)
        writes = DryRunRequests() if no_bind else limited(guarded, settings.client_connection)
        client = ApiClient(
            self.parts,
            connection,
            writes,
            metrics=self.metrics,
            random=random,
            limit_seconds=BINDING_SECONDS if settings.sharding.enabled else None,
        )
        self.writer, self._tasks = client.writer, client.tasks
        self._recorders, self._background = client.recorders, client.background
        if isinstance(self.parts.profiles.shards, OwnShard):
            self._follow_buckets(self.parts.profiles.shards)
        self._access = ports.api_access(client.access)
        self.cycles = Cycles(
            self.parts,
            self._access,
            is_leading=self.leadership.is_leading,
            random=random,
            sampling=NodeSampling(percentages_of(settings)),
        )
        first = run_to_end(self._build(configuration, self.parts.registry(), self._extenders(configuration)))
        first.registry.settle()
        self.watches = Watches(
            connection,
            self.parts,
            self.cycles.pod_handler,
            metrics=self.metrics,
            random=random,
            needs=first.needs,
        )
        self.watches.outages.when_over(self.leadership.wake)
        self.generations = Generations(
            first,
            self._build,
            self._extenders,
            parts=self.parts,
            cycles=self.cycles,
            watches=self.watches,
            tasks=self._tasks,
            aside=aside,
            metrics=self.metrics.refreshes,
        )
        self.aside = aside
        self.consistency = ConsistencyChecker(
            self.parts,
            self.cycles,
            self.watches,
            metrics=self.metrics.consistency,
            random=Random(hash(random.getstate()[1])),  # separate, so that it changes no tie of the scheduler
        )
        self._statuses = PluginStatuses(
            self.parts,
            StatusAccess(self.parts, self.watches.pods.store, self.metrics, reads=connection, aside=aside),
            writes=StatusWrites(self.writer, self.parts.cache.table, connection.versions),
            is_leading=self.leadership.assigns,
            recorder=self._recorders.of(CONTROLLER),
        )
        self.watches.outages.when_over(self.consistency.check_soon)
        self.watches.cache_gate.when_restored(self.consistency.check_soon_and_wake)
        self.watches.cache_gate.when_caught_up(self.consistency.check_soon)
        show_state(self.metrics, self.parts, lambda: self.generations.active)
        show_queue(self.metrics, self.parts, self.cycles)
        show_groups(self.metrics, self.parts)

    @property
    def configuration(self) -> Configuration:
        """The active configuration."""
        return self.generations.active.configuration

    @property
    def frameworks(self) -> Mapping[str, Framework]:
        """The active profiles, by schedulerName."""
        return self.parts.profiles.frameworks

    @property
    def has_synced(self) -> bool:
        """Whether all objects that decisions depend on have been read once."""
        return self.watches.has_synced

    def recorder(self, controller: str) -> EventRecorder:
        """Return a recorder of events about any object; events are written only while leading."""
        return self._recorders.of(controller)

    def events_about(self, pod: str) -> list[EventSeries]:
        """Return the events of the last minutes that this process recorded about a pod (`namespace/name`)."""
        return self._recorders.about("Pod", pod)

    async def reload(self, configuration: Configuration) -> Sequence[str]:
        """Activate another configuration, or leave everything unchanged; see `Generations.reload`."""
        kept = await self.generations.reload(configuration)
        if self.shard_changes is not None:
            self._use_buckets(*self.shard_changes.kept())  # other profiles may enforce quotas now
        return kept

    def _elector(self, settings: LeaderElection, clock: Clock, random: Random) -> LeaderElector:
        elector = LeaderElector(
            self.connection, settings, identity=new_identity(), clock=clock, random=random
        )
        self.metrics.watch_gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, "
            "1 indicates master. 'name' is the string used to identify the lease. "
            "Please make sure to group by name.",
            "name",
            lambda: {settings.resource_name: float(elector.is_leading())},
        )
        return elector

    def _pods_version(self) -> int:
        return int(self.watches.pods.resource_version or 0)

    def _replica(self, settings: LeaderElection, clock: Clock, random: Random) -> ShardReplica:
        """Return the right to write of one of several active replicas."""

        def changed() -> None:
            in_use, releasing = (
                replica.buckets_in(state) for state in (BucketState.IN_USE, BucketState.RELEASING)
            )
            if self.shard_changes is not None:
                self._use_buckets(in_use, releasing)

        def unanswered(buckets: Collection[int]) -> None:
            for bucket in buckets:
                replica.holder.unanswered(bucket, clock.monotonic())

        replica = ShardReplica(
            self.connection,
            settings,
            identity=new_identity(),
            clock=clock,
            random=random,
            pods_version=self._pods_version,
            changed=changed,
        )
        shard = self.parts.profiles.shards = OwnShard(self.parts.profiles.has_quota)
        # The Binding of a pod that was deleted meanwhile may still be sent.
        replica.holder.under_way = lambda: shard.under_way(
            chain(self.parts.cache.assumed(), self.cycles.binding.pods())
        )
        shard.note_unanswered, shard.owner = unanswered, replica.owner
        shard.asks_for_all, shard.note_tried = replica.asks_for_all, replica.note_tried
        self.metrics.shards.states = replica.states
        return replica

    def _follow_buckets(self, shard: OwnShard) -> None:
        """Decide only about the pods and nodes of a shard."""
        self.parts.profiles.shards = shard
        self.shard_changes = ShardChanges(self.parts, shard, self._tasks.spawn)
        self._use_buckets = self.parts.ports.buckets(self.shard_changes.change)

    def _extenders(self, configuration: Configuration) -> Extenders:
        """Build the extenders of a configuration; reads their certificates."""
        return Extenders(
            configuration.settings.extenders,
            self.cycles.failures,
            self.leadership.check,
            time=self.parts.time,
            make=self.parts.ports.extender,
        )

    def _build(
        self, configuration: Configuration, registry: Registry, extenders: Extenders
    ) -> Generator[None, None, Generation]:
        """Build a configuration in steps, plugins included, without changing the daemon."""
        return self.parts.build_in_steps(
            configuration, registry, self._access, self.cycles.capabilities(), extenders
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Wait until elected, schedule until `stop` is set, then finish current work and release the lease.

        Raises:
            LeadershipLostError: the lease was lost before `stop` was set; nothing more is written.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.parts.web.close)
            stack.push_async_callback(self.generations.close)
            await stack.enter_async_context(self.writer)
            async with self._tasks:
                self.watches.start(self._tasks.spawn)
                self.generations.start()
                self._tasks.spawn(self._recorders.run(), "events")
                rejections = self.parts.time.task(self.cycles.rejections.run(), REJECTIONS)
                self._tasks.spawn(rejections, REJECTIONS)
                self._tasks.spawn(self.consistency.run(), "consistency")
                self._tasks.spawn(self._statuses.run(), "statuses")
                if self.shard_changes is not None:
                    self._tasks.spawn(self.parts.time.task(self.shard_changes.run(), BUCKETS), BUCKETS)
                is_lost = await self._lead_until(stop)
        if is_lost:
            self.cycles.scheduler.note_holder(
                self.configuration.settings.leader_election.lease_duration.seconds
            )
            raise LeadershipLostError

    async def _lead_until(self, stop: asyncio.Event) -> bool:
        """Read the cluster, wait for the election and schedule; return whether the lease was lost before `stop` was set."""
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(stop.wait(), name="stop")
            try:
                return await self._prepare(tasks, stopping) and await self._lead(tasks, stopping)
            finally:
                self.parts.ports.end()
                stopping.cancel()

    async def _prepare(self, tasks: asyncio.TaskGroup, stopping: asyncio.Task[Any]) -> bool:
        """Read the cluster, then wait for the election; return whether it was won before `stop` was set."""
        preparing = tasks.create_task(self._wait_elected(), name="election")
        await asyncio.wait({stopping, preparing}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            preparing.cancel()
            await asyncio.wait({preparing})
            await self.leadership.release()
        return not stopping.done()

    async def _wait_elected(self) -> None:
        await self.watches.wait_synced()
        self.connection.watch_interval = _STANDBY_INTERVAL
        await self.leadership.acquire()
        self.connection.watch_interval = _SHARD_INTERVAL if self.shard_changes is not None else 0.0

    async def _lead(self, tasks: asyncio.TaskGroup, stopping: asyncio.Task[Any]) -> bool:
        """Schedule until `stop` is set, or until the lease is lost, in which case all work is cancelled at once.

        Returns:
            Whether the lease was lost before `stop` was set.
        """
        keeping = tasks.create_task(self.leadership.keep(), name="lease")
        working = tasks.create_task(self._schedule(stopping), name="scheduling")
        stopping.add_done_callback(lambda _: self._stop())
        await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            self.parts.ports.end()
            working.cancel()
            return not stopping.done()
        keeping.cancel()
        await asyncio.wait({keeping})
        await self.leadership.release()
        return False

    def _stop(self) -> None:
        self.parts.ports.end()
        self.cycles.scheduler.stop()

    async def _schedule(self, stopping: asyncio.Task[Any]) -> None:
        if self._former_replicas is not None:
            ending = asyncio.create_task(self._former_replicas.end(), name="former replicas")
            try:
                await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ending.cancel()
            if not ending.done():
                return
            ending.result()
        logger.info(
            "Scheduling",
            extra={"nodes": self.parts.cache.table.n_nodes, "profiles": sorted(self.frameworks)},
        )
        self.cycles.reporter.catch_up()
        cache_gate = self.parts.ports.cache_gate(self.watches.cache_gate)
        await self.parts.time.task(self.cycles.scheduler.run(cache_gate), SCHEDULING)
        await self._background.drain(_DRAIN_SECONDS)
        await self.writer.drain(_DRAIN_SECONDS)
