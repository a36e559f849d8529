"""Writes the status of objects that a plugin reads, while a profile has the plugin."""

from __future__ import annotations

import asyncio
import time
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec

from scheduler.daemon.app.needs import resource_of
from scheduler.engine.cycle.time_slices import SLICE_SECONDS
from scheduler.errors import ApiError
from scheduler.framework.status_sources import ACCEPTED
from scheduler.kube.client.events import ObjectReference
from scheduler.kube.client.status_queue import timeless

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from scheduler.daemon.app.assembly import Parts
    from scheduler.framework.capabilities import StatusWrite, WantedStatus
    from scheduler.framework.status_sources import StatusOf, StatusSource
    from scheduler.kube.client.events import EventRecorder

    _Change = tuple[str, Mapping[str, Any]]
    """An object whose status must change, after its key."""

T = TypeVar("T")

_EVERY_SECONDS: Final = 1.0
_SHARE: Final = 0.01
"""The share of time for counting: with many pods it is done less often."""
_MOST_WRITES: Final = 50
"""The most statuses of one kind that are written in a second."""
_SLICE: Final = 64
"""The number of objects in one time slice."""
_REPAIR_SECONDS: Final = 60.0
"""After this time another client's change of a status is overwritten; by then the watch has shown this one's write."""
_ACTION: Final = "Counting"


class _Written(NamedTuple):
    """What was written: the status without times as JSON, the version of the object that has it, and when by the monotonic clock."""

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
        """Compare once a second, or less often, until cancelled; write changes until the next comparison."""
        while True:
            began = self._clock.monotonic()
            changes: Sequence[_Change] = ()
            objects = self._parts.cache.table.watch_kind(self._source.kind)
            if objects and self._is_leading():
                status_of = await self._source.status_of(objects)
                changes = await run_in_slices(self._changes(dict(objects), status_of))
            now = self._clock.monotonic()
            next_look = now + max(_EVERY_SECONDS, (now - began) / _SHARE)
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
