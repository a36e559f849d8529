"""`python -m tests.conformance [FAMILY...]`: how much of what kube-scheduler says we say too, by family.

Ends with status 1 if anything that can be judged differs.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.conformance.comparison import FAMILIES, compare, not_judged, report
from tests.conformance.corpus import explain, load, paths

_SHOWN_PER_CASE = 3


def main(families: list[str]) -> int:
    """Judge every case of some families, all of them by default."""
    logging.disable(logging.CRITICAL)
    console = Console(highlight=False)
    counts: dict[str, Counter[str]] = {family: Counter() for family in families or FAMILIES}
    unjudged: dict[str, Counter[str]] = {family: Counter() for family in counts}
    for path in paths():
        if path.parent.name not in counts:
            continue
        case = load(path)
        count = counts[case.family]
        count["cases"] += 1
        if reason := not_judged(case):
            unjudged[case.family][reason] += 1
            continue
        mismatches = compare(case, explain(case))
        count["judged"] += 1
        count["pods"] += len(case.expected)
        count["nodes"] += sum(len(entry["nodes"]) for entry in case.expected)
        count["wrong pods"] += len({mismatch.pod for mismatch in mismatches})
        count["wrong nodes"] += len(
            {(mismatch.pod, mismatch.node) for mismatch in mismatches if mismatch.node}
        )
        if mismatches:
            console.print(f"{case.name}: {report(mismatches, _SHOWN_PER_CASE)}", markup=False)
    console.print(_table(counts, unjudged))
    return int(any(count["wrong pods"] for count in counts.values()))


def _table(counts: dict[str, Counter[str]], unjudged: dict[str, Counter[str]]) -> Table:
    table = Table("Family", "Cases", "Judged", "Pods", "matching", "Nodes", "matching", "Not judged")
    for family, count in counts.items():
        why = "; ".join(f"{cases}: {reason}" for reason, cases in unjudged[family].most_common(2))
        table.add_row(
            family,
            str(count["cases"]),
            str(count["judged"]),
            str(count["pods"]),
            _share(count["pods"] - count["wrong pods"], count["pods"]),
            str(count["nodes"]),
            _share(count["nodes"] - count["wrong nodes"], count["nodes"]),
            why,
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


sys.exit(main(sys.argv[1:]))
