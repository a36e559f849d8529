"""Rates of the counters of /metrics between two samples."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from scheduler.daemon.metrics.families import Counters, Histograms
from scheduler.engine.queue.pod_places import Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.daemon.metrics import Metrics
    from scheduler.tools.board.subject import Subject

_ATTEMPTS = "scheduler_schedule_attempts_total"
_ALGORITHM = "scheduler_scheduling_algorithm_duration_seconds"
_BIND = "custom_scheduler_bind_duration_seconds"
_WAITING = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)


class Rates:
    """Current numbers, and rates since the last sample."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._at: float | None = None
        self._attempts: Mapping[str, float] = {}
        self._buckets: dict[str, list[int]] = {}

    def sample(self) -> dict[str, Any]:
        """Return a sample.

        Returns:
            `at` in Unix seconds, `pending` by place, `nodes` and `pods`, and whether this process is `leading`; if there are
            metrics, from the second sample on: `attempts` per second by result, and for `algorithm` and `bind` the 50th and
            99th percentile in seconds, null if there was none.
        """
        parts, clock = self._subject.parts, self._subject.clock
        counts = parts.cache.counts()
        sample: dict[str, Any] = {
            "at": clock.utc_now().timestamp(),
            "pending": {place.value: parts.queue.count(place) for place in _WAITING},
            "nodes": counts["nodes"],
            "pods": counts["pods"],
            "leading": self._subject.is_leading(),
        }
        if self._subject.metrics is not None:
            sample |= self._since(self._subject.metrics, clock.monotonic())
        return sample

    def _since(self, metrics: Metrics, now: float) -> dict[str, Any]:
        families = {family.name: family for family in metrics.families}
        told: dict[str, Any] = {}
        attempts = _by_first_label(families.get(_ATTEMPTS))
        if self._at is not None and now > self._at:
            seconds = now - self._at
            told["attempts"] = {
                result: (number - self._attempts.get(result, 0.0)) / seconds
                for result, number in attempts.items()
            }
        for name, family in (("algorithm", _ALGORITHM), ("bind", _BIND)):
            found = families.get(family)
            if isinstance(found, Histograms):
                bounds, counts = found.bounds, _together(found)
                before = self._buckets.get(name, [0] * len(counts))
                fresh = [count - earlier for count, earlier in zip(counts, before, strict=True)]
                if self._at is not None:
                    told[name] = {"half": quantile(0.5, bounds, fresh), "most": quantile(0.99, bounds, fresh)}
                self._buckets[name] = counts
        self._at, self._attempts = now, attempts
        return told


def quantile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """Estimate a quantile from buckets, like Prometheus' histogram_quantile.

    Args:
        share: 0 to 1.
        bounds: upper bounds of the buckets, ascending.
        counts: number of values in each bucket; the last one is above all bounds.
    """
    below = list(accumulate(counts))
    if not below[-1]:
        return None
    rank = share * below[-1]
    place = next(place for place, number in enumerate(below) if number >= rank)
    if place == len(bounds):
        return bounds[-1]
    start = bounds[place - 1] if place else 0.0
    before = below[place - 1] if place else 0
    return start + (bounds[place] - start) * (rank - before) / counts[place]


def _by_first_label(counters: object) -> dict[str, float]:
    sums: dict[str, float] = {}
    if isinstance(counters, Counters):
        for labels, number in counters.series():
            sums[labels[0]] = sums.get(labels[0], 0.0) + number
    return sums


def _together(histograms: Histograms) -> list[int]:
    """Return the sums of the counts of all series."""
    columns = [distribution.counts for distribution in histograms.values()]
    return [sum(column) for column in zip(*columns, strict=True)] or [0] * (len(histograms.bounds) + 1)
