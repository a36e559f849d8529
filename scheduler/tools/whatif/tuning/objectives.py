"""The objectives of `tune`, and differences between configurations that are larger than the noise."""

from __future__ import annotations

from enum import Enum
from math import inf, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.whatif.simulation.simulation_measures import PartFigures

    Values = Sequence[Sequence[float]]
    """The values of one objective: of each seed, those of each part."""


class Objective(Enum):
    """A figure of a part of a workload; less is better."""

    NODES = "nodes"
    WAIT_P50 = "wait-p50"
    WAIT_P99 = "wait-p99"
    FRAGMENTATION = "fragmentation"
    PREEMPTIONS = "preemptions"

    @property
    def title(self) -> str:
        """The name in tables, with the unit."""
        return _TITLES[self]

    def of(self, part: PartFigures) -> float:
        """Return the value of a part."""
        match self:
            case Objective.NODES:
                return part.in_use
            case Objective.WAIT_P50:
                return part.wait_p50
            case Objective.WAIT_P99:
                return part.wait_p99
            case Objective.FRAGMENTATION:
                return 100.0 * part.fragmentation
            case Objective.PREEMPTIONS:
                return float(part.preemptions)


_TITLES: Final = {
    Objective.NODES: "nodes in use",
    Objective.WAIT_P50: "wait, p50 (s)",
    Objective.WAIT_P99: "wait, p99 (s)",
    Objective.FRAGMENTATION: "fragmented (%)",
    Objective.PREEMPTIONS: "preemptions",
}


class Difference(NamedTuple):
    """How much one configuration differs from another.

    Attributes:
        mean: the mean difference; negative if the first one is better.
        noise: the half-width of its 95 % confidence interval; infinite if there is one value only.
    """

    mean: float
    noise: float

    @property
    def is_noise(self) -> bool:
        """Whether the difference may be chance."""
        return self.mean == 0.0 or abs(self.mean) <= self.noise


def difference(ours: Values, theirs: Values) -> Difference:
    """Compare two configurations that ran with the same seeds and parts.

    The differences vary from part to part and from seed to seed. The noise is that of the parts' means or that of the seeds'
    means, whichever is larger; two parts or two seeds count only if there are no more of the others.
    """
    apart = [[a - b for a, b in zip(ours[i], theirs[i], strict=True)] for i in range(len(ours))]
    by_seed = [fmean(each) for each in apart]
    by_part = [fmean(each) for each in zip(*apart, strict=True)]
    several = [each for each in (by_seed, by_part) if len(each) > 2] or [
        each for each in (by_seed, by_part) if len(each) > 1
    ]
    return Difference(fmean(by_seed), max(map(_half_width, several), default=inf))


_T: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12)
"""97.5th percentiles of Student's distribution with 1, 2, ... degrees of freedom."""
_MANY: Final = 2.1
"""A percentile for more degrees of freedom; the limit is 1.96."""


def _half_width(values: Sequence[float]) -> float:
    freedom = len(values) - 1
    factor = _T[freedom - 1] if freedom <= len(_T) else _MANY
    return factor * stdev(values) / sqrt(len(values))


def mean_of(values: Values) -> float:
    """Return the mean over seeds and parts."""
    return fmean([fmean(each) for each in values])


def spread_of(values: Values) -> float:
    """Return the standard deviation between the parts, or, with one part, between the seeds; 0 with one value."""
    by_part = [fmean(each) for each in zip(*values, strict=True)]
    several = by_part if len(by_part) > 1 else [fmean(each) for each in values]
    return stdev(several) if len(several) > 1 else 0.0
