"""The consequences of a change of the buckets that this replica uses: pods enter and leave its queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from scheduler.engine.cycle.time_slices import SLICE_SECONDS
from scheduler.engine.sharding.buckets import BUCKETS, bucket_of
from scheduler.engine.sharding.shards import PASSED_ON_SECONDS, SHARDING, is_passed_on
from scheduler.engine.state.cache import PodState
from scheduler.framework.events import ASSIGNED_POD_DELETE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.sharding.shards import OwnShard
    from scheduler.objects.pod import PodInfo

    Spawn = Callable[[Coroutine[object, object, None], str], object]

_BELONGS_HERE = "the node belongs to this replica now"


class ShardChanges:
    """Applies changes of the buckets in use to the queue and the cache.

    Args:
        shard: the pods and nodes of this replica.
        spawn: starts a task.
    """

    def __init__(self, shared: Shared, shard: OwnShard, spawn: Spawn) -> None:
        self._pods, self._cache, self._queue = shared.pods, shared.cache, shared.queue
        self._nominator, self._waiting_pods = shared.nominator, shared.waiting_pods
        self._profiles, self._bus, self._freeze = shared.profiles, shared.bus, shared.freeze
        self._time, self._shard, self._spawn = shared.time, shard, spawn
        self._buckets: frozenset[int] = frozenset()
        self._releasing: frozenset[int] = frozenset()
        self._changed = asyncio.Event()
        self._is_applying = False

    @property
    def is_applying(self) -> bool:
        """Whether a change is not applied completely yet."""
        return self._is_applying or self._changed.is_set()

    def kept(self) -> tuple[list[int], list[int]]:
        """Return the buckets as they were given to `change`."""
        return sorted(self._buckets), sorted(self._releasing)

    def resume(self, buckets: Iterable[int], releasing: Iterable[int]) -> None:
        """Use buckets whose pods are in the queue already."""
        self._buckets, self._releasing = frozenset(buckets), frozenset(releasing)
        self._shard.use(self._buckets, self._releasing)

    def change(self, buckets: Iterable[int], releasing: Iterable[int] = ()) -> None:
        """Take over the buckets that this replica may use from now on.

        Buckets that it may not use any more have no effect at once; `run` applies the rest.

        Args:
            buckets: the buckets.
            releasing: buckets for which earlier decisions are still carried out.
        """
        self._buckets, self._releasing = frozenset(buckets), frozenset(releasing)
        self._shard.use(self._shard.in_use & self._buckets, self._releasing)
        self._changed.set()

    async def run(self) -> NoReturn:
        """Apply changes. Before a new bucket is used, the pods that its former replica passed on are counted on nodes."""
        while True:
            self._is_applying = False
            await self._changed.wait()
            self._changed.clear()
            self._is_applying = True
            shard, gained = self._shard, self._buckets - self._shard.in_use
            async for pod in self._pending(needed=bool(gained)):
                node_name = pod.pod.status.nominated_node_name
                is_new = is_passed_on(pod) and shard.bucket_of_pod(pod) in gained
                is_elsewhere = not shard.owns(node_name) and bucket_of(node_name) not in gained
                if (
                    is_new
                    and is_elsewhere
                    and not pod.is_terminating
                    and self._cache.state_of(pod.uid) is PodState.OUTSIDE
                ):
                    self._adopt(pod, node_name)
            await self._freeze.wait_over()  # the changes of the former owner may have been deferred
            shard.use((shard.in_use | gained) & self._buckets, self._releasing)
            await self._move_pods(retries_groups=bool(gained) and len(shard.in_use) == BUCKETS)

    async def _move_pods(self, *, retries_groups: bool) -> None:
        """Let the pods of this replica enter its queue, and those of others leave it.

        Args:
            retries_groups: whether groups in the queue may wait for this replica to have all nodes, which it has now.
        """
        of_groups = []
        async for pod in self._pending():
            uid = pod.uid
            placed = self._cache.pod(uid)
            waits = self._queue.get(uid) is not None
            if self._shard.takes(pod) and (placed is None or waits):
                self._enter(pod)
                if retries_groups and pod.group is not None:
                    of_groups.append(uid)
            elif placed is None and waits:
                self._queue.delete(pod, "it belongs to another replica")
                self._nominator.add(pod)  # as for pods of any other scheduler
            if placed is not None and self._shard.owns(placed.node_name) and self._is_passed_on(uid):
                self._waiting_pods.reject(uid, "", _BELONGS_HERE)
        self._bus.activate(of_groups)
        self._bus.wake()

    async def _pending(self, *, needed: bool = True) -> AsyncIterator[PodInfo]:
        """Return the pending pods of the profiles, in time slices; the state may be changed until the next one."""
        until = self._time.stopwatch() + SLICE_SECONDS
        for key in list(self._pods) if needed else ():
            if self._time.is_over(until):
                await asyncio.sleep(0)
                until = self._time.stopwatch() + SLICE_SECONDS
            pod = self._pods.get(key)
            if pod is not None and self._is_pending(pod):
                await self._freeze.wait_over()
                pod = self._pods.get(key)
                if pod is not None and self._is_pending(pod):
                    yield pod

    def _adopt(self, pod: PodInfo, node_name: str) -> None:
        """Count a pod on the node of another replica, which is to bind it."""
        self._queue.delete(pod, "another replica is to bind it")
        placed = self._cache.assume(pod, node_name)
        self._shard.passes_on(placed, node_name)
        self._shard.nominated(pod.uid, int(pod.resource_version or 0))
        self._waiting_pods.hold(placed, {SHARDING: PASSED_ON_SECONDS})
        name = f"wait until another replica binds {pod.key}"
        self._spawn(self._time.task(self._wait_bound(placed), name), name)

    async def _wait_bound(self, placed: PodInfo) -> None:
        """Wait until another replica bound a pod or returned it, and decide about it again in the latter case."""
        await self._waiting_pods.wait_until_decided(placed.uid)
        await self._freeze.wait_over()
        forgotten = self._cache.forget(placed.uid)
        newest = self._pods.get(placed.key)
        if forgotten is None:
            return
        self._bus.happened(ASSIGNED_POD_DELETE, forgotten, None)
        if newest is not None and newest.uid == placed.uid and self._is_pending(newest):
            self._enter(newest)
            self._bus.wake()

    def _enter(self, pod: PodInfo) -> None:
        """Add a pod to the queue, also one that left it while an attempt at it was running."""
        if self._shard.takes(pod) and self._queue.newest(pod.uid) is None:
            self._queue.add(pod)

    def _is_passed_on(self, uid: str) -> bool:
        return SHARDING in self._waiting_pods.seconds_left(uid)

    def _is_pending(self, pod: PodInfo) -> bool:
        return not (pod.node_name or pod.is_terminal) and pod.scheduler_name in self._profiles
