"""When a replica may use a bucket: a state machine of its Lease, the assignment of the buckets, and its Bindings.

The assignment is one object with two lists. `wanted` has the owner that each bucket should have; the leader writes it. `held`
has the replica that each bucket is reserved for; a replica writes its own name where no name is, and removes it when its last
Binding to the bucket has ended. Both are changed by optimistic updates. Two leaders, or an outdated one, can therefore only
cause moves that are not needed: no promise depends on `wanted`.

A replica that ended is removed from `held` only after its Lease was taken from it, by the rules of leader election: the Lease
did not change for the lease duration. From then on the replica cannot renew its Lease. It stops by its own clock before that,
so that its last Binding has arrived or was discarded. Its name never returns: a replica that lost its Lease ends, and the next
process has another name.

Times are seconds of the monotonic clock of the replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

NOBODY: Final = ""
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Durations:
    """The durations on which the promise depends, in seconds.

    Attributes:
        lease: how long the Lease of a replica must be unchanged before it is taken.
        renew_deadline: how long a replica uses its buckets after it sent a renewal that succeeded.
        binding: after this time a Binding without an answer has arrived or was discarded.
        clock_error: the most by which a clock measures a duration wrongly.

    Raises:
        ValueError: a Lease could be taken while a Binding of its replica is under way.
    """

    lease: float
    renew_deadline: float
    binding: float
    clock_error: float

    def __post_init__(self) -> None:
        # Both clocks may be wrong: that of the replica, and that of the leader.
        needed = self.renew_deadline + self.binding + 2 * self.clock_error
        if self.lease < needed:
            raise ValueError(f"the lease duration must be at least {needed:g} s, was {self.lease:g} s")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One version of the assignment; both lists have an element for each bucket.

    Attributes:
        version: increases with each change.
        wanted: the replica that should own the bucket.
        held: the replica that the bucket is reserved for; NOBODY for none.
        gangs: replica -> the gang for which it asks the leader to take all buckets.
    """

    version: int
    wanted: Sequence[str]
    held: Sequence[str]
    gangs: Mapping[str, str] = field(default_factory=dict)


def without(assignment: Assignment, ended: Collection[str]) -> tuple[str, ...] | None:
    """Return `held` without replicas whose Leases were taken from them; None if it does not change."""
    held = tuple(NOBODY if name in ended else name for name in assignment.held)
    return None if held == tuple(assignment.held) else held


class BucketState(Enum):
    """The state of a bucket for one replica."""

    OTHERS = "others"
    """It is reserved for another replica, or for none."""
    CLAIMED = "claimed"
    """It is reserved for this replica, which may not know all Bindings of the last one yet."""
    IN_USE = "in use"
    """The replica places pods on its nodes."""
    RELEASING = "releasing"
    """Another replica should own it: earlier decisions are still carried out, and no further ones are made."""
    EXPIRED = "expired"
    """The Lease of this replica is not valid."""


class BucketHolder:
    """The buckets of one replica.

    Args:
        name: the name of the replica, which no other process had or will have.
        durations: the durations.

    Attributes:
        under_way: returns the buckets of decisions whose Bindings have not ended, those of the pods and of the nodes.
    """

    def __init__(self, name: str, durations: Durations) -> None:
        self.name = name
        self._durations = durations
        self._valid_until = _NEVER
        self._is_lost = False
        self._assignment: Assignment | None = None
        self._claims: dict[int, int] = {}  # bucket -> version of the assignment that first reserved it
        self._known_version = -1  # the cache has all Bindings that were written before this version
        self.under_way: Callable[[], Collection[int]] = tuple
        # bucket -> time when no Binding without an answer can arrive any more
        self._quiet_at: dict[int, float] = {}

    # The Lease.

    def renewed(self, sent: float) -> None:
        """Note that the Lease was acquired or renewed by a request that was sent at a time."""
        self._valid_until = max(self._valid_until, sent + self._durations.renew_deadline)

    def lost(self) -> None:
        """Note that the Lease was taken; it never becomes valid again."""
        self._is_lost = True

    def is_valid(self, now: float) -> bool:
        """Return whether the replica may write."""
        return not self._is_lost and now < self._valid_until

    # The assignment.

    def saw(self, assignment: Assignment) -> None:
        """Take a version of the assignment, which was read or written; an older one than the last is ignored."""
        if self._assignment is not None and assignment.version <= self._assignment.version:
            return
        self._assignment = assignment
        for bucket, name in enumerate(assignment.held):
            if name != self.name:
                self._claims.pop(bucket, None)
            else:
                self._claims.setdefault(bucket, assignment.version)

    def caught_up(self, version: int) -> None:
        """Note that the cache has all Bindings that were written before a version of the assignment."""
        self._known_version = max(self._known_version, version)

    def change(self, now: float) -> Assignment | None:
        """Return the assignment to write with the version of the last one; None if nothing changes.

        A bucket is released when the last Binding to it has ended.
        """
        seen = self._assignment
        if seen is None or not self.is_valid(now):
            return None
        held, under_way = list(seen.held), self.under_way()
        for bucket, wanted in enumerate(seen.wanted):
            if held[bucket] == NOBODY and wanted == self.name:
                held[bucket] = self.name
            elif (
                held[bucket] == self.name != wanted
                and self._is_quiet(bucket, now)
                and bucket not in under_way
            ):
                held[bucket] = NOBODY
        return None if held == list(seen.held) else replace(seen, held=tuple(held))

    def state(self, bucket: int, now: float) -> BucketState:
        """Return what this replica may do with a bucket at a time; see `BucketState`."""
        if bucket not in self._claims or self._assignment is None:
            return BucketState.OTHERS
        if not self.is_valid(now):
            return BucketState.EXPIRED
        # This holds until a newer version is read; then a release that was sent has succeeded, or will be refused.
        if self._assignment.wanted[bucket] != self.name:
            return BucketState.RELEASING
        return BucketState.IN_USE if self._claims[bucket] <= self._known_version else BucketState.CLAIMED

    # Bindings.

    def unanswered(self, bucket: int, sent: float) -> None:
        """Note that a Binding was sent at or before a time, and has no answer."""
        quiet_at = sent + self._durations.binding + self._durations.clock_error
        self._quiet_at[bucket] = max(self._quiet_at.get(bucket, _NEVER), quiet_at)

    def _is_quiet(self, bucket: int, now: float) -> bool:
        return now >= self._quiet_at.get(bucket, _NEVER)
