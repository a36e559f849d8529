"""Work that takes longer than one time slice is done in short steps, and cached: the work is counted."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.volume_binding import candidates, reachability
from plugins.volume_binding.candidates import VolumeCandidates
from plugins.volume_binding.node_volumes import NodeVolumes
from plugins.volumes.storage import VOLUMES
from plugins.volumes.volume_restrictions import VolumeRestrictions
from scheduler.framework import CycleState, NeedsTime
from scheduler.snapshot import object_store
from scheduler.testing.fakes import FakeTimeSlice
from scheduler.testing.samples import claim, csi_driver, only_on, storage_capacity, storage_class, volume
from tests.unit.plugins.volume_binding.small_cluster import HOST, LOCAL, Stage, using

LOCAL_CLASS = storage_class("local", provisioner=LOCAL)


def offered(number: int, host: str = "n1", **more: Any) -> dict[str, Any]:
    spec = {
        "storageClassName": "local",
        "capacity": {"storage": f"{number + 1}Gi"},
        "nodeAffinity": only_on(HOST, host),
    }
    return volume(f"v{number}", phase="Available", **spec | more)


def selecting(number: int) -> dict[str, Any]:
    """Return a claim for any volume without a certain label."""
    others = [{"key": "number", "operator": "NotIn", "values": [f"{number}"]}]
    return claim(f"c{number}", class_name="local", selector={"matchExpressions": others})


class Counted:
    """Work since `begin`: objects decoded and read, traits compared, rules evaluated on nodes, claims matched."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.work = self.total = self.searches = 0
        self._count(patch, object_store, "typed_object")
        self._count(patch, candidates, "traits_of")
        self._count(patch, candidates.VolumeDemand, "admits")
        self._count(patch, reachability, "nodes_in")
        self._count(patch, reachability.Selection, "first")

    def _count(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*args: Any) -> Any:
            self.work += 1
            self.total += 1
            self.searches += name == "first"
            return original(*args)

        patch.setattr(owner, name, counted)

    def begin(self) -> None:
        self.work = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def impatient(*objects: dict[str, Any]) -> Stage:
    """Return a stage whose time slices always end at once."""
    limit = FakeTimeSlice()
    limit.slice_seconds, limit.each_reading = 1.0, 1.0
    return Stage(LOCAL_CLASS, *objects, time_slice=limit)


def judged_in_steps(
    stage: Stage, waiting: Any, counted: Counted, between: Any = None
) -> tuple[list[bool], list[str]]:
    """Evaluate a pod in as many attempts as needed; no step may do more than 64 pieces of work.

    Returns:
        Which nodes pass, and `claim -> volume` on node n1.
    """
    for _ in range(50):
        state, snapshot = CycleState(), stage.table.snapshot()
        counted.begin()
        try:
            assert stage.plugin.pre_filter(state, waiting, snapshot) is None
            outcomes = stage.plugin.filter(state, waiting, snapshot, snapshot.all_rows)
        except NeedsTime as needs:
            assert counted.work <= 64
            counted.begin()
            for step, _ in enumerate(needs.steps):
                assert counted.work <= 64
                if between is not None:
                    between(step)
                counted.begin()
        else:
            assert counted.work <= 64
            found = state.read("VolumeBinding", NodeVolumes).on("n1")
            assert found is not None
            return outcomes.passing.tolist(), [
                f"{each.metadata.name} -> {name}" for each, name in found.bindings
            ]
    raise AssertionError("no answer")


def test_volumes_are_first_read_in_steps(counted: Counted) -> None:
    stage = impatient(*(offered(number) for number in range(300)), claim("data", class_name="local"))

    passing, _ = judged_in_steps(stage, using("data"), counted)

    assert passing == [True, False, False]


