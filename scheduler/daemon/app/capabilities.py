"""Implementations of the plugin capabilities that are the same in every scheduler, or that need no API server."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from scheduler.daemon.app.needs import resource_of
from scheduler.engine.ports import REAL_TIME
from scheduler.engine.runtime.budget import ends_others
from scheduler.errors import ApiError
from scheduler.kube.http.request import JSON, Request
from scheduler.objects.decode import decode_object
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping

    from scheduler.daemon.app.tasks import Tasks
    from scheduler.engine.ports import Time
    from scheduler.framework import WantedStatus
    from scheduler.kube.client.discovery import ServedVersions
    from scheduler.kube.client.requests import Requests
    from scheduler.kube.client.writer import ApiWriter
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ClusterTable, Objects, Snapshot

logger = logging.getLogger(__name__)


class LoopSleep:
    """Sleeps on the event loop."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class AsyncioKeyedLock:
    """Keyed locks of the event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, what: str) -> asyncio.Lock:
        lock = self._locks.get(what)
        if lock is None:
            lock = self._locks[what] = asyncio.Lock()
        return lock


class LoopTimeSlice:
    """Implements `TimeSlice`.

    Args:
        time: measures time.
        slice_seconds: the longest time of one call.
    """

    def __init__(self, time: Time, slice_seconds: float) -> None:
        self.slice_seconds = slice_seconds
        self.seconds = time.stopwatch
        self.measured = time.measured


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


class ApiWrites:
    """Writes to the API server."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def api_write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = JSON,
        timeout_seconds: float = 30.0,
    ) -> Mapping[str, Any]:
        encoded = None if body is None else msgspec.json.encode(body)
        request = Request(method, path, encoded, content_type, timeout_seconds=timeout_seconds)
        return decode_object((await self._requests.send(request)).body)


class StatusWrites:
    """Writes statuses of objects.

    Args:
        writer: sends them.
        table: the objects as last seen.
        versions: the versions in which the server serves kinds.
    """

    def __init__(self, writer: ApiWriter, table: ClusterTable, versions: ServedVersions) -> None:
        self._writer, self._table, self._versions = writer, table, versions

    async def write_status(
        self,
        kind: str,
        key: str,
        uid: str,
        wanted: WantedStatus,
        *,
        condition_types: Collection[str] = (),
    ) -> Mapping[str, Any] | None:
        return await self._writer.write_status(
            self._versions.of(resource_of(kind)),
            key,
            uid,
            wanted,
            condition_types=condition_types,
            newest=partial(self._table.watch_kind(kind).get, key),
        )


class TableObjects:
    """The objects kept for plugins, in the view that all plugins share."""

    def __init__(self, table: ClusterTable) -> None:
        self._table = table

    def objects(self, kind: str) -> Objects:
        return self._table.watch_kind(kind)

    def snapshot(self) -> Snapshot:
        return self._table.snapshot()

    def assume(self, kind: str, obj: Mapping[str, Any]) -> None:
        self._table.watch_kind(kind).assume(object_key(obj), obj)

    def restore(self, kind: str, key: str) -> None:
        self._table.watch_kind(kind).restore(key)


class BackgroundTasks:
    """Runs work in tasks of the daemon; a failure is logged and ends nothing else.

    Args:
        tasks: where the work runs; it is cancelled at the end, except work that `drain` waited for.
        time: the work is a task of this engine.
    """

    def __init__(self, tasks: Tasks, time: Time = REAL_TIME) -> None:
        self._tasks = tasks
        self._time = time
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._tasks.spawn(self._time.task(self._carry_out(work, name), name), name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def drain(self, seconds: float) -> None:
        """Wait until all work is done, but no longer than the given time."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def _carry_out(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except ApiError as error:
            logger.warning("Background work failed", extra={"work": name, "error": str(error)})
        except BaseException as error:
            if ends_others(error) or isinstance(error, Exception):
                logger.exception("Background work failed", extra={"work": name})
            else:
                raise


class NoApiServer:
    """Replaces all capabilities that need an API server where there is none.

    PodBinder, ApiGet, ApiWrite, StatusWrite, Background, PodEvents and the writes of the cycles.
    """

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        raise AssertionError(f"pod {pod.key}: there is no API server to bind it to {node_name}")

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        raise OSError(f"GET {path}: there is no API server")

    async def api_write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **_options: object
    ) -> Mapping[str, Any]:
        raise AssertionError(f"{method} {path}: there is no API server")

    async def write_status(
        self, kind: str, key: str, uid: str, wanted: WantedStatus, *, condition_types: Collection[str] = ()
    ) -> Mapping[str, Any] | None:
        raise AssertionError(f"status of {kind} {key}: there is no API server")

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        raise AssertionError(f"pod {namespace}/{name}: there is no API server to read it from")

    async def wait_pod_status_patched(self, pod: PodInfo, **_changes: object) -> int:
        raise AssertionError(f"pod {pod.key}: there is no API server to patch it on")

    async def delete_pod(self, pod: PodInfo) -> object:
        raise AssertionError(f"pod {pod.key}: there is no API server to delete it from")

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()

    def of(self, scheduler_name: str) -> NoApiServer:
        return self

    def record(self, regarding: PodInfo, **_event: object) -> None:
        return

    def patch_pod_status(self, pod: PodInfo, **_changes: object) -> bool:
        return False
