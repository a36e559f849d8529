"""The cycles with all their real parts, a small fake API server, and plugins of the test's choice."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from plugins.priority_sort import PrioritySort
from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.assembly import Cycles, Parts
from scheduler.daemon.app.tasks import Tasks
from scheduler.engine.cycle.event_handlers import NodeHandler
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.sampling import NodeSampling
from scheduler.errors import ApiError
from scheduler.framework import BindPlugin, Status
from scheduler.objects.decode import decode_pod
from tests.support.builders import CREATED, node, pod, pod_object
from tests.support.manual_clock import ManualClock
from tests.support.scripted_plugins import framework_of
from tests.support.virtual_time import LoopClock, next_poll

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scheduler.engine.cycle.attempt import AssumedPod, Decision
    from scheduler.engine.cycle.event_handlers import PodHandler
    from scheduler.engine.cycle.time_slices import ClusterFreeze
    from scheduler.engine.queue import Place
    from scheduler.engine.runtime.budget import LoopBudget
    from scheduler.framework import Plugin, QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodCondition

PROFILE = "custom-scheduler"


class Event(NamedTuple):
    """Records the events that users see in `kubectl describe`."""

    key: str
    type: str
    reason: str
    note: str


class Patch(NamedTuple):
    """A patch of a pod's status."""

    key: str
    condition: PodCondition | None
    nominated_node_name: str | None


