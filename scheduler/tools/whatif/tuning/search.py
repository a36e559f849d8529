"""The search of `tune`: an Optuna study whose trials are simulations; some processes, also of several machines, share it.

Optuna is an optional extra; only `study_of` and the processes of a search import it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from itertools import count
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.configuration.write import to_plain
from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.tools.whatif.processes import Progress, given, progress, side_by_side
from scheduler.tools.whatif.simulation.parallel_simulations import SimulationJob, play
from scheduler.urls import shown_text, shown_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.simulation.simulation_measures import PartFigures, Result
    from scheduler.tools.whatif.simulation.workload import Workload
    from scheduler.tools.whatif.tuning.objectives import Objective
    from scheduler.tools.whatif.tuning.parameters import Parameter, TunedProfile, Value

_EXTRA: Final = "custom-scheduler[tune]"
_SUBJECT: Final = "subject"
_PLACED: Final = "placed"
_REJECTED: Final = "rejected"
_STARTUP_TRIALS: Final = 10
_TODAY: Final = "today's profile"


class SearchError(SchedulerError):
    """The study cannot be opened, or is of another search."""


class Sampler(Enum):
    """How Optuna chooses the values of a trial."""

    TPE = "tpe"
    NSGA2 = "nsga2"
    RANDOM = "random"


class Pruner(Enum):
    """How Optuna decides whether a trial ends early."""

    MEDIAN = "median"
    HALVING = "halving"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched, and how.

    Attributes:
        workload: the workload.
        profile: the profile.
        parameters: name -> parameter to search.
        objectives: what is better; with several, the result is a Pareto front.
        parts: number of parts of the workload.
        played: number of parts that trials play; the others are held out.
        seeds: seeds of each trial.
        arrivals: number of pods to draw from the workload for each seed; None for the workload itself.
        trials: number of trials of the study, those of earlier runs and other machines included.
        seed: seed of the sampler.
        storage: URL of a database, or path of a journal file.
        study: name of the study in the storage.
    """

    workload: Workload
    profile: TunedProfile
    parameters: Mapping[str, Parameter]
    objectives: Sequence[Objective]
    parts: int
    played: int
    seeds: Sequence[int]
    arrivals: int | None
    trials: int
    seed: int
    storage: str
    study: str
    sampler: Sampler = Sampler.TPE
    pruner: Pruner = Pruner.MEDIAN

    @property
    def today(self) -> dict[str, Value]:
        """Today's values, without those outside of their range."""
        return {name: each.today for name, each in self.parameters.items() if each.has(each.today)}

    def job(self, config: str, seed: int, *, played: int | None) -> SimulationJob:
        """Return the simulation of a configuration with a seed; `played` is the number of parts, None for all."""
        return SimulationJob(config, seed, arrivals=self.arrivals, parts=self.parts, played=played)

    def candidate(self, values: Mapping[str, Value], source: str) -> Configuration:
        """Return the configuration with these values.

        Raises:
            ConfigurationError: the values contradict each other.
        """
        return self.profile.with_values(self.parameters, values, source)

    def subject(self) -> str:
        """Return a digest of everything that makes trials comparable."""
        first = self.workload.arrivals[0]
        parts = [
            to_plain(self.profile.configuration),
            self.profile.scheduler_name,
            [each.value for each in self.objectives],
            [(name, each.values) for name, each in sorted(self.parameters.items())],
            [self.parts, self.played, [*self.seeds], self.arrivals],
            [len(self.workload.arrivals), len(self.workload.events), len(self.workload.cluster.nodes)],
            [first.pod.key, first.at, self.workload.arrivals[-1].at],
        ]
        return hashlib.sha256(msgspec.json.encode(parts, enc_hook=str)).hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """One complete trial.

    Attributes:
        number: its number in the study.
        values: name of a parameter -> value.
        measured: value of each objective.
    """

    number: int
    values: dict[str, Value]
    measured: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The trials of a study.

    Attributes:
        found: the complete trials, by number.
        pruned: number of trials that ended early.
        rejected: number of trials that placed fewer pods than today's profile, or whose values contradict each other.
        failed: number of interrupted trials.
    """

    found: list[Found]
    pruned: int
    rejected: int
    failed: int

    def ranked(self) -> list[Found]:
        """Return the trials by their first objective, then by the others; of trials with the same values only the first one."""
        distinct = {tuple(sorted(each.values.items())): each for each in reversed(self.found)}
        return sorted(distinct.values(), key=lambda each: (each.measured, each.number))

    def best(self) -> list[Found]:
        """Return the trials of `ranked` that no other trial dominates: with one objective the best, with several the front."""
        ranked = self.ranked()
        return [each for each in ranked if not any(map(partial(_dominates, each), ranked))]


def _dominates(one: Found, other: Found) -> bool:
    """Return whether the other trial is nowhere worse, and somewhere better."""
    return other.measured != one.measured and all(
        theirs <= ours for ours, theirs in zip(one.measured, other.measured, strict=True)
    )


def _optuna() -> Any:
    """Import Optuna.

    Raises:
        SearchError: it is not installed.
    """
    try:
        optuna = import_module("optuna")
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise SearchError(f"tune needs Optuna, which is optional: pip install {_EXTRA!r}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def study_of(search: Search, worker: int = 0) -> Study:
    """Open the study of a search, or create it.

    Args:
        search: the search.
        worker: number of this process; each samples other values.

    Raises:
        SearchError: Optuna is not installed, the storage cannot be used, or the study is of another search.
    """
    optuna = _optuna()
    try:
        storages = optuna.storages
        if "://" in search.storage:
            # Without a pool, no connection stays open after its use: nothing here would close it.
            unpooled = {"poolclass": import_module("sqlalchemy.pool").NullPool}
            storage = storages.RDBStorage(search.storage, engine_kwargs=unpooled)
        else:
            storage = storages.JournalStorage(storages.journal.JournalFileBackend(search.storage))
        study: Study = optuna.create_study(
            storage=storage,
            study_name=search.study,
            directions=["minimize"] * len(search.objectives),
            load_if_exists=True,
        )
        known = study.user_attrs.get(_SUBJECT)
        if known is None:
            study.set_user_attr(_SUBJECT, search.subject())
        done = len(study.get_trials(deepcopy=False))
    except Exception as error:  # noqa: BLE001 - the drivers of databases have their own errors
        where = shown_url(search.storage) if "://" in search.storage else search.storage
        raise SearchError(
            f"{where}: {type(error).__name__}: {shown_text(str(error), search.storage)}"
        ) from None
    if known is not None and known != search.subject():
        raise SearchError(
            f"the study {search.study!r} is of another workload, profile, objective or set of parameters: "
            "choose another --out or --study"
        )
    study.sampler = _sampler(optuna, search, Random(f"{search.seed}/{worker}/{done}").getrandbits(32))
    study.pruner = _pruner(optuna, search)
    return study


def _sampler(optuna: Any, search: Search, seed: int) -> Any:
    match search.sampler:
        case Sampler.TPE:
            return optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=_STARTUP_TRIALS, multivariate=True, constant_liar=True
            )
        case Sampler.NSGA2:
            return optuna.samplers.NSGAIISampler(seed=seed, population_size=_STARTUP_TRIALS)
        case Sampler.RANDOM:
            return optuna.samplers.RandomSampler(seed=seed)


def _pruner(optuna: Any, search: Search) -> Any:
    match search.pruner:
        case Pruner.MEDIAN:
            return optuna.pruners.MedianPruner(n_startup_trials=_STARTUP_TRIALS // 2)
        case Pruner.HALVING:
            return optuna.pruners.SuccessiveHalvingPruner()
        case Pruner.NONE:
            return optuna.pruners.NopPruner()


def search_all(search: Search, *, processes: int, show: bool = False) -> Outcome:
    """Run the trials that the study lacks, and return all its trials.

    Args:
        search: the search.
        processes: number of processes.
        show: whether to show the progress on standard error.

    Raises:
        SearchError: as `study_of`.
        OtherProcessError: a plugin is broken, or an object that a plugin needs is malformed.
    """
    study = study_of(search)
    if _PLACED not in study.user_attrs:
        _add_today(study, search, processes, show=show)
    left = search.trials - _done(study)
    if left > 0:
        workers = max(1, min(processes, left))
        shares = [left // workers + (number < left % workers) for number in range(workers)]
        calls = [partial(_run_trials, number, share) for number, share in enumerate(shares)]
        for future in side_by_side(
            search, calls, processes=workers, shown=Progress("trials", left) if show else None
        ):
            future.result()
    return _outcome(study)


def _done(study: Study) -> int:
    states = import_module("optuna.trial").TrialState
    return len(study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))


def _add_today(study: Study, search: Search, processes: int, *, show: bool) -> None:
    """Add a trial of today's profile, and the number of pods that it places."""
    jobs = [search.job(_TODAY, seed, played=search.played) for seed in search.seeds]
    shown = (
        Progress("pods of today's profile", sum(job.number(search.workload) for job in jobs))
        if show
        else None
    )
    calls = [partial(_run_today, job) for job in jobs]
    results = [each.result() for each in side_by_side(search, calls, processes=processes, shown=shown)]
    study.set_user_attr(_PLACED, [each.placed for each in results])
    today = search.today
    if len(today) < len(search.parameters):
        return  # the search does not allow today's values
    frozen = import_module("optuna.trial").create_trial(
        params=today,
        distributions={name: _distribution(each) for name, each in search.parameters.items()},
        values=[fmean([value_of(each, objective) for each in results]) for objective in search.objectives],
    )
    study.add_trial(frozen)


