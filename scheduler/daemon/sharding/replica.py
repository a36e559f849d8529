"""The right to write of one of several active replicas: its own Lease, and the buckets that it holds.

What a replica may do is decided by its `BucketHolder`. This module keeps that informed, and writes what it wants written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.clock import rfc3339
from scheduler.configuration.validation import BINDING_SECONDS, CLOCK_ERROR_SECONDS
from scheduler.daemon.sharding.assigner import LABEL, TAKING_SECONDS, Assigner
from scheduler.daemon.sharding.assignment_object import SharedAssignment, names_in
from scheduler.engine.sharding.buckets import BUCKETS, wanted_owners
from scheduler.engine.sharding.holding import NOBODY, Assignment, BucketHolder, BucketState, Durations
from scheduler.errors import ApiError, NotLeadingError, ObjectError
from scheduler.kube.client.lease import LeaderElector, Leadership, OwnLease
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import STRATEGIC_MERGE_PATCH, Request
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from scheduler.clock import Clock
    from scheduler.configuration.types import LeaderElection
    from scheduler.kube.client.connection import ApiConnection

logger = logging.getLogger(__name__)

SHARD_CONDITION: Final = "custom-scheduler.io/Shard"
"""The condition in the status of a replica's own pod."""
_NEVER: Final = float("-inf")
_TICK_SECONDS: Final = 0.1
_AGAIN_SECONDS: Final = 2.0
_RELEASE_SECONDS: Final = 6.5
_LONGEST_HOST_NAME: Final = 200
_TAKEN_SECONDS: Final = TAKING_SECONDS + 5.0
"""The longest time that a gang waits until a replica has all buckets. Then the gang is passed on."""
_REST_SECONDS: Final = 60.0
"""The shortest time until replicas ask for all buckets again, because other replicas place no pods while one has all."""
_MOVING: Final = frozenset({BucketState.CLAIMED, BucketState.RELEASING})


def durations_of(settings: LeaderElection) -> Durations:
    """Return the durations of a replica, from the settings of leader election.

    Raises:
        ValueError: the lease duration is too short.
    """
    lease = settings.lease_duration.seconds
    longest = lease - BINDING_SECONDS - 2 * CLOCK_ERROR_SECONDS
    return Durations(
        lease, min(settings.renew_deadline.seconds, longest), BINDING_SECONDS, CLOCK_ERROR_SECONDS
    )


def replica_name(identity: str) -> str:
    """Return the name of a replica, which is that of its Lease, from the identity of a process."""
    host, _, unique = identity.rpartition("_")
    host = re.sub(r"[^a-z0-9.]+", "-", host.lower())[-_LONGEST_HOST_NAME:].strip("-.")
    return f"{host}-{unique}".strip("-")


