"""The texts of a search's result, for the terminal, the page and the files of profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.tools.whatif.tuning.objectives import Objective, mean_of, spread_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.tools.whatif.tuning.comparison import Candidate, Compared, Tuned

    Row = tuple[str, list[str]]


def lead(result: Tuned) -> str:
    """Return which candidate is best."""
    if not result.candidates:
        return "No trial is better than today's profile."
    if not result.recommended:
        return "No candidate is better than today's profile beyond the noise without being worse elsewhere."
    best = next(each for each in result.candidates if each.name == result.recommended)
    return f"Best: {verdict(best)}"


def verdict(candidate: Candidate) -> str:
    """Return in which objectives a candidate is better or worse than today's profile, or the same."""
    parts: dict[str, list[str]] = {}
    for name, each in candidate.objectives.items():
        parts.setdefault(each.verdict, []).append(f"{Objective(name).title} {_compared(each)}")
    if candidate.placed:
        word = "better" if candidate.placed > 0 else "worse"
        parts.setdefault(word, []).insert(0, f"pods placed {candidate.placed:+,}")
    texts = [
        f"{word}: {', '.join(parts[key])}"
        for key, word in (
            ("better", "better"),
            ("worse", "worse"),
            ("same", "no difference beyond the noise"),
        )
        if key in parts
    ]
    return f"{candidate.name}: {'; '.join(texts)}."


def _compared(each: Compared) -> str:
    return f"{number(each.value)} instead of {number(each.today)} ({apart(each)})"


def apart(each: Compared) -> str:
    """Return a difference and its noise."""
    noise = "unknown" if each.noise is None else number(each.noise)
    return f"{'+' if each.difference > 0 else ''}{number(each.difference)} ± {noise}"


def number(value: float) -> str:
    """Return a number with two decimals, from 100 on with one, from 1000 on with none."""
    size = abs(value)
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2}f}"


def about(result: Tuned) -> str:
    """Describe the search: its trials, and what was held out."""
    trials = [
        f"{result.complete:,} complete trials",
        f"{result.pruned:,} pruned",
        f"{result.rejected:,} rejected",
    ]
    if result.held_out == result.parts:
        on, held_out = "", "with"
    else:
        on = f" on the first {result.played} of {result.parts} parts"
        held_out = f"on the last {result.held_out} parts with"
    return (
        f"{result.source}, profile {result.profile}: {', '.join(trials)}{on} with {_listed(result.seeds)}; "
        f"compared {held_out} {_listed(result.held_out_seeds)}"
    )


def _listed(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def titles(result: Tuned) -> list[str]:
    """Return the titles of the columns: today's profile, and the candidates."""
    return [result.today.name, *(each.name for each in result.candidates)]


def objectives(result: Tuned) -> Iterator[Row]:
    """Yield the rows of the table of objectives: mean ± standard deviation between parts."""
    for name in result.objectives:
        columns = [each.values[name] for each in (result.today, *result.measured)]
        yield (
            Objective(name).title,
            [f"{number(mean_of(each))} ± {number(spread_of(each))}" for each in columns],
        )
    yield "pods placed", [f"{each.placed:,}" for each in (result.today, *result.measured)]


def differences(result: Tuned) -> Iterator[Row]:
    """Yield the rows of the table of differences: mean ± noise, and the verdict."""
    for name in result.objectives:
        each = [candidate.objectives[name] for candidate in result.candidates]
        yield Objective(name).title, [f"{apart(one)} ({one.verdict})" for one in each]


def changes(result: Tuned) -> Iterator[Row]:
    """Yield the rows of the table of changes: a parameter, today's value, and that of each candidate that changes it."""
    by_candidate = [{each.parameter: each for each in one.changes} for one in result.candidates]
    names = dict.fromkeys(name for each in by_candidate for name in each)
    for name in names:
        today = next(each[name].today for each in by_candidate if name in each)
        cells = [str(each[name].value) if name in each else "" for each in by_candidate]
        yield name, [str(today), *cells]


def not_told_apart(result: Tuned) -> Iterator[str]:
    """Yield what the search could not tell apart."""
    for each in result.candidates:
        if each.left_out:
            yield (
                f"{each.name}: the values of {', '.join(each.left_out)} do not matter within the noise; it has today's"
            )
    for one, other in result.same_candidates:
        yield f"{one} and {other} do not differ beyond the noise"
    for each in result.candidates:
        same = [Objective(name).title for name, one in each.objectives.items() if one.verdict == "same"]
        if same:
            yield f"{each.name} and today's profile do not differ beyond the noise: {', '.join(same)}"


def heading(result: Tuned, candidate: Candidate) -> list[str]:
    """Return the comment at the beginning of a candidate's file."""
    changed = [f"{each.parameter}: {each.value} instead of {each.today}" for each in candidate.changes]
    return [f"custom-scheduler tune, {about(result)}.", verdict(candidate), *changed]
