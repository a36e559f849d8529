"""Keeps the status of objects that a plugin reads, while it is in force: how they stand, and whether they count."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from scheduler.client import wire
from scheduler.client.http.request import MERGE_PATCH, Request
from scheduler.client.recorded_event import ObjectReference
from scheduler.clock import rfc3339
from scheduler.errors import ApiError
from scheduler.objects.amounts import amount_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from scheduler.app.assembly import Parts
    from scheduler.client.events import EventRecorder
    from scheduler.client.requests import Requests
    from scheduler.client.resources import Resource
    from scheduler.framework.interface import Plugin
    from scheduler.snapshot import Objects

    _News = tuple[str, Mapping[str, Any], "Wanted"]
    """An object's key, the object, and what its status should say."""

logger = logging.getLogger(__name__)

T = TypeVar("T")

_EVERY_SECONDS: Final = 1.0
_SHARE: Final = 0.01
"""Of the time that counting may take: where there are many pods it is done less often."""
_MOST_WRITES: Final = 50
"""The most statuses of one kind that are written in a second."""
_SLICE: Final = 64
"""After so many objects others have their turn."""
_REPAIR_SECONDS: Final = 60.0
"""After so long what somebody else wrote over ours is put right; a watch has shown ours by then."""
_ACTION: Final = "Counting"
_ACCEPTED: Final = "Accepted"


class Verdict(NamedTuple):
    """Whether an object counts as it stands: the reason of its condition Accepted, and what is wrong, with its field."""

    reason: str
    message: str = ""

    @property
    def is_accepted(self) -> bool:
        return self.reason == "Valid"

    def condition(self) -> dict[str, str]:
        """Return the condition, without times."""
        return {
            "type": _ACCEPTED,
            "status": str(self.is_accepted),
            "reason": self.reason,
            "message": self.message,
        }


class Wanted(NamedTuple):
    """What the status of an object should say."""

    fields: Mapping[str, Any]
    verdict: Verdict

    def status(self) -> dict[str, Any]:
        """Return the status, without times."""
        return {**self.fields, "conditions": [self.verdict.condition()]}


class _Written(NamedTuple):
    """What was written: the status without times, the version of the object that has it, and when by the monotonic clock."""

    status: Mapping[str, Any]
    version: str
    at: float


class Source(Protocol):
    """One kind of objects, and what is to be said of each.

    Attributes:
        resource: the kind.
        kind: as the cluster's state names it.
        plugin: the name of the plugin that reads it.
    """

    resource: Resource
    kind: str
    plugin: str

    async def wanted(self, objects: Objects) -> Mapping[str, Wanted]:
        """Return what is to be said: key -> status, of those objects that something is to be said of."""
        ...