def test_a_new_volume_does_not_affect_the_others(counted: Counted) -> None:
    stage = Stage(
        LOCAL_CLASS, *(offered(number) for number in range(1, 300)), claim("data", class_name="local")
    )
    assert stage.chosen(using("data"), "n1") == ["data -> v1"]
    stage.show(offered(0))
    counted.begin()

    assert stage.chosen(using("data"), "n1") == ["data -> v0"]
    assert counted.work <= 6


def test_claims_with_different_selectors_are_evaluated_once_in_steps(counted: Counted) -> None:
    volumes = [offered(number) for number in range(200)]
    for number, each in enumerate(volumes):
        each["metadata"]["labels"] = {"number": f"{number}"}
    claims = [selecting(number) for number in range(10)]
    stage = impatient(*volumes, *claims)
    waiting = using(*(f"c{number}" for number in range(10)))

    passing, chosen = judged_in_steps(stage, waiting, counted)

    assert passing == [True, False, False]
    assert counted.total <= 2 * 200 + 11 * 200 + 200
    assert chosen == Stage(LOCAL_CLASS, *volumes, *claims).chosen(waiting, "n1")


def test_claims_of_different_sizes_are_matched_in_steps(counted: Counted) -> None:
    volumes = [offered(number) for number in range(100)]
    claims = [claim(f"c{number}", class_name="local", storage=f"{number + 1}Gi") for number in range(40)]
    stage = impatient(*volumes, *claims)
    waiting = using(*(f"c{number}" for number in range(40)))

    _, chosen = judged_in_steps(stage, waiting, counted)

    assert chosen == [f"c{number} -> v{number}" for number in range(40)]


def test_a_claim_named_very_often_is_matched_in_steps(counted: Counted) -> None:
    stage = impatient(*(offered(number) for number in range(100)), claim("data", class_name="local"))
    waiting = using(*["data"] * 60)

    _, chosen = judged_in_steps(stage, waiting, counted)

    assert chosen == [f"data -> v{number}" for number in range(60)]


def test_thousands_of_changed_capacity_reports_are_read_in_steps(counted: Counted) -> None:
    def report(number: int, size: int) -> dict[str, Any]:
        return storage_capacity(f"r{number}", "made", f"{size}Gi", labels={HOST: f"n{1 + number % 3}"})

    stage = impatient(storage_class("made"), csi_driver(), claim("data", class_name="made", storage="50Gi"))
    for size in (10, 60):
        stage.show(*(report(number, size if number == 1 else 20) for number in range(300)))
        passing, _ = judged_in_steps(stage, using("data"), counted)

    assert passing == [False, True, False]


