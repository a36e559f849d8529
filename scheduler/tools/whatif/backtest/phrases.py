"""The texts of a backtest's result, row by row, for the terminal and the page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePath
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.tools.whatif.backtest.result import PlacementCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.tools.whatif.backtest.result import (
        Backtest,
        BacktestRun,
        Figures,
        PlacementChange,
        Recorded,
    )

    Row = tuple[str, list[str]]

CAUSES: Final = {
    PlacementCause.TIPPED: "another node scored higher, decided by",
    PlacementCause.REFUSED: "the recorded node was rejected by",
    PlacementCause.TIE: "the recorded node had the same score",
    PlacementCause.GONE: "the recorded node did not exist",
    PlacementCause.SKIPPED: "the recorded node was not examined, or avoided",
}
"""Text of each cause; a plugin's name may follow."""


def titles(result: Backtest) -> list[str]:
    """Return the titles of the columns."""
    return [title_of(title) for title, _ in result.columns]


def title_of(configuration: str) -> str:
    """Return a configuration's name without folder and suffix."""
    path = PurePath(configuration)
    return path.stem if path.suffix in {".yaml", ".yml", ".json"} else configuration


class _Criterion(NamedTuple):
    """A figure that decides whether a configuration is better: the lower the better.

    Attributes:
        name: the figure, as in the table.
        read: returns the value.
        form: returns it as text.
        least: smaller differences do not count.
        share: nor do differences below this share of the other value.
    """

    name: str
    read: Callable[[Figures], float]
    form: Callable[[float], str]
    least: float
    share: float = 0.0

    def differs(self, value: float, other: float) -> bool:
        """Return whether two values differ noticeably."""
        return abs(value - other) >= max(self.least, self.share * abs(other))


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _fragmentation(figures: Figures) -> float:
    return fmean(figures.mean_fragmentation.values()) if figures.mean_fragmentation else 0.0


_CRITERIA: Final = (
    _Criterion("never placed", lambda it: it.never_placed, _count, 1),
    _Criterion("evictions", lambda it: it.evictions, _count, 1),
    _Criterion("wait, p99", lambda it: it.waits.p99, lambda seconds: f"{_seconds(seconds)} s", 0.1, 0.05),
    _Criterion("nodes in use, mean", lambda it: it.nodes.mean_in_use, lambda mean: f"{mean:,.1f}", 0.5, 0.01),
    _Criterion("fragmented", _fragmentation, lambda share: f"{share:.1%}", 0.01),
)


def verdicts(result: Backtest) -> list[str]:
    """Return a sentence for each configuration: in which figures it is better or worse than the recorded one.

    The recorded configuration by the same method is compared, because differences from the recording itself also
    come from the method; the recording, if that configuration cannot be built.
    """
    if result.baseline is None:
        return [_verdict(run, result.recorded.figures, "the recording") for run in result.runs]
    return [_verdict(run, result.baseline.figures, "the recorded configuration") for run in result.runs]


def _verdict(run: BacktestRun, figures: Figures, other: str) -> str:
    parts: dict[str, list[str]] = {}
    for criterion in _CRITERIA:
        now, then = criterion.read(run.figures), criterion.read(figures)
        if criterion.differs(now, then):
            text = f"{criterion.name} {criterion.form(now)} instead of {criterion.form(then)}"
            parts.setdefault("better" if now < then else "worse", []).append(text)
    title = title_of(run.configuration)
    if not parts:
        return f"{title} is as good as {other}: no figure differs noticeably."
    found = "; ".join(f"{word}: {', '.join(texts)}" for word, texts in sorted(parts.items()))
    return f"{title}, compared with {other}: {found}."


def about(recorded: Recorded) -> str:
    """Describe the recording, and what it lacks."""
    text = f"{recorded.source}: {timedelta(seconds=round(recorded.seconds))} from {recorded.began}"
    if recorded.stretches > 1:
        text += f", in {recorded.stretches} segments with {recorded.unheard_seconds:.1f} s between them"
    if recorded.decision_seconds:
        text += f"; a decision took {recorded.decision_seconds * 1000:.1f} ms"
    if recorded.torn:
        text += f"; the end of {', '.join(recorded.torn)} is missing"
    if recorded.unreadable:
        text += f"; {recorded.unreadable:,} versions of objects could not be decoded"
    if recorded.reconfigured:
        text += f"; the configuration changed {recorded.reconfigured} times, the first one is used"
    return text


