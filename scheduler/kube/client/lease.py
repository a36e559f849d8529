"""Leader election by a Lease: one of several schedulers works; the others wait until it stops.

Two time limits keep two leaders apart, both on monotonic clocks of the machine, which also count while it is
suspended. A candidate waits for the whole lease duration since it last saw the record change. It sees a change
in a watch, and reads the Lease itself if the watch is silent, or may be behind. A leader stops earlier, when the
renew deadline has passed since it sent its last successful renewal. The times in the Lease are for people: clocks
of different machines are never compared.

In the Lease only the five fields of the leader's record change. All other fields, from a newer API server or from
annotations, are written back unchanged.

Source:
    client-go v1.36, tools/leaderelection/resourcelock/leaselock.go.
    client-go v1.36, tools/leaderelection/leaderelection.go, without coordinated leader election.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from scheduler.clock import rfc3339_micro
from scheduler.errors import ApiError, NotLeadingError, ObjectError
from scheduler.kube.client import wire
from scheduler.kube.client.connection import TIMEOUT
from scheduler.kube.client.resources import LEASES
from scheduler.kube.client.watch import watch
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_object
from scheduler.retries import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime
    from random import Random

    from scheduler.clock import Clock
    from scheduler.configuration.types import LeaderElection
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.wire import WatchEvent
    from scheduler.kube.http.request import Response

logger = logging.getLogger(__name__)


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The record of the leader, from a Lease's spec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None

    @property
    def holder(self) -> str:
        """Identity of the leader; "" for none."""
        return self.holder_identity or ""

    @property
    def transitions(self) -> int:
        """The number of changes of the holder."""
        return self.lease_transitions or 0


@dataclass(frozen=True, slots=True)
class Lease:
    """One version of a Lease.

    Attributes:
        raw: the whole object.
        record: the leader's record in its spec.
    """

    raw: dict[str, Any]
    record: LeaseRecord

    @property
    def version(self) -> int:
        """Its resourceVersion, which increases with each change; 0 if it is not a number."""
        version = str((self.raw.get("metadata") or {}).get("resourceVersion", ""))
        return int(version) if version.isdecimal() else 0

    @classmethod
    def decode(cls, body: bytes, key: str) -> Lease:
        """Read a Lease.

        Args:
            body: JSON.
            key: `namespace/name`, for the message.

        Raises:
            ObjectError: the body is not a Lease.
        """
        try:
            raw = decode_object(body)
            spec = raw.get("spec")
            return cls(raw, msgspec.convert({} if spec is None else spec, LeaseRecord))
        except (msgspec.ValidationError, ObjectError) as error:
            raise ObjectError(LEASES.kind, key, "", f"unreadable: {error}") from error


@dataclass(frozen=True, slots=True)
class Claim:
    """The values that a candidate writes into a Lease.

    Attributes:
        identity: name of the candidate.
        duration_seconds: how long others must wait after the last renewal they saw.
        labels: the labels of a new Lease.
    """

    identity: str
    duration_seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)

    def on_new(self, namespace: str, name: str, now: datetime) -> dict[str, Any]:
        """Return a new Lease held by this candidate."""
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": name,
                "namespace": namespace,
                **({"labels": dict(self.labels)} if self.labels else {}),
            },
            "spec": _spec(self.identity, self.duration_seconds, now, transitions=0),
        }

    def on(self, lease: Lease, now: datetime) -> dict[str, Any]:
        """Return a Lease acquired from its previous holder, or renewed."""
        record = lease.record
        is_renewal = record.holder == self.identity
        transitions = record.transitions if is_renewal else record.transitions + 1
        spec = _spec(self.identity, self.duration_seconds, now, transitions=transitions)
        if is_renewal and record.acquire_time:
            spec["acquireTime"] = record.acquire_time
        return _with_spec(lease, spec)


def released(lease: Lease, now: datetime) -> dict[str, Any]:
    """Return a Lease that any candidate may acquire at once.

    Source:
        client-go v1.36, tools/leaderelection/leaderelection.go, tryRelease.
    """
    return _with_spec(lease, _spec("", 1, now, transitions=lease.record.transitions))


def _spec(holder: str, duration_seconds: float, now: datetime, *, transitions: int) -> dict[str, Any]:
    moment = rfc3339_micro(now)
    return {
        "holderIdentity": holder,
        # Whole seconds on the wire. If they were cut, as client-go does, others would acquire the lease too
        # early.
        "leaseDurationSeconds": math.ceil(duration_seconds),
        "acquireTime": moment,
        "renewTime": moment,
        "leaseTransitions": transitions,
    }


def _with_spec(lease: Lease, changes: dict[str, Any]) -> dict[str, Any]:
    return {**lease.raw, "spec": {**(lease.raw.get("spec") or {}), **changes}}


class Leadership:
    """The right to write: `acquire` it, `keep` it during the work, `release` it.

    This base class always leads: it serves a scheduler without leader election.
    """

    def is_leading(self) -> bool:
        """Return whether this process leads at this moment, by the clock."""
        return True

    def check(self) -> None:
        """Check the right to write.

        Raises:
            NotLeadingError: this process does not lead.
        """

    def assigns(self) -> bool:
        """Return whether this process alone writes about objects that concern all replicas."""
        return self.is_leading()

    def wake(self) -> None:
        """Let a candidate try at once, because the server is back."""

    async def acquire(self) -> None:
        """Wait until this process leads; errors are logged, and it tries again."""

    async def keep(self) -> None:
        """Keep leading for as long as possible; return once leadership is lost."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Stop leading and notify the other candidates; call this when no write is in flight."""


