"""Carries preemptions out: tells the victims to leave, while the pod they make room for waits outside activeQ.

Source:
    kube-scheduler v1.36, framework/preemption/executor.go, with its feature SchedulerAsyncPreemption.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from scheduler.cycle.reporting import StatusWriter
from scheduler.errors import ApiError
from scheduler.objects.v1 import PodCondition
from scheduler.queue.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from typing import Any

    from scheduler.cycle.binding import BindingCycle
    from scheduler.cycle.profiles import Profiles
    from scheduler.cycle.reporting import Reporter
    from scheduler.cycle.shared import Shared
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    Preemption = tuple[PodInfo, str, Sequence[PodInfo], str]
    """The arguments of `PreemptionExecutor.start`."""
    Victims = Mapping[int, tuple[Sequence[PodInfo], int]]

logger = logging.getLogger(__name__)

_AT_ONCE = 16
"""Victims of one preemption that are told at a time. Source: kube-scheduler v1.36, parallelism's default."""
_REST_SECONDS = 1.0
"""How long after a failure the preemptor is tried again, so that a server that refuses is not asked in a loop."""
_GONE = frozenset({404, 409})
"""Answers that mean that this pod is there no more; 409 is another one by its name."""


class VictimWriter(StatusWriter, Protocol):
    """What is said to the API server about victims."""

    async def wait_pod_status_patched(self, pod: PodInfo, *, condition: PodCondition | None = None) -> None:
        """Patch a pod's status, and wait until it is done; raises ApiError."""
        ...

    async def delete_pod(self, pod: PodInfo) -> object:
        """Delete a pod gracefully, if it is still this pod; raises ApiError."""
        ...


