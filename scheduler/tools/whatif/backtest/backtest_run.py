"""One backtest: the recording as it was, or played against a scheduler with another configuration."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from math import inf, isfinite
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np

from scheduler.clock import rfc3339
from scheduler.configuration.load import parse
from scheduler.daemon.app.needs import needs_of
from scheduler.daemon.app.watches import NODE_KIND, POD_KIND
from scheduler.errors import ConfigurationError
from scheduler.objects.pod import PodInfo
from scheduler.tools.whatif.backtest.backtest_measures import (
    SAMPLES,
    BacktestDecisions,
    RecordedTies,
    Samples,
    figures,
    kinds_of,
)
from scheduler.tools.whatif.backtest.other_objects import RecordedObjects
from scheduler.tools.whatif.backtest.pod_lifetimes import (
    is_disrupted,
    lifetimes_of,
    starts_over,
    takes_pods,
)
from scheduler.tools.whatif.backtest.result import BacktestRun, Recorded, Unplaced
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.simulation.object_versions import (
    controller_of,
    for_scheduler,
    goes_with_node,
    named,
    terminating,
)
from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop
from scheduler.tools.whatif.simulation.virtual_time import run as in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.backtest.backtest_measures import Kinds
    from scheduler.tools.whatif.backtest.pod_lifetimes import PodLifetime
    from scheduler.tools.whatif.backtest.recorded_history import RecordedChange, RecordedHistory

_REPORTED_EVERY = 500
_MOMENT_SECONDS = 1e-6
_FIRST_VERSION = 10**12


class Playback:
    """One recording and one scheduler.

    Args:
        lives: uid -> pods that the scheduler is to place; if empty, all happens as recorded.
        samples: takes samples of the cluster.
        decisions: observes bindings.
        waiting: returns the number of pending pods at a time, if known otherwise.
        progress: called with the number of changes that were played since the last call.

    Attributes:
        waits: seconds that placed pods waited.
        evictions: number of evicted pods.
        others_evicted: number of evicted pods of other schedulers.
        held: number of pods whose possible nodes follow from recorded placements.
        run_on: number of pods that run to the end because the recording does not tell their run time.
        dropped: number of recorded replacement pods that did not arrive, because the pods they replaced run on.
        renamed: number of pods of profiles that the scheduler does not have.
    """

    def __init__(
        self,
        history: RecordedHistory,
        lives: Mapping[str, PodLifetime],
        daemon: VirtualDaemon,
        samples: Samples,
        decisions: BacktestDecisions,
        *,
        waiting: Callable[[float], int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.waits: list[float] = []
        self.evictions = self.others_evicted = self.held = self.run_on = self.dropped = self.renamed = 0
        self._history, self._lives, self._samples, self._decisions = history, lives, samples, decisions
        self._daemon, self._cluster, self._loop = daemon, daemon.cluster, daemon.loop
        self._pods, self._progress = daemon.parts.pods, progress
        self._count_waiting = waiting or self._number_waiting
        self._objects = RecordedObjects(daemon.cluster, follows=not lives)
        self._names = list(daemon.active.frameworks)
        # uid -> pending pod, and since when it can be placed
        self._waiting: dict[str, tuple[PodInfo, float]] = {}
        self._life_of: dict[str, PodLifetime] = {}  # uid of an existing pod -> its recorded pod
        self._stands: dict[str, str] = {}  # uid of a recorded pod -> key of the pod that exists for it
        self._runs: dict[str, float] = {}  # uid -> seconds to run, of pods that run shorter than recorded
        self._bound_at: dict[str, float] = {}
        # uid of a pod that is replaced after its end -> seconds left to run
        self._back: dict[str, float] = {}
        self._driven_out: set[str] = set()  # uids of recorded pods of other schedulers that were evicted
        self._uids: dict[str, str] = {}  # key -> uid, of pods that exist in the recording
        self._emptied: set[str] = set()  # drained nodes
        self._again = Counter[str]()
        self._cut: set[str] = set()
        self._versions = 0
        # Never placed: since when it could be placed, until its deletion.
        self._failed: list[tuple[PodInfo, float, float]] = []
        daemon.cluster.witnessed_by(self)

    async def play(self) -> None:
        """Play all changes, to the end of the recording."""
        count = 0
        for happening in self._history.there:
            self._happen(happening)
        step = max(self._history.seconds, 1e-6) / SAMPLES
        looks = iter([*(number * step for number in range(SAMPLES)), self._history.seconds])
        look = next(looks)
        for at, batch in groupby(self._history.happenings, key=attrgetter("at")):
            while look < at:
                await self._look(look)
                look = next(looks, inf)
            await self._loop.sleep_until(at)
            for each in batch:
                self._happen(each)
                count += 1
            if count >= _REPORTED_EVERY:
                self._progress(count)
                count = 0
        self._progress(count)
        while look < inf:
            await self._look(look)
            look = next(looks, inf)

    async def _look(self, at: float) -> None:
        await self._loop.sleep_until(at)
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOMENT_SECONDS):
                await self._loop.idle()  # work that takes no time is done
        self._samples.take(at, self._count_waiting(at))

    def _number_waiting(self, _at: float) -> int:
        return sum(isfinite(since) for _, since in self._waiting.values())

    # Changes of the recording.

    def _happen(self, happening: RecordedChange) -> None:
        if happening.kind == POD_KIND:
            if happening.obj is None:
                self._pod_gone(happening.key)
            else:
                self._pod(happening.obj)
        elif happening.kind != NODE_KIND:
            self._objects.take(happening.kind, happening.key, happening.obj)
        elif happening.obj is not None:
            if takes_pods(happening.obj):
                self._emptied.discard(happening.key)
            self._cluster.put_node(happening.obj)
        else:
            self._node_gone(happening.key)

    def _node_gone(self, name: str) -> None:
        if name not in self._cluster.nodes:
            return
        self._cluster.remove_node(name)
        for pod in self._cluster.pods_on(name):
            if pod.uid in self._life_of:
                self._cluster.evict(pod)
                self._cluster.remove_pod(pod.key)

    def _pod(self, pod: PodInfo) -> None:
        self._uids[pod.key] = pod.uid
        if pod.is_terminating and pod.uid not in self._history.preempted and is_disrupted(pod):
            self._empty(pod.node_name)
        life = self._lives.get(pod.uid)
        if life is None:
            if pod.uid not in self._driven_out:
                self._cluster.put_pod(pod)
            return
        if life.pod is not pod:
            self._follow(life, pod)
        elif life.is_heir:
            self.dropped += 1
        else:
            self._come(life)

    def _empty(self, name: str) -> None:
        """Drain a node, if it takes no pods and the recording drained it."""
        node = self._cluster.nodes.get(name)
        if node is None or takes_pods(node) or name in self._emptied:
            return
        self._emptied.add(name)
        for pod in self._cluster.pods_on(name):
            if pod.uid in self._life_of and not goes_with_node(pod):
                self._cluster.evict(pod)

    def _pod_gone(self, key: str) -> None:
        uid = self._uids.pop(key, "")
        life = self._lives.get(uid)
        if life is None:
            if uid not in self._driven_out:
                self._cluster.end(key, uid)
            return
        if life.bound == inf and not life.is_heir and uid in self._stands:
            self._cluster.remove_pod(self._stands[uid])

    def _come(self, life: PodLifetime) -> None:
        pod = life.pod
        self._life_of[pod.uid], self._stands[pod.uid] = life, pod.key
        if pod.scheduler_name not in self._names:
            self.renamed += 1
            pod = for_scheduler(pod, self._names[0])
        if life.is_there:
            self._start(pod, life.runs)
        else:
            self.held += self._objects.hold(pod)
            self._waiting[pod.uid] = pod, self._ready(pod)
        self._cluster.put_pod(pod)

    def _follow(self, life: PodLifetime, pod: PodInfo) -> None:
        """Change a pending pod as the recorded pod was changed while it was pending."""
        key = self._stands.get(life.pod.uid)
        known = self._pods.get(key) if key is not None else None
        if pod.node_name or known is None or known.node_name:
            return
        replace, made, recorded = msgspec.structs.replace, known.pod, pod.pod
        spec = replace(recorded.spec, scheduler_name=made.spec.scheduler_name)
        labels, claims = recorded.metadata.labels, recorded.status.resource_claim_statuses
        if (made.spec, made.metadata.labels, made.status.resource_claim_statuses) == (spec, labels, claims):
            return
        metadata = replace(made.metadata, labels=labels, resource_version=self._version())
        status = replace(made.status, resource_claim_statuses=claims)
        newer = PodInfo(replace(made, metadata=metadata, spec=spec, status=status), pod.raw)
        if known.uid in self._waiting:
            since = self._waiting[known.uid][1]
            self._waiting[known.uid] = newer, min(since, self._ready(newer))
        self._cluster.put_pod(newer)

    def _version(self) -> str:
        """Return a resourceVersion that no object has; the cluster's own versions count from 1."""
        self._versions += 1
        return str(_FIRST_VERSION + self._versions)

    def _ready(self, pod: PodInfo) -> float:
        return inf if pod.pod.spec.scheduling_gates else self._loop.time()

    # Notifications of the cluster.

    def bound(self, pod: PodInfo) -> None:
        came = self._waiting.pop(pod.uid, None)
        if came is None:
            return
        self.waits.append(self._loop.time() - min(came[1], self._loop.time()))
        self._decisions.placed(pod)
        life = self._life_of[pod.uid]
        runs = self._runs.get(pod.uid, life.runs if life.bound < inf else inf)
        if life.is_cut and life.heir is None and life.pod.uid not in self._cut:
            self._cut.add(life.pod.uid)
            self.run_on += 1
        self._start(pod, runs)

    def _start(self, pod: PodInfo, runs: float) -> None:
        self._bound_at[pod.uid] = self._loop.time()
        self._runs[pod.uid] = runs
        if isfinite(runs):
            stops_in = min(self._life_of[pod.uid].stops_in, runs)
            if stops_in:
                self._loop.call_later(runs - stops_in, self._stop, pod.key, pod.uid)
            self._loop.call_later(runs, self._cluster.end, pod.key, pod.uid)

    def _stop(self, key: str, uid: str) -> None:
        """Mark a pod as terminating, as it was in the recording: quotas and controllers may ignore it from now on."""
        known = self._pods.get(key)
        if known is not None and known.uid == uid and not known.is_terminating:
            at = rfc3339(self._daemon.parts.clock.utc_now())
            self._cluster.put_pod(terminating(known, at, self._version()))

    def evicted(self, pod: PodInfo) -> None:
        """Create the replacement of a pod as its owner would: at once, or by the same name after the pod is gone."""
        self.evictions += 1
        life = self._life_of.get(pod.uid)
        if life is None:
            self.others_evicted += 1
            self._driven_out.add(pod.uid)
            return
        owner = controller_of(pod)
        if owner is None or goes_with_node(pod):
            return
        left = self._runs[pod.uid]
        if not starts_over(pod):
            left -= self._loop.time() - self._bound_at[pod.uid]
        if owner.kind == "StatefulSet" or any(claim.is_ephemeral for claim in pod.claims):
            self._back[pod.uid] = left
        else:
            self._come_again(life, pod, f"{life.pod.name}-again-{self._again[life.pod.uid] + 1}", left)

    def _come_again(self, life: PodLifetime, pod: PodInfo, name: str, left: float) -> None:
        whole = for_scheduler(life.pod, pod.scheduler_name)
        self._again[life.pod.uid] += 1
        again = named(whole, name, number=self._again[life.pod.uid])
        self._life_of[again.uid], self._stands[life.pod.uid] = life, again.key
        self._runs[again.uid] = max(left, 0.0)
        self._waiting[again.uid] = again, self._loop.time()
        self._cluster.put_pod(again)

    def gone(self, pod: PodInfo) -> None:
        came = self._waiting.pop(pod.uid, None)
        if came is not None:
            self._failed.append((*came, self._loop.time()))
        left = self._back.pop(pod.uid, None)
        life = self._life_of.pop(pod.uid, None)
        if life is not None and left is not None:
            self._come_again(life, pod, pod.name, left)

    def unplaced(self) -> Iterator[Unplaced]:
        """Yield the pods that were never placed, without pods that are still gated."""
        end = self._history.seconds
        ended = [(pod, since, end) for pod, since in self._waiting.values()]
        for pod, since, until in [*self._failed, *ended]:
            if isfinite(since):
                yield Unplaced(
                    pod=pod.key,
                    waited=round(until - since, 6),
                    message=self._decisions.messages.get(pod.uid, ""),
                )