class ObjectStatuses:
    """Writes the status of each object of a kind when it changes; only the leader does.

    Args:
        source: what is to be said.
        parts: the objects, and the profiles in force.
        requests: for writes.
        is_leading: whether anything may be written now.
        recorder: of events about the objects.
    """

    def __init__(
        self,
        source: Source,
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
        self._written: dict[str, _Written] = {}  # uid -> what was written last

    @property
    def kind(self) -> str:
        """The objects' kind."""
        return self._source.kind

    async def run(self) -> NoReturn:
        """Look once a second, or less often, until cancelled; what is news is written until the next look."""
        while True:
            began = self._clock.monotonic()
            news: Sequence[_News] = ()
            if self._is_leading() and any(True for _ in in_force(self._parts, self._source.plugin)):
                news = await self._look()
            now = self._clock.monotonic()
            next_look = now + max(_EVERY_SECONDS, (now - began) / _SHARE)
            while news and self._clock.monotonic() < next_look and self._is_leading():
                for key, obj, wanted in news[:_MOST_WRITES]:
                    await self._write(key, obj, wanted)
                news = news[_MOST_WRITES:]
                await asyncio.sleep(_EVERY_SECONDS)
            await asyncio.sleep(max(0.0, next_look - self._clock.monotonic()))

    async def _look(self) -> Sequence[_News]:
        """Return what is to be written, that first which was written longest ago, or never."""
        objects = self._parts.cache.table.watch_kind(self._source.kind)
        if not objects:
            return ()
        wanted = await self._source.wanted(objects)
        known = {obj["metadata"]["uid"] for obj in objects.values()}
        self._written = {uid: written for uid, written in self._written.items() if uid in known}
        return await in_slices(self._news(dict(objects), wanted))

    def _news(
        self, objects: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Wanted]
    ) -> Generator[None, None, Sequence[_News]]:
        """Find the objects whose status should say something else; one object a step."""
        found = []
        for key, obj in objects.items():
            yield
            its = wanted.get(key)
            if its is not None and (status := its.status()) != self._seen(obj, status):
                last = self._written.get(obj["metadata"]["uid"])
                found.append((-inf if last is None else last.at, key, obj, its))
        found.sort(key=lambda each: each[0])
        return [(key, obj, its) for _, key, obj, its in found]

    def _seen(self, obj: Mapping[str, Any], fields: Iterable[str]) -> Mapping[str, Any]:
        """Return the status that an object has, without times: what was written, unless somebody else has changed it since."""
        last = self._written.get(obj["metadata"]["uid"])
        if last is not None and (
            obj["metadata"].get("resourceVersion") == last.version
            or self._clock.monotonic() - last.at < _REPAIR_SECONDS
        ):
            return last.status
        return _timeless(obj.get("status") or {}, fields)

    async def _write(self, key: str, obj: Mapping[str, Any], wanted: Wanted) -> None:
        namespace, _, name = key.rpartition("/")
        resource, before = self._source.resource, obj.get("status") or {}
        conditions = before.get("conditions") or ()
        old: Mapping[str, Any] = next((each for each in conditions if _is_ours(each)), {})
        condition = wanted.verdict.condition()
        at = old.get("lastTransitionTime") if old.get("status") == condition["status"] else None
        status = {field: _merging(before.get(field), value) for field, value in wanted.fields.items()}
        status["conditions"] = [
            *(each for each in conditions if not _is_ours(each)),
            {**condition, "lastTransitionTime": at or rfc3339(self._clock.utc_now())},
        ]
        path = resource.path(namespace, name, "status")
        # Not over conditions that somebody has written meanwhile, of which the watch has not told yet.
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        body = msgspec.json.encode({"metadata": version, "status": status})
        try:
            answer = await self._requests.send(Request("PATCH", path, body, MERGE_PATCH))
        except ApiError as error:
            if error.status not in {404, 409}:
                fields = {"kind": resource.kind, "object": key, "error": str(error)}
                logger.warning("Status could not be written", extra=fields)
            return
        self._written[obj["metadata"]["uid"]] = _Written(
            wanted.status(), _version(answer.body), self._clock.monotonic()
        )
        if not wanted.verdict.is_accepted and (old.get("reason"), old.get("message")) != wanted.verdict:
            self._tell(namespace, name, obj, wanted.verdict)

    def _tell(self, namespace: str, name: str, obj: Mapping[str, Any], verdict: Verdict) -> None:
        about = ObjectReference(
            kind=self._source.resource.kind,
            namespace=namespace,
            name=name,
            uid=obj["metadata"]["uid"],
            api_version=self._source.resource.api_version,
        )
        self._recorder.record(
            about,
            type_="Warning",
            reason=verdict.reason,
            action=_ACTION,
            note=verdict.message,
            is_unique=True,
        )


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Return what work comes to of which each step is short; others have their turn every few steps."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        number += 1
        if number % _SLICE == 0:
            await asyncio.sleep(0)


def in_force(parts: Parts, plugin: str) -> Iterable[Plugin]:
    """Yield the plugins of a name, of all profiles in force."""
    for framework in parts.profiles.frameworks.values():
        yield from (each for each in framework.plugins.all() if each.name == plugin)


def written(amounts: Mapping[str, int], also: Iterable[str] = ()) -> dict[str, str]:
    """Return amounts as quantities; of resources that are also named, 0 too."""
    return {name: amount_text(name, amounts.get(name, 0)) for name in sorted({*amounts, *also})}


def named(spec: Mapping[str, Any]) -> set[str]:
    """Return the resources that an object's min and max name."""
    return {name for amounts in (spec.get("min"), spec.get("max")) for name in amounts or ()}


def _merging(before: object, wanted: object) -> object:
    """Return a field as a merge patch sets it: of a mapping, what is no more is taken away."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        return {**dict.fromkeys(before.keys() - wanted.keys()), **wanted}
    return wanted


def _version(answer: bytes) -> str:
    """Return the version that a write has made; "" where the answer does not tell."""
    try:
        return wire.decode_identity(answer).resource_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _is_ours(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == _ACCEPTED


def _timeless(status: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return a status as it is compared: some fields and our condition, and when that changed does not matter."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
        if _is_ours(each)
    ]
    return {**{field: status.get(field) for field in fields}, "conditions": conditions}
