"""Pods held at Permit, and how long for each plugin that holds them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.objects.durations import Duration
from scheduler.runtime.instruments import NoInstruments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.instruments import Instruments


class WaitingPod:
    """One pod that at least one plugin holds."""

    def __init__(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        loop = asyncio.get_running_loop()
        self.pod = pod
        self.outcome: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(seconds, self._expire, plugin, seconds)
            for plugin, seconds in timeouts.items()
        }

    def allow(self, plugin: str) -> None:
        """Stop holding it for a plugin; it goes on when none is left."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._end(SUCCESS)

    def reject(self, plugin: str, reason: str) -> None:
        """Send it back as unschedulable."""
        self._end(Status(Code.UNSCHEDULABLE, (reason,), plugin))

    def preempt(self, plugin: str, reason: str) -> None:
        """Send it back to be tried again after a while: it was not refused, others need its room more."""
        self._end(Status(Code.ERROR, (reason,), plugin))

    def _expire(self, plugin: str, seconds: float) -> None:
        waited = Duration(int(seconds * 1e9))  # written as Go does
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    def cancel(self) -> None:
        """Stop all timers: nobody waits for the outcome any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _end(self, status: Status) -> None:
        self.cancel()
        if not self.outcome.done():
            self.outcome.set_result(status)


class WaitingPodsMap:
    """All pods held at Permit, of all profiles; fulfils the WaitingPods capability."""

    def __init__(self, instruments: Instruments | None = None) -> None:
        self._instruments = instruments or NoInstruments()
        self._pods: dict[str, WaitingPod] = {}  # pod uid -> waiting pod

    def hold(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        """Begin to hold a pod, until `wait_until_decided` returns or it is released.

        Args:
            pod: as it is counted on its node.
            timeouts: plugin -> seconds after which the pod is rejected.
        """
        self._pods[pod.uid] = WaitingPod(pod, timeouts)

    async def wait_until_decided(self, uid: str) -> Status:
        """Return once no plugin holds the pod, at once if none does."""
        waiting = self._pods.get(uid)
        if waiting is None:
            return SUCCESS
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            status = await waiting.outcome
        finally:
            self.release(uid)
        self._instruments.permit_wait(status.code, loop.time() - begin)
        return status

    def release(self, uid: str) -> None:
        """Hold a pod no longer, its attempt being over; does nothing if it is not held."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting.cancel()

    def holds(self, uid: str) -> bool:
        """Say whether a pod is held."""
        return uid in self._pods

    def waiting(self) -> Iterable[PodInfo]:
        return [waiting.pod for waiting in self._pods.values()]

    def allow(self, uid: str, plugin: str) -> None:
        if uid in self._pods:
            self._pods[uid].allow(plugin)

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        if uid in self._pods:
            self._pods[uid].reject(plugin, reason)

    def preempt(self, uid: str, plugin: str, reason: str) -> None:
        """Send a held pod back, to be tried again after a while."""
        if uid in self._pods:
            self._pods[uid].preempt(plugin, reason)
