"""The result of `tune`: the best candidates, without changes that have no effect, compared with today's profile."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.tools.whatif.simulation.parallel_simulations import Jobs, run_all
from scheduler.tools.whatif.tuning.objectives import Objective, difference, mean_of, spread_of
from scheduler.tools.whatif.tuning.search import search_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.simulation.simulation_measures import Result
    from scheduler.tools.whatif.tuning.objectives import Values
    from scheduler.tools.whatif.tuning.parameters import Value
    from scheduler.tools.whatif.tuning.search import Found, Outcome, Search

TODAY: Final = "today's profile"


class Measured(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was measured with one configuration, on held-out seeds and parts.

    Attributes:
        name: the configuration.
        placed: number of placed pods, of all seeds.
        values: objective -> of each seed, the value of each part.
    """

    name: str
    placed: int
    values: dict[str, list[list[float]]]


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Another value of a parameter.

    Attributes:
        parameter: its name.
        today: today's value.
        value: the value of the candidate.
    """

    parameter: str
    today: float | str
    value: float | str


class Compared(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One objective of a candidate, compared with today's profile.

    Attributes:
        today: mean of today's profile.
        value: mean of the candidate.
        spread: standard deviation of the candidate between the parts, or, if there is one part, between the seeds.
        difference: mean difference; negative if the candidate is better.
        noise: half-width of the 95 % confidence interval of the difference; null if it is unknown.
        verdict: `better`, `worse`, or `same` if the difference is below the noise.
    """

    today: float
    value: float
    spread: float
    difference: float
    noise: float | None
    verdict: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One candidate.

    Attributes:
        name: its name.
        trial: number of its trial.
        changes: its changes of today's profile.
        left_out: names of parameters that the trial changed and the candidate does not: their values do not matter within
            the noise.
        placed: number of pods that it placed, minus that of today's profile.
        objectives: objective -> its comparison.
    """

    name: str
    trial: int
    changes: list[Change]
    left_out: list[str]
    placed: int
    objectives: dict[str, Compared]

    @property
    def is_better(self) -> bool:
        """Whether it is better in an objective, worse in none, and places no fewer pods."""
        verdicts = {each.verdict for each in self.objectives.values()}
        return self.placed >= 0 and "better" in verdicts and "worse" not in verdicts

    @property
    def gain(self) -> float:
        """The mean relative improvement of the objectives."""
        gains = [-each.difference / each.today if each.today else 0.0 for each in self.objectives.values()]
        return sum(gains) / len(gains)


class Searched(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One parameter that was searched: its name, today's value, and its possible values."""

    name: str
    today: float | str
    values: str


class Tuned(msgspec.Struct, kw_only=True, rename="camel"):
    """The result of a search.

    Attributes:
        source: the workload.
        profile: schedulerName of the profile.
        objectives: names of the objectives.
        parameters: what was searched.
        complete: number of complete trials.
        pruned: number of trials that ended early.
        rejected: number of trials that placed fewer pods than today's profile, or whose values contradict each other.
        parts: number of parts of the workload.
        played: number of parts, from the first on, that the trials played.
        held_out: number of parts on which the comparison is made; if it is `parts`, only the seeds are held out.
        seeds: seeds of the trials.
        held_out_seeds: seeds of the comparison.
        today: today's profile on the held-out seeds and parts.
        measured: the candidates on the same.
        candidates: the candidates.
        recommended: name of the best candidate; "" if none is better than today's profile.
        same_candidates: pairs of candidates whose difference is below the noise in each objective.
        history: of each complete trial, its number and its objectives.
        front: objectives of the trials that no other trial dominates.
    """

    source: str
    profile: str
    objectives: list[str]
    parameters: list[Searched]
    complete: int
    pruned: int
    rejected: int
    parts: int
    played: int
    held_out: int
    seeds: list[int]
    held_out_seeds: list[int]
    today: Measured
    measured: list[Measured]
    candidates: list[Candidate]
    recommended: str
    same_candidates: list[tuple[str, str]]
    history: list[tuple[int, list[float]]]
    front: list[list[float]]


