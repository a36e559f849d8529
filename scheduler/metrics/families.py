"""Counters, gauges and histograms, as cheap as counting can be.

A pod costs some thirty observations. `prometheus_client` takes a lock for each and looks through the buckets one by
one; here a family is a dictionary of its series, and an observation is an addition without a lock: all of it happens
in the main loop's thread. `registry` hands them to `prometheus_client` when somebody asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Labels = tuple[str, ...]
    Key = Labels | str  # of one label its value, else a tuple of them


F = TypeVar("F", bound="Family")


def exponential_buckets(start: float, factor: float, count: int) -> list[float]:
    """Return `count` upper bounds, each `factor` times the one before, the very floats that Go computes."""
    return list(accumulate([factor] * (count - 1), lambda bound, times: bound * times, initial=start))


class Number:
    """One series of counters or gauges."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount


class Distribution:
    """One series of histograms.

    Attributes:
        counts: how many numbers fell below each bound and above the one before; the last is of those above all.
        sum: of all numbers.
    """

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: list[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, number: float) -> None:
        self.counts[bisect_left(self._bounds, number)] += 1
        self.sum += number


class Family(ABC):
    """All series of one name.

    Attributes:
        kind: `counter`, `gauge` or `histogram`.
        name: as scraped; that of a counter ends in `_total`.
        text: what it tells, for people.
        labels: the labels' names, in the order their values are given.
    """

    kind: str

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = tuple(labels)

    @abstractmethod
    def series(self) -> Iterable[tuple[Any, ...]]:
        """Yield of each series what `add_metric` takes of the `MetricFamily` of this kind in `prometheus_client`."""


def _labels(key: Key) -> Labels:
    return (key,) if isinstance(key, str) else key


def _as_go_writes(number: float) -> str:
    """Write a positive number as Go does, which has an exponent from a million on."""
    text = repr(float(number)).removesuffix(".0")
    if number < 1e6 or not text.isdecimal():
        return text
    digits = text.rstrip("0")
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{digits[0]}{fraction}e+{len(text) - 1:02}"


class Gauges(Family, defaultdict["Key", Number]):
    """Numbers that are set: labels' values -> number; without labels (), once that was looked up."""

    kind = "gauge"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        Family.__init__(self, name, text, labels)
        defaultdict.__init__(self, Number)

    def series(self) -> Iterator[tuple[Labels, float]]:
        return ((_labels(key), number.value) for key, number in self.items())


class Counters(Gauges):
    """Numbers that only grow: labels' values -> number; without labels there is one, (), from the beginning."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        if not labels:
            self[()] = Number()


class ReadGauges(Family):
    """Numbers that are read when somebody asks."""

    kind = "gauge"

    def __init__(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[Labels, float]]]
    ) -> None:
        super().__init__(name, text, labels)
        self._read = read

    def series(self) -> Iterable[tuple[Labels, float]]:
        return self._read()


class Histograms(Family, defaultdict["Key", Distribution]):
    """How often numbers fell between bounds: labels' values -> distribution; without labels there is one, ().

    Args:
        bounds: upper bounds, ascending, without +Inf; a number that equals a bound is below it.

    Attributes:
        bounds: as given.
    """

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        Family.__init__(self, name, text, labels)
        self.bounds = list(bounds)
        new = partial(Distribution, self.bounds)
        defaultdict.__init__(self, new)
        if not labels:
            self[()] = new()
        # A bucket is `le="1"` as it is in kube-scheduler: one query finds both.
        self._les = [*map(_as_go_writes, bounds), "+Inf"]

    def series(self) -> Iterator[tuple[Labels, list[tuple[str, int]], float]]:
        for key, distribution in self.items():
            below = accumulate(distribution.counts)
            yield _labels(key), list(zip(self._les, below, strict=True)), distribution.sum


class Families(list[Family]):
    """What one process shows; a family that is made here is one of them."""

    def counters(self, name: str, text: str, labels: str = "") -> Counters:
        """Return counters; the labels' names are apart by spaces."""
        return self._with(Counters(name, text, labels.split()))

    def gauges(self, name: str, text: str) -> Gauges:
        """Return a gauge that is set."""
        return self._with(Gauges(name, text))

    def read_gauges(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[Labels, float]]]
    ) -> None:
        """Show numbers that are read when somebody asks: the labels' values, and the number."""
        self.append(ReadGauges(name, text, labels, read))

    def histograms(self, name: str, text: str, labels: str = "", *, bounds: Sequence[float]) -> Histograms:
        """Return histograms."""
        return self._with(Histograms(name, text, labels.split(), bounds))

    def _with(self, family: F) -> F:
        self.append(family)
        return family
