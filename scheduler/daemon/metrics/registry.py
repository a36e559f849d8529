"""Exports the families with `prometheus_client`, together with its metrics of the process."""

from __future__ import annotations

import platform
import sys
import time
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from scheduler.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import Metric

    from scheduler.daemon.metrics.families import Family

_KINDS: Final = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


_SERIES_AT_A_TIME: Final = {"counter": 256, "gauge": 256, "histogram": 16}
_SAMPLES_AT_A_TIME: Final = 256
_END: Final = b"# EOF\n"
"""The last line of OpenMetrics."""

_IMPORTED_AT = time.time()


def process_began() -> float:
    """Return the start time of this process in Unix seconds; without support by the system, of this module's import."""
    shown = {metric.name: metric for metric in ProcessCollector(registry=CollectorRegistry()).collect()}
    began = shown.get("process_start_time_seconds")
    return _IMPORTED_AT if began is None else began.samples[0].value


class _Families(Collector):
    """The families that are shown; one without series is left out."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield from _parts_of(family, most=sys.maxsize)


class _Part(Collector):
    """Some series of one family, to be encoded separately."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _parts_of(family: Family, most: int) -> Iterator[Metric]:
    """Yield a family in parts with a number of series each; all parts have the values at the first request."""
    if family.stage is None:
        return
    all_series = list(family.series())
    for start in range(0, len(all_series), most):
        metric = _KINDS[family.kind](family.name, family.help, labels=family.labels)
        for series in all_series[start : start + most]:
            metric.add_metric(*series)
        yield metric


def pieces_of(
    families: Iterable[Family], others: Collector, encode: Callable[[Collector], bytes]
) -> Iterator[bytes]:
    """Yield the encoded families and another collector, in pieces that take some milliseconds each.

    `prometheus_client` encodes a whole collector at once, which takes long for a family with thousands of
    series.
    """
    written: list[bytes] = []
    n_samples = 0
    for family in list(families):
        head = b""
        for metric in _parts_of(family, _SERIES_AT_A_TIME[family.kind]):
            text = encode(_Part(metric)).removesuffix(_END)
            # All parts of a family have one head.
            body = text.removeprefix(head)
            head = head or b"".join(line for line in text.splitlines(keepends=True) if line.startswith(b"# "))
            written.append(body)
            n_samples += len(metric.samples)
            if n_samples >= _SAMPLES_AT_A_TIME:
                yield b"".join(written)
                written, n_samples = [], 0
    yield b"".join([*written, encode(others)])


def registry_of(families: Iterable[Family]) -> CollectorRegistry:
    """Return a registry of the families, including later ones, and of the process itself."""
    registry = CollectorRegistry()
    registry.register(_Families(families))
    Info(
        "custom_scheduler_build",
        "Always 1; the labels have the version, and the platform.",
        registry=registry,
    ).info(
        {
            "version": VERSION,
            "python_version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "machine": platform.machine(),
        }
    )
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
