"""The meaning of a seed: a cluster, a workload, random faults, then calm, and the final checks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from scheduler.tools.simulator.access.rbac import User
from scheduler.tools.simulator.server import ApiServer
from tests.faults.actors.configurations import Configurations
from tests.faults.actors.coscheduling import CoschedulingGroups
from tests.faults.actors.deletions import Deletions
from tests.faults.actors.devices import Devices, SlowClaims
from tests.faults.actors.extenders import Extenders
from tests.faults.actors.faulty_api import FaultyApi, Tokens
from tests.faults.actors.gangs import GATES, Gangs, make_room
from tests.faults.actors.garbling import Garbling
from tests.faults.actors.guests import Guests
from tests.faults.actors.kubelets import Kubelets
from tests.faults.actors.machine import Stalls, WallClocks
from tests.faults.actors.nodes import Machines, Nodes
from tests.faults.actors.other_scheduler import Foreigners
from tests.faults.actors.oversized_objects import Monsters
from tests.faults.actors.quotas import ElasticQuotas, Queues
from tests.faults.actors.replicas import Replicas
from tests.faults.actors.resizes import Resizes
from tests.faults.actors.restarts import DaemonRestarts, Restores, ServerRestarts
from tests.faults.actors.tenants import Tenants
from tests.faults.actors.volumes import VolumeLimits, Volumes
from tests.faults.actors.workload import Workload
from tests.faults.checks import check_always, check_drift, check_in_the_end, check_state, check_stopped
from tests.faults.decision_checker import WITNESSES
from tests.faults.faulty_plugins import TROUBLES, TROUBLES_OF_GROUPS, TroubledBind
from tests.faults.limits import PARTS, drawn, in_parts, installed_plugins_read_once, reads_in_turn
from tests.faults.logs import watching_logs
from tests.faults.replays import replay_all
from tests.faults.stage import Stage
from tests.support import virtual_time
from tests.support.builders import pod_object
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping, Sequence

    from tests.faults.actors.actor import Actor
    from tests.faults.event_log import Story

_ALWAYS: tuple[type[Actor], ...] = (Nodes, Workload, Kubelets)
_SOMETIMES: tuple[tuple[float, type[Actor]], ...] = (
    (0.8, Deletions),
    (0.7, Foreigners),
    (0.8, FaultyApi),
    (0.3, ServerRestarts),
    (0.5, DaemonRestarts),
    (0.5, Garbling),
    (0.5, Volumes),
    (0.5, Devices),
    (0.4, Stalls),
    (0.3, WallClocks),
    (0.4, Monsters),
    (0.4, Configurations),
    (0.3, Extenders),
)
_SOMETIMES_WITH_GROUPS: tuple[tuple[float, type[Actor]], ...] = (
    (0.5, Workload),
    (0.4, Deletions),
    (0.3, Foreigners),
    (0.7, FaultyApi),
    (0.3, ServerRestarts),
    (0.6, DaemonRestarts),
    (0.3, Stalls),
    (0.2, Configurations),
)
_SOMETIMES_WITH_PLUGINS: tuple[tuple[float, type[Actor]], ...] = (
    (0.5, SlowClaims),
    (0.5, VolumeLimits),
    (0.6, Resizes),
    (0.3, Tenants),
    (0.4, Tokens),
    (0.4, WallClocks),
    (0.5, FaultyApi),
    (0.4, Deletions),
    (0.2, ServerRestarts),
    (0.4, DaemonRestarts),
    (0.2, Stalls),
)
_SOMETIMES_WITH_SHARDS: tuple[tuple[float, type[Actor]], ...] = (
    (0.6, Deletions),
    (0.3, Foreigners),
    (0.6, FaultyApi),
    (0.2, ServerRestarts),
    (0.5, DaemonRestarts),
    (0.3, Stalls),
    (0.3, WallClocks),
    (0.3, Volumes),
)
_OPTIONAL: dict[str, type[Actor]] = {
    "Coscheduling": CoschedulingGroups,
    "FairQueues": Queues,
    "CapacityScheduling": ElasticQuotas,
}
"""A plugin that is off by default -> whoever makes its objects."""
_DRAWN_LAST: tuple[tuple[float, type[Actor]], ...] = ((0.08, Restores), (0.08, Guests), (0.15, Tenants))
"""So that what else a seed means does not change by them."""
SHORT_SEEDS = 500
"""Up to this seed storms are short: the tests play some of these seeds."""
_SHORT_STORMS = (10.0, 20.0, 20.0, 40.0)
_SHORT_PACE = 1.5
"""How much faster actors act in short storms."""
_LONG_STORMS = (40.0, 90.0, 180.0)
_POKE_SECONDS = 90.0
_LOOK_SHARE = 0.05
"""At how many of the moments a second apart daemons look at themselves."""
_IDLE_SECONDS = 10.0
"""How often ended daemons are replaced when nothing else has to be looked at."""
_IDENTITY = re.compile(r'(?<="holderIdentity":")[^"]*')
"""Another every time: no two daemons may ever be called the same."""
_GENEROUS_SECONDS = 60.0
"""Before that, all who wait have backed off, and have been tried."""
_LONGEST_TURN_SECONDS = 1.0
"""Of the processor: for so long, nothing may keep the lease, the watches and the pages waiting."""
_CALM_SECONDS = 5 * 60.0 + 37.0
"""Long enough for two flushes, and no multiple of the time between them."""
_POD = {"POD_NAMESPACE": "kube-system", "POD_NAME": "scheduler"}
"""The environment of all daemons in pods: one pod is enough to show each move of buckets in the watch of pods."""
_BIND_TIMEOUT_SECONDS = 90
"""Shorter than by default, so that the calm is: volumes that are never made are waited for so long."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed means.

    Attributes:
        seed: all chance comes from it.
        n_nodes: at the start.
        storm_seconds: how long it lasts.
        actors: who acts.
        troubles: the names of the plugins that go wrong.
        trouble_rate: how often each does.
        scheduler_names: our profiles.
        replicas: how many daemons run at a time; of several one leads.
        elects: whether a daemon works only while it holds the lease.
        flushes: whether pods are tried again after two minutes although nothing happened; where not, only events
            can wake them.
        extender: where there is one, and whether pods are placed without it when it fails.
        guest: the file of a WebAssembly guest; "" for none.
        guest_limit: how long it may take.
        broken: a plugin of the last profile that cannot be built; "" for none.
        kind: what it is about: "pods", "groups", "plugins" or "shards".
        quotas: whether namespaces have quotas.
        optional: a plugin that is off by default; "" for none.
        gates: feature gate -> whether it is on, of those that are named.
        in_parts: what is done in the smallest parts: see `limits`.
        in_pods: whether daemons show in a pod which buckets they hold; then the leader takes all buckets for a gang.
    """

    seed: int
    n_nodes: int
    storm_seconds: float
    actors: Sequence[type[Actor]]
    troubles: Sequence[str]
    trouble_rate: float
    scheduler_names: Sequence[str]
    replicas: int
    elects: bool
    flushes: bool
    extender: tuple[str, bool] | None = None
    guest: str = ""
    guest_limit: str = "1s"
    broken: str = ""
    kind: str = "pods"
    quotas: bool = False
    optional: str = ""
    gates: Mapping[str, bool] = field(default_factory=dict)
    in_parts: Sequence[str] = ()
    in_pods: bool = False

    @classmethod
    def of(cls, seed: int, kind: str = "pods") -> Plan:
        """Draw a plan."""
        draws = {
            "pods": cls._of_pods,
            "groups": cls._of_groups,
            "plugins": cls._of_plugins,
            "shards": cls._of_shards,
        }
        plan = draws[kind](seed)
        parts = drawn(Random(f"{seed}/{kind}/parts"))
        if SlowClaims in plan.actors and "plugins" not in parts:
            parts = [*parts, "plugins"]  # no search is a long one otherwise
        return replace(plan, in_parts=parts)

    @classmethod
    def _of_pods(cls, seed: int) -> Plan:
        random = Random(seed)
        actors = [*_ALWAYS, *(actor for share, actor in _SOMETIMES if random.random() < share)]
        troubled = random.random() < 0.6
        share = random.choice((0.2, 0.6))
        elects = random.random() < 0.5
        plan = cls(
            seed=seed,
            n_nodes=random.randint(1, 12),
            storm_seconds=random.choice(_SHORT_STORMS if seed <= SHORT_SEEDS else _LONG_STORMS),
            actors=actors,
            troubles=[plugin.name for plugin in TROUBLES if troubled and random.random() < share],
            trouble_rate=random.choice((0.03, 0.1, 0.3)),
            scheduler_names=["custom-scheduler", "second-scheduler"][: random.choice((1, 1, 2))],
            replicas=random.choice((1, 2, 3)) if elects else 1,
            elects=elects,
            # That a claim gave its devices back is missed if a watch was away until it was gone: as in
            # kube-scheduler, its end alone wakes nobody.
            flushes=random.random() < 0.3 or Devices in actors,
        )
        actors += [actor for share, actor in _DRAWN_LAST if random.random() < share]
        return plan

    @classmethod
    def _of_groups(cls, seed: int) -> Plan:
        """Draw a plan with groups of pods: fewer other faults, so that groups have a chance."""
        random = Random(f"{seed}/groups")
        elects = random.random() < 0.5
        troubled = random.random() < 0.25
        churn = [Nodes] if random.random() < 0.8 else [Machines]
        return cls(
            seed=seed,
            n_nodes=random.randint(2, 8),
            storm_seconds=random.choice(_SHORT_STORMS if seed <= SHORT_SEEDS else _LONG_STORMS),
            actors=[
                *churn,
                Gangs,
                Kubelets,
                *(actor for share, actor in _SOMETIMES_WITH_GROUPS if random.random() < share),
            ],
            troubles=[plugin.name for plugin in TROUBLES_OF_GROUPS if troubled and random.random() < 0.4],
            trouble_rate=random.choice((0.03, 0.1)),
            scheduler_names=["custom-scheduler", "second-scheduler"][: random.choice((1, 1, 2))],
            replicas=random.choice((1, 2)) if elects else 1,
            elects=elects,
            flushes=random.random() < 0.3,
            kind="groups",
            quotas=random.random() < 0.3,
            gates={gate: False for gate in GATES if random.random() < 0.2},
        )

    @classmethod
    def _of_plugins(cls, seed: int) -> Plan:
        """Draw a plan with the objects of plugins that few clusters have."""
        random = Random(f"{seed}/plugins")
        elects = random.random() < 0.5
        optional = random.choice(("", *_OPTIONAL, *_OPTIONAL))
        actors = [
            Nodes,
            Workload,
            Kubelets,
            *([_OPTIONAL[optional]] if optional else []),
            *(actor for share, actor in _SOMETIMES_WITH_PLUGINS if random.random() < share),
        ]
        return cls(
            seed=seed,
            n_nodes=random.randint(2, 8),
            storm_seconds=random.choice(_SHORT_STORMS if seed <= SHORT_SEEDS else _LONG_STORMS),
            actors=actors,
            troubles=(),
            trouble_rate=0.0,
            scheduler_names=["custom-scheduler", "second-scheduler"][: random.choice((1, 1, 2))],
            replicas=random.choice((1, 2)) if elects else 1,
            elects=elects,
            # Devices as in `_of_pods`; a status that is refused because a token has expired is written again by the next
            # attempt only, as by kube-scheduler.
            flushes=random.random() < 0.4 or bool({SlowClaims, Tokens} & set(actors)),
            kind="plugins",
            optional=optional,
        )

    @classmethod
    def _of_shards(cls, seed: int) -> Plan:
        """Draw a plan with several replicas that place pods at the same time."""
        random = Random(f"{seed}/shards")
        actors = [
            Nodes,
            Workload,
            Kubelets,
            Replicas,
            *(actor for share, actor in _SOMETIMES_WITH_SHARDS if random.random() < share),
        ]
        return cls(
            seed=seed,
            n_nodes=random.randint(2, 12),
            storm_seconds=random.choice((40.0, 60.0, 90.0) if seed <= SHORT_SEEDS else _LONG_STORMS),
            actors=actors,
            troubles=(),
            trouble_rate=0.0,
            scheduler_names=["custom-scheduler", "second-scheduler"][: random.choice((1, 1, 2))],
            replicas=random.choice((1, 2, 3, 4)),
            elects=True,
            flushes=random.random() < 0.4,
            kind="shards",
            in_pods=Random(f"{seed}/shards/pods").random() < 0.5,
        )._with(Random(f"{seed}/shards/also").choice(("", "", "groups", "plugins")))

    def _with(self, kind: str) -> Plan:
        """Return this plan with what another kind is about; "" for none."""
        if not kind:
            return self
        other = self._of_groups(self.seed) if kind == "groups" else self._of_plugins(self.seed)
        more = [actor for actor in other.actors if not issubclass(actor, tuple(self.actors))]
        return replace(
            self,
            actors=[*self.actors, *more],
            flushes=self.flushes or other.flushes,
            quotas=other.quotas,
            optional=other.optional,
            gates=other.gates,
        )

    @property
    def shards(self) -> bool:
        """Whether all daemons place pods at the same time."""
        return self.kind == "shards"

    @property
    def groups(self) -> bool:
        """Whether there are groups of pods."""
        return Gangs in self.actors

    @property
    def pace(self) -> float:
        """How much faster actors act than their pauses say."""
        return _SHORT_PACE if self.seed <= SHORT_SEEDS else 1.0

    @property
    def configuration(self) -> str:
        """The daemon's, as YAML."""
        names = [name for name in self.troubles if name != TroubledBind.name]
        guest = ["guest"] if self.guest else []
        optional = "CapacityScheduling" if self.quotas else self.optional
        quotas = [optional] if optional else []
        sorted_by_groups = (
            "\n      disabled:\n      - name: PrioritySort" if optional == "Coscheduling" else ""
        )
        witnesses = [each.name for each in WITNESSES]
        multi_point = "".join(f"\n      - name: {name}" for name in [*names, *guest, *quotas, *witnesses])
        limits = f"{{guestURL: '{self.guest}', timeLimit: {self.guest_limit}, memoryLimit: 1Mi}}"
        arguments = f"\n  pluginConfig:\n  - name: VolumeBinding\n    args: {{bindTimeoutSeconds: {_BIND_TIMEOUT_SECONDS}}}"
        if self.guest:
            arguments += f"\n  - name: guest\n    args: {limits}"
        bind = f"\n    bind:\n      enabled:\n      - name: {TroubledBind.name}"
        preempting = (
            f"\n    postFilter:\n      enabled:\n      - name: {optional}\n      disabled:\n      - name: '*'"
        )
        preempts = optional not in {"", "Coscheduling"}
        profiles = "".join(
            f"\n- schedulerName: {name}\n  plugins:\n    multiPoint:\n      enabled:{multi_point}{sorted_by_groups}"
            f"{bind if TroubledBind.name in self.troubles else ''}{preempting if preempts else ''}{arguments}"
            for name in self.scheduler_names
        )
        if self.broken:
            profiles += (
                "\n- schedulerName: broken-scheduler\n  plugins:\n    multiPoint:\n      enabled:"
                f"\n      - name: {self.broken}"
            )
        head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration"
        # Renewed less often than by default: renewals while nothing happens cost time and find nothing.
        election = f"leaderElection:\n  leaderElect: {str(self.elects).lower()}\n  retryPeriod: 6s"
        if self.shards:
            head += "\nsharding: {enabled: true}"
        if self.gates:
            head += f"\nfeatureGates: {json.dumps(dict(self.gates))}"
        extenders = ""
        if self.extender is not None:
            url, is_ignorable = self.extender
            extenders = (
                f"extenders:\n- urlPrefix: {url}\n  filterVerb: filter\n  prioritizeVerb: prioritize\n  weight: 1\n"
                f"  tlsConfig: {{insecure: true}}\n  nodeCacheCapable: true\n  httpTimeout: 2s\n  ignorable: {str(is_ignorable).lower()}\n"
            )
        return f"{head}\n{election}\n{extenders}profiles:{profiles}\n"

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.n_nodes} nodes, a storm of {self.storm_seconds:.0f} s, "
            f"actors {', '.join(actor.name for actor in self.actors)}; "
            f"{self.replicas} {'elected' if self.elects else 'sole'} daemons; "
            f"profiles {', '.join(self.scheduler_names)}; "
            f"plugins {', '.join(self.troubles) or 'none'} that go wrong {self.trouble_rate:.0%} of the time; "
            f"{'with' if self.flushes else 'without'} flushes"
            f"{', with quotas' if self.quotas else ''}{f', with {self.optional}' if self.optional else ''}{f', gates {dict(self.gates)}' if self.gates else ''}"
            f"{', in pods' if self.in_pods else ''}"
            f"{', in parts: ' if self.in_parts else ''}{' '.join(self.in_parts)}"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a campaign.

    Attributes:
        plan: what was meant to happen.
        findings: what must not be and was.
        requests: all that the server was asked, one line each.
        story: what happened.
        queue_stories: pod uid -> its moves in the queues, each line with the daemon's name.
        acts: "actor: act" -> how often.
    """

    plan: Plan
    findings: Sequence[tuple[str, str]]
    requests: Sequence[str]
    story: Story
    queue_stories: dict[str, list[str]]
    acts: Counter[str]


def run(seed: int, kind: str = "pods", *, is_taped: bool = False, is_all_in_parts: bool = False) -> Report:
    """Play a seed.

    Args:
        seed: which.
        kind: what it is about: "pods", "groups", "plugins" or "shards".
        is_taped: whether each daemon is gone through again afterwards, and must decide as it did.
        is_all_in_parts: whether all work is done in the smallest parts, whatever the seed means.
    """
    # The garbage of the last one, or the processes of the tests would grow by ten megabytes with each seed.
    gc.collect()
    # Looking for garbage among all that the tests hold may take a second, which is no daemon's fault.
    gc.disable()
    try:
        plan = Plan.of(seed, kind)
        if is_all_in_parts:
            plan = replace(plan, in_parts=PARTS)
        with (
            tempfile.TemporaryDirectory(prefix="faults-") as folder,
            in_parts(plan.in_parts),
            patch.dict(os.environ, _POD if plan.in_pods else {}),
            installed_plugins_read_once(),
            reads_in_turn(),
        ):
            report, stage = virtual_time.run(_play(plan, Path(folder), is_taped=is_taped))
            if is_taped:
                replay_all(stage)
            return replace(report, findings=stage.findings)
    finally:
        gc.enable()


async def _play(plan: Plan, folder: Path, *, is_taped: bool) -> tuple[Report, Stage]:
    server = ApiServer(
        clock=LoopClock(),
        socket_path=folder / "api.sock",
        seed=plan.seed,
        logged_requests=1_000_000,
        users={"token-0": User("daemon")} if Tokens in plan.actors else None,
    )
    await server.start()
    if plan.in_pods:
        pod = pod_object(_POD["POD_NAME"], namespace=_POD["POD_NAMESPACE"], schedulerName="another")
        server.store.create("pods", pod)
    stage = Stage(plan, server, folder, is_taped=is_taped)
    with watching_logs(stage):
        await _storm_and_calm(stage)
    stage.story.close()
    requests, moves = list(_request_lines(stage)), _queue_stories(stage)
    report = Report(plan, stage.findings, requests, stage.story, moves, stage.acts)
    return report, stage


async def _storm_and_calm(stage: Stage) -> None:
    actors = [actor(stage) for actor in stage.plan.actors]
    for actor in actors:
        actor.begin()
    for _ in range(stage.plan.replicas):
        stage.lives.begin()
    end = asyncio.get_running_loop().time() + stage.plan.storm_seconds
    with _checking(stage):
        await asyncio.gather(*(actor.run(end) for actor in actors))
        stage.story.tell("campaign", "the storm is over")
        stage.is_calm, stage.calm_at = True, asyncio.get_running_loop().time()
        for actor in actors:
            actor.calm()
        await asyncio.sleep(_POKE_SECONDS)
        _poke(stage)
        await asyncio.sleep(_CALM_SECONDS - _POKE_SECONDS)
    stage.story.tell("campaign", "all should be well")
    _check_in_the_end(stage, actors)
    await check_drift(stage)
    if stage.follows_groups:
        make_room(stage)
        await asyncio.sleep(_GENEROUS_SECONDS)
        stage.groups.check_all_run()
    leader = stage.lives.leader
    for life in list(stage.lives.running):
        await stage.lives.end(life, gracefully=True)
    if leader is not None:
        check_stopped(stage, leader)
    for actor in actors:
        actor.end()
    await stage.server.stop()
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if left:
        stage.find(f"tasks are left running: {left}")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual_time.VirtualTimeLoop)
    if loop.longest_turn_seconds > _LONGEST_TURN_SECONDS:
        stage.find(f"one turn of the loop took {loop.longest_turn_seconds:.1f} s of the processor")


def _check_in_the_end(stage: Stage, actors: Sequence[Actor]) -> None:
    check_in_the_end(stage)
    if stage.lives.leader is not None:
        for actor in actors:
            actor.check(stage.lives.leader)


def _poke(stage: Stage) -> None:
    """Let something happen that helps those only who were rejected by plugins which listen to everything.

    A plugin that goes wrong at random cannot say when it will not any more.
    """
    nodes = stage.store.list("nodes")
    if nodes:
        poked = {"metadata": {"annotations": {"poked": "yes"}}}
        stage.store.patch("nodes", nodes[0]["metadata"]["name"], poked)
    else:
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/poked"},
        }
        stage.store.create(
            "persistentvolumes",
            {"metadata": {"name": "poked"}, "spec": {**spec, "storageClassName": "poked"}},
        )


@contextmanager
def _checking(stage: Stage) -> Iterator[None]:
    """Check what always holds, once a second while the storm lasts, and keep daemons running."""

    chance = stage.random_of("checks")

    async def check() -> None:
        while True:
            is_idle = stage.is_calm and not stage.follows_groups
            await asyncio.sleep(_IDLE_SECONDS if is_idle else 1.0)
            await stage.lives.tend()
            stage.groups.look()
            if not stage.is_calm:
                check_always(stage)
                if chance.random() < _LOOK_SHARE:
                    for life in list(stage.lives.running):
                        await check_state(stage, life)

    checking = asyncio.create_task(check(), name="checks")
    try:
        yield
    finally:
        checking.cancel()


def _request_lines(stage: Stage) -> Iterator[str]:
    for request in stage.server.requests:
        query = "&".join(f"{name}={value}" for name, value in request.query.items())
        body = _IDENTITY.sub("...", request.body.decode())
        yield (
            f"{request.at_seconds:10.3f}  {request.user_agent}: {request.method} {request.path}?{query} "
            f"{request.status} {body}"
        )


def _queue_stories(stage: Stage) -> dict[str, list[str]]:
    return {
        uid: [
            f"{life.name}: {move}"
            for life in stage.lives.all
            for move in life.daemon.parts.queue.history(uid)
        ]
        for uid in stage.story.pods
    }
