"""Counters, gauges and histograms, as cheap as counting can be, and the text Prometheus reads.

A pod costs some thirty observations. `prometheus_client` takes a lock for each and looks through the buckets one by
one; here an observation is a look-up and an addition, without a lock: all of it happens in the main loop's thread.
Numbers are written as Go writes them, so that a bucket is `le="1"` as it is in kube-scheduler, and one query finds both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Labels = tuple[str, ...]

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_EXPONENT_FROM = 1e6


def exponential_buckets(start: float, factor: float, count: int) -> list[float]:
    """Return `count` upper bounds, each `factor` times the one before, the very floats that Go computes."""
    return list(accumulate([factor] * (count - 1), lambda bound, times: bound * times, initial=start))


def go_float(number: float) -> str:
    """Write a number as Go's client of Prometheus does.

    Source:
        Go's strconv.FormatFloat(number, 'g', -1, 64), with the names Prometheus has for what is no number.
    """
    if math.isfinite(number):
        if abs(number) < _EXPONENT_FROM:
            return repr(float(number)).removesuffix(".0")
        sign, digits, exponent = Decimal(repr(float(number))).normalize().as_tuple()
        first, *rest = map(str, digits)
        fraction = f".{''.join(rest)}" if rest else ""
        return f"{'-' if sign else ''}{first}{fraction}e+{len(rest) + int(exponent):02d}"
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"


def label_pairs(names: Iterable[str], values: Iterable[str]) -> str:
    """Write labels as they stand between the braces."""
    return ",".join(
        f'{name}="{value.translate(_ESCAPED)}"' for name, value in zip(names, values, strict=True)
    )


class Family(ABC):
    """All series of one name.

    Attributes:
        name: as scraped.
        kind: `counter`, `gauge` or `histogram`.
        labels: the labels' names, in the order their values are given.
    """

    kind: str

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.labels = tuple(labels)
        self._head = f"# HELP {name} {text}\n# TYPE {name} {self.kind}\n"

    @abstractmethod
    def _lines(self) -> Iterator[str]:
        """Yield the lines of all series."""

    def render(self) -> str:
        """Return the lines with what introduces them; "" while there is no series."""
        lines = "".join(self._lines())
        return f"{self._head}{lines}" if lines else ""

    def _series(self, values: Labels, number: float) -> str:
        pairs = label_pairs(self.labels, values)
        return (
            f"{self.name}{{{pairs}}} {go_float(number)}\n" if pairs else f"{self.name} {go_float(number)}\n"
        )


class Counters(Family):
    """Numbers that only grow; without labels there is one from the beginning."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        self._counts: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, values: Labels, amount: float = 1.0) -> None:
        """Add to one series."""
        counts = self._counts
        counts[values] = counts.get(values, 0.0) + amount

    def _lines(self) -> Iterator[str]:
        return (self._series(*counted) for counted in self._counts.items())


class Gauges(Counters):
    """Numbers that go up and down."""

    kind = "gauge"


class ReadGauges(Family):
    """Numbers that are read when somebody asks."""

    kind = "gauge"

    def __init__(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[Labels, float]]]
    ) -> None:
        super().__init__(name, text, labels)
        self._read = read

    def _lines(self) -> Iterator[str]:
        return (self._series(*found) for found in self._read())


class _Distribution:
    __slots__ = ("counts", "sum")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.sum = 0.0


class Histograms(Family):
    """How often numbers fell between bounds; without labels there is one distribution from the beginning.

    Args:
        bounds: upper bounds, ascending, without +Inf; a number that equals a bound is below it.
    """

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, text, labels)
        self._bounds = list(bounds)
        self._les = [f'le="{go_float(bound)}"' for bound in (*bounds, math.inf)]
        self._distributions: dict[Labels, _Distribution] = {}
        if not labels:
            self._distributions[()] = _Distribution(len(self._les))

    def observe(self, values: Labels, number: float) -> None:
        """Add a number to one series."""
        found = self._distributions.get(values)
        if found is None:
            found = self._distributions[values] = _Distribution(len(self._les))
        found.counts[bisect_left(self._bounds, number)] += 1
        found.sum += number

    def _lines(self) -> Iterator[str]:
        for values, found in self._distributions.items():
            pairs = label_pairs(self.labels, values)
            bucket = f"{self.name}_bucket{{{pairs}," if pairs else f"{self.name}_bucket{{"
            below = list(accumulate(found.counts))
            for le, count in zip(self._les, below, strict=True):
                yield f"{bucket}{le}}} {go_float(count)}\n"
            braced = f"{{{pairs}}}" if pairs else ""
            yield f"{self.name}_sum{braced} {go_float(found.sum)}\n"
            yield f"{self.name}_count{braced} {go_float(below[-1])}\n"
