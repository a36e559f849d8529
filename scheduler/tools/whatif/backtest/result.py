"""The result of a backtest: the recording, and each configuration in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTS: Final = (50, 90, 99, 100)
CURVE: Final = (*range(0, 100, 5), 99, 100)
"""Percentiles of the waiting time."""


class BacktestSample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A sample of the cluster.

    Attributes:
        at: seconds since the beginning.
        waiting: number of pending pods that are not gated.
        nodes: number of nodes.
        in_use: number of nodes with a pod other than the node's own (DaemonSet and static pods).
        utilisation: resource -> requested share of the cluster's capacity.
        zones: zone -> resource -> the same for its nodes; "" for nodes without a zone.
        fragmentation: resource -> share of free capacity on nodes that the recorded pods do not fit, averaged over the
            most frequent kinds of pods.
    """

    at: float
    waiting: int
    nodes: int
    in_use: int
    utilisation: dict[str, float]
    zones: dict[str, dict[str, float]]
    fragmentation: dict[str, float]


class Waits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Waiting times of placed pods, in seconds from their arrival or the removal of their last gate.

    Attributes:
        p50: 50th percentile; `p90` and `p99` are the 90th and 99th.
        max: the longest.
        mean: the average.
        curve: percent -> percentile in seconds.
    """

    p50: float
    p90: float
    p99: float
    max: float
    mean: float
    curve: dict[int, float]


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Statistics of nodes that were not in use: without pods other than the node's own.

    Attributes:
        least_in_use: smallest number of nodes in use in a sample.
        mean_in_use: average over the samples.
        empty_share: share of all nodes' time in which they were not in use.
        empty_at_end: number of nodes not in use at the end.
        empty_names: the first of their names.
    """

    least_in_use: int
    most_in_use: int
    mean_in_use: float
    empty_share: float
    empty_at_end: int
    empty_names: list[str]


class Unplaced(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that was never placed.

    Attributes:
        pod: `namespace/name`.
        waited: seconds until its deletion or the end of the recording.
        message: the reason from its last decision; "" if there was no attempt.
    """

    pod: str
    waited: float
    message: str


class Figures(msgspec.Struct, kw_only=True, rename="camel"):
    """Figures of the pods and of the cluster.

    Attributes:
        arrived: number of pods to place, with replacements of evicted pods.
        placed: number of placed pods.
        never_placed: number of pods that were never placed, without pods that are still gated.
        waits: waiting times of placed pods.
        preemptions: number of decisions that preempted pods.
        evictions: number of evicted pods, by preemption or with their node.
        others_evicted: number of these of other schedulers.
        mean_utilisation: resource -> average over the samples.
        mean_fragmentation: resource -> average over the samples.
        nodes: statistics of unused nodes.
        unplaced: the first pods that were never placed, by waiting time.
        samples: by time.
    """

    arrived: int
    placed: int
    never_placed: int
    waits: Waits
    preemptions: int
    evictions: int
    others_evicted: int
    mean_utilisation: dict[str, float]
    mean_fragmentation: dict[str, float]
    nodes: NodeFigures
    unplaced: list[Unplaced]
    samples: list[BacktestSample]


class PlacementChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that is placed on another node than in the recording.

    Attributes:
        at: time of the decision, in seconds since the beginning.
        pod: `namespace/name`.
        recorded: its recorded node; "" if it was never placed.
        now: its node.
        cause: a `PlacementCause`.
        by: the plugin that caused it, if one did.
        scores: plugin -> weighted scores of the recorded node and of this one, if both were scored.
    """

    at: float
    pod: str
    recorded: str
    now: str
    cause: str
    by: str
    scores: dict[str, tuple[int, int]] = {}


class PlacementCause:
    """Why a pod is on another node."""

    TIPPED: Final = "higher score"
    """Another node had a higher score; `by` is the plugin with the largest difference."""
    REFUSED: Final = "rejected"
    """The plugin `by` rejected the recorded node."""
    TIE: Final = "tie"
    """Both had the same score."""
    GONE: Final = "node missing"
    """The recorded node did not exist."""
    SKIPPED: Final = "not examined"
    """The search for nodes ended before it, or it was avoided, or another node was nominated."""
    NEW: Final = "not placed before"
    """It was never placed in the recording."""


class Moves(msgspec.Struct, kw_only=True, rename="camel"):
    """Placements compared with the recording.

    Attributes:
        same: number of pods first placed on their recorded node.
        elsewhere: number of pods on another node.
        only_now: number of pods that were never placed in the recording.
        only_then: number of pods that were placed only in the recording.
        causes: cause -> plugin -> number of pods.
        examples: the first moves.
    """

    same: int
    elsewhere: int
    only_now: int
    only_then: int
    causes: dict[str, dict[str, int]]
    examples: list[PlacementChange]


class BacktestRun(msgspec.Struct, kw_only=True, rename="camel"):
    """The result of a configuration in the place of the recorded one.

    Attributes:
        configuration: its file, or its title.
        figures: its figures.
        moves: placements compared with the recording.
        held: number of pods whose nodes follow from recorded placements, by claims bound before.
        run_on: number of pods that were evicted in the recording, and run to the end here because their run time is unknown.
        dropped: number of recorded replacements of such pods, which do not arrive here.
        renamed: number of pods of profiles that the configuration does not have; its first profile places them.
        not_recorded: kinds that the configuration reads and the recording does not contain.
    """

    configuration: str
    figures: Figures
    moves: Moves
    held: int
    run_on: int
    dropped: int
    renamed: int
    not_recorded: list[str]


class Recorded(msgspec.Struct, kw_only=True, rename="camel"):
    """The recording.

    Attributes:
        source: its folder.
        began: time of the beginning, RFC 3339.
        seconds: duration.
        decision_seconds: average time of a decision, with the work that belongs to it.
        figures: the recorded figures.
        stretches: number of segments without a gap.
        unheard_seconds: duration of the gaps between them.
        torn: names of files whose end is missing.
        unreadable: number of versions of objects that could not be decoded.
        reconfigured: number of configuration changes.
    """

    source: str
    began: str
    seconds: float
    decision_seconds: float
    figures: Figures
    stretches: int
    unheard_seconds: float
    torn: list[str]
    unreadable: int
    reconfigured: int


class Backtest(msgspec.Struct, kw_only=True, rename="camel"):
    """The whole result.

    Attributes:
        recorded: the recording.
        baseline: the recorded configuration by the same method; None if it cannot be built.
        no_baseline: the reason.
        runs: the other configurations.
    """

    recorded: Recorded
    baseline: BacktestRun | None
    no_baseline: str
    runs: list[BacktestRun]

    @property
    def played(self) -> Sequence[BacktestRun]:
        """The results of all configurations, beginning with the recorded one if it can be built."""
        return self.runs if self.baseline is None else [self.baseline, *self.runs]

    @property
    def columns(self) -> Sequence[tuple[str, Figures]]:
        """Title and figures of each column."""
        return [
            ("as recorded", self.recorded.figures),
            *((each.configuration, each.figures) for each in self.played),
        ]
