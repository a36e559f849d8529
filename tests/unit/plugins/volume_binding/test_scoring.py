"""The scores of VolumeBinding: the gate StorageCapacityScoring."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.node_resources.allocation import UtilizationShapePoint
from plugins.volume_binding.plugin import VolumeBindingArgs
from scheduler.engine.runtime.adapters import scores_of
from scheduler.framework import SKIP
from scheduler.testing.fakes import FakeFeatures
from scheduler.testing.samples import claim, csi_driver, storage_capacity, storage_class, volume
from tests.support.builders import pod
from tests.unit.plugins.volume_binding.small_cluster import LOCAL, ZONE, Stage, using

SHAPE = tuple(UtilizationShapePoint(utilization=each, score=each // 10) for each in (0, 100))
"""The fullest storage is the best."""
NEWEST = FakeFeatures("1.37")


def scored(stage: Stage, waiting: Any) -> dict[str, int] | None:
    """Return node -> score, for the nodes that pass; None if PreScore skips."""
    state, _ = stage.judged(waiting)
    snapshot, feasible = stage.table.snapshot(), stage.feasible(waiting) if waiting.claims else {"n1"}
    rows = snapshot.all_rows[[each.name in feasible for each in stage.table.nodes]]
    if stage.plugin.pre_score(state, waiting, snapshot, rows) is SKIP:
        return None
    scores = scores_of(stage.plugin, state, waiting, snapshot, rows)
    return {snapshot.name_of(row): int(scores[row]) for row in rows.tolist()}


def cluster(*objects: Any, features: FakeFeatures = NEWEST, **given: Any) -> Stage:
    """Zone a has 100Gi of the class fast and 80Gi of slow, zone b 400Gi and 50Gi."""
    return Stage(
        storage_class("fast"),
        storage_class("slow"),
        csi_driver(),
        storage_capacity("fast-a", "fast", "100Gi", labels={ZONE: "a"}),
        storage_capacity("fast-b", "fast", "400Gi", labels={ZONE: "b"}),
        storage_capacity("slow-a", "slow", "80Gi", labels={ZONE: "a"}),
        storage_capacity("slow-b", "slow", "50Gi", labels={ZONE: "b"}),
        *objects,
        features=features,
        **given,
    )


def wants(name: str, storage: str, class_name: str = "fast") -> Any:
    return claim(name, class_name=class_name, storage=storage)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param([wants("x", "50Gi")], {"n1": 50, "n2": 88}, id="the emptiest storage is the best"),
        pytest.param(
            [wants("x", "50Gi"), wants("y", "30Gi")], {"n1": 20, "n2": 80}, id="claims of a class add up"
        ),
        pytest.param(
            [wants("x", "60Gi"), wants("y", "60Gi")], {"n1": 0, "n2": 70}, id="more than the capacity is full"
        ),
        pytest.param(
            [wants("x", "50Gi"), wants("y", "20Gi", "slow")],
            {"n1": 63, "n2": 74},  # (50 + 75) / 2 = 62.5, (88 + 60) / 2
            id="classes have their mean, rounded",
        ),
    ],
)
def test_nodes_are_scored_by_the_capacity_for_new_volumes(claims: list[Any], expected: dict[str, int]):
    waiting = using(*(each["metadata"]["name"] for each in claims))

    assert scored(cluster(*claims), waiting) == expected


def test_a_shape_may_prefer_full_storage():
    stage = cluster(wants("x", "50Gi"), args=VolumeBindingArgs(shape=SHAPE))

    assert scored(stage, using("x")) == {"n1": 50, "n2": 12}


def test_without_capacity_storage_counts_as_full():
    report = storage_capacity("fast-a", "fast", None, labels={ZONE: "a"}, maximumVolumeSize="60Gi")

    assert scored(cluster(wants("x", "50Gi"), report), using("x")) == {"n1": 0, "n2": 88}


def test_the_capacity_of_the_first_sufficient_report_counts():
    small = storage_capacity("a-small", "fast", "10Gi", labels={ZONE: "a"})
    large = storage_capacity("b-large", "fast", "200Gi", labels={ZONE: "a"})

    assert scored(cluster(wants("x", "50Gi"), small, large), using("x")) == {"n1": 75, "n2": 88}


def test_changed_capacity_changes_the_score():
    stage = cluster(wants("x", "50Gi"))
    scored(stage, using("x"))

    stage.show(storage_capacity("fast-a", "fast", "200Gi", labels={ZONE: "a"}))

    assert scored(stage, using("x")) == {"n1": 75, "n2": 88}


def test_volumes_that_exist_are_scored_by_their_size_alone():
    stage = cluster(
        storage_class("local", provisioner=LOCAL),
        claim("data", class_name="local", storage="50Gi"),
        volume("pv", phase="Available", storageClassName="local", capacity={"storage": "200Gi"}),
        wants("x", "50Gi"),
    )

    assert scored(stage, using("data", "x")) == {"n1": 75, "n2": 75}


def test_claims_whose_driver_reports_no_capacity_have_no_score():
    stage = cluster(wants("x", "50Gi"), csi_driver(storage_capacity=False))

    assert scored(stage, using("x")) == {"n1": 0, "n2": 0, "n3": 0}


def test_pods_without_claims_are_scored_too():
    assert scored(cluster(), pod("p")) == {"n1": 0}


@pytest.mark.parametrize(
    "features",
    [FakeFeatures("1.36"), FakeFeatures("1.37", StorageCapacityScoring=False)],
    ids=["1.36", "1.37 without the gate"],
)
def test_without_the_gate_nodes_are_not_scored_and_a_shape_is_refused(features: FakeFeatures):
    assert scored(Stage(features=features), pod("p")) is None
    with pytest.raises(ValueError, match="remove it or turn on the feature gate StorageCapacityScoring"):
        Stage(args=VolumeBindingArgs(shape=SHAPE), features=features)


def test_version_1_36_with_the_gate_scores_as_1_37():
    older = cluster(wants("x", "50Gi"), features=FakeFeatures("1.36", StorageCapacityScoring=True))

    assert scored(older, using("x")) == scored(cluster(wants("x", "50Gi")), using("x"))
