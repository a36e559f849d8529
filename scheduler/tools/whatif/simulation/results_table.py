"""Results of simulations as tables: a row for each configuration, with the mean over its seeds."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import Console

    from scheduler.tools.whatif.simulation.simulation_measures import Result, Sample

    Column = tuple[str, Callable[[Result], float], str]
    """Title, value of a result, and format."""

_LEGEND: Final = (
    "wait: seconds from the arrival of a pod to its placement; a decision takes no time",
    "nodes: nodes with a pod other than the node's own, as a mean over time",
    "used: share of the capacity that is requested, as a mean over time",
    "frag.: share of the free capacity on nodes that the most frequent pods do not fit, as a mean over time",
)
_MOMENTS: Final = 10
"""The number of intervals between the moments at which the shares of queues are shown."""
_QUEUES: Final = 20
"""The number of queues that are shown."""
_UNITS: Final = (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))
_DEMANDS = (80, 85, 90, 95, 100, 105, 110, 115, 120, 125, 130)


def show(console: Console, results: Sequence[tuple[str, Result]]) -> None:
    """Print which configuration is best, and tables of pods, of resources and, for inflated workloads, of GPUs and failures."""
    by_config: dict[str, list[Result]] = {}
    for config, result in results:
        by_config.setdefault(config, []).append(result)
    resources = list(next(iter(by_config.values()))[0].mean_utilisation)
    pods: list[Column] = [
        ("arrived", lambda result: result.arrived, ",.0f"),
        ("placed", lambda result: result.placed, ",.0f"),
        ("failed", lambda result: result.failed, ",.0f"),
        ("waiting", lambda result: result.waiting, ",.0f"),
        ("wait p50", lambda result: result.wait_seconds["p50"], ",.0f"),
        ("p99 (s)", lambda result: result.wait_seconds["p99"], ",.0f"),
    ]
    used: list[Column] = [("nodes", lambda result: result.mean_in_use, ",.1f")]
    for name in resources:
        used.append((f"{name}", partial(_mean, "mean_utilisation", name), ".1%"))
        used.append((f"{name} frag.", partial(_mean, "mean_fragmentation", name), ".1%"))
    if len(by_config) > 1:
        console.print(Text(_best(by_config), style="bold"), soft_wrap=True)
        console.print()
    _show_means(console, by_config, pods, "configuration")
    console.print()
    _show_means(console, by_config, used, "used")
    for line in _LEGEND:
        console.print(Text(line, style="dim"), soft_wrap=True)
    for what, attribute in (("rejected attempts", "rejected"), ("resizes", "resizes")):
        for title, numbers in _sums(by_config, attribute).items():
            shown = ", ".join(f"{name} {number:,}" for name, number in numbers.most_common())
            console.print(Text(f"{what} of {title}: {shown}"), soft_wrap=True)
    for config, each in by_config.items():
        if each[0].passed_on is not UNSET:
            pods_on = fmean([result.passed_on for result in each if result.passed_on is not UNSET])
            shown = f"{pods_on:,.0f} pods were placed on nodes of another replica than their own"
            console.print(Text(f"passed on by {_title(config)}: {shown}"), soft_wrap=True)
        _show_queues(console, _title(config), [result.samples for result in each])
    demands = [each for each in _DEMANDS if any(each in result.unallocated_gpu for _, result in results)]
    if demands:
        _show_curve(
            console, by_config, demands, "unallocated GPU (%) at demand (%)", "unallocated_gpu", ".2f"
        )
        _show_curve(console, by_config, demands, "failed pods at demand (%)", "failed_at", ".0f")


def _best(by_config: dict[str, list[Result]]) -> str:
    """Return which configuration places most pods; of these, which lets them wait least and wastes least capacity."""

    def rank(config: str) -> tuple[float, float, float]:
        results = by_config[config]
        fragmentation = [
            fmean(each.mean_fragmentation.values()) for each in results if each.mean_fragmentation
        ]
        return (
            -fmean([each.placed for each in results]),
            round(fmean([each.wait_seconds["p99"] for each in results])),
            round(fmean(fragmentation), 3) if fragmentation else 0.0,
        )

    first, *others = sorted(by_config, key=rank)
    best, second = rank(first), rank(others[0])
    if best == second:
        return "The best configurations do not differ in placed pods, waiting times and fragmentation."
    reason = (
        f"it places {-best[0]:,.0f} pods, {_title(others[0])} {-second[0]:,.0f}"
        if best[0] != second[0]
        else f"its pods wait {best[1]:,.0f} s (p99), those of {_title(others[0])} {second[1]:,.0f} s"
        if best[1] != second[1]
        else f"its fragmentation is {best[2]:.1%}, that of {_title(others[0])} {second[2]:.1%}"
    )
    return f"Best: {_title(first)}: {reason}."


def _title(config: str) -> str:
    """Return the name of a configuration in a table."""
    return Path(config).stem if config else "default plugins"


def _show_means(
    console: Console, by_config: dict[str, list[Result]], columns: Sequence[Column], corner: str
) -> None:
    table = Table(corner, box=None)
    for title, _, _ in columns:
        table.add_column(title, justify="right")
    for config, each in by_config.items():
        cells = [format(fmean([read(result) for result in each]), form) for _, read, form in columns]
        table.add_row(_title(config), *cells)
    console.print(table)


def _sums(by_config: dict[str, list[Result]], attribute: str) -> dict[str, Counter[str]]:
    """Return configuration -> name -> number in all seeds, where there are any; the attribute has it by name."""
    found = {_title(config): Counter[str]() for config in by_config}
    for config, results in by_config.items():
        for result in results:
            found[_title(config)].update(getattr(result, attribute))
    return {title: numbers for title, numbers in found.items() if numbers}


def _show_queues(console: Console, title: str, runs: Sequence[Sequence[Sample]]) -> None:
    """Print the shares of queues over time, as the means of several runs, if there are queues."""
    times = [each.at for each in runs[0]]
    names = {
        name: None for run in runs for sample in run for name, each in sample.queues.items() if each.used
    }
    if not names:
        return
    last = times[-1] - times[0]
    unit, seconds = next((each for each in _UNITS if last >= each[1] * _MOMENTS), _UNITS[-1])
    moments = [times[0] + last * number / _MOMENTS for number in range(_MOMENTS + 1)]
    table = Table("shares", f"at {unit}", box=None)
    for moment in moments:
        table.add_column(f"{(moment - times[0]) / seconds:.0f}", justify="right")
    table.add_column("mean", justify="right")
    known = [[run[bisect_right(run, moment, key=attrgetter("at")) - 1] for run in runs] for moment in moments]
    every = [sample for run in runs for sample in run]
    for name in [*names][:_QUEUES]:
        title_of_row = name
        for what in ("used", "fair", "average"):
            columns = [_shares(name, what, samples) for samples in (*known, every)]
            if columns[-1]:
                cells = [format(100 * fmean(shares), ".0f") if shares else "" for shares in columns]
                table.add_row(title_of_row, what, *cells)
                title_of_row = ""
    console.print()
    console.print(
        Text(f"shares of queues of {title}: the largest part of the cluster of any resource, in %"),
        soft_wrap=True,
    )
    console.print(table)
    if len(names) > _QUEUES:
        console.print(Text(f"and {len(names) - _QUEUES:,} more queues: see -o json", style="dim"))


def _shares(name: str, what: str, samples: Iterable[Sample]) -> list[float]:
    """Return a share of a queue in the samples that have it."""
    found = (getattr(sample.queues[name], what) for sample in samples if name in sample.queues)
    return [share for share in found if share is not None]


def _mean(attribute: str, name: str, result: Result) -> float:
    return float(getattr(result, attribute)[name])


def _show_curve(
    console: Console,
    by_config: dict[str, list[Result]],
    demands: Sequence[int],
    title: str,
    attribute: str,
    form: str,
) -> None:
    table = Table(title, box=None)
    for demand in demands:
        table.add_column(str(demand), justify="right")
    for config, each in by_config.items():
        cells = []
        for demand in demands:
            known = [getattr(result, attribute) for result in each if demand in getattr(result, attribute)]
            cells.append(format(fmean([curve[demand] for curve in known]), form) if known else "")
        table.add_row(_title(config), *cells)
    console.print()
    console.print(table)
