"""Our families as a collector of `prometheus_client`, which writes them, and what it reads of the process itself."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from scheduler.version import KUBERNETES, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

    from scheduler.metrics.families import Family

_KINDS: Final = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


_IMPORTED_AT = time.time()


def process_began() -> float:
    """Return when this process began, in Unix seconds; where the system does not tell, when it was first asked."""
    shown = {metric.name: metric for metric in ProcessCollector(registry=CollectorRegistry()).collect()}
    began = shown.get("process_start_time_seconds")
    return _IMPORTED_AT if began is None else began.samples[0].value


class _Families(Collector):
    """Ours; one that has no series yet is left out."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = _KINDS[family.kind](family.name, family.text, labels=family.labels)
            for series in family.series():
                metric.add_metric(*series)
            if metric.samples:
                yield metric


def registry_of(families: Iterable[Family]) -> CollectorRegistry:
    """Return a registry of the families, those that join them later too, and of the process itself."""
    registry = CollectorRegistry()
    registry.register(_Families(families))
    Info(
        "custom_scheduler_build",
        "Always 1; the labels say which version runs, which Kubernetes' scheduler it does as, and on what.",
        registry=registry,
    ).info(
        {
            "version": VERSION,
            "kubernetes": KUBERNETES,
            "python_version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "machine": platform.machine(),
        }
    )
    major, minor = KUBERNETES.split(".")
    Info(
        "kubernetes_build",
        "Always 1; the version is that of the kube-scheduler that this one does as, with its own behind the +.",
        registry=registry,
    ).info(
        {
            "major": major,
            "minor": minor,
            "git_version": f"v{KUBERNETES}.0+custom-scheduler.{VERSION}",
            "git_commit": "",
            "git_tree_state": "",
            "build_date": "",
            "go_version": "",
            "compiler": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
    )
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
