"""`python -m tests.bench.pod_budget`: the CPU time of a whole pod, by what the daemon does in it.

The daemon of `tests.bench.whole_pod` runs without a profile, and once with one, which counts calls and measures the time
of each function without the functions that it calls. The time that the profile takes for each call is subtracted, and the
sum is that of the runs without a profile. A function outside of the table, such as a property of a pod, belongs to its
callers. Machines differ; compare the lines of one run with each other.
"""

from __future__ import annotations

import cProfile
import logging
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler.cli.process import run_in_loop
from scheduler.daemon.app.memory import settle_memory
from tests.bench.whole_pod import Loopback, pending_pods, schedule_all, watched_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT: Final = Path(__file__).parents[2]
_RUNS: Final = 3
_NODES: Final = 5000
_PODS: Final = 2000
_EMPTY_CALLS: Final = 100_000
_OTHERS: Final = "others"
_BENCH: Final = "the server of the bench"

STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "watch: envelopes and store": (
        "scheduler/kube/client/reflector.py",
        "scheduler/kube/client/store.py",
        "scheduler/kube/client/watch.py",
        "scheduler/kube/client/wire.py",
    ),
    "decoding": ("scheduler/daemon/app/needs.py", "scheduler/objects/decode.py"),
    "event handlers": ("scheduler/engine/cycle/event_bus.py", "scheduler/engine/cycle/event_handlers.py"),
    "queue": ("scheduler/engine/queue/",),
    "cache and columns": ("scheduler/engine/state/", "scheduler/snapshot/"),
    "decision: the loop of attempts": (
        "scheduler/engine/cycle/long_attempts.py",
        "scheduler/engine/cycle/pod_cycle.py",
        "scheduler/engine/cycle/scheduler.py",
        "scheduler/engine/cycle/scheduling.py",
        "scheduler/engine/runtime/budget.py",
    ),
    "decision: calls and caches of plugins": ("scheduler/engine/runtime/",),
    "decision: plugins": ("plugins/",),
    "attempts kept for explain": ("scheduler/engine/cycle/attempt_log.py",),
    "binding": (
        "plugins/default_binder.py",
        "scheduler/engine/cycle/binding.py",
        "scheduler/kube/client/requests.py",
        "scheduler/kube/client/writer.py",
    ),
    "events": (
        "scheduler/engine/cycle/reporting.py",
        "scheduler/kube/client/background.py",
        "scheduler/kube/client/events.py",
    ),
    "conditions": ("scheduler/kube/client/status_queue.py",),
    "metrics": ("scheduler/daemon/metrics/",),
    "logging": (logging.__file__,),
    _BENCH: ("tests/",),
}
"""Step -> the files of its functions; the longest path that matches counts."""

Shares = dict[str, float]
_Code = object


class _Functions:
    """The functions of a profile, each with its step, or the steps of its callers."""

    def __init__(self, profile: cProfile.Profile) -> None:
        self.entries = profile.getstats()
        self._callers: defaultdict[_Code, list[tuple[_Code, float]]] = defaultdict(list)
        for entry in self.entries:
            for called in entry.calls or ():
                self._callers[called.code].append((entry.code, called.callcount))
        self._shares: dict[_Code, Shares] = {}

    def shares(self, code: _Code) -> Shares:
        """Return step -> the share of a function's calls that belongs to it."""
        if code not in self._shares:
            self._shares[code] = {}  # of a function that calls itself
            step = _step_of(code)
            self._shares[code] = self._of_callers(code) if step is None else {step: 1.0}
        return self._shares[code]

    def _of_callers(self, code: _Code) -> Shares:
        found: Shares = defaultdict(float)
        for caller, calls in self._callers[code]:
            for step, share in self.shares(caller).items():
                found[step] += share * calls
        total = sum(found.values())
        return {step: share / total for step, share in found.items()} if total else {_OTHERS: 1.0}


def _step_of(code: _Code) -> str | None:
    path = getattr(code, "co_filename", "").removeprefix(f"{_ROOT}/")
    matching = [(len(each), step) for step, paths in STEPS.items() for each in paths if path.startswith(each)]
    return max(matching)[1] if matching else None


def budget(n_nodes: int, n_pods: int, *, all_different: bool = False) -> dict[str, tuple[float, float]]:
    """Return step -> calls, and seconds of CPU, for one pod."""
    nodes, pods = watched_nodes(n_nodes), pending_pods(n_pods, all_different=all_different)
    seconds = min(run_in_loop(schedule_all(Loopback(nodes, pods))) for _ in range(_RUNS))
    profile = cProfile.Profile(builtins=False)
    run_in_loop(schedule_all(Loopback(nodes, pods), profile=profile))
    functions, for_a_call = _Functions(profile), _profile_seconds()
    calls, used = defaultdict[str, float](float), defaultdict[str, float](float)
    for entry in functions.entries:
        for step, share in functions.shares(entry.code).items():
            calls[step] += share * entry.callcount / n_pods
            used[step] += share * max(0.0, entry.inlinetime - for_a_call * entry.callcount)
    scale = seconds / n_pods / sum(used.values())
    return {step: (calls[step], used[step] * scale) for step in (*STEPS, _OTHERS)}


def _profile_seconds() -> float:
    """Return the seconds that a profile takes for each call."""
    profile = cProfile.Profile(builtins=False)
    began = time.perf_counter()
    _call_nothing()
    seconds = time.perf_counter() - began
    profile.runcall(_call_nothing)
    profiled = sum(entry.inlinetime for entry in profile.getstats())
    return (profiled - seconds) / _EMPTY_CALLS


def _call_nothing() -> None:
    for _ in range(_EMPTY_CALLS):
        _nothing()


def _nothing() -> None: ...


def print_table(n_nodes: int, n_pods: int) -> None:
    """Print the budgets of pods of a known class, and of pods that all differ."""
    for label, all_different in (("pods alike", False), ("pods all different", True)):
        steps = budget(n_nodes, n_pods, all_different=all_different)
        del steps[_BENCH]
        total_calls, total = (sum(each) for each in zip(*steps.values(), strict=True))
        print(f"{f'{label}, {n_nodes} nodes':50}{'calls':>8}{'us':>9}{'share':>8}")
        for step, (calls, seconds) in steps.items():
            print(f"{step:50}{calls:8.1f}{seconds * 1e6:9.1f}{seconds / total:8.1%}")
        print(f"{'in all':50}{total_calls:8.1f}{total * 1e6:9.1f}")


def main() -> None:
    """Print the tables."""
    logging.disable(logging.WARNING)
    settle_memory()
    print_table(_NODES, _PODS)


if __name__ == "__main__":
    main()