JITTER_FACTOR = 1.2
"""Candidates wait for one retry period and up to this many more, so that they do not all try at once."""
_NEVER = float("-inf")
_RELEASE_SECONDS = 5.0
_WATCH_SECONDS = 300
_WATCH_AGAIN_SECONDS = 60.0
_REFUSAL_TOLD_SECONDS = 4.0  # a server that has just started refuses everything until it has read its roles


def new_identity() -> str:
    """Return a name for this process that is unique, also on the same host."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector(Leadership):
    """One candidate for one Lease.

    Args:
        settings: names the Lease and sets the durations.
        identity: unique name of this candidate.
        clock: its monotonic time decides.
        random: spreads the tries of candidates.
        labels: the labels of a Lease that this candidate creates.

    Attributes:
        identity: name of this candidate in the Lease.
    """

    def __init__(
        self,
        connection: ApiConnection,
        settings: LeaderElection,
        *,
        identity: str,
        clock: Clock,
        random: Random,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.identity = identity
        self._connection = connection
        self._namespace, self._name = settings.resource_namespace, settings.resource_name
        self._key = f"{self._namespace}/{self._name}"
        self._lease_duration = settings.lease_duration.seconds
        self._renew_deadline = settings.renew_deadline.seconds
        self._retry_period = settings.retry_period.seconds
        self._claim = Claim(identity, self._lease_duration, labels or {})
        self._clock = clock
        self._random = random
        self._lease: Lease | None = None  # as last read or written
        self._observed = LeaseRecord()
        self._observed_at = _NEVER
        self._leading_until = _NEVER
        self._may_hold = False  # a claim was sent, with any result
        self._try_at = self._read_at = _NEVER
        self._changed = asyncio.Event()  # something happened after which a candidate tries at once
        self._told: tuple[int, str] | None = None  # the last logged error
        self._refused_since: float | None = None

    @property
    def holder(self) -> str:
        """Identity of the leader as last seen; "" for none."""
        return self._observed.holder

    def is_leading(self) -> bool:
        return self._clock.monotonic() < self._leading_until

    def check(self) -> None:
        if not self.is_leading():
            raise NotLeadingError(self._key)

    def wake(self) -> None:
        self._changed.set()

    async def acquire(self) -> None:
        logger.info("Attempting to acquire leader lease", extra=self._fields())
        if not await self._try(self._try_seconds):
            await self._stand_by()
        logger.info("Successfully acquired lease", extra=self._fields())

    async def _stand_by(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch(), name=f"watch lease {self._key}")
            while True:
                self._try_at = self._clock.monotonic() + self._patience()
                while (left := self._try_at - self._clock.monotonic()) > 0 and not self._changed.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await self._changed.wait()
                self._changed.clear()
                if await self._try(self._try_seconds):
                    break
            watching.cancel()

    async def _watch(self) -> NoReturn:
        """Take each version that the watch shows, and set `_changed` if it is no renewal, until cancelled.

        Without the watch, a candidate sees a change only at its next try, up to 2.2 retry periods later. So a
        candidate that may not watch the Lease still works.
        """
        backoff = Backoff(
            self._random, initial_seconds=self._retry_period, maximum_seconds=_WATCH_AGAIN_SECONDS
        )
        path, params = LEASES.path(self._namespace), {"fieldSelector": f"metadata.name={self._name}"}

        def take(event: WatchEvent) -> None:
            backoff.reset()
            if event.type != wire.BOOKMARK and not self._puts_off(event):
                self._changed.set()

        while True:
            try:
                await watch(self._connection, path, params, take, seconds=_WATCH_SECONDS)
            except ApiError as error:
                logger.debug(
                    "Lease is not watched at the moment",
                    extra={**self._fields(), "status": error.status, "error": str(error)},
                )
            await asyncio.sleep(backoff.next_seconds())

    def _puts_off(self, event: WatchEvent) -> bool:
        """Take a version that the watch shows; return whether another candidate holds it.

        Then the next try is put off, because it would read the same. It is not put off for longer than the renew deadline
        after the last read: a watch may be behind without being silent, and would show renewals of a holder that has ended.
        """
        if event.type == wire.DELETED:
            return False
        try:
            lease = Lease.decode(event.object, self._key)
        except ObjectError:
            return False
        if self._lease is None or lease.version > self._lease.version:
            self._take(lease)
            self._try_at = min(
                self._clock.monotonic() + self._patience(), self._read_at + self._renew_deadline
            )
        return self.holder not in {"", self.identity}

    async def keep(self) -> None:
        next_try = self._clock.monotonic() + self._retry_period
        while (now := self._clock.monotonic()) < self._leading_until:
            if now < next_try:
                await asyncio.sleep(min(next_try, self._leading_until) - now)
                continue
            next_try = now + self._retry_period
            await self._try(min(self._try_seconds, self._leading_until - now))
        logger.error("Lease is lost", extra={**self._fields(), "holder": self.holder})

    async def release(self) -> None:
        # First of all: the next leader must find that this process writes nothing more.
        self._leading_until = _NEVER
        if not self._may_hold:
            return
        try:
            async with asyncio.timeout(min(_RELEASE_SECONDS, self._renew_deadline)):
                await self._release()
        except (ApiError, ObjectError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.status == 404:
                return
            logger.warning(
                "Lease could not be released; others take it when its time is over",
                extra={**self._fields(), "error": str(error) or "no answer"},
            )

    async def _release(self) -> None:
        while True:
            # A cancelled renewal may have created a version that is unknown here.
            lease = self._read(await self._connection.send(Request("GET", self._path)))
            if lease.record.holder != self.identity:
                return
            body = released(lease, self._clock.utc_now())
            try:
                self._read(await self._request("PUT", self._path, body))
            except ApiError as error:
                if error.status != 409:
                    raise
                continue
            self._may_hold = False
            logger.info("Released lease", extra=self._fields())
            return

    async def _try(self, seconds: float) -> bool:
        """Try to acquire or renew once and log an error; return whether this process leads now."""
        try:
            async with asyncio.timeout(seconds):
                await self._acquire_or_renew()
        except TimeoutError:
            self._connection.in_trouble()
            self._complain(ApiError(0, TIMEOUT, f"lease {self._key}: no answer within {seconds:.3g} s"))
        except ApiError as error:
            self._complain(error)
        except ObjectError as error:
            self._complain(ApiError(0, "Unreadable", str(error)))
        else:
            self._told = self._refused_since = None
        return self.is_leading()

    async def _acquire_or_renew(self) -> None:
        lease = self._lease
        if lease is not None and lease.record.holder == self.identity:
            try:
                await self._write("PUT", self._path, self._claim.on(lease, self._clock.utc_now()))
            except ApiError as error:
                if error.status not in {404, 409}:
                    raise
            else:
                return
        began = self._clock.monotonic()
        try:
            lease = self._read(await self._connection.send(Request("GET", self._path)))
        except ApiError as error:
            if error.status != 404:
                raise
            await self._create()
            return
        self._read_at = began
        if self._may_claim(lease, began):
            await self._write("PUT", self._path, self._claim.on(lease, self._clock.utc_now()))

    async def _create(self) -> None:
        body = self._claim.on_new(self._namespace, self._name, self._clock.utc_now())
        await self._write("POST", LEASES.path(self._namespace), body)

    def _may_claim(self, lease: Lease, began: float) -> bool:
        """Return whether to write the claim into a Lease, which was read by a request that began at a time."""
        if lease.record.holder in {"", self.identity}:
            return True
        self._leading_until = _NEVER
        # An answer that a suspension delayed is outdated, so its age counts from the request.
        return began >= self._expires_at()

    async def _write(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Write the claim; the lead counts from the sending, because the answer may be late."""
        sent = self._clock.monotonic()
        self._may_hold = True
        self._read(await self._request(method, path, body))
        self._leading_until = sent + self._renew_deadline

    async def _request(self, method: str, path: str, body: dict[str, Any]) -> Response:
        return await self._connection.send(Request(method, path, msgspec.json.encode(body)))

    def _read(self, answer: Response) -> Lease:
        """Take the version of an answer."""
        lease = Lease.decode(answer.body, self._key)
        self._take(lease)
        return lease

    def _take(self, lease: Lease) -> None:
        """Store a version of the Lease, and note when its record changed."""
        self._lease = lease
        if lease.record != self._observed:
            before, self._observed = self._observed, lease.record
            self._observed_at = self._clock.monotonic()
            if self.holder not in {before.holder, "", self.identity}:
                logger.info("New leader elected", extra={**self._fields(), "holder": self.holder})

    def _expires_at(self) -> float:
        """Return when the observed holder counts as dead, by the clock here and the duration in its record."""
        seconds = self._observed.lease_duration_seconds or 0
        return self._observed_at + (seconds if seconds > 0 else self._lease_duration)

    def _patience(self) -> float:
        """Return the seconds to wait before the next try."""
        seconds = self._retry_period * (1 + self._random.random() * JITTER_FACTOR)
        left = self._expires_at() - self._clock.monotonic()
        return min(seconds, left) if self.holder and left > 0 else seconds

    @property
    def _path(self) -> str:
        return LEASES.path(self._namespace, self._name)

    @property
    def _try_seconds(self) -> float:
        """Time limit of one try, which leaves time for another one."""
        return self._renew_deadline / 2

    def _complain(self, error: ApiError) -> None:
        """Log an error: each one while leading, as time runs out; else once until the error changes."""
        fields = {**self._fields(), "status": error.status, "error": str(error)}
        if self.is_leading():
            left = self._leading_until - self._clock.monotonic()
            logger.warning("Lease could not be renewed", extra={**fields, "seconds_left": round(left, 3)})
            return
        if self._told == (error.status, error.reason) or self._is_new_refusal(error):
            return
        self._told = (error.status, error.reason)
        if error.status in {401, 403}:
            fix = (
                "give the client valid credentials"
                if error.status == 401
                else f'allow the verbs get and update on the lease "{self._name}", and create on leases, in API '
                f'group "{LEASES.group}", in a Role in namespace {self._namespace} bound to this client'
            )
            logger.error("No permission to use the lease", extra={**fields, "fix": fix})
        elif error.status == 409:
            logger.debug("Another candidate was quicker", extra=fields)
        else:
            logger.warning("Lease could not be acquired; trying again", extra=fields)

    def _is_new_refusal(self, error: ApiError) -> bool:
        if error.status not in {401, 403}:
            self._refused_since = None
            return False
        now = self._clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        return now - self._refused_since < _REFUSAL_TOLD_SECONDS

    def _fields(self) -> dict[str, object]:
        return {"lease": self._key, "identity": self.identity}