@dataclass(frozen=True, slots=True)
class Runs:
    """The simulations of one configuration.

    Attributes:
        placed: number of placed pods, of all seeds.
        values: objective -> of each seed, the value of each part.
    """

    placed: int
    values: dict[Objective, Values]


def tune(
    search: Search,
    source: str,
    held_out_seeds: Sequence[int],
    *,
    candidates: int,
    processes: int,
    show: bool = False,
) -> tuple[Tuned, dict[str, Configuration]]:
    """Search, and compare the best candidates with today's profile.

    Args:
        search: the search.
        source: name of the workload.
        held_out_seeds: seeds of the comparison.
        candidates: number of candidates to compare.
        processes: number of processes.
        show: whether to show the progress on standard error.

    Returns:
        The result, and the configurations of its candidates by name.

    Raises:
        SearchError: as `search_all`.
        OtherProcessError: a plugin is broken, or an object that a plugin needs is malformed.
    """
    outcome = search_all(search, processes=processes, show=show)
    reduced = _without_effect(search, chosen(outcome, candidates), processes, show=show)
    values = {f"candidate {number}": each for number, each in enumerate(reduced, start=1)}
    configurations = {name: search.candidate(each.values, name) for name, each in values.items()}
    first = search.played if search.parts > search.played else 0
    held_out = _runs(
        search,
        {TODAY: search.candidate({}, TODAY), **configurations},
        held_out_seeds,
        played=None,
        first=first,
        processes=processes,
        show=show,
    )
    compared = [
        Candidate(
            name=name,
            trial=each.trial,
            changes=_changes(search, each.values),
            left_out=each.left_out,
            placed=held_out[name].placed - held_out[TODAY].placed,
            objectives=_compared(held_out[name], held_out[TODAY]),
        )
        for name, each in values.items()
    ]
    better = sorted((each for each in compared if each.is_better), key=lambda each: -each.gain)
    today, *others = [
        Measured(
            name=name,
            placed=each.placed,
            values={objective.value: [[*seed] for seed in found] for objective, found in each.values.items()},
        )
        for name, each in held_out.items()
    ]
    return Tuned(
        source=source,
        profile=search.profile.scheduler_name,
        objectives=[each.value for each in search.objectives],
        parameters=[
            Searched(name=each.name, today=each.today, values=each.values)
            for each in search.parameters.values()
        ],
        complete=len(outcome.found),
        pruned=outcome.pruned,
        rejected=outcome.rejected,
        parts=search.parts,
        played=search.played,
        held_out=search.parts - first,
        seeds=[*search.seeds],
        held_out_seeds=[*held_out_seeds],
        today=today,
        measured=others,
        candidates=compared,
        recommended=better[0].name if better else "",
        same_candidates=[
            (one, other)
            for one, other in combinations(values, 2)
            if _are_same(held_out[one], held_out[other])
        ],
        history=[(each.number, [*each.measured]) for each in outcome.found],
        front=[[*each] for each in sorted({each.measured for each in outcome.best()})],
    ), configurations


def chosen(outcome: Outcome, number: int) -> list[Found]:
    """Return the best trials of one objective, or of several objectives some trials of the Pareto front.

    Of a front, these are the trial with the least sum of relative values, the best one of each objective, and then the others
    by this sum.
    """
    front = outcome.best()
    if not front or len(front[0].measured) == 1:
        return outcome.ranked()[:number]
    least = [min(each.measured[i] for each in front) for i in range(len(front[0].measured))]
    most = [max(each.measured[i] for each in front) for i in range(len(least))]

    def relative(found: Found) -> float:
        return sum(
            (value - low) / (high - low)
            for value, low, high in zip(found.measured, least, most, strict=True)
            if high > low
        )

    def value(place: int) -> Callable[[Found], float]:
        return lambda found: found.measured[place]

    extremes = [min(front, key=value(place)) for place in range(len(least))]
    balanced, *others = sorted(front, key=relative)
    return list({each.number: each for each in (balanced, *extremes, *others)}.values())[:number]


@dataclass(frozen=True, slots=True)
class _Reduced:
    """The values of a trial, in which those without an effect are today's."""

    trial: int
    values: dict[str, Value]
    left_out: list[str]