def value_of(result: Result, objective: Objective) -> float:
    """Return the value of an objective: the mean of its values in the parts."""
    return fmean([objective.of(part) for part in result.parts])


def _run_today(job: SimulationJob) -> Result:
    search: Search = given()
    return play(job, search.profile.configuration, search.workload, progress=progress)


def _distribution(parameter: Parameter) -> BaseDistribution:
    distributions = import_module("optuna.distributions")
    if parameter.low is None:
        made = distributions.CategoricalDistribution(parameter.choices)
    elif parameter.is_whole:
        made = distributions.IntDistribution(parameter.low, parameter.high)
    else:
        made = distributions.FloatDistribution(parameter.low, parameter.high)
    found: BaseDistribution = made
    return found


# In the processes.


def _run_trials(worker: int, share: int) -> None:
    search: Search = given()
    study = study_of(search, worker)
    for _ in range(share):
        if _done(study) >= search.trials:  # another machine has done the rest
            return
        study.optimize(partial(_run_trial, search), n_trials=1)
        progress(1)


def _suggested(trial: Trial, parameter: Parameter) -> Value:
    if parameter.low is None or parameter.high is None:
        return trial.suggest_categorical(parameter.name, parameter.choices)
    if parameter.is_whole:
        return trial.suggest_int(parameter.name, int(parameter.low), int(parameter.high))
    return trial.suggest_float(parameter.name, parameter.low, parameter.high)


