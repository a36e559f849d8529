"""Writes the statuses that the plugins of the active profiles give to objects."""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec

from scheduler.daemon.app.capabilities import TableObjects
from scheduler.daemon.app.needs import resource_of
from scheduler.engine.cycle.time_slices import SLICE_SECONDS
from scheduler.errors import ApiError
from scheduler.framework.status_sources import ACCEPTED
from scheduler.kube.client.events import ObjectReference
from scheduler.kube.client.status_queue import timeless
from scheduler.kube.client.watch import listed
from scheduler.loop_work import calls_plugin_code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence

    from scheduler.daemon.app.assembly import Parts
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework import PluginMetrics
    from scheduler.framework.capabilities import StatusWrite, WantedStatus
    from scheduler.framework.interface import Plugin
    from scheduler.framework.status_sources import StatusOf, StatusSource
    from scheduler.kube.client.events import EventRecorder
    from scheduler.kube.client.requests import Requests
    from scheduler.objects.pod import PodInfo
    from scheduler.worker_thread import Aside

    _Change = tuple[str, Mapping[str, Any]]
    """An object whose status must change, after its key."""

logger = logging.getLogger(__name__)

T = TypeVar("T")

_EVERY_SECONDS: Final = 1.0
_SHARE: Final = 0.01
"""The share of time for counting: with many pods it is done less often."""
_LONGEST_SECONDS: Final = 60.0
"""The longest wait after a comparison that took long: the process may have been stopped meanwhile."""
_MOST_WRITES: Final = 50
"""The most statuses of one kind that are written in a second."""
_SLICE: Final = 64
"""The number of objects in one time slice."""
_REPAIR_SECONDS: Final = 60.0
"""After this time another client's change of a status is overwritten; by then the watch has shown this one's write."""
_ACTION: Final = "Counting"


class _Written(NamedTuple):
    """The last write of a status: the status without times as JSON, the version of the object that has it, and when by the monotonic clock."""

    status: bytes
    version: str
    at: float


class ObjectStatuses:
    """Writes the status of each object of a kind when it changes; only the leader writes.

    Args:
        source: the wanted statuses.
        parts: the objects.
        writes: writes the statuses.
        is_leading: whether writes are allowed now.
        recorder: recorder of events about the objects.
    """

    def __init__(
        self,
        source: StatusSource,
        parts: Parts,
        *,
        writes: StatusWrite,
        is_leading: Callable[[], bool],
        recorder: EventRecorder,
    ) -> None:
        self._source = source
        self._parts = parts
        self._writes = writes
        self._is_leading = is_leading
        self._recorder = recorder
        self._clock = parts.clock
        self._resource = resource_of(source.kind)
        self._written: dict[str, _Written] = {}  # uid -> what was written last

    async def run(self) -> NoReturn:
        """Compare once a second, or up to once a minute if it takes long, until cancelled; write changes meanwhile."""
        while True:
            began = self._clock.monotonic()
            changes: Sequence[_Change] = ()
            objects = self._parts.cache.table.watch_kind(self._source.kind)
            if objects and self._is_leading():
                status_of = await self._source.status_of(objects)
                changes = await run_in_slices(self._changes(dict(objects), status_of))
            now = self._clock.monotonic()
            next_look = now + min(max(_EVERY_SECONDS, (now - began) / _SHARE), _LONGEST_SECONDS)
            while changes and self._clock.monotonic() < next_look and self._is_leading():
                for key, obj in changes[:_MOST_WRITES]:
                    wanted = status_of(key, obj)
                    if wanted is not None:
                        await self._write(key, obj, wanted)
                changes = changes[_MOST_WRITES:]
                await asyncio.sleep(_EVERY_SECONDS)
            await asyncio.sleep(max(0.0, next_look - self._clock.monotonic()))

    def _changes(
        self, objects: Mapping[str, Mapping[str, Any]], status_of: StatusOf
    ) -> Generator[None, None, Sequence[_Change]]:
        """Find the objects whose status must change; one object in each step.

        Returns:
            The objects in the order of their last write; those never written come first.
        """
        found = []
        kept: dict[str, _Written] = {}
        for key, obj in objects.items():
            yield
            uid = obj["metadata"]["uid"]
            last = self._written.get(uid)
            if last is not None:
                kept[uid] = last
            its = status_of(key, obj)
            if its is not None and self._differs(its.status(), obj, last):
                found.append((-inf if last is None else last.at, key, obj))
        self._written = kept
        found.sort(key=itemgetter(0))
        return [(key, obj) for _, key, obj in found]

    def _differs(self, wanted: Mapping[str, Any], obj: Mapping[str, Any], last: _Written | None) -> bool:
        """Compare with the last written status or, if another client has changed it since, with that of the object."""
        if last is not None and (
            obj["metadata"].get("resourceVersion") == last.version
            or self._clock.monotonic() - last.at < _REPAIR_SECONDS
        ):
            return _json(wanted) != last.status
        return wanted != timeless(obj.get("status") or {}, wanted, self._source.condition_types)

    async def _write(self, key: str, obj: Mapping[str, Any], wanted: WantedStatus) -> None:
        source, uid = self._source, obj["metadata"]["uid"]
        try:
            written = await self._writes.write_status(
                source.kind, key, uid, wanted, condition_types=source.condition_types
            )
        except ApiError:  # logged; the next comparison finds the difference again
            return
        if written is None:
            return
        version = written["metadata"].get("resourceVersion", "")
        self._written[uid] = _Written(_json(wanted.status()), version, self._clock.monotonic())
        old = {each.get("type"): each for each in (obj.get("status") or {}).get("conditions") or ()}
        for condition in wanted.conditions:
            if condition["type"] == ACCEPTED and condition["status"] == "False":
                known = old.get(ACCEPTED, {})
                if any(known.get(field) != condition[field] for field in ("reason", "message")):
                    self._warn(key, uid, condition)

    def _warn(self, key: str, uid: str, condition: Mapping[str, str]) -> None:
        namespace, _, name = key.rpartition("/")
        about = ObjectReference(
            kind=self._source.object_kind,
            namespace=namespace,
            name=name,
            uid=uid,
            api_version=self._resource.api_version,
        )
        self._recorder.record(
            about,
            type_="Warning",
            reason=condition["reason"],
            action=_ACTION,
            note=condition["message"],
            is_unique=True,
        )


