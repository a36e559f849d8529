"""What a WebAssembly guest costs: `python -m tests.bench.wasm`.

First decisions, as in `tests.bench`, with a guest that looks at every node, at a sample, and without. Then how late the
loop of a running daemon is while it binds pods, for that loop renews the lease as well; the simulated API server runs
in the same loop, so compare the lines with each other.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from plugins.registry import IN_TREE
from scheduler.configuration.load import parse
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.runtime.registry import Registry
from scheduler.engine.state.cache import Cache
from scheduler.extensions.wasm.library import GuestLibrary
from scheduler.framework import PodEvents, WaitingPods
from tests.support.builders import node, node_object, pod, pod_object
from tests.support.daemon_harness import cluster
from tests.support.guests import EVEN_NODES, LOOPS, KeptEvents, NoWaitingPods
from tests.support.offline_capabilities import OFFLINE, frameworks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.engine.runtime.framework import Framework

_NODES = 5000
_DECISIONS = 20
_DAEMON_NODES = 1000
_PODS = 300
_TICK_SECONDS = 0.002

_CASES = {
    "no guest": (None, ""),
    "a guest that looks at every node": (EVEN_NODES, ""),
    "the same with `sample: 100`": (EVEN_NODES, ", sample: 100"),
    "one that loops, `timeLimit: 100ms`": (LOOPS, ", timeLimit: 100ms"),
}


def _configuration(guest: bytes | None, args: str, folder: Path) -> str:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    if guest is None:
        return head
    path = folder / "guest.wasm"
    path.write_bytes(guest)
    return f"""{head}
profiles:
- schedulerName: custom-scheduler
  plugins: {{multiPoint: {{enabled: [{{name: Guest}}]}}}}
  pluginConfig: [{{name: Guest, args: {{guestURL: '{path}'{args}}}}}]
- schedulerName: plain
"""


def _framework(configuration: str) -> Framework:
    given = {**OFFLINE, PodEvents: KeptEvents(), WaitingPods: NoWaitingPods()}
    built = frameworks(parse(configuration), Registry(IN_TREE, GuestLibrary()), given)
    return built["custom-scheduler"]


def _decide(framework: Framework) -> list[float]:
    cache, random, seconds = Cache(), Random(1), []
    for number in range(_NODES):
        cache.add_node(node(f"n{number}", cpu="32", memory="256Gi"))
    for number in range(_DECISIONS):
        each = pod(f"pod-{number}", cpu="100m", memory="500Mi")
        begin = time.perf_counter()
        decision = schedule_pod(framework, each, cache.snapshot(), nominated={}, random=random)
        seconds.append(time.perf_counter() - begin)
        if decision.node_name:
            cache.assume(each, decision.node_name)
    return seconds


async def _lateness(into: list[float]) -> None:
    """Sleep again and again, and note by how much each sleep was too long."""
    while True:
        begin = time.perf_counter()
        await asyncio.sleep(_TICK_SECONDS)
        into.append(time.perf_counter() - begin - _TICK_SECONDS)


async def _run_daemon(configuration: str, folder: Path) -> tuple[list[float], float]:
    """Bind pods; return how late the loop was, and how long all took.

    One pod in thirty is the guest's, all others are of a profile without: who waits is seen on them.
    """
    late: list[float] = []
    shared = "schedulerName: plain" in configuration
    async with cluster(folder) as it, it.daemon(configuration):
        it.add_nodes(*(node_object(f"n{number}", cpu="32") for number in range(_DAEMON_NODES)))
        await asyncio.sleep(1)
        watching = asyncio.create_task(_lateness(late))
        begin = time.perf_counter()
        names = [f"pod-{number}" for number in range(_PODS)]
        for number, name in enumerate(names):
            scheduler = "plain" if shared and number % 30 else "custom-scheduler"
            it.add_pods(pod_object(name, cpu="100m", scheduler_name=scheduler))
        plain = [name for number, name in enumerate(names) if number % 30]
        await it.until(lambda: all(it.node_of(name) for name in plain))
        took = time.perf_counter() - begin
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    return late, took


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:9.1f} ms"


def _show(label: str, seconds: Sequence[float], more: str = "") -> None:
    middle, slowest = statistics.median(seconds), max(seconds)
    print(f"{label:40}{_milliseconds(middle)}{_milliseconds(slowest)}{more}")


def main() -> None:
    """Print the two tables."""
    logging.disable(logging.ERROR)
    print(f"{f'a decision among {_NODES} nodes':40}{'median':>12}{'slowest':>12}")
    for label, (guest, args) in _CASES.items():
        with TemporaryDirectory() as folder:
            _show(label, _decide(_framework(_configuration(guest, args, Path(folder)))))
    print(f"\n{f'the loop is late, {_DAEMON_NODES} nodes':40}{'median':>12}{'most':>12}   {_PODS} pods took")
    for label, (guest, args) in _CASES.items():
        with TemporaryDirectory() as folder:
            text = _configuration(guest, args, Path(folder))
            late, took = asyncio.run(_run_daemon(text, Path(folder)))
            _show(label, late, f"{took:9.2f} s")


if __name__ == "__main__":
    main()