class Api:
    """A fake API server: its pods, and the writes to it.

    Attributes:
        pods: key -> current version of the pod.
        seen: key -> version in the watch, which is `watch_seconds` late.
        binds: (pod, node) of every received Binding.
        answers: the responses to the next Bindings: None is the normal response, an ApiError has no effect, and a pair
            (ApiError, True) is an error although the Binding took effect.
    """

    def __init__(self) -> None:
        self.pods: dict[str, PodInfo] = {}
        self.seen: dict[str, PodInfo] = {}
        self.handler: PodHandler
        self._unseen: deque[tuple[PodInfo | None, PodInfo | None]] = deque()
        self.watch_seconds = 0.0
        self.bind_seconds = self.patch_seconds = 0.0
        self.binds: list[tuple[str, str]] = []
        self.answers: list[Any] = []
        self.reads: list[Any] = []
        self.events: list[Event] = []
        self.patches: list[Patch] = []

    # Actions of the cluster.

    def create(self, new: PodInfo) -> None:
        self.pods[new.key] = new
        self._show(None, new)

    def update(self, new: PodInfo) -> None:
        old, self.pods[new.key] = self.pods[new.key], new
        self._show(old, new)

    def delete(self, key: str) -> None:
        self._show(self.pods.pop(key), None)

    def _show(self, old: PodInfo | None, new: PodInfo | None) -> None:
        self._unseen.append((old, new))
        if self.watch_seconds:
            asyncio.get_running_loop().call_later(self.watch_seconds, self._next)
        else:
            self._next()

    def _next(self) -> None:
        self._seen(*self._unseen.popleft())  # in order, independently of the timers

    def _seen(self, old: PodInfo | None, new: PodInfo | None) -> None:
        if new is None:
            assert old is not None
            self.handler.on_delete(self.seen.pop(old.key))
        elif new.key in self.seen:
            known, self.seen[new.key] = self.seen[new.key], new
            self.handler.on_update(known, new)
        else:
            self.seen[new.key] = new
            self.handler.on_add(new)

    # Requests of the scheduler.

    async def bind(self, each: PodInfo, node_name: str) -> None:
        self.binds.append((each.name, node_name))
        answer = self.answers.pop(0) if self.answers else None
        error, lost = answer if isinstance(answer, tuple) else (answer, False)
        if self.bind_seconds:
            await asyncio.sleep(self.bind_seconds)
        if error is not None and not lost:
            raise error
        known = self.pods.get(each.key)
        if known is None or known.uid != each.uid:
            raise ApiError(404, "NotFound", f'pods "{each.name}" not found')
        if known.node_name:
            raise ApiError(409, "Conflict", f"pod {each.name} is already assigned to node {known.node_name}")
        self.update(pod_on(known, node_name))
        if error is not None:
            raise error

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        answer = self.reads.pop(0) if self.reads else None
        if answer is not None:
            raise answer
        return self.pods.get(f"{namespace}/{name}")

    def of(self, scheduler_name: str) -> Api:
        return self

    def record(self, regarding: PodInfo, *, type_: str, reason: str, note: str, **_: Any) -> None:
        self.events.append(Event(regarding.key, type_, reason, note))

    def patch_pod_status(
        self, pod: PodInfo, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> bool:
        self.patches.append(Patch(pod.key, condition, nominated_node_name))
        return True

    async def wait_pod_status_patched(self, pod: PodInfo, *, condition: PodCondition | None = None) -> None:
        await asyncio.sleep(self.patch_seconds)
        self.patch_pod_status(pod, condition=condition)

    async def delete_pod(self, pod: PodInfo) -> None:
        self.delete(pod.key)


def terminating(name: str) -> PodInfo:
    """A pending pod that is being deleted, with a finalizer."""
    found = pod_object(name)
    found["metadata"] |= {"deletionTimestamp": CREATED, "finalizers": ["example.com/hold"]}
    return decode_pod(msgspec.json.encode(found))


def pod_on(known: PodInfo, node_name: str) -> PodInfo:
    """The pod as the API server returns it after its Binding."""
    return known.placed_on(node_name)


class Binder(BindPlugin):
    """A DefaultBinder without the capability."""

    name = "DefaultBinder"

    def __init__(self, api: Api) -> None:
        self._api = api

    async def bind(self, state: Any, pod: PodInfo, node_name: str) -> Status | None:
        try:
            await self._api.bind(pod, node_name)
        except ApiError as error:
            return Status.failed(str(error), error)
        return None


class Counts(NoObserver):
    """Records the reports that tests compare."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.attempts: list[tuple[str, str]] = []
        self.bound_pods: list[str] = []
        self.unreadable: list[str] = []
        self.handled: list[str] = []
        self.kubelets: list[str] = []
        self.late = 0
        self.passed: list[str] = []

    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None:
        assert seconds >= 0
        self.decisions.append(decision)

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        assert seconds >= 0
        self.attempts.append((profile, result))

    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None:
        assert seconds_since_first_attempt >= 0
        self.bound_pods.append(queued.pod.name)

    def undecodable(self, kind: str) -> None:
        self.unreadable.append(kind)

    def event_handled(self, event: str, seconds: float) -> None:
        assert seconds >= 0
        self.handled.append(event)

    def counted_late(self) -> None:
        self.late += 1

    def passed_on(self, result: str) -> None:
        self.passed.append(result)

    def rejected_by_kubelet(self, reason: str) -> None:
        self.kubelets.append(reason)


class Cluster:
    """Everything between the watch and the API server.

    Outside a loop its clock stands still; inside, it is the loop's.
    """

    def __init__(
        self,
        *plugins: Plugin,
        nodes: tuple[str, ...] = ("n1",),
        seed: int = 1,
        freeze: ClusterFreeze | None = None,
        budget: LoopBudget | None = None,
        slice_seconds: float = inf,
    ) -> None:
        self.api, self.counts = Api(), Counts()
        self.is_leading = True
        self.clock: Any = LoopClock() if _in_a_loop() else ManualClock(1000.0)
        self.parts = parts = Parts(self.clock, self.counts, {}, slice_seconds=slice_seconds, budget=budget)
        parts.freeze = freeze or parts.freeze
        self.framework = framework_of(PrioritySort(), *plugins, Binder(self.api), budget=parts.budget)
        self.api.seen = parts.pods
        self.profiles = parts.profiles
        self.profiles.swap({PROFILE: self.framework})
        self.tasks = Tasks()
        cycles = Cycles(
            parts,
            replace(
                NO_API_SERVER, writer=self.api, recorders=self.api, reader=self.api, spawn=self.tasks.spawn
            ),
            is_leading=lambda: self.is_leading,
            random=Random(seed),
            sampling=NodeSampling({PROFILE: 100}),
        )
        self.cache, self.nominator, self.queue = parts.cache, parts.nominator, parts.queue
        self.bus, self.waiting_pods = parts.bus, parts.waiting_pods
        self.reporter, self.failures, self.binding = cycles.reporter, cycles.failures, cycles.binding
        self.preemptions = cycles.preemptions
        self.rejections, self.scheduler, self.pod_cycle = cycles.rejections, cycles.scheduler, cycles.pods
        self.pods, self.nodes = cycles.pod_handler, NodeHandler(parts)
        self.api.handler = self.pods
        for name in nodes:
            self.nodes.on_add(node(name))

    def pop(self) -> QueuedPodInfo:
        queued = self.queue.pop()
        assert queued is not None, "nothing to pop"
        return queued

    def place_of(self, name: str) -> Place:
        return self.queue.place_of(pod(name).uid)

    def node_of(self, name: str) -> str:
        """Return the node of a pod in the API server; "" without one."""
        return self.api.pods[f"default/{name}"].node_name

    def notes(self, name: str, reason: str = "FailedScheduling") -> list[str]:
        return [
            event.note
            for event in self.api.events
            if event.key == f"default/{name}" and event.reason == reason
        ]

    def check(self) -> None:
        """Check the invariants, and that no pod is lost if no attempt is running."""
        self.cache.check()
        self.queue.check()
        if not self.binding.under_way:
            ours = [each for each in self.api.seen.values() if each.scheduler_name == PROFILE]
            for each in ours:
                here = self.queue.get(each.uid) is not None
                placed = each.node_name or self.cache.pod(each.uid)
                assert here or placed or each.is_terminating, f"{each.key} is lost"

    async def schedule_one(self, queued: QueuedPodInfo) -> AssumedPod | None:
        """Run one pod's scheduling cycle, and return the assumed pod, if any."""
        assumed = await self.pod_cycle.schedule(queued)
        return assumed[0] if assumed else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run the scheduler in the block, and stop it gracefully."""
        task = asyncio.create_task(self.scheduler.run())
        try:
            yield self
        finally:
            self.scheduler.stop()
            await task
            self.check()

    async def until(self, holds: Callable[[], object], *, seconds: float = 3600.0) -> None:
        """Wait until a condition is true, checking every tenth of a second."""
        async with asyncio.timeout(seconds):
            while not holds():
                await next_poll(0.1)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
