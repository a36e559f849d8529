"""`python -m tests.conformance [FAMILY...]`: how much of what kube-scheduler says we say too, by family.

Four tables: the verdicts on every node, which events wake which waiting pods, how pod groups fare in the scenarios of the
family `groups`, where what differs on purpose counts as matching, and the cases of each Kubernetes version, the family
`versions`. Ends with status 1 if anything differs.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from scheduler.configuration.feature_gates import VERSIONS
from tests.conformance import events
from tests.conformance.comparison import FAMILIES, compare, report
from tests.conformance.corpus import explain, load, paths
from tests.conformance.groups import cases
from tests.conformance.simulated_groups import play_simulated
from tests.conformance.version_cases import version_cases, wrong_pods
from tests.conformance.version_groups import scenario_of
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SHOWN_PER_CASE = 3
_GROUPS = "groups"
_VERSIONS = "versions"
_WIDTH_OF_A_FILE = 160

Counts = defaultdict[str, Counter[str]]  # family -> what is counted


def main(families: list[str]) -> int:
    """Judge every case of some families, all of them by default."""
    logging.disable(logging.CRITICAL)
    unknown = set(families) - {*FAMILIES, *events.FAMILIES, _GROUPS, _VERSIONS}
    if unknown:
        sys.stderr.write(f"no such family: {', '.join(sorted(unknown))}\n")
        return 2
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE, highlight=False)
    wrong = _show_verdicts(console, families or FAMILIES)
    wrong += _show_events(console, families or events.FAMILIES)
    if not families or _GROUPS in families:
        wrong += _show_groups(console)
    if not families or _VERSIONS in families:
        wrong += _show_versions(console)
    return int(wrong > 0)


def _show_verdicts(console: Console, families: Iterable[str]) -> int:
    """Print how the verdicts on nodes compare; return how many pods differ."""
    counts = Counts(Counter)
    for path in paths():
        if path.parent.name not in families:
            continue
        case = load(path)
        count = counts[case.family]
        count["cases"] += 1
        mismatches = compare(case, explain(case))
        count["pods"] += len(case.expected)
        count["nodes"] += sum(len(entry["nodes"]) for entry in case.expected)
        count["wrong pods"] += len({mismatch.pod for mismatch in mismatches})
        count["wrong nodes"] += len(
            {(mismatch.pod, mismatch.node) for mismatch in mismatches if mismatch.node}
        )
        if mismatches:
            console.print(f"{case.name}: {report(mismatches, _SHOWN_PER_CASE)}", markup=False)
    console.print(_table("Verdicts on nodes", counts, ("pods", "nodes"), families))
    return sum(count["wrong pods"] for count in counts.values())


def _show_events(console: Console, families: Iterable[str]) -> int:
    """Print how the wakes compare; return how many differ."""
    counts = Counts(Counter)
    for path in events.paths():
        if path.parent.name not in families:
            continue
        case = events.load(path)
        count = counts[case.family]
        count["cases"] += 1
        finding = events.judge(case)
        count["events"] += len(case.events)
        count["pods"] += finding.judged
        count["wrong events"] += finding.wrong_events
        count["wrong pods"] += len(finding.differences)
        for difference in finding.differences[:_SHOWN_PER_CASE]:
            console.print(f"{case.name}: {difference}", markup=False)
    console.print(_table("Pods woken by events", counts, ("events", "pods"), families))
    return sum(count["wrong pods"] for count in counts.values())


def _show_groups(console: Console) -> int:
    """Print how the scenarios of pod groups compare; return how many differ."""
    count: Counter[str] = Counter()
    for name, case in cases().items():
        with TemporaryDirectory() as folder:
            told = run(play_simulated(case, Path(folder)))
        count["cases"] += 1
        count["scenarios"] += 1
        count["wrong scenarios"] += bool(told)
        for difference in told[:_SHOWN_PER_CASE]:
            console.print(f"{name}: {difference}", markup=False)
    console.print(_table("Pod groups", Counts(Counter, {_GROUPS: count}), ("scenarios",), [_GROUPS]))
    return count["wrong scenarios"]


def _show_versions(console: Console) -> int:
    """Print how the cases of each version compare; return how many pods and scenarios differ."""
    counts = Counts(Counter)
    for case in version_cases("pods").values():
        found: Sequence[object] = wrong_pods(case)
        counts[case.version]["pods"] += len(case.expected["pods"])
        _count(console, counts[case.version], "pods", case.name, found)
    for case in version_cases("groups").values():
        with TemporaryDirectory() as folder:
            found = run(play_simulated(scenario_of(case), Path(folder)))
        counts[case.version]["scenarios"] += 1
        _count(console, counts[case.version], "scenarios", case.name, found[:1])
    console.print(_table("Kubernetes versions", counts, ("pods", "scenarios"), VERSIONS, of="Version"))
    return sum(count["wrong pods"] + count["wrong scenarios"] for count in counts.values())


def _count(console: Console, count: Counter[str], unit: str, name: str, found: Sequence[object]) -> None:
    """Count and print the differences of one case."""
    count["cases"] += 1
    count[f"wrong {unit}"] += len(found)
    for difference in found[:_SHOWN_PER_CASE]:
        console.print(f"{name}: {difference}", markup=False)


def _table(
    title: str, counts: Counts, units: Sequence[str], families: Iterable[str], of: str = "Family"
) -> Table:
    columns = (column for unit in units for column in (unit.capitalize(), "matching"))
    table = Table(of, "Cases", *columns, title=title)
    rows = {family: counts[family] for family in families if family in counts}
    for family, count in rows.items():
        table.add_row(family, *_numbers(count, units))
    total: Counter[str] = Counter()
    for count in rows.values():
        total.update(count)
    table.add_section()
    table.add_row("all", *_numbers(total, units))
    return table


def _numbers(count: Mapping[str, int], units: Sequence[str]) -> list[str]:
    numbers = [str(count["cases"])]
    for unit in units:
        whole = count[unit]
        right = whole - count[f"wrong {unit}"]
        numbers += [str(whole), f"{100 * right / whole:.2f} %" if whole else "-"]
    return numbers


sys.exit(main(sys.argv[1:]))
