"""`make bench`: decisions a second in one process, at 100, 1000 and 5000 nodes, of each kind, and whole pods.

A decision is everything between the queue and the Binding: snapshot, PreFilter to Score, the choice, and counting
the pod on its node; a whole pod is that with Binding, event and watch, see `whole_pod`. What counts is CPU time.
Machines differ; compare the lines of one run with each other.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import statistics
import time
from argparse import ArgumentParser
from random import Random
from typing import TYPE_CHECKING, Final

from scheduler.daemon.app.memory import settle_memory
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.state.cache import Cache
from scheduler.objects.decode import decode_pod
from tests.bench import devices, volumes, waking, whole_pod
from tests.bench.across_nodes import KINDS, pending, running_cluster
from tests.bench.preemption import full_cluster, seconds_of_preemptor, urgent
from tests.support.builders import node, pod, pod_object
from tests.support.offline_capabilities import frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.engine.runtime.framework import Framework
    from scheduler.objects.pod import PodInfo

_SIZES = (100, 1000, 5000)
_SIZES_WITH_NOMINATED = (1000, 4000)
_DECISIONS = 500
_RUNS = 5
_NUMBERS = itertools.count()


def _framework() -> Framework:
    built = frameworks()
    return built["custom-scheduler"]


def _cluster(size: int) -> Cache:
    cache = Cache()
    for number in range(size):
        cache.add_node(node(f"n{number}", cpu=f"{32 + number % 3 * 16}", memory="256Gi"))
    return cache


def _alike(count: int) -> list[PodInfo]:
    return [pod(f"alike-{number}", cpu="100m", memory="500Mi") for number in range(count)]


def _different(count: int) -> list[PodInfo]:
    # No two ask for the same, in whichever run, so that nothing kept from one pod helps another.
    numbers = itertools.islice(_NUMBERS, count)
    return [pod(f"different-{number}", cpu="100m", memory=f"{500_000 + number}Ki") for number in numbers]


def _decide(framework: Framework, cache: Cache, pods: list[PodInfo], *, nobody_fits: bool = False) -> float:
    random = Random(1)
    gc.collect()
    begin = time.process_time()
    for each in pods:
        decision = schedule_pod(framework, each, cache.snapshot(), nominated={}, random=random)
        assert bool(decision.node_name) is not nobody_fits
        if decision.node_name:
            cache.assume(each, decision.node_name)
    return (time.process_time() - begin) / len(pods)


def _show(label: str, seconds: list[float], base: float | None) -> float:
    median = statistics.median(seconds)
    ratio = "" if base is None else f"{median / base:8.2f}x"
    print(f"{label:50}{median * 1e6:9.0f} us{1 / median:12.0f} /s{ratio:>12}")
    return median


def _decisions() -> None:
    framework, base = _framework(), None
    for size in _SIZES:
        for label, make in (("alike", _alike), ("all different", _different)):
            seconds = [_decide(framework, _cluster(size), make(_DECISIONS)) for _ in range(_RUNS)]
            median = _show(f"decision, {size} nodes, pods {label}", seconds, base)
            base = base or median


def _kinds(kinds: Iterable[str], seconds_per_pod: Callable[[str], float]) -> float:
    """Print a line for each kind of pods, at the largest size; return the seconds of the first kind."""
    base = 0.0
    for kind in kinds:
        seconds = [seconds_per_pod(kind) for _ in range(3)]
        median = _show(f"{_SIZES[-1]} nodes, {kind}", seconds, base or None)
        base = base or median
    return base


def _pods() -> None:
    framework = _framework()
    _kinds(
        KINDS, lambda kind: _decide(framework, running_cluster(_SIZES[-1], kind), pending(kind, _DECISIONS))
    )


def _volumes() -> None:
    _kinds(volumes.KINDS, lambda kind: volumes.seconds_per_pod(_SIZES[-1], kind, _DECISIONS))


def _devices() -> None:
    base = _kinds(devices.KINDS, lambda kind: devices.seconds_per_pod(_SIZES[-1], kind))
    first = "a claim, a device per node"
    seconds = [devices.seconds_of_first_pod(_SIZES[-1], first) for _ in range(3)]
    _show(f"{_SIZES[-1]} nodes, {first}, the first pod", seconds, base)


def _preemption() -> None:
    framework, base = _framework(), None
    for budgets, allowed in ((0, 1), (1000, 1), (1000, 0)):
        cache = full_cluster(_SIZES[-1], budgets, allowed=allowed)
        seconds = [_decide(framework, cache, urgent(5), nobody_fits=True) for _ in range(3)]
        strict = "" if allowed else " that let nobody go"
        median = _show(f"{_SIZES[-1]} nodes, preemption, {budgets} disruption budgets{strict}", seconds, base)
        base = base or median
    for size in _SIZES_WITH_NOMINATED:
        seconds = [seconds_of_preemptor(framework, size, 100) for _ in range(3)]
        _show(f"{size} nodes, preemption, 3/4 have a nominated pod", seconds, base)


def _decoding() -> None:
    raw = json.dumps(pod_object("parsed", cpu="100m", memory="500Mi")).encode()
    seconds = []
    for _ in range(_RUNS):
        begin = time.process_time()
        for _ in range(_DECISIONS):
            decode_pod(raw)
        seconds.append((time.process_time() - begin) / _DECISIONS)
    _show("a pod parsed", seconds, None)


_PARTS: Final = {
    "decisions": _decisions,
    "pods": _pods,
    "volumes": _volumes,
    "devices": _devices,
    "preemption": _preemption,
    "decoding": _decoding,
    "events": waking.main,
    "whole-pod": whole_pod.main,
}


def main() -> None:
    """Print the table."""
    assert __doc__ is not None
    parser = ArgumentParser(prog="make bench", description=__doc__.split(":", 1)[1].strip())
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=[*_PARTS], help="the parts of the table")
    only = parser.parse_args().only
    logging.disable(logging.WARNING)
    settle_memory()
    print(f"{'':50}{'one':>12}{'in a second':>14}{'to the first':>13}")
    for name in only:
        _PARTS[name]()


if __name__ == "__main__":
    main()
