"""Replicas that share buckets, an API server, and a network and clocks that go wrong; and a judge, slow and obvious.

Time advances in steps. The judge knows the true time and everything that was written; the replicas know what their answers
said, and the time by their own clocks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, TypeVar

from scheduler.engine.sharding.buckets import wanted_owners
from scheduler.engine.sharding.holding import (
    NOBODY,
    Assignment,
    BucketHolder,
    BucketState,
    Durations,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")

BUCKETS = 5
STEP = 0.5
DURATIONS = Durations(lease=16.0, renew_deadline=9.0, binding=5.0, clock_error=1.0)
EMPTY = Assignment(0, (NOBODY,) * BUCKETS, (NOBODY,) * BUCKETS)
RENEW_EVERY, ASK_EVERY, WRITE_TIMEOUT = 2.0, 1.0, 5.0


@dataclass
class Written:
    """A Binding that the API server accepted."""

    bucket: int
    replica: str


@dataclass
class Server:
    """The objects: a Lease for each replica (holder and version), the assignment, and all Bindings in their order."""

    leases: dict[str, tuple[str, int]] = field(default_factory=dict)
    assignment: Assignment = EMPTY
    bindings: list[Written] = field(default_factory=list)

    def write_lease(self, name: str, holder: str, version: int) -> int:
        """Write a Lease if its version is the given one; return the new version, or 0."""
        if self.leases.get(name, ("", 0))[1] != version:
            return 0
        self.leases[name] = holder, version + 1
        return version + 1

    def write_assignment(self, changed: Assignment) -> Assignment:
        """Write the assignment if its version is the given one; return the version that the server has then."""
        if changed.version == self.assignment.version:
            self.assignment = Assignment(changed.version + 1, changed.wanted, changed.held)
        return self.assignment


@dataclass
class Faults:
    """What goes wrong at present.

    Attributes:
        delay: the most seconds that a message takes.
        loss: the share of messages that are lost.
        stopped: replicas whose processes are stopped.
        late_cache: replicas whose caches get no Bindings.
        cut: replicas whose renewals of their Leases are lost.
        blind: replicas that do not get the changes of others to the assignment.
        leaders: replicas that believe that they lead.
        is_slow: whether Bindings take long to arrive, more often than other messages.
        is_erratic: whether leaders want other owners again and again; nothing depends on what they want.
    """

    delay: float = 0.0
    loss: float = 0.0
    stopped: set[str] = field(default_factory=set)
    late_cache: set[str] = field(default_factory=set)
    blind: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    leaders: set[str] = field(default_factory=set)
    is_slow: bool = False
    is_erratic: bool = False

    def end(self) -> None:
        """End all faults; leaders stay."""
        self.delay, self.loss, self.is_slow, self.is_erratic = 0.0, 0.0, False, False
        for some in (self.stopped, self.late_cache, self.blind, self.cut):
            some.clear()


class World:
    """All of it.

    Args:
        seed: decides about everything that the plan does not name.

    Attributes:
        violations: what the judge found.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.server = Server()
        self.faults = Faults()
        self.replicas: list[Replica] = []
        self.violations: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def add(self) -> Replica:
        replica = Replica(self, f"replica-{len(self.replicas)}")
        self.replicas.append(replica)
        return replica

    def at(self, when: float, do: Callable[[], None]) -> None:
        self._number += 1
        self._events.append((when, self._number, do))

    def send(
        self,
        sender: Replica,
        request: Callable[[], Answer],
        answered: Callable[[Answer], None],
        discarded_after: float = float("inf"),
    ) -> None:
        """Carry a request to the server and its answer back; both may be late, or lost."""
        if self.random.random() < self.faults.loss:
            return
        is_slow = self.faults.is_slow and discarded_after < float("inf")
        there = self.random.random() * (discarded_after if is_slow else self.faults.delay)
        if there + STEP > discarded_after:  # it arrives at the next step
            return

        def arrive() -> None:
            answer = request()
            if self.random.random() >= self.faults.loss:
                back = self.now + self.random.random() * self.faults.delay
                self.at(back, lambda: sender.receive(lambda: answered(answer)))

        self.at(self.now + there, arrive)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP
            due = sorted([each for each in self._events if each[0] <= self.now], key=lambda each: each[:2])
            self._events = [each for each in self._events if each[0] > self.now]
            for _, _, do in due:
                do()
            for replica in self.replicas:
                if replica.name not in self.faults.stopped:
                    replica.work()
            self._judge_use()

    def _judge_use(self) -> None:
        for bucket in range(BUCKETS):
            users = [
                each.name
                for each in self.replicas
                if each.name not in self.faults.stopped
                and each.holder.state(bucket, each.clock) is BucketState.IN_USE
            ]
            if len(users) > 1:
                self.violations.append(f"{self.now}: {users} use bucket {bucket}")

    def bind(self, replica: str, bucket: int, known: int) -> None:
        """Accept a Binding that was decided when the first `known` Bindings were known, and judge it."""
        missed = [
            each for each in self.server.bindings[known:] if each.bucket == bucket and each.replica != replica
        ]
        if missed:
            self.violations.append(f"{self.now}: {replica} did not know {missed}")
        self.server.bindings.append(Written(bucket, replica))