def test_volumes_with_distinct_node_affinity_are_evaluated_in_steps(counted: Counted) -> None:
    def elsewhere(number: int) -> dict[str, Any]:
        terms = [{"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}]
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}

    volumes = [offered(number, **elsewhere(number)) for number in range(200)]
    stage = impatient(*volumes, claim("data", class_name="local"))

    passing, _ = judged_in_steps(stage, using("data"), counted)

    assert all(passing)


def test_concurrent_changes_are_used_without_restarting_the_rest(counted: Counted) -> None:
    volumes = [offered(number) for number in range(100)]
    claims = [claim(f"c{number}", class_name="local", storage=f"{number + 1}Gi") for number in range(40)]
    stage = impatient(*volumes, *claims)
    waiting = using(*(f"c{number}" for number in range(40)))
    taken = [30, 20, 10]

    def others(step: int) -> None:
        if taken and counted.searches > taken[-1]:
            number = taken.pop()
            stage.show(offered(number, claimRef={"namespace": "other", "name": "data"}))
        elif step % 10 == 9:
            stage.show(volume(f"of-another-class-{step}", phase="Available", storageClassName="other"))

    _, chosen = judged_in_steps(stage, waiting, counted, between=others)

    assert not taken
    assert counted.searches < 10 + 20 + 30 + 45
    assert chosen == Stage(
        LOCAL_CLASS, *(stage.shown(VOLUMES, f"v{number}") for number in range(100)), *claims
    ).chosen(waiting, "n1")


@pytest.mark.parametrize("at", range(6))
def test_the_nodes_are_evaluated_again_if_the_last_one_is_removed_between_steps(at: int) -> None:
    stage = impatient(claim("c1", class_name="local"), *(offered(number) for number in range(4)))
    waiting = using("c1")

    def decide() -> int:
        state, snapshot = CycleState(), stage.table.snapshot()
        stage.plugin.pre_filter(state, waiting, snapshot)
        return len(stage.plugin.filter(state, waiting, snapshot, snapshot.all_rows).index)

    steps = 0

    def step() -> None:
        nonlocal steps
        if steps == at:
            stage.table.remove_node("n3")
        steps += 1

    while True:
        try:
            n_nodes = decide()
            break
        except NeedsTime as needs:
            step()
            for _ in needs.steps:
                step()

    assert steps > at
    assert n_nodes == stage.table.n_nodes


@pytest.mark.parametrize(("before", "after"), [("other", "c0"), ("c0", "other")])
def test_a_volume_concurrently_held_for_another_claim_is_not_chosen(
    before: str, after: str, counted: Counted
) -> None:
    def held_for(name: str) -> dict[str, Any]:
        return offered(5, claimRef={"namespace": "default", "name": name}) | {"metadata": {"name": "held"}}

    claims = [claim(f"c{number}", class_name="local", storage=f"{number + 1}Gi") for number in range(40)]
    stage = impatient(*(offered(number) for number in range(60)), *claims, held_for(before))
    waiting = using(*(f"c{number}" for number in range(40)))
    left = [held_for(after)]

    def others(_: int) -> None:
        if left and counted.searches > 20:
            stage.show(left.pop())

    _, chosen = judged_in_steps(stage, waiting, counted, between=others)

    assert not left
    assert chosen[0] == ("c0 -> held" if after == "c0" else "c0 -> v0")


def test_the_comparison_is_dropped_if_volumes_change_for_long(counted: Counted) -> None:
    volumes = [offered(number) for number in range(60)]
    claims = [claim(f"c{number}", class_name="local", storage=f"{number + 1}Gi") for number in range(40)]
    stage = impatient(*volumes, *claims)
    waiting = using(*(f"c{number}" for number in range(40)))
    left = [[offered(number, claimRef={"namespace": "other", "name": "data"}) for number in range(40)]]

    def others(_: int) -> None:
        if left and counted.searches > 20:
            stage.show(*left.pop())

    _, chosen = judged_in_steps(stage, waiting, counted, between=others)

    assert not left
    assert chosen == [f"c{number} -> v{number + 40}" for number in range(20)]


def test_very_many_claims_and_volumes_of_a_pod_are_read_in_steps(counted: Counted) -> None:
    names = [f"d{number}" for number in range(300)]
    stage = impatient(*(volume(name) for name in names), *(claim(name, name) for name in names))
    waiting, steps = using(*names), 0
    restrictions = VolumeRestrictions(time_slice=stage.limit)

    for plugin in (restrictions, stage.plugin):
        counted.begin()
        with pytest.raises(NeedsTime) as needs:
            plugin.pre_filter(CycleState(), waiting, stage.table.snapshot())
        for _ in needs.value.steps:
            assert counted.work <= 2
            counted.begin()
            steps += 1

    assert steps >= 2 * 299
    assert stage.feasible(waiting) == {"n1", "n2", "n3"}


def test_deleted_volumes_are_dropped() -> None:
    stage = Stage(LOCAL_CLASS, offered(0), claim("data", class_name="local"))
    for number in range(1, 1800):
        stage.show(offered(number))
        stage.chosen(using("data"), "n1")
        stage.show(offered(number, claimRef={"namespace": "other", "name": "c"}))

    assert stage.chosen(using("data"), "n1") == ["data -> v0"]
    (found,) = stage.plugin._kept._kept.values()
    assert isinstance(found, VolumeCandidates)
    assert len(found.ranked) < 1300
    assert len(found._traits) < 1300