def _run_trial(search: Search, trial: Trial) -> tuple[float, ...]:
    """Simulate the candidate of a trial with each seed, and return its objectives.

    The value after a part is the mean of the seeds so far, so that trials are compared at the same part of the same seed.
    """
    optuna = import_module("optuna")
    values = {name: _suggested(trial, each) for name, each in search.parameters.items()}
    try:
        configuration = search.candidate(values, f"trial {trial.number}")
    except ConfigurationError as error:
        trial.set_user_attr(_REJECTED, str(error))
        raise optuna.TrialPruned from error
    steps = count()
    results: list[Result] = []
    objective = search.objectives[0]
    for seed, placed in zip(search.seeds, trial.study.user_attrs[_PLACED], strict=True):
        seen: list[float] = []

        def part_ended(part: PartFigures, seen: list[float] = seen) -> None:
            seen.append(objective.of(part))
            done = [value_of(each, objective) for each in results]
            trial.report(fmean([*done, fmean(seen)]), next(steps))
            if trial.should_prune():
                raise optuna.TrialPruned

        may_be_pruned = len(search.objectives) == 1  # Optuna prunes no other studies
        result = play(
            search.job(configuration.source, seed, played=search.played),
            configuration,
            search.workload,
            part_ended=part_ended if may_be_pruned else lambda _: None,
        )
        if result.placed < placed:
            trial.set_user_attr(
                _REJECTED, f"places {result.placed} pods with seed {seed}, today's profile {placed}"
            )
            raise optuna.TrialPruned
        results.append(result)
    return tuple(fmean([value_of(each, objective) for each in results]) for objective in search.objectives)


def _outcome(study: Study) -> Outcome:
    states = import_module("optuna.trial").TrialState
    trials: list[FrozenTrial] = study.get_trials(deepcopy=False)
    rejected = sum(_REJECTED in each.user_attrs for each in trials)
    return Outcome(
        found=[
            Found(each.number, dict(each.params), tuple(each.values))
            for each in trials
            if each.state == states.COMPLETE and each.values is not None
        ],
        pruned=sum(each.state == states.PRUNED for each in trials) - rejected,
        rejected=rejected,
        failed=sum(each.state == states.FAIL for each in trials),
    )