def rows(result: Backtest) -> list[Row]:
    """Return the rows of the table: a name, and a figure for each column."""
    each = [figures for _, figures in result.columns]

    def row(name: str, read: Callable[[Figures], str]) -> Row:
        return name, [read(figures) for figures in each]

    resources = list(dict.fromkeys(name for figures in each for name in figures.mean_utilisation))
    return [
        row("pods arrived", lambda it: f"{it.arrived:,}"),
        row("placed", lambda it: f"{it.placed:,}"),
        row("never placed", lambda it: f"{it.never_placed:,}"),
        row("wait, p50 (s)", lambda it: _seconds(it.waits.p50)),
        row("wait, p90 (s)", lambda it: _seconds(it.waits.p90)),
        row("wait, p99 (s)", lambda it: _seconds(it.waits.p99)),
        row("wait, max (s)", lambda it: _seconds(it.waits.max)),
        row("preemptions", lambda it: f"{it.preemptions:,}"),
        row("evictions", lambda it: f"{it.evictions:,}"),
        row("nodes in use, mean", lambda it: f"{it.nodes.mean_in_use:,.1f}"),
        row("nodes in use, min", lambda it: f"{it.nodes.least_in_use:,}"),
        row("nodes in use, max", lambda it: f"{it.nodes.most_in_use:,}"),
        row("unused nodes at the end", lambda it: f"{it.nodes.empty_at_end:,}"),
        row("node time unused", lambda it: f"{it.nodes.empty_share:.1%}"),
        *(row(f"{name} requested", _reader("mean_utilisation", name)) for name in resources),
        *(row(f"{name} fragmented", _reader("mean_fragmentation", name)) for name in resources),
        *(row(f"{zone or 'no zone'}: {name}", _zone_reader(zone, name)) for zone, name in zones(result)),
    ]


def zones(result: Backtest) -> list[tuple[str, str]]:
    """Return the zones and their resources; none if there is only one zone."""
    found = {
        zone: sample.zones[zone]
        for _, each in result.columns
        for sample in each.samples
        for zone in sample.zones
    }
    return [(zone, name) for zone in sorted(found) for name in found[zone]] if len(found) > 1 else []


def elsewhere(run: BacktestRun) -> str:
    """Return how many pods are placed on other nodes."""
    moves = run.moves
    text = f"{moves.elsewhere:,} pods on another node, {moves.same:,} on the recorded node"
    if moves.only_now:
        text += f", {moves.only_now:,} not placed in the recording"
    if moves.only_then:
        text += f", {moves.only_then:,} placed only in the recording"
    return text


def no_baseline(result: Backtest) -> str:
    """Return why the recorded configuration has no column; "" if it has one."""
    return result.no_baseline and f"The recorded configuration cannot be built here: {result.no_baseline}"


def causes(run: BacktestRun) -> Iterator[tuple[str, int]]:
    """Yield the causes of moves and their numbers, the most frequent cause first."""
    of_run = run.moves.causes
    for cause in sorted(of_run, key=lambda cause: -sum(of_run[cause].values())):
        for by, number in of_run[cause].items():
            yield f"{CAUSES[cause]} {by}".rstrip(), number


def provisos(run: BacktestRun) -> Iterator[str]:
    """Yield notes about the accuracy of the figures."""
    if run.held:
        yield (f"{run.held:,} pods must follow their volumes or devices, which the recorded placements chose")
    if run.run_on:
        yield (
            f"{run.run_on:,} pods were evicted in the recording, so their run time is unknown: they run to the end"
        )
    if run.dropped:
        yield (
            f"{run.dropped:,} pods of the recording replaced evicted pods: they do not arrive, because the evicted pods run on"
        )
    if run.renamed:
        yield f"{run.renamed:,} pods have a profile that the configuration lacks: its first profile places them"
    if run.figures.others_evicted:
        yield f"{run.figures.others_evicted:,} of the evicted pods belong to other schedulers, and are not replaced"
    if run.not_recorded:
        yield f"not recorded, treated as absent: {', '.join(run.not_recorded)}"


def _reader(attribute: str, name: str) -> Callable[[Figures], str]:
    return lambda figures: f"{getattr(figures, attribute).get(name, 0.0):.1%}"


def _zone_reader(zone: str, name: str) -> Callable[[Figures], str]:
    def read(figures: Figures) -> str:
        known = [each.zones[zone].get(name, 0.0) for each in figures.samples if zone in each.zones]
        return f"{sum(known) / len(known):.1%}" if known else "-"

    return read


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f}" if seconds < 100 else f"{seconds:,.0f}"


def scores(move: PlacementChange) -> str:
    """Return the plugins whose scores of the two nodes differ, the largest difference first."""
    apart = [
        (here - there, name, here, there) for name, (here, there) in move.scores.items() if here != there
    ]
    return ", ".join(f"{name} {here} → {there}" for _, name, here, there in sorted(apart))
