"""The process itself: memory, CPU time, open files, the garbage collector, and what was built of what."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from scheduler.metrics.families import ReadGauges

if TYPE_CHECKING:
    from scheduler.metrics.families import Family


def build_info(version: str) -> Family:
    """Return the one series that says which version runs, on what."""
    values = (version, platform.python_version(), platform.python_implementation(), platform.machine())
    return ReadGauges(
        "custom_scheduler_build_info",
        "Always 1; the labels say which version runs, on what.",
        ["version", "python_version", "implementation", "machine"],
        lambda: [(values, 1)],
    )


class ProcessMetrics:
    """What `prometheus_client` reads of the process and of Python: `process_*` and `python_*`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> str:
        """Return their lines, as they are now."""
        return prometheus_client.generate_latest(self._registry).decode()
