"""The daemons of a campaign, one after another: started, stopped cleanly, or killed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import msgspec

from plugins.registry import IN_TREE
from scheduler.daemon.app import daemon as daemon_module
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.sharding.assignment_object import FORMER, decode
from scheduler.daemon.sharding.replica import ShardReplica
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.sharding.buckets import bucket_of
from scheduler.errors import LeadershipLostError
from scheduler.kube.client.connect import Credentials, _keep_fresh
from scheduler.kube.client.resources import NODES, PODS
from scheduler.kube.http.endpoint import Endpoint
from tests.faults.decision_checker import Ledger, witnesses
from tests.faults.faulty_plugins import TROUBLES, BrokenFromTheStart, Mood
from tests.faults.limits import at_once, parsed
from tests.faults.wire import Wire
from tests.recording.memory_recording import Taped
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from scheduler.framework import Plugin
    from scheduler.kube.client.resources import Resource
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from tests.faults.stage import Stage

_FLUSH_SECONDS, _NEVER_SECONDS = 120.0, 1e9
"""After which time a rejected pod is tried again without an event; sooner than by default, so that campaigns are shorter."""


class LifeClock(LoopClock):
    """One daemon's clocks.

    Attributes:
        offset: of its time of day.
    """

    def __init__(self) -> None:
        super().__init__()
        self.offset = timedelta(0)

    def utc_now(self) -> datetime:
        return super().utc_now() + self.offset


class Life:
    """One daemon.

    Attributes:
        name: as in the story.
        began_at: seconds.
        is_ending: whether it was told to.
        mood: of its plugins.
        ledger: of its choices.
        taped: what it was told and decided, where that is kept.
        clock: its own.
        going: uid of an assumed pod of which the watch has told that it goes -> since when.
        first_gated: uids of pods that its queue gated when it took them in.
    """

    def __init__(self, stage: Stage, number: int) -> None:
        self.name = f"daemon {number}"
        self.began_at = asyncio.get_running_loop().time()
        self.is_ending = False
        self.mood = Mood(stage, stage.random_of(f"plugins of {self.name}"))
        self.ledger = Ledger(stage, self)
        self._stage = stage
        self._stop = asyncio.Event()
        assert stage.server.socket_path is not None
        self.clock = LifeClock()
        self.going: dict[str, float] = {}
        endpoint = Endpoint("http://localhost", unix_socket=stage.server.socket_path)
        self._credentials = None if stage.kubeconfig is None else Credentials(str(stage.kubeconfig))
        self.connection = Wire(endpoint, stage, self.name, self._credentials)
        self.taped = Taped(self.clock, self.flush_seconds) if stage.is_taped else None
        self.daemon = self._build(stage.random_of(self.name), self._plugins(), self.taped)
        stage.groups.follow(self)
        self.first_gated: set[str] = set()
        self._note_first_gated()
        self._task: asyncio.Task[None] | None = None

    def judge(self) -> Daemon:
        """Return another daemon of the same configuration, with empty hands and calm plugins; it is not to run."""
        with at_once():
            return self._build(Random(0), self._plugins())

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        """Run it, with credentials that are read again as by the daemon's command."""
        if self._credentials is None:
            await self.daemon.run(self._stop)
            return
        await self._credentials.load()
        identity, _ = self._credentials.changed()
        refreshing = asyncio.create_task(
            _keep_fresh(self._credentials, self.connection, identity), name=f"credentials of {self.name}"
        )
        try:
            await self.daemon.run(self._stop)
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)

    @property
    def flush_seconds(self) -> float:
        """After which time a rejected pod is tried again: without flushes, only events can requeue it."""
        return _FLUSH_SECONDS if self._stage.plan.flushes else _NEVER_SECONDS

    @property
    def has_ended(self) -> bool:
        return self._task is not None and self._task.done()

    @property
    def is_leading(self) -> bool:
        return not self.has_ended and self.daemon.leadership.is_leading()

    async def stop(self) -> None:
        """End it in good order."""
        self.is_ending = True
        self._stop.set()
        await self.over()

    async def kill(self) -> None:
        """End it as a lost machine does: nothing is finished."""
        assert self._task is not None
        self.is_ending = True
        if self.taped is not None:
            self.taped.recorder.end()
        self._task.cancel()
        await self.over()

    async def over(self) -> None:
        """Wait for its end, and close its connection."""
        assert self._task is not None
        (result,) = await asyncio.gather(self._task, return_exceptions=True)
        self._stage.story.tell(self.name, f"ended with {result!r}")
        if result is not None and not isinstance(result, asyncio.CancelledError | LeadershipLostError):
            self._stage.find(f"{self.name} broke: {result!r}")
        await self.connection.close()

    @property
    def is_waiting_for_extender(self) -> bool:
        """Whether a decision of it is at work that an extender has a say in."""
        return self.daemon.parts.freeze.is_on

    @property
    def nodes(self) -> Mapping[str, NodeObject]:
        """What its watch has told of nodes."""
        return self._store(NODES)

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """What its watch has told of pods."""
        return self._store(PODS)

    def _note_first_gated(self) -> None:
        queue = self.daemon.parts.queue
        admit = queue._admit

        def noted(pod: PodInfo, label: str) -> None:
            admit(pod, label)
            if queue.place_of(pod.uid) is Place.GATED:
                self.first_gated.add(pod.uid)
            else:
                self.first_gated.discard(pod.uid)

        queue._admit = noted  # type: ignore[method-assign]

    def _store(self, resource: Resource) -> Mapping[str, Any]:
        return next(each.store for each in self.daemon.watches if each.resource == resource)

    def _plugins(self) -> dict[str, type[Plugin]]:
        plugins: dict[str, type[Plugin]] = {
            trouble.name: type(trouble.__name__, (trouble,), {"mood": self.mood}) for trouble in TROUBLES
        }
        plugins[BrokenFromTheStart.name] = BrokenFromTheStart
        return plugins | witnesses(self.ledger)

    def _build(
        self, random: Random, plugins: Mapping[str, type[Plugin]], taped: Taped | None = None
    ) -> Daemon:
        # The names of replicas decide which buckets they get.
        with patch.object(daemon_module, "new_identity", lambda: f"{self.name}_1"):
            daemon = Daemon(
                self.connection,
                parsed(self._stage.plan.configuration),
                clock=self.clock,
                random=random,
                in_tree={**IN_TREE, **plugins},
                ports=None if taped is None else taped.recorder,
                max_in_unschedulable_seconds=self.flush_seconds,
            )
        if taped is not None:
            taped.recorder.daemon = daemon
        return daemon