class ShardReplica(Leadership):
    """The right to write of one of several active replicas: its own Lease, and the buckets that it holds.

    Args:
        connection: to the API server.
        settings: the settings of leader election. The assignment has the name of its Lease.
        identity: the identity of this process, which no other process had or will have.
        clock: its monotonic time decides.
        random: spreads tries.
        pods_version: returns the resourceVersion that the watch of pods has reached.
        changed: is called whenever the state of any bucket may have changed.
        environment: has POD_NAMESPACE and POD_NAME if the process runs in a pod.

    Attributes:
        name: the name of this replica, and of its Lease.
        holder: decides which buckets this replica may use.

    Raises:
        ValueError: the lease duration is too short.
    """

    def __init__(
        self,
        connection: ApiConnection,
        settings: LeaderElection,
        *,
        identity: str,
        clock: Clock,
        random: Random,
        pods_version: Callable[[], int],
        changed: Callable[[], None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = replica_name(identity)
        durations = durations_of(settings)
        self.holder = BucketHolder(self.name, durations)
        self._connection = connection
        self._clock = clock
        self._pods_version = pods_version
        self._changed = changed
        self._pod = environment.get("POD_NAMESPACE", ""), environment.get("POD_NAME", "")
        self._shared = SharedAssignment(
            connection,
            settings.resource_name,
            settings.resource_namespace,
            random=random,
            saw=self._saw,
            went_back=self._end,
        )
        self._lease = OwnLease(
            connection,
            msgspec.structs.replace(
                settings,
                resource_name=self.name,
                renew_deadline=Duration(int(durations.renew_deadline * 1e9)),
            ),
            before=self._read_assignment,
            renewed=self._renewed,
            identity=self.name,
            clock=clock,
            random=random,
            labels={LABEL: settings.resource_name},
        )
        self._leader = LeaderElector(connection, settings, identity=self.name, clock=clock, random=random)
        self._assigner = Assigner(
            connection,
            settings,
            self._shared,
            identity=self.name,
            clock=clock,
            random=random,
            takes_all=all(self._pod),
        )
        self.note_tried = self._assigner.note_tried
        self._gang = ""  # for which this replica is to ask for all buckets
        self._is_asked = False  # whether any replica asks
        self._waits_until = _NEVER  # until then gangs wait for the answer
        self._running: asyncio.Task[None] | None = None
        self._seen_one = asyncio.Event()
        self._to_move = asyncio.Event()
        self._to_show = asyncio.Event()
        self._ending = asyncio.Event()
        self._states = [BucketState.OTHERS] * BUCKETS
        self._complained: tuple[int, str] | None = None

    def is_leading(self) -> bool:
        return self.holder.is_valid(self._clock.monotonic())

    def check(self) -> None:
        if not self.is_leading():
            raise NotLeadingError(self.name)

    def assigns(self) -> bool:
        return self.is_leading() and self._leader.is_leading()

    def wake(self) -> None:
        self._lease.wake()
        self._leader.wake()

    def states(self) -> Mapping[str, int]:
        """Return the number of buckets in each state at this moment, by its name."""
        counts = Counter(self._states_now())
        return {state.value: counts[state] for state in BucketState}

    def buckets_in(self, state: BucketState) -> list[int]:
        """Return the buckets in a state at this moment."""
        return [bucket for bucket, its in enumerate(self._states_now()) if its is state]

    def owner(self, bucket: int) -> str:
        """Return the name of the replica that a bucket is reserved for, as last seen; "" for none."""
        seen = self._shared.seen
        return NOBODY if seen is None else seen.assignment.held[bucket]

    def asks_for_all(self, gang: str) -> bool:
        """Ask the leader to take all buckets for a gang, unless that was done lately; return whether the gang waits for it.

        A replica that is not in a pod never asks: without the condition of its pod, buckets may move for a minute.
        """
        now = self._clock.monotonic()
        if self._gang or self._is_asked:
            return now < self._waits_until
        if not all(self._pod) or now < self._waits_until + _REST_SECONDS:
            return False
        self._gang, self._waits_until = gang, now + _TAKEN_SECONDS
        self._to_move.set()
        return True

    def _states_now(self) -> list[BucketState]:
        now = self._clock.monotonic()
        return [self.holder.state(bucket, now) for bucket in range(BUCKETS)]

    async def acquire(self) -> None:
        """Acquire the Lease, and wait for the first assignment; `keep` returns at once if the Lease is lost meanwhile."""
        await self._lease.acquire()
        running = self._running = asyncio.create_task(self._run(), name="shard")
        first = asyncio.create_task(self._seen_one.wait(), name="first assignment")
        try:
            await asyncio.wait({running, first}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            first.cancel()

    async def keep(self) -> None:
        """Hold buckets for as long as possible; return once the Lease is lost."""
        assert self._running is not None, "acquire first"
        try:
            await asyncio.shield(self._running)
        except asyncio.CancelledError:
            await self._stop()
            raise

    async def release(self) -> None:
        """Give back all buckets, so that others use them at once; call this when no write is in flight."""
        await self._stop()
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                if self.is_leading():
                    await self._give_back()
        except (ApiError, ObjectError, NotLeadingError, TimeoutError) as error:
            logger.warning(
                "Buckets could not be given back; others take them when the Lease has expired",
                extra={"replica": self.name, "error": str(error) or "no answer"},
            )
        self._lose()
        if not self._holds_some():
            await self._lease.release()
        await self._leader.release()

    async def _stop(self) -> None:
        """End all tasks; the Lease stays valid until its deadline."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _give_back(self) -> None:
        await self._lease.leave()  # the assigner assigns no more buckets to it
        await self._shared.write(self._without_this, self.check)
        while self._holds_some():
            await self._shared.write(lambda _: self.holder.change(self._clock.monotonic()), self.check)
            if self._holds_some():
                await asyncio.sleep(_TICK_SECONDS)  # a Binding without an answer may still arrive

    def _without_this(self, old: Assignment) -> Assignment | None:
        if self.name not in old.wanted:
            return None
        others = [name for name in names_in(old.wanted) if name != self.name]
        wanted = wanted_owners(others, old.wanted) if others else (NOBODY,) * BUCKETS
        gangs = {name: gang for name, gang in old.gangs.items() if name != self.name}
        return replace(old, wanted=wanted, gangs=gangs)

    def _holds_some(self) -> bool:
        seen = self._shared.seen
        return seen is not None and not self._shared.is_absent and self.name in seen.assignment.held

    async def _run(self) -> None:
        """Hold buckets until the Lease is lost."""
        async with asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(work, name=name)
                for name, work in {
                    "watch the assignment": self._shared.reflector.run(),
                    "watch the Leases of replicas": self._assigner.watch(),
                    "leader Lease": self._lead(),
                    "move buckets": self._move_buckets(),
                    "show buckets": self._show_buckets(),
                }.items()
            ]
            ends = {
                tasks.create_task(self._lease.keep(), name="lease"),
                tasks.create_task(self._ending.wait(), name="end"),
            }
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self._lose()
            for task in (*others, *ends):
                task.cancel()

    async def _read_assignment(self) -> None:
        """Read the assignment before the Lease is renewed.

        So this replica uses its buckets only for the renew deadline after it saw which they are, however late its watch is.

        Raises:
            ApiError: it could not be read; never a refusal, which would be taken for one of the Lease.
        """
        try:
            await self._shared.read()
        except ApiError as error:
            raise ApiError(0, error.reason, f"the assignment cannot be read: {error}") from error

    def _renewed(self, sent: float) -> None:
        self.holder.renewed(sent)
        self._to_move.set()  # nothing was claimed while the Lease was not valid

    def _lose(self) -> None:
        self.holder.lost()
        self._note_states()

    def _end(self) -> None:
        """End, because the API server has an older assignment than it had: it was restored from a backup."""
        logger.error("The API server has gone back to an older assignment", extra={"replica": self.name})
        self.holder.lost()
        self._ending.set()

    async def _lead(self) -> None:
        """Assign buckets whenever this replica holds the leader Lease."""
        while True:
            await self._leader.acquire()
            async with asyncio.TaskGroup() as tasks:
                assigning = tasks.create_task(self._assigner.run(self._check_assigns), name="assign buckets")
                await self._leader.keep()
                assigning.cancel()

    def _check_assigns(self) -> None:
        self.check()
        self._leader.check()

    # The assignment.

    def _saw(self) -> None:
        """Take the newest version of the assignment."""
        seen = self._shared.seen
        if seen is not None:
            self.holder.saw(seen.assignment)
            self._seen_one.set()
            self._see_gangs(seen.assignment.gangs)
        self._assigner.wake()
        self._to_move.set()
        self._note_states()
        self._changed()

    def _see_gangs(self, gangs: Mapping[str, str]) -> None:
        if gangs and not (self._is_asked or self._gang):
            self._waits_until = self._clock.monotonic() + _TAKEN_SECONDS
        self._is_asked = bool(gangs)
        if self.name in gangs:
            self._gang = ""

    def _wanted_change(self, old: Assignment) -> Assignment | None:
        """Return what this replica changes: its buckets, and whether it asks for all."""
        now = self._clock.monotonic()
        changed = self.holder.change(now)
        if now >= self._waits_until:
            self._gang = ""
        gang = self._gang or old.gangs.get(self.name, "")
        others = {name: its for name, its in old.gangs.items() if name != self.name}
        gangs = {**others, self.name: gang} if gang and now < self._waits_until else others
        return changed if gangs == old.gangs else replace(changed or old, gangs=gangs)

    async def _move_buckets(self) -> None:
        """Claim and release buckets whenever that is possible."""
        while True:
            self._to_move.clear()
            self.holder.caught_up(self._pods_version())
            is_written = await self._try_change()
            self._note_states()
            is_moving = not is_written or not _MOVING.isdisjoint(self._states)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS if is_moving else None):
                    await self._to_move.wait()

    async def _try_change(self) -> bool:
        """Write what the holder wants to be written; return False if it could not be."""
        gang = self._gang
        try:
            if await self._shared.write(self._wanted_change, self.check) and self._gang == gang:
                self._gang = ""  # also if the definition of the object is an older one, without the field
        except NotLeadingError:
            return False
        except ApiError as error:
            told = error.status, error.reason
            if self._complained != told and error.status != 409:
                self._complained = told
                logger.warning(
                    "Buckets could not be claimed or released; trying again",
                    extra={"replica": self.name, "status": error.status, "error": str(error)},
                )
            await asyncio.sleep(_TICK_SECONDS * 4)
            return False
        self._complained = None
        return True

    def _note_states(self) -> None:
        states = self._states_now()
        if states != self._states:
            self._states = states
            self._to_show.set()
            self._changed()

    # The pod of this replica.

    async def _show_buckets(self) -> None:
        """Show in the status of the own pod how many buckets it holds.

        This is also what makes the watch of pods reach the version of a claim: in a quiet cluster it would wait for a
        bookmark, which comes once a minute. So each version of the assignment with a claim gives another message.
        """
        if not all(self._pod):
            return
        shown = ""
        while True:
            await self._to_show.wait()
            self._to_show.clear()
            message = self._message()
            if message == shown:
                continue
            try:
                await self._patch_pod(message)
            except ApiError as error:
                logger.warning(
                    "The status of the own pod could not be written; trying again",
                    extra={"pod": "/".join(self._pod), "status": error.status, "error": str(error)},
                )
                self._to_show.set()
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                shown = message

    def _message(self) -> str:
        seen = self._shared.seen
        version = "" if seen is None else f" in version {seen.assignment.version} of the ShardAssignment"
        return f"holds {self._n_held()} of {BUCKETS} buckets{version}"

    def _n_held(self) -> int:
        return sum(state not in {BucketState.OTHERS, BucketState.EXPIRED} for state in self._states)

    async def _patch_pod(self, message: str) -> None:
        condition = {
            "type": SHARD_CONDITION,
            "status": "True" if self._n_held() else "False",
            "reason": "Holding",
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.utc_now()),
        }
        body = msgspec.json.encode({"status": {"conditions": [condition]}})
        path = PODS.path(*self._pod, "status")
        request = Request("PATCH", path, body, STRATEGIC_MERGE_PATCH, timeout_seconds=BINDING_SECONDS)
        await self._connection.send(request)
