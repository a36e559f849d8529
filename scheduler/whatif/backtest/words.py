"""What a backtest says, row by row, in the words that the terminal and the page share."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from scheduler.whatif.backtest.result import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.whatif.backtest.result import Backtest, Figures, Move, Recorded, Run

    Row = tuple[str, list[str]]

CAUSES: Final = {
    Cause.TIPPED: "another node scored higher, tipped by",
    Cause.REFUSED: "the recorded node was refused by",
    Cause.TIE: "the recorded node scored as high",
    Cause.GONE: "the recorded node was not there",
    Cause.SKIPPED: "the recorded node was not looked at, or avoided",
}
"""Why a pod is elsewhere; some are followed by a plugin's name."""


def titles(result: Backtest) -> list[str]:
    """Return what the columns of figures are called."""
    return [title_of(title) for title, _ in result.columns]


def title_of(configuration: str) -> str:
    """Return a configuration's name without folder and suffix."""
    path = PurePath(configuration)
    return path.stem if path.suffix in {".yaml", ".yml", ".json"} else configuration


def about(recorded: Recorded) -> str:
    """Say which recording it is, and what is missing of it."""
    said = f"{recorded.source}: {timedelta(seconds=round(recorded.seconds))} from {recorded.began}"
    if recorded.stretches > 1:
        said += f", in {recorded.stretches} parts; nobody listened for {recorded.unheard_seconds:.1f} s between them"
    if recorded.decision_seconds:
        said += f"; a decision took {recorded.decision_seconds * 1000:.1f} ms"
    if recorded.torn:
        said += f"; the end of {', '.join(recorded.torn)} is missing"
    if recorded.unreadable:
        said += f"; {recorded.unreadable:,} versions of objects could not be understood"
    if recorded.reconfigured:
        said += f"; the configuration changed {recorded.reconfigured} times in it, the first is taken"
    return said


def rows(result: Backtest) -> list[Row]:
    """Return what is told of each column: a name, and the figures."""
    each = [figures for _, figures in result.columns]

    def row(name: str, read: Callable[[Figures], str]) -> Row:
        return name, [read(figures) for figures in each]

    resources = list(dict.fromkeys(name for figures in each for name in figures.mean_utilisation))
    return [
        row("pods that came", lambda it: f"{it.arrived:,}"),
        row("placed", lambda it: f"{it.placed:,}"),
        row("never placed", lambda it: f"{it.never_placed:,}"),
        row("wait, half within (s)", lambda it: _seconds(it.waits.p50)),
        row("wait, 90% within (s)", lambda it: _seconds(it.waits.p90)),
        row("wait, 99% within (s)", lambda it: _seconds(it.waits.p99)),
        row("longest wait (s)", lambda it: _seconds(it.waits.max)),
        row("preemptions", lambda it: f"{it.preemptions:,}"),
        row("evictions", lambda it: f"{it.evictions:,}"),
        row("nodes in use, mean", lambda it: f"{it.nodes.mean_in_use:,.1f}"),
        row("nodes in use, least", lambda it: f"{it.nodes.least_in_use:,}"),
        row("nodes in use, most", lambda it: f"{it.nodes.most_in_use:,}"),
        row("empty nodes at the end", lambda it: f"{it.nodes.empty_at_end:,}"),
        row("node time empty", lambda it: f"{it.nodes.empty_share:.1%}"),
        *(row(f"{name} asked for", _reader("mean_utilisation", name)) for name in resources),
        *(row(f"{name} fragmented", _reader("mean_fragmentation", name)) for name in resources),
        *(row(f"{zone or 'no zone'}: {name}", _zone_reader(zone, name)) for zone, name in zones(result)),
    ]


def zones(result: Backtest) -> list[tuple[str, str]]:
    """Return the zones and resources there are; none where all nodes are of one."""
    found = {
        zone: sample.zones[zone]
        for _, each in result.columns
        for sample in each.samples
        for zone in sample.zones
    }
    return [(zone, name) for zone in sorted(found) for name in found[zone]] if len(found) > 1 else []


def elsewhere(run: Run) -> str:
    """Say how many pods are not where they were."""
    moves = run.moves
    said = f"{moves.elsewhere:,} pods placed elsewhere, {moves.same:,} where they were"
    if moves.only_now:
        said += f", {moves.only_now:,} only now"
    if moves.only_then:
        said += f", {moves.only_then:,} no more"
    return said


def no_baseline(result: Backtest) -> str:
    """Say why the recorded configuration is not among those that were played; "" if it is."""
    return result.no_baseline and f"The recorded configuration cannot be built here: {result.no_baseline}"


def causes(run: Run) -> Iterator[tuple[str, int]]:
    """Yield why pods are elsewhere, and how many they are; the most frequent cause first."""
    of_run = run.moves.causes
    for cause in sorted(of_run, key=lambda cause: -sum(of_run[cause].values())):
        for by, number in of_run[cause].items():
            yield f"{CAUSES[cause]} {by}".rstrip(), number


def provisos(run: Run) -> Iterator[str]:
    """Yield what is to be known about a run's figures."""
    if run.held:
        yield (
            f"{run.held:,} pods go where their volumes or devices are, which the recorded placements had chosen: "
            "that cannot be followed"
        )
    if run.run_on:
        yield (
            f"{run.run_on:,} pods were made to go in the recording, so that nobody knows how long they would have run: "
            "they stay to the end"
        )
    if run.dropped:
        yield (
            f"{run.dropped:,} pods of the recording came in the place of some that were made to go: they do not come, "
            "and the others run on instead"
        )
    if run.renamed:
        yield f"{run.renamed:,} pods are of profiles that are not in the configuration: its first places them"
    if run.figures.others_evicted:
        yield f"{run.figures.others_evicted:,} of those evicted are other schedulers' pods, and do not come again"
    if run.not_recorded:
        yield f"not recorded, so that there are none: {', '.join(run.not_recorded)}"


def _reader(attribute: str, name: str) -> Callable[[Figures], str]:
    return lambda figures: f"{getattr(figures, attribute).get(name, 0.0):.1%}"


def _zone_reader(zone: str, name: str) -> Callable[[Figures], str]:
    def read(figures: Figures) -> str:
        known = [each.zones[zone].get(name, 0.0) for each in figures.samples if zone in each.zones]
        return f"{sum(known) / len(known):.1%}" if known else "-"

    return read


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f}" if seconds < 100 else f"{seconds:,.0f}"


def scores(move: Move) -> str:
    """Say what each plugin that tells the two nodes apart gives them, the largest difference first."""
    apart = [
        (here - there, name, here, there) for name, (here, there) in move.scores.items() if here != there
    ]
    return ", ".join(f"{name} {here} → {there}" for _, name, here, there in sorted(apart))
