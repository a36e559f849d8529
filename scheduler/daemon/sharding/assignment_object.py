"""The ShardAssignment: which replica owns each bucket, as an object of the API server.

All is in `spec`, because one update must change `wanted` and `held` together. The buckets of a replica are a text of ranges,
as in `0-63,70`, so that the object stays short, and readable with kubectl.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.holding import NOBODY, Assignment
from scheduler.errors import ApiError, ObjectError
from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import SHARD_ASSIGNMENTS
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_object
from scheduler.objects.wording import entry, ranges_text, was

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.wire import ObjectIdentity
    from scheduler.kube.http.request import Response

logger = logging.getLogger(__name__)

FORMER: Final = "former-holders"
"""Holds all buckets of a new object: it stands for the replicas that held buckets in one that was deleted.

No replica has this name, so it is removed as a replica whose Lease does not exist.
"""
_RANGES: Final = re.compile(r"\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*")
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_NO_GANGS: Final[Mapping[str, str]] = MappingProxyType({})
_TRIES: Final = 5
_SECONDS: Final = 5.0


class _Replica(msgspec.Struct, frozen=True):
    name: str
    wanted: str = ""
    held: str = ""
    gang: str = ""


class _Spec(msgspec.Struct, frozen=True):
    namespace: str
    replicas: tuple[_Replica, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentObject:
    """One version of the object.

    Attributes:
        raw: the whole object.
        namespace: the namespace of the Leases.
        assignment: its content.
    """

    raw: dict[str, Any]
    namespace: str
    assignment: Assignment


def decode(body: bytes) -> AssignmentObject:
    """Read a ShardAssignment.

    Raises:
        ObjectError: the body is none, or its content is invalid.
    """
    raw = decode_object(body)
    metadata = raw.get("metadata") or {}
    key = str(metadata.get("name", "?"))
    version = str(metadata.get("resourceVersion", ""))
    if not version.isdecimal():
        raise ObjectError(
            SHARD_ASSIGNMENTS.kind, key, "metadata.resourceVersion", f"must be a number, {was(version)}"
        )
    try:
        spec = msgspec.convert(raw.get("spec") or {}, _Spec)
    except msgspec.ValidationError as error:
        raise ObjectError(SHARD_ASSIGNMENTS.kind, key, "spec", str(error)) from error
    lists = {"wanted": [NOBODY] * BUCKETS, "held": [NOBODY] * BUCKETS}
    seen: set[str] = set()
    for index, replica in enumerate(spec.replicas):
        path = entry("spec.replicas", index)
        if not _NAME.fullmatch(replica.name) or replica.name in seen:
            expected = "in one entry only" if replica.name in seen else "the name of a Lease"
            problem = f"must be {expected}, {was(replica.name)}"
            raise ObjectError(SHARD_ASSIGNMENTS.kind, key, f"{path}.name", problem)
        seen.add(replica.name)
        for name, owners in lists.items():
            try:
                _give(owners, replica.name, getattr(replica, name))
            except ValueError as error:
                raise ObjectError(SHARD_ASSIGNMENTS.kind, key, f"{path}.{name}", str(error)) from error
    gangs = {replica.name: replica.gang for replica in spec.replicas if replica.gang}
    assignment = Assignment(int(version), tuple(lists["wanted"]), tuple(lists["held"]), gangs)
    return AssignmentObject(raw, spec.namespace, assignment)


def encode(
    name: str,
    namespace: str,
    wanted: Sequence[str],
    held: Sequence[str],
    raw: dict[str, Any] | None = None,
    gangs: Mapping[str, str] = _NO_GANGS,
) -> bytes:
    """Return the JSON of the object.

    Args:
        name: its name.
        namespace: the namespace of the Leases.
        wanted: the replica that should own each bucket.
        held: the replica that each bucket is reserved for.
        raw: the version to replace, whose other fields do not change; None for a new object.
        gangs: replica -> the gang for which it asks the leader to take all buckets.
    """
    names = sorted({*wanted, *held, *gangs} - {NOBODY})
    replicas = [
        {
            "name": each,
            "wanted": ranges_of(wanted, each),
            "held": ranges_of(held, each),
            **({"gang": gangs[each]} if each in gangs else {}),
        }
        for each in names
    ]
    members = len({*wanted} - {NOBODY})
    moving = sum(one != other for one, other in zip(wanted, held, strict=True))
    summary = (
        f"{_number(members, 'replica')}, {_number(moving, 'bucket')} {'moves' if moving == 1 else 'move'}"
    )
    new = {
        "apiVersion": SHARD_ASSIGNMENTS.api_version,
        "kind": SHARD_ASSIGNMENTS.kind,
        "metadata": {"name": name},
    }
    spec = {"summary": summary, "namespace": namespace, "replicas": replicas}
    return msgspec.json.encode({**(raw or new), "spec": spec})


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ranges_of(owners: Sequence[str], name: str) -> str:
    """Return the buckets of one owner, as in `0-63,70`."""
    return ranges_text(bucket for bucket, owner in enumerate(owners) if owner == name)


def _give(owners: list[str], name: str, ranges: str) -> None:
    """Make a replica the owner of some buckets.

    Raises:
        ValueError: the text is not one of ranges, or a bucket has an owner.
    """
    for bucket in _buckets(ranges):
        if owners[bucket] != NOBODY:
            raise ValueError(f"bucket {bucket} belongs to {owners[bucket]} already")
        owners[bucket] = name


def _buckets(ranges: str) -> Iterator[int]:
    if not ranges:
        return
    if not _RANGES.fullmatch(ranges):
        raise ValueError(f"must be ranges of buckets as in 0-63,70, {was(ranges)}")
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers or numbers[-1] >= BUCKETS:
            raise ValueError(f"must be ranges of buckets from 0 to {BUCKETS - 1}, {was(part)}")
        yield from numbers


class SharedAssignment:
    """The object, as one replica last saw it, and its writes.

    An object that cannot be read counts as unchanged, is logged once, and is not written.

    Args:
        connection: to the API server.
        name: the name of the object.
        namespace: the namespace of the Leases; an object with another one belongs to another scheduler.
        random: for jitter of the watch.
        saw: is called with each newer version.
        went_back: is called if the API server has an older version than it had.

    Attributes:
        seen: the newest readable version; None before the first.
        is_absent: whether the object does not exist.
    """

    def __init__(
        self,
        connection: ApiConnection,
        name: str,
        namespace: str,
        *,
        random: Random,
        saw: Callable[[], None],
        went_back: Callable[[], None],
    ) -> None:
        self.name = name
        self.seen: AssignmentObject | None = None
        self.is_absent = False
        self._connection = connection
        self._namespace = namespace
        self._saw = saw
        self._went_back = went_back
        self._path = SHARD_ASSIGNMENTS.path(name=name)
        self._unreadable = ""  # why, as it was logged
        self.reflector: Reflector[AssignmentObject] = Reflector(
            connection,
            SHARD_ASSIGNMENTS,
            decode=self._decode,
            handler=self,
            random=random,
            field_selector=f"metadata.name={name}",
        )

    # The watch.

    def on_add(self, obj: AssignmentObject) -> None:
        self._take(obj)

    def on_update(self, old: AssignmentObject, new: AssignmentObject) -> None:
        self._take(new)

    def on_delete(self, old: AssignmentObject) -> None:
        if self.seen is not None and old.raw["metadata"].get("uid") == self.seen.raw["metadata"].get("uid"):
            self.is_absent = True
            self._saw()

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        self._note_unreadable(error)

    # Requests.

    async def read(self) -> None:
        """Read the object; the newest version, which no watch has to have shown.

        Raises:
            ApiError: refused, or no answer.
        """
        before = self.seen  # the watch may show a newer version while the answer is under way
        try:
            answer = await self._connection.send(Request("GET", self._path, timeout_seconds=_SECONDS))
        except ApiError as error:
            if error.status != 404:
                raise
            if not self.is_absent and self.seen is before:
                self.is_absent = True
                self._saw()
            return
        obj = self._decoded(answer)
        if obj is None:
            return
        if before is not None and obj.assignment.version < before.assignment.version:
            self._went_back()
            return
        self._take(obj)

    async def create(self, wanted: Sequence[str], check: Callable[[], None]) -> None:
        """Create the object, held by FORMER; nothing happens if it exists.

        Raises:
            ApiError: refused, or no answer.
        """
        body = encode(self.name, self._namespace, wanted, [FORMER] * BUCKETS)
        request = Request("POST", SHARD_ASSIGNMENTS.path(), body, timeout_seconds=_SECONDS)
        try:
            answer = await self._connection.send(request, before_sending=check)
        except ApiError as error:
            if error.status != 409:
                raise
            await self.read()
            return
        logger.info("Created the assignment of buckets", extra={"assignment": self.name})
        self._taken(answer)

    async def write(
        self, change: Callable[[Assignment], Assignment | None], check: Callable[[], None]
    ) -> bool:
        """Change the object by an optimistic update; after a conflict, the newest version is changed.

        Args:
            change: returns the changed assignment; None for no change.
            check: is called right before the request is sent; its exceptions pass.

        Returns:
            Whether it was written.

        Raises:
            ApiError: refused, no answer, or too many conflicts one after another.
        """
        for tries in range(1, _TRIES + 1):
            seen = self.seen
            if seen is None or self.is_absent or self._unreadable:
                return False
            new = change(seen.assignment)
            if new is None:
                return False
            body = encode(self.name, self._namespace, new.wanted, new.held, seen.raw, new.gangs)
            request = Request("PUT", self._path, body, timeout_seconds=_SECONDS)
            try:
                self._taken(await self._connection.send(request, before_sending=check))
            except ApiError as error:
                if error.status not in {404, 409} or tries == _TRIES:
                    raise
                await self.read()
            else:
                return True
        raise AssertionError("the last try returns or raises")

    def _taken(self, answer: Response) -> None:
        obj = self._decoded(answer)
        if obj is not None:
            self._take(obj)

    def _decode(self, body: bytes) -> AssignmentObject:
        """Read the object; raises ObjectError."""
        obj = decode(body)
        if obj.namespace != self._namespace:
            problem = f"must be {self._namespace}, {was(obj.namespace)}; another scheduler has the same resourceName"
            raise ObjectError(SHARD_ASSIGNMENTS.kind, self.name, "spec.namespace", problem)
        return obj

    def _decoded(self, answer: Response) -> AssignmentObject | None:
        try:
            return self._decode(answer.body)
        except ObjectError as error:
            self._note_unreadable(error)
            return None

    def _take(self, obj: AssignmentObject) -> None:
        known = -1 if self.seen is None else self.seen.assignment.version
        if obj.assignment.version < known:
            return  # the watch is behind
        if obj.assignment.version == known:
            self._unreadable = ""
            return
        self.seen = obj
        self.is_absent = False
        self._unreadable = ""
        self._saw()

    def _note_unreadable(self, error: ObjectError) -> None:
        if str(error) != self._unreadable:
            self._unreadable = str(error)
            logger.error(
                "The assignment of buckets cannot be read; the last one stays in use",
                extra={"assignment": self.name, "error": str(error)},
            )


def names_in(owners: Iterable[str]) -> list[str]:
    """Return the replicas of a list of owners, sorted."""
    return sorted({*owners} - {NOBODY})