class Lives:
    """The daemons there are: one, or several of which one leads.

    Attributes:
        running: those that have not ended.
        past: those that have.
    """

    def __init__(self, stage: Stage) -> None:
        self.running: list[Life] = []
        self.past: list[Life] = []
        self._stage = stage
        self._random = stage.random_of("lives")
        self._renew_deadline = parsed(
            stage.plan.configuration
        ).settings.leader_election.renew_deadline.seconds
        self._count = 0
        self._missing: list[float] = []  # when another is to begin, in place of one that ended by itself

    @property
    def leader(self) -> Life | None:
        """The daemon that schedules; None between two."""
        return next((life for life in self.running if life.is_leading), None)

    @property
    def all(self) -> list[Life]:
        return [*self.past, *self.running]

    def begin(self) -> None:
        """Begin another."""
        self._count += 1
        life = Life(self._stage, self._count)
        self.running.append(life)
        self._stage.story.tell(life.name, "begins")
        life.begin()

    async def end(self, life: Life, *, gracefully: bool) -> None:
        """End one, if it has not ended by itself."""
        if life not in self.running:
            return
        self._stage.story.tell(life.name, "is stopped" if gracefully else "is killed")
        await (life.stop() if gracefully else life.kill())
        self._bury(life)

    async def tend(self) -> None:
        """Begin new ones in place of those that have lost the lease, as whoever runs them does."""
        now = asyncio.get_running_loop().time()
        for life in [life for life in self.running if life.has_ended and not life.is_ending]:
            await life.over()
            self._bury(life)
            self._missing.append(now + self._random.choice((0.0, 3.0, 20.0)))
        for due in [due for due in self._missing if due <= now]:
            self._missing.remove(due)
            self.begin()

    def binding_arrives(self, key: str) -> None:
        """Make sure that a Binding comes from who may send it, at the moment the API server carries it out."""
        senders = [
            life for life in self.running if any(pod.key == key for pod, _ in life.ledger.held.values())
        ]
        if not senders:
            self._stage.find(f"a Binding of {key} arrives that no daemon sends")
            return
        if self._stage.plan.shards:
            self._check_owner(key, senders)
            return
        lease = self._stage.store.find("leases", "custom-scheduler", "kube-system")
        if lease is None:
            return
        holder = lease["spec"].get("holderIdentity")
        if self._stage.was_restored(self._renew_deadline):
            return  # the lease went back too, and who held it learns that by the next renewal
        if holder not in {getattr(life.daemon.leadership, "identity", holder) for life in senders}:
            self._stage.find(
                f"a Binding of {key} arrives from {[life.name for life in senders]}, {holder} leads"
            )

    def binding_leaves(self, sender: str, path: str, node: str) -> None:
        """Make sure that the bucket of the node is reserved for the one of several daemons that sends a Binding."""
        life = next(each for each in self.all if each.name == sender)
        if problem := self._not_held(life, path, [node]):
            self._stage.find(problem)

    def _check_owner(self, key: str, senders: Sequence[Life]) -> None:
        """Make sure that the bucket of the node is reserved for who sends a Binding, whose Lease nobody has taken.

        It holds for one of several: the others do not know yet what became of an earlier Binding.
        """
        problems = []
        for life in senders:
            # A pod may be deleted and created again while it is bound.
            nodes = [node for pod, node in life.ledger.held.values() if pod.key == key]
            if not (problem := self._lost_lease(life, key) or self._not_held(life, key, nodes)):
                return
            problems.append(problem)
        for problem in problems:
            self._stage.find(problem)

    def _lost_lease(self, life: Life, key: str) -> str:
        leadership = life.daemon.leadership
        assert isinstance(leadership, ShardReplica)
        lease = self._stage.store.find("leases", leadership.name, "kube-system")
        if lease is not None and lease["spec"].get("holderIdentity") not in {leadership.name, ""}:
            return f"{life.name} binds {key}, and its Lease was taken"
        return ""

    def _not_held(self, life: Life, key: str, nodes: Sequence[str]) -> str:
        leadership = life.daemon.leadership
        assert isinstance(leadership, ShardReplica)
        found = self._stage.store.find("shardassignments.custom-scheduler.io", "custom-scheduler")
        held = () if found is None else decode(msgspec.json.encode(found)).assignment.held
        # Those who held a bucket before the assignment was deleted stop before others may claim it.
        owners = {held[bucket_of(node)] if held else FORMER for node in nodes}
        if owners.isdisjoint({leadership.name, FORMER}):
            return f"{life.name} ({leadership.name}) binds {key} to {nodes}, of {owners}"
        return ""

    def _bury(self, life: Life) -> None:
        if life not in self.running:
            return  # it ended by itself while somebody was about to end it
        self.running.remove(life)
        self.past.append(life)
        self._stage.story.tell(life.name, "has ended")
