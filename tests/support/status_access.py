"""A fake `StatusAccess` for the tests of status sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.daemon.app.object_statuses import run_in_slices
from scheduler.testing.fakes import FakeMetrics, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from scheduler.objects.pod import PodInfo

T = TypeVar("T")


class FakeStatusAccess:
    """Has some pods and objects; lists nothing."""

    def __init__(self, pods: Mapping[str, PodInfo] | None = None, cluster: Any = None) -> None:
        self.pods = pods or {}
        self.cluster = cluster
        self.clock = ManualClock()
        self.metrics = FakeMetrics()

    async def listed(self, path: str, selectors: Mapping[str, str]) -> Any:
        for each in ():
            yield each

    async def in_slices(self, steps: Generator[None, None, T]) -> T:
        return await run_in_slices(steps)

    async def aside(self, work: Callable[[], T], what: str) -> T:
        return work()
