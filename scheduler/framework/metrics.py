"""The metrics that a plugin declares by the capability `PluginMetrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Counter(Protocol):
    """Numbers that only grow, one for each combination of labels."""

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """Increase the number with these values of the labels.

        Raises:
            ValueError: another number of labels was declared.
        """
        ...


class Gauge(Protocol):
    """Numbers that change, one for each combination of labels."""

    def replace(self, numbers: Mapping[tuple[str, ...], float]) -> None:
        """Show these numbers by the values of their labels, and no others.

        Raises:
            ValueError: another number of labels was declared.
        """
        ...


class Histogram(Protocol):
    """Counts of numbers in buckets, one for each combination of labels."""

    def observe(self, number: float, *labels: str) -> None:
        """Count a number with these values of the labels.

        Raises:
            ValueError: another number of labels was declared.
        """
        ...