class Replica:
    """One process: it renews its Lease, follows the assignment, places pods and, at times, leads."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self.world = name, world
        self.holder = BucketHolder(name, DURATIONS)
        self._under_way: Counter[int] = Counter()
        self.holder.under_way = lambda: +self._under_way
        self.offset = 0.0
        self.known = 0  # the number of Bindings in its cache
        # Version of the assignment, and the Bindings when it was read.
        self._marks: list[tuple[int, int]] = []
        self._mail: list[Callable[[], None]] = []
        self._lease_version = 0
        self._next_renewal = self._next_question = self._next_lead = 0.0
        self._writes_until = 0.0
        # as a leader: name -> version of its Lease, and since when
        self._seen: dict[str, tuple[int, float]] = {}
        self._ended: set[str] = set()
        self._latest = Assignment(-1, (), ())

    @property
    def clock(self) -> float:
        return self.world.now + self.offset

    def receive(self, answer: Callable[[], None]) -> None:
        self._mail.append(answer)

    def work(self) -> None:
        mail, self._mail = self._mail, []
        for answer in mail:
            answer()
        self._read_watches()
        now = self.clock
        if now >= self._next_renewal:
            self._next_renewal = now + RENEW_EVERY
            self._renew(now)
        if now >= self._next_question:
            self._next_question = now + ASK_EVERY
            if self.name not in self.world.faults.blind:
                self.world.send(self, lambda: self.world.server.assignment, self._take)
        if now >= self._writes_until:
            changed = self.holder.change(now)
            if changed is not None:
                self._writes_until = now + WRITE_TIMEOUT
                self.world.send(self, lambda: self.world.server.write_assignment(changed), self._wrote)
        for bucket in range(BUCKETS):
            if self.holder.state(bucket, now) is BucketState.IN_USE and self.world.random.random() < 0.5:
                self._place(bucket)
        if self.name in self.world.faults.leaders and now >= self._next_lead:
            self._next_lead = now + ASK_EVERY
            began = now
            self.world.send(
                self, lambda: dict(self.world.server.leases), lambda leases: self._lead(leases, began)
            )

    def _read_watches(self) -> None:
        if self.name not in self.world.faults.late_cache:
            self.known = len(self.world.server.bindings)
        for version, number in self._marks:
            if self.known >= number:
                self.holder.caught_up(version)
        self._marks = [each for each in self._marks if self.known < each[1]]

    # The Lease.

    def _renew(self, sent: float) -> None:
        server, version = self.world.server, self._lease_version

        def request() -> tuple[int, tuple[str, int]]:
            return server.write_lease(self.name, self.name, version), server.leases[self.name]

        def answered(answer: tuple[int, tuple[str, int]]) -> None:
            written, (holder, current) = answer
            self._lease_version = max(self._lease_version, current)
            if written:
                self.holder.renewed(sent)
            elif holder != self.name:
                self.holder.lost()
                self._next_renewal = float("inf")  # the process ends

        if self.name not in self.world.faults.cut:
            self.world.send(self, request, answered)

    # The assignment.

    def _wrote(self, assignment: Assignment) -> None:
        self._writes_until = 0.0
        self._take(assignment)

    def _take(self, assignment: Assignment) -> None:
        if assignment.version > self._latest.version:
            self._latest = assignment
        self.holder.saw(assignment)
        version = assignment.version
        # A read of the Bindings, sent after the version is known.
        self.world.send(
            self,
            lambda: len(self.world.server.bindings),
            lambda number: self._marks.append((version, number)),
        )

    # Placing.

    def _place(self, bucket: int) -> None:
        known, begun = self.known, self.clock
        self._under_way[bucket] += 1
        wait = self.world.random.random() * 3.0  # PreBind takes some time

        def bind() -> None:
            now = self.clock
            if self.holder.state(bucket, now) not in {BucketState.IN_USE, BucketState.RELEASING}:
                self._under_way[bucket] -= 1
                return
            state = {"open": True}

            def end(unanswered_since: float | None) -> None:
                if state["open"]:
                    state["open"] = False
                    self._under_way[bucket] -= 1
                    if unanswered_since is not None:
                        self.holder.unanswered(bucket, unanswered_since)

            self.world.send(
                self,
                lambda: self.world.bind(self.name, bucket, known),
                lambda _: end(None),
                discarded_after=DURATIONS.binding,
            )
            self.world.at(self.world.now + 1.0, lambda: self.receive(lambda: end(now)))

        self.world.at(self.world.now + wait, lambda: self.receive(bind))
        assert begun <= self.clock

    # Leading.

    def _lead(self, leases: dict[str, tuple[str, int]], began: float) -> None:
        server = self.world.server
        for name, (holder, version) in leases.items():
            if self._seen.get(name, (0, 0.0))[0] != version:
                self._seen[name] = version, self.clock
            elif holder == name and began >= self._seen[name][1] + DURATIONS.lease:
                self._take_lease(name, version)
            if holder != name:
                self._ended.add(name)
        assignment = self._latest
        members = [name for name, (holder, _) in leases.items() if holder == name]
        if assignment.version < 0 or not members or len(members) > BUCKETS:
            return
        wanted = wanted_owners(members, assignment.wanted, count=BUCKETS)
        if self.world.faults.is_erratic:
            random, kept = self.world.random, tuple(assignment.wanted)
            moved, owner = random.randrange(2 * BUCKETS), random.choice(members)
            wanted = tuple(owner if bucket == moved else name for bucket, name in enumerate(kept))
        held = without(assignment, self._ended) or tuple(assignment.held)
        if (wanted, held) != (tuple(assignment.wanted), tuple(assignment.held)):
            changed = Assignment(assignment.version, wanted, held)
            self.world.send(self, lambda: server.write_assignment(changed), self._take)

    def _take_lease(self, name: str, version: int) -> None:
        def answered(written: int) -> None:
            if written:
                self._ended.add(name)

        self.world.send(self, lambda: self.world.server.write_lease(name, "", version), answered)


def owners(world: World) -> list[list[str]]:
    """Return, for each bucket, the replicas that use it now."""
    return [
        [
            each.name
            for each in world.replicas
            if each.holder.state(bucket, each.clock) is BucketState.IN_USE
            and each.name not in world.faults.stopped
        ]
        for bucket in range(BUCKETS)
    ]
