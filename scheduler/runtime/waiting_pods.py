"""Pods held at Permit, and how long for each plugin that holds them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.framework.status import SUCCESS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.pod import PodInfo


class WaitingPod:
    """One pod that at least one plugin holds."""

    def __init__(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        self.pod = pod
        self.outcome: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        self._timers = {
            plugin: loop.call_later(seconds, self._expire, plugin, seconds)
            for plugin, seconds in timeouts.items()
        }

    @property
    def held_by(self) -> tuple[str, ...]:
        """The plugins that still hold it."""
        return tuple(self._timers)

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

    def _expire(self, plugin: str, seconds: float) -> None:
        self.reject(plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}")

    def _end(self, status: Status) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if not self.outcome.done():
            self.outcome.set_result(status)


class WaitingPodsMap:
    """All pods held at Permit, of all profiles; fulfils the WaitingPods capability."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}  # pod uid -> waiting pod

    def hold(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        """Begin to hold a pod; `timeouts` is plugin -> seconds."""
        self._pods[pod.uid] = WaitingPod(pod, timeouts)

    async def wait_until_decided(self, uid: str) -> Status:
        """Return once no plugin holds the pod, at once if none does."""
        waiting = self._pods.get(uid)
        if waiting is None:
            return SUCCESS
        try:
            return await waiting.outcome
        finally:
            self._pods.pop(uid, None)

    def holds(self, uid: str) -> bool:
        return uid in self._pods

    def waiting(self) -> Iterable[PodInfo]:
        return [waiting.pod for waiting in self._pods.values()]

    def allow(self, uid: str, plugin: str) -> None:
        if uid in self._pods:
            self._pods[uid].allow(plugin)

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        if uid in self._pods:
            self._pods[uid].reject(plugin, reason)
