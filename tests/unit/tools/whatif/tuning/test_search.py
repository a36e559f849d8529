"""A search finds better values, continues, and compares them on what it held out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import default, parse
from scheduler.tools.whatif.simulation.workload import Arrival
from scheduler.tools.whatif.tuning import search as module
from scheduler.tools.whatif.tuning.comparison import chosen, tune
from scheduler.tools.whatif.tuning.objectives import Objective
from scheduler.tools.whatif.tuning.parameters import Parameter, TunedProfile
from scheduler.tools.whatif.tuning.search import (
    Found,
    Outcome,
    Pruner,
    Sampler,
    Search,
    SearchError,
    search_all,
)
from tests.support.builders import pod
from tests.unit.tools.whatif.tuning.workloads import HEAD, PACKING, needs_packing, small

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.tools.whatif.simulation.workload import Workload

STRATEGY = "NodeResourcesFit.scoringStrategy"
SMALL = small()


@cache
def subject(text: str, requests: tuple[str, ...]) -> tuple[TunedProfile, dict[str, Parameter]]:
    profile = TunedProfile(parse(text))
    return profile, profile.searched(["*=today", *requests])


def searching(folder: Path, workload: Workload, text: str, *requests: str, **fields: Any) -> Search:
    profile, parameters = subject(text, requests)
    found = Search(
        workload=workload,
        profile=profile,
        parameters=parameters,
        objectives=[Objective.NODES],
        parts=6,
        played=4,
        seeds=[1],
        arrivals=None,
        trials=6,
        seed=1,
        storage=str(folder / "study.journal"),
        study="tune",
        sampler=Sampler.RANDOM,
        pruner=Pruner.NONE,
    )
    return replace(found, **fields)


def packing(folder: Path, workload: Workload = SMALL, **fields: Any) -> Search:
    """Return a search among all strategies, and for the weight of a plugin without an effect."""
    requests = [f"{STRATEGY}={{type: LeastAllocated}}|{{type: MostAllocated}}", "ImageLocality.weight=1..20"]
    return searching(folder, workload, HEAD, *requests, **fields)


def test_a_search_finds_the_better_strategy_and_leaves_out_what_has_no_effect(tmp_path: Path):
    result, configurations = tune(packing(tmp_path), "small", [7, 8, 9], candidates=2, processes=1)

    (best,) = result.candidates  # candidates that differ by nothing that has an effect are one
    assert [(each.parameter, each.value) for each in best.changes] == [(STRATEGY, "{type: MostAllocated}")]
    assert best.left_out == ["ImageLocality.weight"]
    nodes_in_use = best.objectives["nodes"]
    assert nodes_in_use.verdict == "better"
    assert nodes_in_use.value < nodes_in_use.today - nodes_in_use.noise
    assert result.recommended == best.name
    assert (
        configurations[best.name].settings.profiles[0].plugin_config
        != default().settings.profiles[0].plugin_config
    )
    assert (result.played, result.held_out, result.held_out_seeds) == (4, 2, [7, 8, 9])
    assert [len(seed) for seed in result.today.values["nodes"]] == [2, 2, 2]


def test_the_same_seed_finds_the_same_with_one_process(tmp_path: Path):
    (tmp_path / "again").mkdir()

    first, second = (
        search_all(packing(folder, sampler=Sampler.TPE), processes=1)
        for folder in (tmp_path, tmp_path / "again")
    )

    assert first == second
    assert [each.number for each in first.found] == [*range(6)]
    assert first.found[0].values == {STRATEGY: "{type: LeastAllocated}", "ImageLocality.weight": 1}


@pytest.mark.parametrize("storage", ["study.journal", "sqlite:///{folder}/study.db"])
def test_a_search_continues_where_it_ended(tmp_path: Path, storage: str):
    where = storage.format(folder=tmp_path) if "://" in storage else str(tmp_path / storage)

    first = search_all(packing(tmp_path, storage=where, trials=3), processes=2)
    same = search_all(packing(tmp_path, storage=where, trials=3), processes=2)
    more = search_all(packing(tmp_path, storage=where, trials=5), processes=1)

    assert (len(first.found), len(more.found)) == (3, 5)
    assert same == first
    assert more.found[:3] == first.found
    assert len({str(each.values) for each in more.found}) > 3  # a continued search draws other values


@pytest.mark.parametrize(
    "fields",
    [
        {"objectives": [Objective.WAIT_P99]},
        {"played": 3},
        {"seeds": [2]},
        {"workload": replace(SMALL, arrivals=SMALL.arrivals[1:])},
    ],
    ids=["objective", "parts", "seeds", "workload"],
)
def test_a_study_of_another_search_is_refused(tmp_path: Path, fields: dict[str, Any]):
    search_all(packing(tmp_path, trials=1), processes=1)

    with pytest.raises(SearchError, match="is of another workload, profile, objective or set of parameters"):
        search_all(packing(tmp_path, trials=1, **fields), processes=1)


def test_a_trial_that_places_fewer_pods_than_today_is_rejected(tmp_path: Path):
    strategies = f"{STRATEGY}={{type: LeastAllocated}}|{{type: MostAllocated}}"
    search = searching(
        tmp_path,
        needs_packing(),
        PACKING,
        strategies,
        objectives=[Objective.FRAGMENTATION],
        parts=4,
        played=4,
    )

    outcome = search_all(search, processes=1)

    assert outcome.rejected > 0
    assert {each.values[STRATEGY] for each in outcome.found} == {"{type: MostAllocated}"}


def test_a_trial_that_is_worse_than_the_others_ends_early(tmp_path: Path):
    outcome = search_all(packing(tmp_path, trials=14, pruner=Pruner.MEDIAN), processes=1)

    assert outcome.pruned > 0
    assert len(outcome.found) + outcome.pruned == 14


def test_several_objectives_have_a_front(tmp_path: Path):
    objectives = [Objective.NODES, Objective.FRAGMENTATION]

    result, _ = tune(packing(tmp_path, objectives=objectives), "small", [7, 8], candidates=3, processes=1)

    assert result.objectives == ["nodes", "fragmentation"]
    assert result.front == sorted(result.front)
    assert all(len(values) == 2 for _, values in result.history)
    assert {*result.candidates[0].objectives} == {"nodes", "fragmentation"}


def test_pods_that_arrive_together_are_one_part_whose_seeds_are_held_out(tmp_path: Path):
    arrivals = [Arrival(pod(f"p-{each}", cpu="1", memory="1Gi"), 0.0) for each in range(4)]
    search = packing(tmp_path, workload=replace(SMALL, arrivals=arrivals), parts=1, played=1)

    result, _ = tune(search, "burst", [7, 8, 9], candidates=1, processes=1)

    assert (result.parts, result.held_out) == (1, 1)
    assert result.today.values["nodes"] == [[4.0]] * 3
    assert result.candidates[0].objectives["nodes"].value == 1.0


def test_seeds_that_draw_pods_are_of_the_same_length(tmp_path: Path):
    result, _ = tune(
        packing(tmp_path, arrivals=30, seeds=[1, 2]), "drawn", [7, 8, 9], candidates=1, processes=1
    )

    assert result.recommended
    assert result.today.values["nodes"][0] != result.today.values["nodes"][1]  # each seed draws other pods


def outcome(*measured: tuple[float, ...]) -> Outcome:
    found = [Found(number, {"a": number}, values) for number, values in enumerate(measured)]
    return Outcome(found, pruned=0, rejected=0, failed=0)


def test_the_best_trials_of_one_objective_are_ordered_by_it():
    assert [each.number for each in chosen(outcome((3.0,), (1.0,), (2.0,), (1.0,)), 3)] == [1, 3, 2]
    assert chosen(outcome(), 3) == []


def test_of_a_front_the_balanced_trial_comes_first_and_then_the_best_of_each_objective():
    trials = outcome((0.0, 10.0), (10.0, 0.0), (2.0, 3.0), (9.0, 9.0), (5.0, 1.0))

    assert [each.number for each in trials.best()] == [0, 2, 4, 1]
    assert [each.number for each in chosen(trials, 3)] == [2, 0, 1]
    assert [each.number for each in chosen(trials, 9)] == [2, 0, 1, 4]


def test_without_optuna_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(module, "import_module", missing)

    with pytest.raises(SearchError, match=r"pip install 'custom-scheduler\[tune\]'"):
        search_all(packing(tmp_path), processes=1)


def test_a_storage_that_cannot_be_used_is_reported_without_its_password(tmp_path: Path):
    with pytest.raises(SearchError) as raised:
        search_all(packing(tmp_path, storage="rubbish://me:secret@host/name"), processes=1)

    assert "rubbish" in str(raised.value)
    assert "secret" not in str(raised.value)
