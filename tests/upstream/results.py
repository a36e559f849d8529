"""What the integration tests of a package reported, and tables of it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_ENDS = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_PROCESS = re.compile(
    r"scheduler process (?P<number>\d+) (?:started|used (?P<cpu>[\d.]+) s of CPU, (?P<megabytes>\d+) MB)"
)
_TOO_LOW = re.compile(r'expected "SchedulingThroughput" "Average" to be higher: got ([\d.]+), want ([\d.]+)')
_BENCHMARK = re.compile(r"BenchmarkPerfScheduling/?")
BY_ITSELF = "(by itself)"
"""The name of a failure that belongs to no test, such as a leak of goroutines."""


@dataclass(slots=True)
class Figures:
    """What scheduler_perf measured of a workload; None is not measured.

    Attributes:
        average: scheduled pods a second.
        threshold: the least average with which the workload passes.
        seconds: how long the scheduling took.
        cpu: seconds of processor time of the scheduler process, its start included.
        megabytes: its largest resident memory.
    """

    average: float | None = None
    threshold: float | None = None
    seconds: float | None = None
    cpu: float | None = None
    megabytes: float | None = None


@dataclass(slots=True)
class Results:
    """The results of a package.

    Attributes:
        package: its path below test/integration.
        left_out: pattern of the tests that did not run -> the reason.
        ends: test or subtest without subtests -> passed, failed or skipped.
        without_process: tests that ran without a scheduler process; empty if no process was used at all.
        figures: workload -> what was measured.
    """

    package: str
    left_out: Mapping[str, str]
    ends: Mapping[str, str]
    without_process: Sequence[str]
    figures: Mapping[str, Figures]

    def having(self, end: str) -> Sequence[str]:
        """Return the tests with this end, sorted."""
        return sorted(test for test, its_end in self.ends.items() if its_end == end)


def read(folder: Path, package: str, left_out: Mapping[str, str]) -> Results:
    """Return the results in a folder that `Checkout.run` filled.

    A test that began and did not end has failed.
    """
    ends: dict[str, str] = {}  # "" is the package
    process_of: dict[str, str] = {}  # number -> the test that started it
    figures: defaultdict[str, Figures] = defaultdict(Figures)
    for event in _events(folder / "events.jsonl"):
        test, action, output = event.get("Test", ""), event["Action"], event.get("Output", "")
        if action == "run":
            ends[test] = "failed"
        elif action in _ENDS:
            ends[test] = _ENDS[action]
        elif found := _PROCESS.search(output):
            process_of.setdefault(found["number"], test)
            if found["cpu"]:
                it = figures[process_of[found["number"]]]
                it.cpu, it.megabytes = float(found["cpu"]), float(found["megabytes"])
        elif found := _TOO_LOW.search(output):
            figures[test].average, figures[test].threshold = float(found[1]), float(found[2])
    leaves = _leaves(ends)
    _add_items(folder, figures)
    measured = {test: it for test, it in sorted(figures.items()) if it.average or it.seconds}
    return Results(
        package,
        left_out,
        leaves,
        _without_process(leaves, process_of.values()),
        {_BENCHMARK.sub("", test): it for test, it in measured.items()},
    )


def _leaves(ends: Mapping[str, str]) -> Mapping[str, str]:
    """Return the ends of tests without subtests, and of others that failed although nothing below them failed."""
    found: dict[str, str] = {}
    for test in sorted(ends, key=lambda test: test.count("/") + bool(test), reverse=True):
        below = [end for each, end in found.items() if each.startswith(f"{test}/") or not test]
        failed = ends[test] == "failed" and "failed" not in below
        if failed or (test and not below):
            found[test or BY_ITSELF] = ends[test]
    return found


def _without_process(leaves: Mapping[str, str], with_process: Iterable[str]) -> Sequence[str]:
    """Return the tests, without their subtests, that ran and started no process; none if no test started one."""
    started = {test.partition("/")[0] for test in with_process}
    ran = {test.partition("/")[0] for test, end in leaves.items() if end != "skipped"}
    return sorted(ran - started - {BY_ITSELF}) if started else ()


def _events(file: Path) -> Iterable[Mapping[str, str]]:
    with file.open(errors="replace") as lines:
        for line in lines:
            if line.startswith("{"):
                yield json.loads(line)


def _add_items(folder: Path, figures: defaultdict[str, Figures]) -> None:
    """Add the data items that scheduler_perf wrote."""
    for file in sorted(folder.glob("BenchmarkPerfScheduling_*.json")):
        for item in json.loads(file.read_text())["dataItems"]:
            labels, data = item["labels"], item["data"] or {}
            it = figures[labels["Name"].rpartition("/")[0]]  # the last part names what is measured
            if labels.get("Metric") == "SchedulingThroughput":
                it.average, it.threshold = data.get("Average"), data.get("AverageThreshold")
            elif labels.get("Metric") == "SchedulingDuration":
                it.seconds = data.get("Duration")


def table(all_results: Sequence[Results]) -> str:
    """Return tables of Markdown: the numbers of all packages, the figures, what failed, and what was left out."""
    lines = ["| package | tests | passed | failed | skipped |", "|---|---|---|---|---|"]
    for it in all_results:
        counts = [len(it.having(end)) for end in _ENDS.values()]
        lines.append(f"| {it.package} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    if any(it.figures for it in all_results):
        lines += ["", "| workload | pods/s | threshold | seconds | CPU s | MB |", "|---|---|---|---|---|---|"]
        for it in all_results:
            for workload, figures in it.figures.items():
                cells = (
                    _cell(figures.average),
                    _cell(figures.threshold),
                    _cell(figures.seconds),
                    _cell(figures.cpu),
                    _cell(figures.megabytes),
                )
                lines.append(f"| {workload} | {' | '.join(cells)} |")
    for it in all_results:
        lines += [f"failed: {it.package} {test}" for test in it.having("failed")]
        lines += [f"no scheduler process: {it.package} {test}" for test in it.without_process]
    for it in all_results:
        lines += [f"left out: {it.package} {test}: {reason}" for test, reason in it.left_out.items()]
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