async def run_in_slices(steps: Generator[None, None, T]) -> T:
    """Run work in short steps to its result; other tasks run after every few steps."""
    number, until = 0, time.perf_counter() + SLICE_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        number += 1
        if number % _SLICE == 0 or time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_SECONDS


def _json(status: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(status, order="sorted")


_CONFIGURATION_SECONDS: Final = 1.0
"""The interval of checks whether other profiles are active."""
_AFTER_FAILURE_SECONDS: Final = 10.0
"""The time after which a source that failed is called again."""


class StatusAccess:
    """Implements `StatusAccess` of the contract.

    Args:
        parts: the objects and the clock.
        pods: namespace/name -> pod, as watched last.
        metrics: declares metrics.
        reads: lists objects.
        aside: runs work in another thread.
    """

    def __init__(
        self,
        parts: Parts,
        pods: Mapping[str, PodInfo],
        metrics: PluginMetrics,
        *,
        reads: Requests,
        aside: Aside,
    ) -> None:
        self.pods, self.metrics, self.clock = pods, metrics, parts.clock
        self.cluster = TableObjects(parts.cache.table)
        self._reads, self._aside = reads, aside

    def listed(self, path: str, selectors: Mapping[str, str]) -> AsyncIterator[bytes]:
        return listed(self._reads, path, selectors)

    async def in_slices(self, steps: Generator[None, None, T]) -> T:
        return await run_in_slices(steps)

    async def aside(self, work: Callable[[], T], what: str) -> T:
        return await self._aside(work, what)


class PluginStatuses:
    """Writes the statuses of all plugins of the active profiles, and begins again when other profiles are active.

    Args:
        parts: the objects, and the active profiles.
        access: what the sources may use.
        writes: writes the statuses.
        is_leading: whether writes are allowed now.
        recorder: recorder of events about the objects.
    """

    def __init__(
        self,
        parts: Parts,
        access: StatusAccess,
        *,
        writes: StatusWrite,
        is_leading: Callable[[], bool],
        recorder: EventRecorder,
    ) -> None:
        self._parts, self._access = parts, access
        self._writes, self._is_leading, self._recorder = writes, is_leading, recorder

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        while True:
            frameworks = self._parts.profiles.frameworks
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._write(plugin, source), name=f"status of {source.kind}")
                    for plugin, source in self._sources(frameworks.values()).values()
                ]
                while self._parts.profiles.frameworks is frameworks:  # noqa: ASYNC110 - a reload waits for nothing
                    await asyncio.sleep(_CONFIGURATION_SECONDS)
                for each in running:
                    each.cancel()

    @calls_plugin_code
    def _sources(self, frameworks: Iterable[Framework]) -> Mapping[str, tuple[str, StatusSource]]:
        """Return kind -> (name of the plugin, source); the first plugin that has a source of a kind writes it."""
        plugins: dict[type[Plugin], list[Plugin]] = {}
        for framework in frameworks:
            for plugin in framework.plugins.all():
                plugins.setdefault(type(plugin), []).append(plugin)
        found: dict[str, tuple[str, StatusSource]] = {}
        for its_class, instances in plugins.items():
            try:
                sources = {source.kind: source for source in instances[0].statuses(instances, self._access)}
            except Exception:
                logger.exception("Plugin has no statuses", extra={"plugin": its_class.name})
                continue
            for kind, source in sources.items():
                if found.setdefault(kind, (its_class.name, source))[1] is not source:
                    fields = {"kind": kind, "plugin": its_class.name, "written_by": found[kind][0]}
                    logger.warning("Two plugins have statuses of one kind", extra=fields)
        return found

    async def _write(self, plugin: str, source: StatusSource) -> NoReturn:
        """Write the statuses of one source until cancelled; a failure of the source is logged."""
        try:
            while True:
                try:
                    statuses = ObjectStatuses(
                        source,
                        self._parts,
                        writes=self._writes,
                        is_leading=self._is_leading,
                        recorder=self._recorder,
                    )
                    await statuses.run()
                except Exception:
                    fields = {"plugin": plugin, "kind": source.kind}
                    logger.exception("Plugin failed to compute statuses", extra=fields)
                    await asyncio.sleep(_AFTER_FAILURE_SECONDS)
        finally:
            source.ended()
