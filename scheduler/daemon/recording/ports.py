"""Ports with observed answers: what a recorder notes, a replay repeats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.daemon.app.needs import resource_of
from scheduler.daemon.app.ports import Ports
from scheduler.daemon.metrics import Metrics
from scheduler.engine.ports import Time
from scheduler.extensions.extenders import HttpExtender
from scheduler.objects.pod import PodInfo
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from random import Random

    from scheduler.clock import Clock
    from scheduler.daemon.app.api_access import ApiAccess
    from scheduler.engine.ports import CacheGate
    from scheduler.framework import HttpGet, WantedStatus
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.v1 import PodCondition

T = TypeVar("T")


class ObservedPorts(Time, Ports, ABC):
    """Ports, and the time, whose every condition passes through `measured`, and every external call through `call`.

    Args:
        clock: the time of decisions.
        random: breaks ties.
    """

    def __init__(self, clock: Clock, random: Random) -> None:
        Time.__init__(self, clock)
        self._random = random
        self.time = self

    @abstractmethod
    async def call(self, what: str, ask: Callable[[], Awaitable[T]], kind: type[object]) -> T:
        """Call something outside of this process, and return or raise the result.

        Args:
            what: describes the call.
            ask: makes the call.
            kind: type of the result: bytes, bool, int, dict, `PodInfo`, or None if the value has no use.
        """

    @abstractmethod
    def decided(self, uid: str, node_name: str, message: str, nominated_node_name: str | None) -> None:
        """Take note of a decision about a pod: its node, or the message and the nominated node."""

    def random(self, random: Random) -> Random:
        return self._random

    def is_over(self, until: float) -> bool:
        return self.measured(self.stopwatch() >= until)

    def has_elapsed(self, since: float, seconds: float) -> bool:
        return self.measured(self.stopwatch() - since >= seconds)

    def metrics(self) -> Metrics:
        return _ObservedMetrics(self)

    def api_access(self, access: ApiAccess) -> ApiAccess:
        api = _ObservedApi(access, self)
        return replace(access, get=api, write=api, statuses=api, binder=api, writer=api, reader=api)

    def http_get(self, web: HttpGet) -> HttpGet:
        return _ObservedWeb(web, self)

    def cache_gate(self, cache_gate: CacheGate) -> CacheGate:
        return _ObservedGate(cache_gate, self)

    def is_leading(self, is_leading: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: not self.measured(not is_leading())

    def extender(self, *arguments: Any) -> HttpExtender:
        return _ObservedExtender(self, *arguments)


class _ObservedApi:
    """Calls the API server through ports."""

    def __init__(self, access: ApiAccess, ports: ObservedPorts) -> None:
        self._access = access
        self._call = ports.call
        self.patch_pod_status = access.writer.patch_pod_status  # is not awaited

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        ask = partial(self._access.binder.bind, pod, node_name)
        await self._call(f"bind {pod.key} to {node_name}", ask, type(None))

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        ask = partial(self._access.get.api_get, path, timeout_seconds=timeout_seconds)
        return await self._call(f"GET {path}", ask, bytes)

    async def api_write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **options: Any
    ) -> Mapping[str, Any]:
        ask = partial(self._access.write.api_write, method, path, body, **options)
        return await self._call(f"{method} {path}", ask, dict)

    async def write_status(
        self, kind: str, key: str, uid: str, wanted: WantedStatus, **options: Any
    ) -> Mapping[str, Any] | None:
        ask = partial(self._access.statuses.write_status, kind, key, uid, wanted, **options)
        namespace, _, name = key.rpartition("/")
        return await self._call(f"PATCH {resource_of(kind).path(namespace, name, 'status')}", ask, dict)

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        ask = partial(self._access.reader.read_pod, namespace, name)
        return await self._call(f"read {namespace}/{name}", ask, PodInfo)

    async def wait_pod_status_patched(
        self, pod: PodInfo, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> int:
        ask = partial(
            self._access.writer.wait_pod_status_patched,
            pod,
            condition=condition,
            nominated_node_name=nominated_node_name,
        )
        return await self._call(f"patch {pod.key}", ask, int)

    async def delete_pod(self, pod: PodInfo) -> object:
        return await self._call(f"delete {pod.key}", partial(self._access.writer.delete_pod, pod), object)


class _ObservedWeb:
    def __init__(self, web: HttpGet, ports: ObservedPorts) -> None:
        self._web = web
        self._call = ports.call

    async def http_get(self, url: str, **options: Any) -> bytes:
        return await self._call(f"GET {shown_url(url)}", partial(self._web.http_get, url, **options), bytes)


class _ObservedGate:
    def __init__(self, cache_gate: CacheGate, ports: ObservedPorts) -> None:
        self._cache_gate = cache_gate
        self._ports = ports

    @property
    def is_stale(self) -> bool:
        return self._ports.measured(self._cache_gate.is_stale)

    async def wait(self) -> None:
        await self._ports.call("cache gate", self._cache_gate.wait, type(None))


class _ObservedExtender(HttpExtender):
    def __init__(self, ports: ObservedPorts, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._call = ports.call

    async def _post(self, url: str, verb: str, body: bytes, most_bytes: int) -> bytes:
        send = partial(super()._post, url, verb, body, most_bytes)
        return await self._call(f"POST {shown_url(url)}", send, bytes)


class _ObservedMetrics(Metrics):
    def __init__(self, ports: ObservedPorts) -> None:
        super().__init__()
        self._ports = ports

    def decided(self, queued: QueuedPodInfo, decision: Any, seconds: float) -> None:
        super().decided(queued, decision, seconds)
        self._ports.decided(
            decision.pod.uid, decision.node_name, decision.status.message, decision.nominated_node_name
        )
