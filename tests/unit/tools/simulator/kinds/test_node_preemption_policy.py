"""`spec.podPreemptionPolicy` of nodes, as a kube-apiserver 1.37 with the gate accepts it, and as 1.36 drops it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.builders import node_object
from tests.unit.tools.simulator.a_store import AStore

PATH = "spec.podPreemptionPolicy.disableResizePreemption"


GATES = {"InPlacePodVerticalScalingSchedulerPreemption": True}


def a_store(**gates: bool) -> AStore:
    return AStore(version="1.37", **gates)


def create(*owners: str, **gates: bool) -> Any:
    return a_store(**gates).create("nodes", node_object("n", no_resize_preemption=owners))


def test_owners_are_kept_with_the_gate():
    spec = create("example.com/autoscaler", "other", **GATES)["spec"]

    assert spec["podPreemptionPolicy"] == {"disableResizePreemption": ["example.com/autoscaler", "other"]}
    assert "podPreemptionPolicy" not in create("example.com/autoscaler")["spec"]


@pytest.mark.parametrize(
    ("owners", "problem"),
    [
        pytest.param(
            [f"item-{number:02}" for number in range(21)],
            f"{PATH}: Too many: 21: must have at most 20 items",
            id="too many",
        ),
        pytest.param(["a", "b", "a"], f'{PATH}[2]: Duplicate value: "a"', id="twice the same"),
        pytest.param(["a/b/c"], f'{PATH}[0]: Invalid value: "a/b/c": a valid label key', id="no label key"),
    ],
)
def test_owners_are_at_most_20_different_label_keys(owners: list[str], problem: str):
    with pytest.raises(StatusError) as caught:
        create(*owners, **GATES)

    assert problem in caught.value.message


def test_an_owner_is_added_and_removed_with_server_side_rules():
    store = a_store(**GATES)
    store.create("nodes", node_object("n"))
    patch = {"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["a.b/c"]}}}

    assert (
        store.patch("nodes", "n", patch)["spec"]["podPreemptionPolicy"]
        == patch["spec"]["podPreemptionPolicy"]
    )
    assert (
        "podPreemptionPolicy"
        not in store.patch("nodes", "n", {"spec": {"podPreemptionPolicy": None}})["spec"]
    )
