"""Counters, gauges and histograms with low overhead.

A pod causes some thirty observations. `prometheus_client` takes a lock for each and searches the buckets
linearly. Here a family is a dictionary of its series, and an observation is an addition without a lock,
because all of them happen in the main loop's thread. `registry` converts them for `prometheus_client` on a
scrape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.daemon.metrics.stages import stage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scheduler.framework.features import Features

    Labels = tuple[str, ...]
    Key = Labels | str  # the value of a single label, else a tuple of values


F = TypeVar("F", bound="Family")


def exponential_buckets(start: float, factor: float, count: int) -> list[float]:
    """Return `count` upper bounds, each `factor` times the one before, with exactly the floats that Go computes."""
    return list(accumulate([factor] * (count - 1), lambda bound, times: bound * times, initial=start))


class Number:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount


class Distribution:
    """One series of a histogram.

    Attributes:
        counts: numbers in each bucket; the last one counts those above all bounds.
        sum: sum of all numbers.
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
        name: the scraped name; a counter's name ends in `_total`.
        text: description for people.
        labels: names of the labels, in the order of their values.
        stage: how the description begins; None if the family is not shown.
    """

    kind: str
    stage: str | None = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = tuple(labels)

    @property
    def help(self) -> str:
        """The whole description."""
        return f"{self.stage} {self.text}" if self.stage else self.text

    def key(self, labels: Labels) -> Key:
        """Return the key of a series.

        Raises:
            ValueError: another number of labels was declared.
        """
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, the values are {labels}")
        return labels[0] if len(labels) == 1 else labels

    @abstractmethod
    def series(self) -> Iterable[tuple[Any, ...]]:
        """Yield the arguments of `add_metric` of the `MetricFamily` in `prometheus_client`, for each series."""


def _labels(key: Key) -> Labels:
    return (key,) if isinstance(key, str) else key


def _as_go_writes(number: float) -> str:
    """Format a positive number as Go does, with an exponent from a million on."""
    text = repr(float(number)).removesuffix(".0")
    if number < 1e6 or not text.isdecimal():
        return text
    digits = text.rstrip("0")
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{digits[0]}{fraction}e+{len(text) - 1:02}"


class Gauges(Family, defaultdict["Key", Number]):
    """Numbers that are set: labels' values -> number; without labels, () exists after its first lookup."""

    kind = "gauge"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        Family.__init__(self, name, text, labels)
        defaultdict.__init__(self, Number)

    def replace(self, numbers: Mapping[Labels, float]) -> None:
        series = {self.key(labels): number for labels, number in numbers.items()}
        self.clear()
        for key, number in series.items():
            self[key].value = number

    def series(self) -> Iterator[tuple[Labels, float]]:
        return ((_labels(key), number.value) for key, number in self.items())


class Counters(Gauges):
    """Numbers that only grow: labels' values -> number; without labels, () exists from the beginning."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        if not labels:
            self[()] = Number()

    def add(self, *labels: str, amount: float = 1.0) -> None:
        self[self.key(labels)].add(amount)


class ReadGauges(Family):
    """Numbers that are read on a scrape."""

    kind = "gauge"

    def __init__(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[Labels, float]]]
    ) -> None:
        super().__init__(name, text, labels)
        self._read = read

    def series(self) -> Iterable[tuple[Labels, float]]:
        return self._read()


class ReadCounters(ReadGauges):
    """Numbers that only grow and are read on a scrape."""

    kind = "counter"


class Histograms(Family, defaultdict["Key", Distribution]):
    """Counts of numbers in buckets: labels' values -> distribution; without labels, () exists from the beginning.

    Args:
        bounds: upper bounds, ascending, without +Inf; a number equal to a bound is in its bucket.

    Attributes:
        bounds: the upper bounds.
    """

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        Family.__init__(self, name, text, labels)
        self.bounds = list(bounds)
        new = partial(Distribution, self.bounds)
        defaultdict.__init__(self, new)
        if not labels:
            self[()] = new()
        # A bucket's label is `le="1"` as in kube-scheduler, so that one query finds both.
        self._les = [*map(_as_go_writes, bounds), "+Inf"]

    def observe(self, number: float, *labels: str) -> None:
        self[self.key(labels)].observe(number)

    def series(self) -> Iterator[tuple[Labels, list[tuple[str, int]], float]]:
        for key, distribution in self.items():
            below = accumulate(distribution.counts)
            yield _labels(key), list(zip(self._les, below, strict=True)), distribution.sum


class Families(list[Family]):
    """All families of one process; a family created here is added, also one that the active version does not have."""

    def __init__(self) -> None:
        super().__init__()
        self._features: Features | None = None

    def follow(self, features: Features) -> None:
        """Show the families that kube-scheduler has with these features, and how stable they are there."""
        self._features = features
        for family in self:
            family.stage = stage_of(family.name, features)

    def append(self, family: Family) -> None:
        """Add a family."""
        if self._features is not None:
            family.stage = stage_of(family.name, self._features)
        super().append(family)

    def counters(self, name: str, text: str, labels: str = "") -> Counters:
        """Return a counter family; the names of labels are separated by spaces."""
        return self._with(Counters(name, text, labels.split()))

    def gauges(self, name: str, text: str, labels: str = "") -> Gauges:
        """Return a gauge family; the names of labels are separated by spaces."""
        return self._with(Gauges(name, text, labels.split()))

    def read_gauges(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[Labels, float]]]
    ) -> None:
        """Add numbers that are read on a scrape: the labels' values, and the number."""
        self.append(ReadGauges(name, text, labels, read))

    def histograms(self, name: str, text: str, labels: str = "", *, bounds: Sequence[float]) -> Histograms:
        """Return a histogram family."""
        return self._with(Histograms(name, text, labels.split(), bounds))

    def _with(self, family: F) -> F:
        self.append(family)
        return family


class PluginFamilies:
    """Adds the families that plugins declare, each once: plugins are built for each profile, and at each reload.

    Args:
        families: all families.
    """

    def __init__(self, families: Families) -> None:
        self._families = families
        self._declared: dict[str, tuple[tuple[object, ...], Family]] = {}  # name -> declaration, family

    def declared(self, kind: type[F], name: str, text: str, labels: str, *more: Any) -> F:
        """Return the family with a name.

        Raises:
            ValueError: the name belongs to a metric of the scheduler, or was declared otherwise.
        """
        declaration = (kind, tuple(labels.split()), *map(tuple, more))
        if name in self._declared:
            known, family = self._declared[name]
            if known != declaration or not isinstance(family, kind):
                raise ValueError(f"the metric {name} is declared twice, with another type, labels or buckets")
            return family
        if any(each.name == name for each in self._families):
            raise ValueError(f"the metric {name} belongs to the scheduler; choose another name")
        created = kind(name, text, labels.split(), *more)
        self._families.append(created)
        self._declared[name] = declaration, created
        return created
