"""What a backtest says: of the recording as it was, and of each configuration in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTS: Final = (50, 90, 99, 100)
CURVE: Final = (*range(0, 100, 5), 99, 100)
"""Percents of pods for which it is told how long they waited at most."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How things stood at a moment.

    Attributes:
        at: seconds since the beginning.
        waiting: pods that had come, were not gated, and on no node yet.
        nodes: how many there were.
        in_use: how many of them ran a pod that is not bound to its node, as those of DaemonSets and static ones are.
        utilisation: resource -> share of the cluster's that is asked for.
        zones: zone -> resource -> the same of its nodes; "" are nodes of no zone.
        fragmentation: resource -> share of what is free that lies on nodes where the recording's pods do not fit, on average
            over its most frequent kinds.
    """

    at: float
    waiting: int
    nodes: int
    in_use: int
    utilisation: dict[str, float]
    zones: dict[str, dict[str, float]]
    fragmentation: dict[str, float]


class Waits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long pods waited that were placed, in seconds since they came or were gated no more.

    Attributes:
        p50: so many percent of them waited no longer; likewise `p90` and `p99`.
        max: the longest.
        mean: on average.
        curve: percent -> seconds.
    """

    p50: float
    p90: float
    p99: float
    max: float
    mean: float
    curve: dict[int, float]


class Nodes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that nobody needed: without pods but those that go with their node.

    Attributes:
        least_in_use: the smallest number that were in use at a time, of the samples; likewise `most_in_use`.
        mean_in_use: over time.
        empty_share: of all nodes' time, that they were not in use.
        empty_at_end: how many are not in use in the end.
        empty_names: the first of those, by name.
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
        waited: seconds, until it was gone or the recording ended.
        message: why, as it was told last; "" if it was not tried.
    """

    pod: str
    waited: float
    message: str


class Figures(msgspec.Struct, kw_only=True, rename="camel"):
    """What became of the pods, and of the cluster.

    Attributes:
        arrived: pods that are the configuration's to place, also those that came in the place of evicted ones.
        placed: of those.
        never_placed: of those, but for those that were still gated.
        waits: of the placed.
        preemptions: attempts that made room by sending pods away.
        evictions: pods that were made to go: for others, or with their nodes.
        others_evicted: pods of other schedulers among them.
        mean_utilisation: resource -> over time.
        mean_fragmentation: likewise.
        nodes: that nobody needed.
        unplaced: the first that were never placed, the longest first.
        samples: in the course of time.
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
    nodes: Nodes
    unplaced: list[Unplaced]
    samples: list[Sample]


class Move(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that was placed elsewhere.

    Attributes:
        at: seconds since the beginning, when it was decided.
        pod: `namespace/name`.
        recorded: its node in the recording; "" if it was never placed there.
        now: its node.
        cause: a `Cause`.
        by: the plugin, or who else it was.
        scores: plugin -> weighted score of the recorded node and of this one, where both were ranked.
    """

    at: float
    pod: str
    recorded: str
    now: str
    cause: str
    by: str
    scores: dict[str, tuple[int, int]] = {}


class Cause:
    """Why a pod is on another node."""

    TIPPED: Final = "tipped"
    """Another node had a higher score; `by` is who made the largest difference."""
    REFUSED: Final = "refused"
    """`by` refused the recorded node."""
    TIE: Final = "tie"
    """Both had the same score."""
    GONE: Final = "node gone"
    """The recorded node was not there."""
    SKIPPED: Final = "not looked at"
    """The search for nodes ended before it, or it was to be avoided, or another was nominated."""
    NEW: Final = "only now"
    """It was never placed in the recording."""


class Moves(msgspec.Struct, kw_only=True, rename="camel"):
    """Where pods were placed, beside the recording.

    Attributes:
        same: pods on the node where the recording has them, when they were placed first.
        elsewhere: pods on another one.
        only_now: pods that were never placed in the recording.
        only_then: pods that were placed in the recording only.
        causes: cause -> plugin -> how many pods are elsewhere for it.
        examples: the first of them.
    """

    same: int
    elsewhere: int
    only_now: int
    only_then: int
    causes: dict[str, dict[str, int]]
    examples: list[Move]


class Run(msgspec.Struct, kw_only=True, rename="camel"):
    """A configuration in the place of the recorded one.

    Attributes:
        configuration: its file, or what it is called.
        figures: what became of it.
        moves: where pods are.
        held: pods whose place followed from where the recording had placed them: by claims bound before.
        run_on: pods that were made to go in the recording, and stay here, since nobody knows how long they would have run.
        dropped: pods of the recording that came in the place of such ones, and do not come here: those run on instead.
        renamed: pods of profiles that the configuration does not have: under its first.
        not_recorded: kinds that the configuration reads and the recorded one did not: none of them was there.
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
        source: where it is.
        began: when, RFC 3339.
        seconds: how long it lasted.
        decision_seconds: what a decision took of the scheduler's time on average, with what it did beside it.
        figures: as it was.
        stretches: parts without a gap.
        unheard_seconds: how long nobody listened.
        torn: files whose end is missing.
        unreadable: versions of objects that could not be understood.
        reconfigured: how often the configuration changed in it.
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
    """All of it.

    Attributes:
        recorded: as it was.
        baseline: the recorded configuration by the same method; None if it cannot be built here.
        no_baseline: why not.
        runs: of the others.
    """

    recorded: Recorded
    baseline: Run | None
    no_baseline: str
    runs: list[Run]

    @property
    def played(self) -> Sequence[Run]:
        """What each configuration makes of it, the recorded one first if it can be built."""
        return self.runs if self.baseline is None else [self.baseline, *self.runs]

    @property
    def columns(self) -> Sequence[tuple[str, Figures]]:
        """What is shown beside each other, with titles."""
        return [
            ("as recorded", self.recorded.figures),
            *((each.configuration, each.figures) for each in self.played),
        ]
