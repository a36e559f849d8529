"""Executes preemptions: evicts the victims, while the preemptor waits outside activeQ.

Source:
    kube-scheduler v1.36, framework/preemption/executor.go, with its feature SchedulerAsyncPreemption.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from scheduler.engine.queue.pod_places import Place
from scheduler.errors import ApiError
from scheduler.framework.preemption import Evaluation, RecentEvictions
from scheduler.objects.v1 import PodCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from typing import Any

    from scheduler.engine.cycle.binding import BindingCycle
    from scheduler.engine.cycle.reporting import Reporter
    from scheduler.engine.cycle.shared import Profiles, Shared
    from scheduler.engine.ports import PodWriter
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.status import Code
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    Preemption = tuple[PodInfo, str, Sequence[PodInfo], str, str]
    """The arguments of `PreemptionExecutor.start`."""
    Victims = Mapping[int, tuple[Sequence[PodInfo], int]]

logger = logging.getLogger(__name__)

_AT_ONCE = 16
"""Maximum number of concurrent evictions of one preemption. Source: kube-scheduler v1.36, parallelism's default."""
_REST_SECONDS = 1.0
"""Delay before the next attempt at the preemptor, if an eviction failed or the cache still has a victim."""
_GONE = frozenset({404, 409})
"""Statuses that mean that the pod does not exist any more; 409 is another pod with its name."""


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The pod or group that needs capacity.

    Attributes:
        pods: the pod, or the members of the group.
        node_name: the node; "" for a group, which may use many nodes.
        plugin: the plugin that requested the preemption.
        quota: the key of the queue or quota that the pods count in; "" for none.
        group: the group; None for a single pod.
        message: why the first member without a node has none; "" for a single pod, whose attempt is kept.
    """

    pods: Sequence[PodInfo]
    node_name: str
    plugin: str
    quota: str
    group: PodGroup | None = None
    message: str = ""

    @property
    def key(self) -> str:
        return self.pods[0].key if self.group is None else self.group.key.key

    @property
    def kind(self) -> str:
        if self.group is None:
            return "pod"
        return "compositepodgroup" if self.group.is_composite else "podgroup"

    @property
    def note(self) -> str:
        if self.group is None:
            return f"Preempted by pod {self.pods[0].uid} on node {self.node_name}"
        return f"Preempted by {self.kind} {self.group.uid} on node cluster"

    @property
    def priority(self) -> int:
        return min(pod.priority for pod in self.pods)


MOST_PREEMPTIONS: Final = 1000
"""The number of preemptions that are kept for users; the oldest are forgotten first."""
_MOST_VICTIMS: Final = 20


class PastPreemption(NamedTuple):
    """A preemption that was started.

    Attributes:
        at: when it was started.
        kind: "pod", "podgroup" or "compositepodgroup".
        preemptor: `namespace/name` of the pod or group that needs the capacity.
        priority: its priority.
        uid: the uid of the pod, or of the first pod of the group.
        node_name: the node; "" for a group.
        plugin: the plugin that requested it.
        quota: the key of the queue or quota that the preemptor counted in; "" for none.
        victims: `namespace/name` and priority of the first 20 victims.
        n_victims: the number of victims.
        message: why the first member of a group without a node has none; "" for a pod.
    """

    at: datetime
    kind: str
    preemptor: str
    priority: int
    uid: str
    node_name: str
    plugin: str
    quota: str
    victims: Sequence[tuple[str, int]]
    n_victims: int
    message: str


@dataclass(slots=True)
class _Running:
    """A running preemption, and its last victim, once its eviction began."""

    preemptor: Preemptor
    last: PodInfo | None = None


class _Holding:
    """Records preemptions instead of starting them while they are held."""

    def __init__(self) -> None:
        self._held: list[Preemption] | None = None

    @contextmanager
    def held(self) -> Iterator[list[Preemption]]:
        """Record preemptions in the block without starting them, because a group may not fit in the end."""
        held = self._held = []
        try:
            yield held
        finally:
            self._held = None

    @contextmanager
    def not_held(self) -> Iterator[None]:
        """Start preemptions in the block at once: other pods are tried while a group holds its preemptions."""
        held, self._held = self._held, None
        try:
            yield
        finally:
            self._held = held


class PreemptionExecutor(_Holding):
    """Implements `Preemptions`.

    Args:
        binding: cancels PreBind of victims.
        writer: writes to the API server.
        reporter: reports preemptions to users.
        spawn: starts a task that ends with the daemon.

    Attributes:
        let_go: aborts the attempt at a group that assumed a pod; False if there is none.
        past: the preemptions of this process, the oldest first.
        recent: the evictions of the last hour.
        may_wait: as in `Preemptions`.
    """

    may_wait = True

    def __init__(
        self,
        shared: Shared,
        *,
        binding: BindingCycle,
        writer: PodWriter,
        reporter: Reporter,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        super().__init__()
        self.let_go: Callable[[str], bool] = lambda _: False
        self.past: deque[PastPreemption] = deque(maxlen=MOST_PREEMPTIONS)
        self.recent = RecentEvictions()
        self._cache, self._nominator, self._queue = shared.cache, shared.nominator, shared.queue
        self._waiting_pods, self._bus = shared.waiting_pods, shared.bus
        self._clock, self._observer = shared.clock, shared.observer
        self._freeze, self._time = shared.freeze, shared.time
        self._newest = shared.pods.get
        self._binding = binding
        self._writer = writer
        self._reporter = reporter
        self._spawn = spawn
        self._running: dict[str, _Running] = {}  # pod uid -> its last preemption, while it runs

    def attempted(self) -> None:
        self._observer.preemption_attempted()

    def attempted_for_group(self, code: Code) -> None:
        self._observer.group_preemption_attempted(code)

    @contextmanager
    def evaluation(self, preemptor: str) -> Iterator[Evaluation]:
        began, evaluation = self._clock.monotonic(), Evaluation()
        yield evaluation
        self._observer.preemption_evaluated(preemptor, evaluation, self._clock.monotonic() - began)

    def is_running(self, uid: str) -> bool:
        """Return whether the preemption for this pod is still running.

        It also ends when the watch reports the deletion of the last victim, which may precede the response to the
        request: the event must requeue the preemptor.
        """
        if uid not in self._running:
            return False
        last = self._running[uid].last
        return last is None or self._stays(last)

    def is_for_group(self, uid: str) -> bool:
        return uid in self._running and self._running[uid].preemptor.group is not None

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        if self._held is not None:
            self._held.append((preemptor, node_name, victims, plugin, quota))
        else:
            self._start(Preemptor((preemptor,), node_name, plugin, quota), victims)

    def start_for_group(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Start the eviction of victims on any nodes."""
        self._start(preemptor, victims)

    def _start(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        staying = [victim for victim in victims if not victim.is_terminating]
        if not staying:
            return  # the capacity becomes free without further requests
        as_group = preemptor.group is not None and preemptor.group.is_entity
        self._observer.preempted("podgroup" if as_group else "pod", len(victims))
        self._note(preemptor, victims)
        self.recent.note(staying, self._time.monotonic())
        running = _Running(preemptor)
        self._running |= {pod.uid: running for pod in preemptor.pods}
        self._spawn(self._run(running, staying), f"preemption for {preemptor.key}")

    def _note(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        self.past.append(
            PastPreemption(
                self._clock.utc_now(),
                preemptor.kind,
                preemptor.key,
                preemptor.priority,
                preemptor.pods[0].uid,
                preemptor.node_name,
                preemptor.plugin,
                preemptor.quota,
                [(victim.key, victim.priority) for victim in victims[:_MOST_VICTIMS]],
                len(victims),
                preemptor.message,
            )
        )

    async def _run(self, running: _Running, victims: Sequence[PodInfo]) -> None:
        preemptor, began = running.preemptor, self._clock.monotonic()
        is_done = False
        try:
            is_done = await self._make_room(running, victims)
        except Exception:
            # A bug of this scheduler affects this preemption only.
            logger.exception("Preemption failed", extra={preemptor.kind: preemptor.key})
        finally:
            for pod in preemptor.pods:
                if self._running.get(pod.uid) is running:  # else the next preemption already runs
                    del self._running[pod.uid]
            result = "success" if is_done else "error"
            self._observer.preemption_ended(preemptor.kind, result, self._clock.monotonic() - began)
        if not is_done or any(map(self._counts, victims)):
            # Without this pause the next attempt would make the same decision.
            await asyncio.sleep(_REST_SECONDS)
        waiting = [pod.uid for pod in preemptor.pods]
        if is_done:
            # The events that would have requeued these pods came during the preemption.
            waiting = [uid for uid in waiting if self._queue.place_of(uid) is Place.GATED]
        if waiting:  # there may be no further event that helps
            self._bus.activate(waiting)

    async def _make_room(self, running: _Running, victims: Sequence[PodInfo]) -> bool:
        """Evict the victims; return whether all requests succeeded."""
        preemptor = running.preemptor
        fields = {preemptor.kind: preemptor.key, "node": preemptor.node_name}
        logger.info("Preempting", extra={**fields, "victims": [v.key for v in victims]})
        self._take_back_nominations(preemptor, {victim.node_name for victim in victims})
        limit = asyncio.Semaphore(_AT_ONCE)

        async def tell(victim: PodInfo) -> bool:
            async with limit:
                return self._still_helps(preemptor) and await self._tell(victim, preemptor)

        *others, last = victims
        telling = (self._time.task(tell(victim), f"preemption of {victim.key}") for victim in others)
        if not all(await asyncio.gather(*telling)):
            return False
        running.last = last
        return await tell(last)

    def _take_back_nominations(self, preemptor: Preemptor, node_names: Iterable[str]) -> None:
        """End the nominations of pods of lower priority to these nodes, so that they are tried on other nodes.

        Nominations of other schedulers' pods stay. A nomination in the API server ends with its watch event; one that
        was not written yet has no such event and ends at once.
        """
        own = {pod.uid for pod in preemptor.pods}
        for node_name in node_names:
            for other in self._nominator.nominated_pods_for_node(node_name):
                is_ours = self._queue.get(other.uid) is not None
                if is_ours and other.uid not in own and other.priority < preemptor.priority:
                    self._writer.patch_pod_status(other, nominated_node_name="")
                    newest = self._newest(other.key) or other
                    if not newest.pod.status.nominated_node_name:
                        self._end_nomination(other, node_name)

    def _end_nomination(self, pod: PodInfo, node_name: str) -> None:
        if self._freeze.is_on:
            self._freeze.do_later(partial(self._end_nomination, pod, node_name))
        elif self._nominator.node_of(pod.uid) == node_name:
            self._queue.nominate(pod.uid, "")
            self._bus.nomination_ended(pod.placed_on(node_name))

    def _still_helps(self, preemptor: Preemptor) -> bool:
        """Return whether the capacity is still needed, so that no pod is evicted in vain."""
        node_name = preemptor.node_name
        is_there = not node_name or self._cache.table.row_of(node_name) is not None
        if is_there and any(map(self._waits, preemptor.pods)):
            return True
        fields = {preemptor.kind: preemptor.key, "node": node_name}
        logger.info("Preemption is not needed any more", extra=fields)
        return False

    def _waits(self, pod: PodInfo) -> bool:
        newest = self._newest(pod.key)
        if newest is None or not self._stays(pod) or newest.node_name != pod.node_name:
            return False
        return not pod.node_name or newest.has_deferred_resize

    def _stays(self, pod: PodInfo) -> bool:
        """Return whether a pod exists and is not terminating, according to the watch."""
        newest = self._newest(pod.key)
        return newest is not None and newest.uid == pod.uid and not newest.is_terminating

    def _counts(self, victim: PodInfo) -> bool:
        """Return whether the cache has the pod as one that is not terminating."""
        counted = self._cache.pod(victim.uid)
        return counted is not None and not counted.is_terminating

    async def _tell(self, victim: PodInfo, preemptor: Preemptor) -> bool:
        """Evict one pod; return whether that succeeded."""
        newest = self._newest(victim.key)
        if newest is None or not self._stays(victim):
            return True  # another client deleted it already
        if not newest.node_name and self._cache.pod(victim.uid) is None:
            return True  # it was assumed there, and is not any more
        note, plugin = preemptor.note, preemptor.plugin
        if self._waiting_pods.holds(victim.uid):
            self._waiting_pods.preempt(victim.uid, plugin, "preempted")
            note += " (in kube-scheduler memory)."
        elif self.let_go(victim.uid) or self._binding.cancel_pre_bind(
            victim.uid, plugin, f"preempted by {plugin}"
        ):
            note += " (in kube-scheduler memory)."
        else:
            try:
                await self._delete(newest, preemptor)
            except ApiError as error:
                if error.status in _GONE:
                    return True
                logger.warning(
                    "Victim could not be preempted",
                    extra={preemptor.kind: preemptor.key, "victim": victim.key, "error": str(error)},
                )
                return False
        related = preemptor.pods[0] if preemptor.group is None else preemptor.group
        self._reporter.preempted(victim, preemptor.pods[0].scheduler_name, related, note)
        return True

    async def _delete(self, victim: PodInfo, preemptor: Preemptor) -> None:
        name = preemptor.pods[0].scheduler_name
        condition = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            message=f"{name}: preempting to accommodate a higher priority {preemptor.kind}",
        )
        await self._writer.wait_pod_status_patched(victim, condition=condition)
        await self._writer.delete_pod(victim)


class NoPreemptions:
    """Implements `Preemptions` without executing decisions.

    Attributes:
        recent: empty, since no pod is evicted.
        may_wait: as in `Preemptions`.
    """

    recent = RecentEvictions()
    may_wait = True

    def attempted(self) -> None:
        return

    def attempted_for_group(self, code: Code) -> None:
        return

    def evaluation(self, preemptor: str) -> AbstractContextManager[Evaluation]:
        return nullcontext(Evaluation())

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        return

    def is_running(self, uid: str) -> bool:
        return False

    def is_for_group(self, uid: str) -> bool:
        return False


class GroupPreemptions(Protocol):
    """Preemptions of the group cycle; `PreemptionExecutor` implements it."""

    def held(self) -> AbstractContextManager[list[Preemption]]: ...

    def not_held(self) -> AbstractContextManager[None]: ...

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None: ...

    def start_for_group(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None: ...


class NotedPreemptions(_Holding, NoPreemptions):
    """Implements `GroupPreemptions` without executing decisions; preemptions are only recorded while they are held.

    Attributes:
        recent: the evictions that another process made.
        may_wait: False, since only the present moment is evaluated.
    """

    may_wait = False

    def __init__(self) -> None:
        super().__init__()
        self.recent = RecentEvictions()

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        if self._held is not None:
            self._held.append((preemptor, node_name, victims, plugin, quota))

    def start_for_group(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        return


class ExtenderReview:
    """Calls the active extenders for victims, and converts rows to node names and back; implements `VictimReview`."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles

    async def review(self, pod: PodInfo, snapshot: Snapshot, victims: Victims) -> Victims:
        extenders = self._profiles.extenders
        if extenders is None or not extenders.may_change_victims(pod):
            return victims
        by_name = {snapshot.name_of(row): on_node for row, on_node in victims.items()}
        left = await extenders.preempt(pod, snapshot, by_name)
        rows = {name: snapshot.row_of(name) for name in left}
        return {row: left[name] for name, row in rows.items() if row is not None}