class PreemptionExecutor:
    """Fulfils `Preemptions`.

    Args:
        binding: lets go of those PreBind plugins are at work for.
        writer: says it to the API server.
        reporter: says it to users.
        spawn: begins a task that ends with the daemon.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        binding: BindingCycle,
        writer: VictimWriter,
        reporter: Reporter,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._cache, self._nominator, self._queue = shared.cache, shared.nominator, shared.queue
        self._waiting_pods, self._bus = shared.waiting_pods, shared.bus
        self._clock, self._observer = shared.clock, shared.observer
        self._newest = shared.pods.get
        self._binding = binding
        self._writer = writer
        self._reporter = reporter
        self._spawn = spawn
        self._held: list[Preemption] | None = None
        self._running: dict[
            str, PodInfo | None
        ] = {}  # preemptor's uid -> the victim that is told last, once it is

    def attempted(self) -> None:
        self._observer.preemption_attempted()

    @contextmanager
    def held(self) -> Iterator[list[Preemption]]:
        """Note what is to be started meanwhile, and start nothing: who tries a group does not know yet that it is worth it."""
        held = self._held = []
        try:
            yield held
        finally:
            self._held = None

    def is_running(self, uid: str) -> bool:
        """Whether pods are still being told to leave for this pod.

        The last of them is looked at itself: its leaving may be seen before the answer to our request, and must not
        find the preemptor shut out.
        """
        if uid not in self._running:
            return False
        last = self._running[uid]
        if last is None:
            return True
        newest = self._newest(last.key)
        return newest is not None and newest.uid == last.uid and not newest.is_terminating

    def start(self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str) -> None:
        if self._held is not None:
            self._held.append((preemptor, node_name, victims, plugin))
            return
        staying = [victim for victim in victims if not victim.is_terminating]
        if not staying:
            return  # the room will be there without another word
        self._observer.preempted(len(victims))
        self._running[preemptor.uid] = None
        work = self._run(preemptor, node_name, staying, plugin)
        self._spawn(work, f"preemption for {preemptor.key}")

    async def _run(self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str) -> None:
        began = self._clock.monotonic()
        is_done = False
        try:
            is_done = await self._make_room(preemptor, node_name, victims, plugin)
        finally:
            self._running.pop(preemptor.uid, None)
            result = "success" if is_done else "error"
            self._observer.preemption_ended(result, self._clock.monotonic() - began)
        if not is_done:
            # No event may come that would bring the preemptor back.
            await asyncio.sleep(_REST_SECONDS)
            self._bus.activate([preemptor.uid])
        elif self._queue.place_of(preemptor.uid) is Place.GATED:
            # What would have brought it back came while it was shut out; perhaps nothing that helps comes any more.
            self._bus.activate([preemptor.uid])

    async def _make_room(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str
    ) -> bool:
        """Return whether all victims were told."""
        logger.info(
            "Preempting", extra={"pod": preemptor.key, "node": node_name, "victims": [v.key for v in victims]}
        )
        self._take_back_nominations(preemptor, node_name)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def tell(victim: PodInfo) -> bool:
            async with limit:
                return self._still_helps(preemptor, node_name) and await self._tell(
                    victim, preemptor, node_name, plugin
                )

        *others, last = victims
        if not all(await asyncio.gather(*map(tell, others))):
            return False
        self._running[preemptor.uid] = last
        return await tell(last)

    def _take_back_nominations(self, preemptor: PodInfo, node_name: str) -> None:
        """Let go of pods of lower priority that were to have room there: they had better look elsewhere.

        What other schedulers say of their pods is theirs to take back.
        """
        for other in self._nominator.nominated_pods_for_node(node_name):
            is_ours = self._queue.get(other.uid) is not None
            if is_ours and other.uid != preemptor.uid and other.priority < preemptor.priority:
                self._writer.patch_pod_status(other, nominated_node_name="")

    def _still_helps(self, preemptor: PodInfo, node_name: str) -> bool:
        """Whether the room is still wanted: nobody is to leave in vain."""
        newest = self._newest(preemptor.key)
        wanted = (
            newest is not None
            and newest.uid == preemptor.uid
            and not newest.is_terminating
            and not newest.node_name
            and self._cache.table.row_of(node_name) is not None
        )
        if not wanted:
            logger.info("Preemption is not needed any more", extra={"pod": preemptor.key, "node": node_name})
        return wanted

    async def _tell(self, victim: PodInfo, preemptor: PodInfo, node_name: str, plugin: str) -> bool:
        """Make one pod leave; whether it does."""
        newest = self._newest(victim.key)
        if newest is None or newest.uid != victim.uid or newest.is_terminating:
            return True  # somebody else was quicker
        note = f"Preempted by pod {preemptor.uid} on node {node_name}"
        if self._waiting_pods.holds(victim.uid):
            self._waiting_pods.preempt(victim.uid, plugin, "preempted")
            note += " (in kube-scheduler memory)."
        elif self._binding.cancel_pre_bind(victim.uid, plugin, f"preempted by {plugin}"):
            note += " (in kube-scheduler memory)."
        else:
            try:
                await self._delete(newest, preemptor)
            except ApiError as error:
                if error.status in _GONE:
                    return True
                logger.warning(
                    "Victim could not be preempted",
                    extra={"pod": preemptor.key, "victim": victim.key, "error": str(error)},
                )
                return False
        self._reporter.preempted(victim, preemptor, note)
        return True

    async def _delete(self, victim: PodInfo, preemptor: PodInfo) -> None:
        condition = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            message=f"{preemptor.scheduler_name}: preempting to accommodate a higher priority pod",
        )
        await self._writer.wait_pod_status_patched(victim, condition=condition)
        await self._writer.delete_pod(victim)


class NoPreemptions:
    """Fulfils `Preemptions` where no decision is carried out."""

    def attempted(self) -> None:
        return

    def start(self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str) -> None:
        return

    def is_running(self, uid: str) -> bool:
        return False


class ExtenderReview:
    """Asks the extenders in force about victims: rows of a snapshot to names of nodes, and back; fulfils `VictimReview`."""

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
