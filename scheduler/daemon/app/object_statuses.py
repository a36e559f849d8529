"""Writes the status of objects that a plugin reads, while a profile has the plugin."""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec

from scheduler.clock import rfc3339
from scheduler.daemon.app.needs import resource_of
from scheduler.engine.cycle.time_slices import SLICE_SECONDS
from scheduler.errors import ApiError
from scheduler.framework.statuses import ACCEPTED
from scheduler.kube.client import wire
from scheduler.kube.client.events import ObjectReference
from scheduler.kube.http.request import MERGE_PATCH, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from scheduler.daemon.app.assembly import Parts
    from scheduler.framework.statuses import StatusOf, StatusSource, WantedStatus
    from scheduler.kube.client.events import EventRecorder
    from scheduler.kube.client.requests import Requests

    _Change = tuple[str, Mapping[str, Any]]
    """An object whose status must change, after its key."""

logger = logging.getLogger(__name__)

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
        requests: for writes.
        is_leading: whether writes are allowed now.
        recorder: recorder of events about the objects.
    """

    def __init__(
        self,
        source: StatusSource,
        parts: Parts,
        *,
        requests: Requests,
        is_leading: Callable[[], bool],
        recorder: EventRecorder,
    ) -> None:
        self._source = source
        self._parts = parts
        self._requests = requests
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
        return wanted != _timeless(obj.get("status") or {}, wanted, self._source.condition_types)

    async def _write(self, key: str, obj: Mapping[str, Any], wanted: WantedStatus) -> None:
        namespace, _, name = key.rpartition("/")
        before = obj.get("status") or {}
        old = {each.get("type"): each for each in before.get("conditions") or ()}
        status = {field: _merging(before.get(field), value) for field, value in wanted.fields.items()}
        if self._source.condition_types:
            now = rfc3339(self._clock.utc_now())
            status["conditions"] = [
                *(each for type_, each in old.items() if type_ not in self._source.condition_types),
                *(_timed(each, old.get(each["type"], {}), now) for each in wanted.conditions),
            ]
        path = self._resource.path(namespace, name, "status")
        # The version protects conditions that another client has written and the watch has not shown yet.
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        body = msgspec.json.encode({"metadata": version, "status": status})
        try:
            answer = await self._requests.send(Request("PATCH", path, body, MERGE_PATCH))
        except ApiError as error:
            if error.status not in {404, 409}:
                fields = {"kind": self._source.object_kind, "object": key, "error": str(error)}
                logger.warning("Status could not be written", extra=fields)
            return
        self._written[obj["metadata"]["uid"]] = _Written(
            _json(wanted.status()), _version(answer.body), self._clock.monotonic()
        )
        for condition in wanted.conditions:
            if condition["type"] == ACCEPTED and condition["status"] == "False":
                known = old.get(ACCEPTED, {})
                if any(known.get(field) != condition[field] for field in ("reason", "message")):
                    self._warn(namespace, name, obj, condition)

    def _warn(self, namespace: str, name: str, obj: Mapping[str, Any], condition: Mapping[str, str]) -> None:
        about = ObjectReference(
            kind=self._source.object_kind,
            namespace=namespace,
            name=name,
            uid=obj["metadata"]["uid"],
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


def _merging(before: object, wanted: object) -> object:
    """Return a field for a merge patch: of a mapping, keys that are no longer wanted are removed."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        return {**dict.fromkeys(before.keys() - wanted.keys()), **wanted}
    return wanted


def _version(answer: bytes) -> str:
    """Return the resourceVersion after a write; "" if the response has none."""
    try:
        return wire.decode_identity(answer).resource_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _timed(condition: Mapping[str, str], before: Mapping[str, Any], now: str) -> dict[str, str]:
    """Return a condition with its lastTransitionTime."""
    since = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
    return {**condition, "lastTransitionTime": since or now}


def _timeless(
    status: Mapping[str, Any], fields: Iterable[str], condition_types: frozenset[str]
) -> dict[str, Any]:
    """Return the given fields of a status and its conditions of the given types, without times."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
        if each.get("type") in condition_types
    ]
    return {**{field: status.get(field) for field in fields}, "conditions": conditions}
