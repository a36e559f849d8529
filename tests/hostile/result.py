"""The result of a scenario, and the limits that it missed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.hostile.observer import Observed

if TYPE_CHECKING:
    from collections.abc import Sequence

LATE_SECONDS = 0.1
"""An innocent pod may take so long, or twice what it takes kube-scheduler."""
HEALTH_SECONDS = 0.1
"""99 percent of the polls of /healthz are answered in so long."""
STALL_SECONDS = 1.0
"""All of them are."""
LEASE_SECONDS = 10.0
"""The renew deadline: the lease is renewed within it."""


@dataclass
class Result:
    """What was measured of one scheduler in one scenario.

    Attributes:
        name: of the scenario.
        who: the scheduler.
        words: what was done.
        latencies: of each innocent pod, seconds until it was bound; None of one that was not, in its time.
        seen: by an observer, all replicas together.
        ends: the exit statuses of processes that ended by themselves.
        worst_turn: the bound, in seconds, of the bucket that the longest lag of the loop fell into.
        worst_turn_cpu: the same of the processor time of the lags.
        put_aside: attempts that were over budget.
        errors: what the log says of something that went wrong.
        figures: the scenario's own.
        broken: what the scenario expects and is not so.
    """

    name: str
    who: str
    words: str
    latencies: list[float | None] = field(default_factory=list)
    seen: Observed = field(default_factory=Observed)
    ends: list[int] = field(default_factory=list)
    worst_turn: float = 0.0
    worst_turn_cpu: float = 0.0
    put_aside: int = 0
    errors: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def bound(self) -> list[float]:
        return [latency for latency in self.latencies if latency is not None]

    def short(self, beside: Result | None = None) -> list[str]:
        """Return what is short of the limits; `beside` is kube-scheduler in the same scenario."""
        found = [*self.broken]
        if self.ends:
            found.append("exit " + ", ".join(map(str, self.ends)))
        if len(self.bound) < len(self.latencies):
            found.append(f"{len(self.latencies) - len(self.bound)} innocent pods not bound")
        allowed = LATE_SECONDS
        if beside is not None and beside.latencies:
            waited = [math.inf if latency is None else latency for latency in beside.latencies]
            allowed = max(allowed, 2 * quantile(waited, 0.99))
        if self.bound and quantile(self.bound, 0.99) > allowed:
            found.append(f"innocent pods later than {1000 * allowed:.0f} ms")
        if self.seen.health and quantile(self.seen.health, 0.99) > HEALTH_SECONDS:
            found.append("health")
        if self.seen.health and max(self.seen.health) > STALL_SECONDS:
            found.append(f"health not answered for {max(self.seen.health):.1f} s")
        if self.seen.longest_without_renewal > LEASE_SECONDS:
            found.append("lease")
        if beside is not None and self.seen.peak > beside.seen.peak:
            found.append("memory")
        return found

    def line(self, beside: Result | None = None) -> str:
        """Return all of it in one line."""
        short = self.short(beside)
        seen = self.seen
        parts = [
            f"{self.name:34} {self.who:14} {'SHORT' if short else 'ok':5}",
            "alive" if not self.ends else f"exit {', '.join(map(str, self.ends))}",
            f"lease {seen.longest_without_renewal:.1f} s",
            f"innocent {len(self.bound)}/{len(self.latencies)} in {spread(self.bound)} ms",
            f"health {spread(seen.health)} ms",
            f"turn {self.turn}",
            f"rss {seen.peak:.0f} MiB",
            f"cpu {seen.cpu:.1f} s",
            *([f"{self.put_aside} over budget"] if self.put_aside else ()),
            *self.figures,
        ]
        return "  ".join(parts) + (f"  <- {'; '.join(short)}" if short else "")

    @property
    def turn(self) -> str:
        if not self.worst_turn:
            return "-"
        return f"<= {1000 * self.worst_turn:.0f} ms, CPU <= {1000 * self.worst_turn_cpu:.0f} ms"


def quantile(values: Sequence[float], q: float) -> float:
    return sorted(values)[math.ceil(len(values) * q) - 1]


def spread(values: Sequence[float]) -> str:
    """Return the median, the 99th percentile and the maximum, in milliseconds."""
    return ", ".join(f"{1000 * quantile(values, q):.0f}" for q in (0.5, 0.99, 1.0)) if values else "none"


def table(rows: Sequence[tuple[Result, Result | None]]) -> str:
    """Return results as a table of Markdown: ours and, where it was run, kube-scheduler's."""
    lines = [
        "| | innocent pods, ms: ours; kube-scheduler's | health, ms | lease, s | peak MiB | longest turn | |",
        "|---|---|---|---|---|---|---|",
    ]
    for ours, theirs in rows:
        both = (ours,) if theirs is None else (ours, theirs)
        cells = [
            ours.words,
            "; ".join(_innocents(each) for each in both),
            "; ".join(spread(each.seen.health) for each in both),
            "; ".join(f"{each.seen.longest_without_renewal:.1f}" for each in both),
            "; ".join(f"{each.seen.peak:.0f}" for each in both),
            ours.turn,
            "; ".join(_remarks(each) for each in both if _remarks(each)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _innocents(it: Result) -> str:
    count = "" if len(it.bound) == len(it.latencies) else f"{len(it.bound)} of {len(it.latencies)}: "
    return count + spread(it.bound)


def _remarks(it: Result) -> str:
    ends = [f"exit {status}" for status in it.ends]
    said = ", ".join([*ends, *it.figures, *it.broken])
    return f"{it.who}: {said}" if said else ""
