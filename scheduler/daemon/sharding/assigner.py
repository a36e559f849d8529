"""The assigner: the holder of the leader Lease, which assigns buckets to the replicas and removes those that ended.

It takes the Lease of a replica that did not renew it for its lease duration, as a candidate for leadership would: the update
succeeds only if no renewal came before it. Only then it removes the name of the replica from `held`.

Nothing else depends on it. An outdated assigner writes with versions that are outdated, or before others do, and then
what it writes is as good as what they write.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.daemon.sharding.assignment_object import names_in
from scheduler.engine.sharding.buckets import BUCKETS, wanted_owners
from scheduler.engine.sharding.holding import NOBODY, Assignment, without
from scheduler.errors import ApiError, NotLeadingError
from scheduler.kube.client.lease import Claim, Lease
from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import LEASES
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from random import Random

    from scheduler.clock import Clock
    from scheduler.configuration.types import LeaderElection
    from scheduler.daemon.sharding.assignment_object import SharedAssignment
    from scheduler.errors import ObjectError
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.wire import ObjectIdentity

logger = logging.getLogger(__name__)

LABEL: Final = "custom-scheduler.io/shards"
"""The label of the Leases of replicas; its value is the name of the leader Lease."""
# Lease durations after the Lease was taken, so that its process believes in it no more.
_DELETED_AFTER: Final = 10
TAKING_SECONDS: Final = 10.0
"""The longest time that the leader wants all buckets, if replicas ask for that."""
_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class SeenLease:
    """The Lease of a replica, as an assigner has seen it.

    Attributes:
        holder: its holder: the replica, "" if the replica leaves, or who took the Lease from it.
        seconds: the lease duration.
        unchanged_since: when the assigner last saw a change of the record, by its monotonic clock.
        is_taken_here: whether this assigner took it.
    """

    holder: str
    seconds: float
    unchanged_since: float
    is_taken_here: bool = False

    @property
    def due(self) -> float:
        """When it has been unchanged for the lease duration."""
        return self.unchanged_since + self.seconds


@dataclass(frozen=True, slots=True)
class Steps:
    """The next actions of an assigner, from the Leases at a moment.

    Attributes:
        members: the replicas that should own buckets.
        take: replicas whose Leases are to be taken.
        ended: replicas whose Leases were taken, or do not exist, for long enough.
        unknown: replicas that hold buckets, and whose Leases are not known.
        delete: replicas whose Leases are to be deleted.
        ignored: replicas that get no buckets, because there are too many.
        next_at: when something is to be done if nothing changes; infinity for never.
    """

    members: tuple[str, ...]
    take: tuple[str, ...]
    ended: frozenset[str]
    unknown: tuple[str, ...]
    delete: tuple[str, ...]
    ignored: tuple[str, ...]
    next_at: float


def steps(
    leases: Mapping[str, SeenLease],
    holders: Collection[str],
    missing: Mapping[str, float],
    now: float,
    lease_seconds: float,
) -> Steps:
    """Return what to do.

    Args:
        leases: name of a replica -> its Lease.
        holders: the replicas that hold buckets.
        missing: replica -> when the API server first answered that its Lease does not exist.
        now: monotonic time.
        lease_seconds: the least lease duration of a replica without a Lease.
    """
    members: list[str] = []
    take: list[str] = []
    delete: list[str] = []
    ended: set[str] = set()
    times: list[float] = []
    for name, lease in sorted(leases.items()):
        if lease.holder in {name, NOBODY}:
            if lease.holder == name:  # until the Lease is taken: a renewal may be under way
                members.append(name)
            if now >= lease.due:
                take.append(name)
            else:
                times.append(lease.due)
            continue
        # A holder that others wrote is not believed at once: a person may have written it.
        if not lease.is_taken_here and now < lease.due:
            times.append(lease.due)
            continue
        ended.add(name)
        delete_at = lease.unchanged_since + _DELETED_AFTER * lease.seconds
        if now < delete_at:
            times.append(delete_at)
        elif name not in holders:
            delete.append(name)
    # A replica without a Lease may have had the duration of another version of the configuration.
    longest = max((lease.seconds for lease in leases.values()), default=0.0)
    for name, since in missing.items():
        gone_at = since + max(lease_seconds, longest)
        if now >= gone_at:
            ended.add(name)
        else:
            times.append(gone_at)
    return Steps(
        members=tuple(members[:BUCKETS]),
        take=tuple(take),
        ended=frozenset(ended),
        unknown=tuple(sorted(set(holders) - leases.keys() - missing.keys())),
        delete=tuple(delete),
        ignored=tuple(members[BUCKETS:]),
        next_at=min(times, default=float("inf")),
    )


def assigned(
    assignment: Assignment, members: Collection[str], ended: Collection[str], taker: str = NOBODY
) -> Assignment | None:
    """Return the assignment for some members, without replicas that ended; None if it does not change.

    Args:
        assignment: the assignment.
        members: the replicas that should own buckets.
        ended: the replicas that ended.
        taker: the member that should own all buckets for a while; NOBODY for none, which answers all that ask for it.
    """
    wanted = tuple(assignment.wanted)
    if taker != NOBODY:
        wanted = (taker,) * len(wanted)
    elif members:
        wanted = wanted_owners(members, wanted)
    held, gangs = without(assignment, ended), assignment.gangs if taker != NOBODY else {}
    if held is None and (wanted, gangs) == (tuple(assignment.wanted), assignment.gangs):
        return None
    return Assignment(assignment.version, wanted, tuple(assignment.held) if held is None else held, gangs)


class Assigner:
    """Assigns buckets while it runs.

    Args:
        connection: to the API server.
        settings: the leader election, whose Lease gives the right to assign.
        shared: the assignment.
        identity: the name that it writes into Leases that it takes.
        clock: its monotonic time decides.
        random: for jitter of the watch.
        takes_all: whether this replica takes all buckets if another one asks for that, for a gang.
    """

    def __init__(
        self,
        connection: ApiConnection,
        settings: LeaderElection,
        shared: SharedAssignment,
        *,
        identity: str,
        clock: Clock,
        random: Random,
        takes_all: bool,
    ) -> None:
        self._connection = connection
        self._namespace = settings.resource_namespace
        self._seconds = settings.lease_duration.seconds
        self._selector = f"{LABEL}={settings.resource_name}"
        self._shared = shared
        self._identity = identity
        self._claim = Claim(identity, self._seconds)
        self._clock = clock
        self._leases: dict[str, SeenLease] = {}
        self._reflector: Reflector[Lease] = Reflector(
            connection,
            LEASES,
            decode=_decode,
            handler=self,
            random=random,
            namespace=self._namespace,
            label_selector=self._selector,
        )
        self._objects: Mapping[str, Lease] = self._reflector.store  # namespace/name -> the Lease
        self._missing: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._n_ignored = 0
        self._takes_all = takes_all
        self._taking_until: float | None = None  # while it wants all buckets
        self._tried: set[str] = set()  # gangs that were tried since then, with all buckets
        self._told: tuple[int, str] | None = None  # the last logged error
        self._check: Callable[[], None] = _refuse

    def wake(self) -> None:
        """Look at the assignment again."""
        self._changed.set()

    def note_tried(self, gang: str) -> None:
        """Note that a gang was tried while this replica used all buckets."""
        if self._taking_until is not None:
            self._tried.add(gang)
            self.wake()

    async def watch(self) -> None:
        """Watch the Leases of the replicas until cancelled.

        All replicas do: if the leader ends, the next one knows for how long the Lease of that one did not change.
        """
        await self._reflector.run()

    async def run(self, check: Callable[[], None]) -> None:
        """Assign until cancelled; `watch` must run.

        Args:
            check: raises NotLeadingError if this process does not hold the leader Lease.
        """
        self._check, self._taking_until = check, None
        await self._reflector.wait_synced()
        while True:
            self._changed.clear()
            wait = await self._do_steps()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    # The watch of the Leases.

    def on_add(self, obj: Lease) -> None:
        self._see(obj)
        self.wake()

    def on_update(self, old: Lease, new: Lease) -> None:
        if new.record != old.record:
            self._see(new)
        if new.record.holder != old.record.holder:  # a renewal changes nothing now
            self.wake()

    def on_delete(self, old: Lease) -> None:
        self._leases.pop(_name(old), None)
        self.wake()

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        logger.warning(
            "The Lease of a replica cannot be read", extra={"lease": identity.key, "error": str(error)}
        )

    def _see(self, lease: Lease) -> None:
        name, record = _name(lease), lease.record
        before = self._leases.get(name)
        seconds = record.lease_duration_seconds or 0
        self._leases[name] = SeenLease(
            record.holder,
            seconds if seconds > 0 else self._seconds,
            self._clock.monotonic(),
            is_taken_here=before is not None and before.is_taken_here and record.holder == before.holder,
        )

    # The steps.

    async def _do_steps(self) -> float | None:
        """Do what is to be done; return the seconds until something else may be, None for no limit."""
        try:
            wait = await self._try_steps()
        except NotLeadingError:
            return _AGAIN_SECONDS
        except ApiError as error:
            told = error.status, error.reason
            if error.status != 409 and told != self._told:
                self._told = told
                logger.warning(
                    "Buckets could not be assigned; trying again",
                    extra={"assignment": self._shared.name, "status": error.status, "error": str(error)},
                )
            return _AGAIN_SECONDS
        self._told = None
        return wait

    async def _try_steps(self) -> float | None:
        found = self._steps()
        if self._shared.seen is None or self._shared.is_absent:
            await self._shared.read()  # the watch may not have shown it yet
            if self._shared.is_absent and found.members:
                await self._shared.create(wanted_owners(found.members), self._check)
        for name in found.unknown:
            await self._look_for(name)
        for name in found.take:
            await self._take(name)
        now_found = self._steps()
        await self._shared.write(
            lambda old: assigned(
                old, now_found.members, now_found.ended, self._taker(old, now_found.members)
            ),
            self._check,
        )
        for name in now_found.delete:
            await self._delete(name)
        self._note_ignored(now_found.ignored)
        then = self._steps()
        # What became due between the two was not done, and `then` does not wait for it.
        now, next_at = self._clock.monotonic(), min(now_found.next_at, then.next_at)
        if self._taking_until is not None and self._taking_until > now:
            next_at = min(next_at, self._taking_until)
        seconds = max(0.0, next_at - now)
        if then.take or then.unknown:  # the watch is late
            seconds = min(seconds, _AGAIN_SECONDS)
        return None if seconds == float("inf") else seconds

    def _taker(self, old: Assignment, members: Collection[str]) -> str:
        """Return this replica if it should own all buckets now, until the gangs of those that ask were tried; else NOBODY."""
        gangs, now = {*old.gangs.values()}, self._clock.monotonic()
        if not gangs:
            self._taking_until = None
            return NOBODY
        if self._taking_until is None:
            self._taking_until = now + TAKING_SECONDS
            self._tried.clear()
        takes = self._takes_all and self._identity in members and len(members) > 1
        return self._identity if takes and now < self._taking_until and not gangs <= self._tried else NOBODY

    def _steps(self) -> Steps:
        seen = self._shared.seen
        holders = [] if seen is None else names_in(seen.assignment.held)
        for name in self._missing.keys() - {*holders}:
            del self._missing[name]
        return steps(self._leases, holders, self._missing, self._clock.monotonic(), self._seconds)

    async def _look_for(self, name: str) -> None:
        """Ask whether a Lease exists that the watch has not shown; a name never returns, so none comes later."""
        try:
            await self._connection.send(
                Request("GET", LEASES.path(self._namespace, name), timeout_seconds=_SECONDS)
            )
        except ApiError as error:
            if error.status != 404:
                raise
            self._missing[name] = self._clock.monotonic()

    async def _take(self, name: str) -> None:
        lease = self._objects.get(f"{self._namespace}/{name}")
        seen = self._leases.get(name)
        if lease is None or seen is None or name == self._identity:
            # Without its own Lease, this process ends.
            return
        body = msgspec.json.encode(self._claim.on(lease, self._clock.utc_now()))
        path = LEASES.path(self._namespace, name)
        try:
            await self._connection.send(
                Request("PUT", path, body, timeout_seconds=_SECONDS), before_sending=self._check
            )
        except ApiError as error:
            if error.status not in {404, 409}:
                raise
            return  # the watch shows the renewal, or the deletion
        logger.warning(
            "A replica did not renew its Lease; its buckets go to others",
            extra={"replica": name, "seconds": round(self._clock.monotonic() - seen.unchanged_since, 3)},
        )
        taken = self._clock.monotonic()
        self._leases[name] = replace(seen, holder=self._identity, unchanged_since=taken, is_taken_here=True)

    async def _delete(self, name: str) -> None:
        lease = self._objects.get(f"{self._namespace}/{name}")
        if lease is None:
            return
        metadata = lease.raw["metadata"]
        precondition = {field: metadata[field] for field in ("uid", "resourceVersion")}
        body = msgspec.json.encode({"preconditions": precondition})
        path = LEASES.path(self._namespace, name)
        try:
            await self._connection.send(
                Request("DELETE", path, body, timeout_seconds=_SECONDS), before_sending=self._check
            )
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    def _note_ignored(self, names: Collection[str]) -> None:
        if len(names) > self._n_ignored:
            logger.warning(
                "There are more replicas than buckets; the last by name get none",
                extra={"replicas": sorted(names), "buckets": BUCKETS},
            )
        self._n_ignored = len(names)


def _decode(body: bytes) -> Lease:
    return Lease.decode(body, "of a replica")


def _name(lease: Lease) -> str:
    return str(lease.raw["metadata"]["name"])


def _refuse() -> None:
    raise NotLeadingError("no leader Lease")