T = TypeVar("T")

_NOBODY: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: nobody--all-is-as-it-was
  plugins:
    multiPoint:
      enabled: [{name: PrioritySort}, {name: DefaultBinder}]
      disabled: [{name: "*"}]
"""


@dataclass(frozen=True, slots=True)
class Material:
    """A recording prepared for backtests.

    Attributes:
        history: its changes.
        recorded: its active configuration.
        lives: uid -> pods to place.
        kinds: the most frequent kinds of these pods.
        resources: resources to measure.
    """

    history: RecordedHistory
    recorded: Configuration
    lives: Mapping[str, PodLifetime]
    kinds: Kinds
    resources: list[str]

    @property
    def stop_seconds(self) -> float:
        """Median time that evicted pods took to stop."""
        known = [life.gone - life.leaves for life in self.lives.values() if life.is_cut and life.gone < inf]
        return median(known) if known else inf

    @property
    def binding_seconds(self) -> float:
        """Median time of a Binding; 0 if there was none."""
        known = [seconds for life in self.lives.values() if (seconds := life.binding_seconds) is not None]
        return median(known) if known else 0.0


def material_of(history: RecordedHistory) -> Material:
    """Prepare a recording.

    Raises:
        ConfigurationError: the recorded configuration cannot be read here.
    """
    recorded = parse(history.configuration, "the recorded configuration", Path(history.folder))
    names = [profile.scheduler_name for profile in recorded.settings.profiles]
    lives = lifetimes_of(history, names)
    kinds, resources = kinds_of(life.pod for life in lives.values())
    return Material(history, recorded, lives, kinds, resources)


def as_recorded(material: Material, progress: Callable[[int], None] = lambda _: None) -> Recorded:
    """Return the figures of the recording as it was."""
    history, lives = material.history, list(material.lives.values())
    samples = in_virtual_time(_watch(material, progress))
    ours = [life for life in lives if not life.is_there]
    unplaced = (
        Unplaced(
            pod=life.pod.key,
            waited=round(min(life.gone, history.seconds) - life.ready, 6),
            message=history.messages.get(life.pod.uid, ""),
        )
        for life in ours
        if life.bound == inf and life.ready < inf
    )
    others = sum(uid not in material.lives for uid in history.preempted)
    return Recorded(
        source=history.source,
        began=rfc3339(history.began),
        seconds=round(history.seconds, 6),
        decision_seconds=round(history.decision_seconds, 9),
        figures=figures(
            samples,
            [life.waited for life in ours if life.bound < inf],
            unplaced,
            preemptions=history.preemptions,
            evictions=sum(life.is_cut for life in lives) + others,
            others_evicted=others,
        ),
        stretches=history.stretches,
        unheard_seconds=round(history.unheard_seconds, 6),
        torn=history.torn,
        unreadable=history.unreadable,
        reconfigured=history.reconfigured,
    )


def backtest(
    material: Material,
    configuration: Configuration,
    title: str,
    *,
    seed: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> BacktestRun:
    """Return the result of a configuration in the place of the recorded one.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """
    return in_virtual_time(_run(material, configuration, title, seed, progress))


async def _watch(material: Material, progress: Callable[[int], None]) -> Samples:
    """Play the recording as it was, and return samples."""
    came = np.sort([life.ready for life in material.lives.values() if not life.is_there])
    went = np.sort(
        [
            min(life.bound, life.gone)
            for life in material.lives.values()
            if not life.is_there and life.ready < inf
        ]
    )

    def waiting(at: float) -> int:
        return int(np.searchsorted(came, at, side="right") - np.searchsorted(went, at, side="right"))

    decisions = BacktestDecisions({})
    daemon = _daemon(material, parse(_NOBODY), decisions, RecordedTies(1, {}))
    samples = Samples(daemon.parts, daemon.cluster.nodes, material.kinds, material.resources)
    play = Playback(material.history, {}, daemon, samples, decisions, waiting=waiting, progress=progress)
    await daemon.run(play.play())
    return samples


async def _run(
    material: Material,
    configuration: Configuration,
    title: str,
    seed: int,
    progress: Callable[[int], None],
) -> BacktestRun:
    lives = material.lives
    decisions = BacktestDecisions(lives)
    daemon = _daemon(material, configuration, decisions, RecordedTies(seed, lives))
    samples = Samples(daemon.parts, daemon.cluster.nodes, material.kinds, material.resources)
    play = Playback(material.history, lives, daemon, samples, decisions, progress=progress)
    await daemon.run(play.play())
    return BacktestRun(
        configuration=title,
        figures=figures(
            samples,
            play.waits,
            play.unplaced(),
            preemptions=decisions.preemptions,
            evictions=play.evictions,
            others_evicted=play.others_evicted,
        ),
        moves=decisions.moves(lives.values()),
        held=play.held,
        run_on=play.run_on,
        dropped=play.dropped,
        renamed=play.renamed,
        not_recorded=sorted(needs_of(daemon.active.frameworks.values()).kinds - _kinds_recorded(material)),
    )


def _daemon(
    material: Material, configuration: Configuration, decisions: BacktestDecisions, random: Random
) -> VirtualDaemon:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    lives, usual = material.lives, material.binding_seconds

    def binding_seconds(pod: PodInfo) -> float:
        life = lives.get(pod.uid)
        recorded = None if life is None else life.binding_seconds
        return usual if recorded is None else recorded

    daemon = VirtualDaemon(
        loop,
        configuration,
        random=random,
        observer=decisions,
        epoch=material.history.began,
        stop_seconds=material.stop_seconds,
        binding_seconds=binding_seconds,
    )
    decisions.watch(daemon.parts.cache, loop, material.history.decision_seconds)
    return daemon


def _kinds_recorded(material: Material) -> frozenset[str]:
    """Return the recorded kinds: those that the recorded configuration reads, and those that occur."""
    seen = frozenset(each.kind for each in (*material.history.there, *material.history.happenings))
    try:
        return seen | OfflineScheduler(ClusterFile(), material.recorded, refresh=False).needs.kinds
    except ConfigurationError:
        return seen