class OwnLease(LeaderElector):
    """The Lease of one process, under a name that no other process had or will have.

    After the process acquired the Lease, it loses the Lease for good if the Lease is deleted or has another holder or none.

    Args:
        before: is awaited before each try, and its exceptions end the try.
        renewed: is called after each success with the time before `before`.
        options: as `LeaderElector`.
    """

    def __init__(
        self,
        connection: ApiConnection,
        settings: LeaderElection,
        *,
        before: Callable[[], Awaitable[None]],
        renewed: Callable[[float], None],
        **options: Any,
    ) -> None:
        super().__init__(connection, settings, **options)
        self._before = before
        self._renewed = renewed
        self._was_acquired = False

    async def leave(self) -> None:
        """Announce that the process ends soon: the Lease has no holder then, and its duration still counts.

        Raises:
            ApiError: refused, or no answer.
            ObjectError: the Lease cannot be read.
        """
        while True:
            lease = self._read(await self._connection.send(Request("GET", self._path)))
            if lease.record.holder != self.identity:
                return
            try:
                self._read(await self._request("PUT", self._path, _with_spec(lease, {"holderIdentity": ""})))
            except ApiError as error:
                if error.status != 409:
                    raise
                continue
            return

    async def _release(self) -> None:
        await self._connection.send(Request("DELETE", self._path))
        self._may_hold = False
        logger.info("Released lease", extra=self._fields())

    async def _acquire_or_renew(self) -> None:
        began = self._clock.monotonic()
        await self._before()
        await super()._acquire_or_renew()
        if self.is_leading():
            self._was_acquired = True
            self._renewed(began)

    async def _create(self) -> None:
        if self._was_acquired:
            self._leading_until = _NEVER
        else:
            await super()._create()

    def _may_claim(self, lease: Lease, began: float) -> bool:
        if not self._was_acquired:
            return super()._may_claim(lease, began)
        if lease.record.holder == self.identity:
            return True
        self._leading_until = _NEVER
        return False