def _without_effect(search: Search, found: Sequence[Found], processes: int, *, show: bool) -> list[_Reduced]:
    """Return today's value to each parameter whose change makes no objective better, on the seeds and parts of the trials.

    Each change is undone alone, and then all that had no effect together. If these have one together, they stay.
    """
    today = search.today
    # name of a configuration -> the trial, and the parameter that is undone
    undone: dict[str, tuple[Found, str]] = {}
    values: dict[str, dict[str, Value]] = {}
    for each in found:
        changed = [name for name, value in each.values.items() if name in today and value != today[name]]
        values[f"trial {each.number}"] = each.values
        for name in changed:
            title = f"trial {each.number} without {name}"
            undone[title] = each, name
            values[title] = {**each.values, name: today[name]}
    runs = _trial_runs(search, values, processes, show=show)
    left_out: dict[int, list[str]] = {each.number: [] for each in found}
    for title, (each, name) in undone.items():
        if not _is_worse(runs[title], runs[f"trial {each.number}"]):
            left_out[each.number].append(name)
    together = {
        f"trial {each.number}": {**each.values, **{name: today[name] for name in left_out[each.number]}}
        for each in found
    }
    checked = _trial_runs(
        search,
        {title: each for title, each in together.items() if each not in values.values()},
        processes,
        show=show,
    )
    reduced: list[_Reduced] = []
    for each in found:
        title = f"trial {each.number}"
        one = _Reduced(each.number, together[title], left_out[each.number])
        if title in checked and _is_worse(checked[title], runs[title]):
            one = _Reduced(each.number, each.values, [])
        is_new = all(one.values != other.values for other in reduced)
        if is_new and _changes(search, one.values):
            reduced.append(one)
    return reduced


def _trial_runs(
    search: Search, values: Mapping[str, Mapping[str, Value]], processes: int, *, show: bool
) -> dict[str, Runs]:
    configurations = {title: search.candidate(each, title) for title, each in values.items()}
    return _runs(
        search, configurations, search.seeds, played=search.played, first=0, processes=processes, show=show
    )


def _runs(
    search: Search,
    configurations: Mapping[str, Configuration],
    seeds: Sequence[int],
    *,
    played: int | None,
    first: int,
    processes: int,
    show: bool,
) -> dict[str, Runs]:
    """Simulate configurations with some seeds; `first` is the number of parts at the beginning that do not count."""
    jobs = Jobs(
        [search.job(name, seed, played=played) for name in configurations for seed in seeds],
        configurations.values(),
        search.workload,
    )
    results: dict[str, list[Result]] = {name: [] for name in configurations}
    if jobs:
        for job, result in run_all(jobs, processes=processes, show=show):
            results[job.config].append(result)
    return {
        name: Runs(
            placed=sum(each.placed for each in of_config),
            values={
                objective: [[objective.of(part) for part in each.parts[first:]] for each in of_config]
                for objective in search.objectives
            },
        )
        for name, of_config in results.items()
    }


def _is_worse(one: Runs, other: Runs) -> bool:
    """Return whether one configuration is worse than another in an objective, beyond the noise if that is known."""
    if one.placed < other.placed:
        return True
    apart = [difference(one.values[each], other.values[each]) for each in one.values]
    return any(each.mean > 0 and (not each.is_noise or each.noise == inf) for each in apart)


def _are_same(one: Runs, other: Runs) -> bool:
    return one.placed == other.placed and all(
        difference(one.values[each], other.values[each]).is_noise for each in one.values
    )


def _compared(ours: Runs, todays: Runs) -> dict[str, Compared]:
    found = {}
    for objective in ours.values:
        apart = difference(ours.values[objective], todays.values[objective])
        found[objective.value] = Compared(
            today=mean_of(todays.values[objective]),
            value=mean_of(ours.values[objective]),
            spread=spread_of(ours.values[objective]),
            difference=apart.mean,
            noise=apart.noise if isfinite(apart.noise) else None,
            verdict="same" if apart.is_noise else "better" if apart.mean < 0 else "worse",
        )
    return found


def _changes(search: Search, values: Mapping[str, Value]) -> list[Change]:
    return [
        Change(parameter=name, today=search.parameters[name].today, value=value)
        for name, value in values.items()
        if value != search.parameters[name].today
    ]
