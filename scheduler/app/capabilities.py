"""What fulfils those capabilities of plugins that are the same in every scheduler, or where none is at work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.client.http.request import Request
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from scheduler.client.requests import Requests
    from scheduler.objects.pod import PodInfo


class LoopSleep:
    """Waits on the loop."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ApiReads:
    """Reads from the API server."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        try:
            answer = await self._requests.send(Request("GET", path, timeout_seconds=timeout_seconds))
        except ApiError as error:
            raise OSError(f"GET {path}: {error}") from error
        return answer.body


class NoApiServer:
    """Fulfils what takes an API server where there is none: PodBinder, ApiGet, PodEvents and what the cycles write."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        raise AssertionError(f"pod {pod.key}: there is no API server to bind it to {node_name}")

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        raise OSError(f"GET {path}: there is no API server")

    def of(self, scheduler_name: str) -> NoApiServer:
        return self

    def record(
        self,
        regarding: PodInfo,
        *,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: PodInfo | None = None,
    ) -> None:
        return

    def patch_pod_status(self, pod: PodInfo, **_changes: object) -> bool:
        return False
