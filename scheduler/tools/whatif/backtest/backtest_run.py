"""One backtest: the recording as it was, or with another configuration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from scheduler.clock import rfc3339
from scheduler.configuration.load import parse
from scheduler.daemon.app.needs import needs_of
from scheduler.errors import ConfigurationError
from scheduler.tools.whatif.backtest.backtest_measures import Samples, figures, kinds_of
from scheduler.tools.whatif.backtest.moves import BacktestDecisions, RecordedTies
from scheduler.tools.whatif.backtest.playback import Playback
from scheduler.tools.whatif.backtest.pod_lifetimes import lifetimes_of
from scheduler.tools.whatif.backtest.result import BacktestRun, Recorded, Unplaced
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop
from scheduler.tools.whatif.simulation.virtual_time import run as in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from scheduler.configuration.load import Configuration
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.backtest.backtest_measures import Kinds
    from scheduler.tools.whatif.backtest.pod_lifetimes import PodLifetime
    from scheduler.tools.whatif.backtest.recorded_history import RecordedHistory

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
