"""`python -m tests.bench.metrics_cost`: what counting costs, a pod and a scrape.

Everything that a daemon tells its metrics while it places pods is recorded, then told again to metrics and to nobody;
the difference is the cost of counting.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from scheduler.daemon.metrics import Metrics
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PODS = 400
_RUNS = 15
_TOLD = (
    "extension_point", "plugin", "evaluated", "node_loop", "permit_wait", "incoming", "hint_asked", "event_handled",
    "decided", "attempted", "bound", "undecodable", "listed", "watch_ended", "bind_answered", "dropped",
)  # fmt: skip

_Call = tuple[str, tuple[Any, ...]]


def _nobody(*_: object) -> None: ...


def _record(metrics: Metrics) -> list[_Call]:
    """Write down from now on what the metrics are told."""
    calls: list[_Call] = []

    def recorded(name: str, method: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            calls.append((name, args))
            method(*args)

        return call

    for name in _TOLD:
        setattr(metrics, name, recorded(name, getattr(metrics, name)))
    requested = recorded("requested", metrics.rest_client.requested)
    metrics.rest_client.requested = requested  # type: ignore[method-assign]
    return calls


async def _place_pods() -> tuple[list[_Call], Metrics]:
    with TemporaryDirectory() as folder:
        async with cluster(Path(folder)) as it, it.daemon() as daemon:
            it.add_nodes(*(node_object(f"n{number}", cpu="64") for number in range(20)))
            it.add_pods(pod_object("first", cpu="1m"))
            await it.until(lambda: it.notes("first", "Scheduled"))
            calls = _record(daemon.metrics)
            it.add_pods(*(pod_object(f"pod-{number}", cpu="1m") for number in range(_PODS)))
            await it.until(lambda: len(it.server.store.list("events.events.k8s.io")) > _PODS)
            return list(calls), daemon.metrics


def _best_seconds(calls: Sequence[tuple[Callable[..., None], tuple[Any, ...]]]) -> float:
    best = float("inf")
    for _ in range(_RUNS):
        begin = time.process_time()
        for tell, args in calls:
            tell(*args)
        best = min(best, time.process_time() - begin)
    return best


def main() -> None:
    """Print the costs."""
    logging.disable(logging.WARNING)
    calls, metrics = virtual_time.run(_place_pods())
    others = Metrics()
    told = [
        (others.rest_client.requested if name == "requested" else getattr(others, name), args)
        for name, args in calls
    ]
    counting = _best_seconds(told) - _best_seconds([(_nobody, args) for _, args in calls])
    metrics.text()  # the first scrape imports what writes it
    begin = time.perf_counter()
    lines = metrics.text()[0].count(b"\n")
    scrape = time.perf_counter() - begin
    print(f"{len(calls) / _PODS:8.1f} times told a pod")
    for name, times in Counter(name for name, _ in calls).most_common():
        print(f"{times / _PODS:14.1f} {name}")
    print(f"{counting / _PODS * 1e6:8.1f} us a pod")
    print(f"{scrape * 1e3:8.1f} ms a scrape of {lines} lines")


if __name__ == "__main__":
    main()
