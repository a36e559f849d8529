"""Pods that wait at Permit, with the timeout of each plugin that holds them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.engine.runtime.calls import NoInstruments
from scheduler.framework.reasons import PERMIT_TIMEOUT, Reason
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.engine.runtime.calls import Instruments
    from scheduler.objects.pod import PodInfo


class WaitingPod:
    """A pod that at least one plugin holds."""

    def __init__(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        loop = asyncio.get_running_loop()
        self.pod = pod
        self.outcome: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(seconds, self._expire, plugin, seconds)
            for plugin, seconds in timeouts.items()
        }

    @property
    def seconds_left(self) -> Mapping[str, float]:
        """Plugin -> seconds until it rejects the pod."""
        now = asyncio.get_running_loop().time()
        return {plugin: max(0.0, timer.when() - now) for plugin, timer in self._timers.items()}

    def allow(self, plugin: str) -> None:
        """Remove the hold of a plugin; the pod continues when no plugin holds it."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._end(SUCCESS)

    def reject(self, plugin: str, reason: str) -> None:
        """Reject the pod as unschedulable."""
        self._end(Status(Code.UNSCHEDULABLE, (reason,), plugin))

    def preempt(self, plugin: str, reason: str) -> None:
        """End the wait with an error, so that the pod is tried again after its backoff: it is preempted, not rejected."""
        self._end(Status(Code.ERROR, (reason,), plugin))

    def _expire(self, plugin: str, seconds: float) -> None:
        waited = Duration(int(seconds * 1e9))  # formatted as in Go
        reason = f"rejected due to timeout after waiting {waited} at plugin {plugin}"
        self.reject(plugin, Reason(reason, PERMIT_TIMEOUT))

    def cancel(self) -> None:
        """Stop all timers: the outcome is no longer awaited."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _end(self, status: Status) -> None:
        self.cancel()
        if not self.outcome.done():
            self.outcome.set_result(status)


class WaitingPodsMap:
    """All pods that wait at Permit, of all profiles; implements the WaitingPods capability."""

    def __init__(self, instruments: Instruments | None = None) -> None:
        self._instruments = instruments or NoInstruments()
        self._pods: dict[str, WaitingPod] = {}  # pod uid -> waiting pod

    def hold(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        """Begin to hold a pod, until `wait_until_decided` returns or it is released.

        Args:
            pod: the pod as assumed on its node.
            timeouts: plugin -> seconds after which the pod is rejected.
        """
        self._pods[pod.uid] = WaitingPod(pod, timeouts)

    async def wait_until_decided(self, uid: str) -> Status:
        """Wait until no plugin holds the pod; return at once if no plugin holds it."""
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
        """Stop holding a pod because its attempt ended; does nothing if it is not held."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting.cancel()

    def holds(self, uid: str) -> bool:
        """Return whether a pod is held."""
        return uid in self._pods

    def seconds_left(self, uid: str) -> Mapping[str, float]:
        """Return which plugins hold a pod: plugin -> seconds until it rejects the pod."""
        waiting = self._pods.get(uid)
        return {} if waiting is None else waiting.seconds_left

    def waiting(self) -> Iterable[PodInfo]:
        return [waiting.pod for waiting in self._pods.values()]

    def allow(self, uid: str, plugin: str) -> None:
        if uid in self._pods:
            self._pods[uid].allow(plugin)

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        if uid in self._pods:
            self._pods[uid].reject(plugin, reason)

    def preempt(self, uid: str, plugin: str, reason: str) -> None:
        """End the wait of a pod with an error, so that it is tried again after its backoff."""
        if uid in self._pods:
            self._pods[uid].preempt(plugin, reason)
