"""`spec.podPreemptionPolicy` of nodes, as a kube-apiserver 1.37 with the gate accepts it, and as 1.36 drops it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.simulator.registry.registry import Registry
from scheduler.simulator.registry.store import Store
from tests.support.builders import node_object
from tests.support.manual_clock import ManualClock

PATH = "spec.podPreemptionPolicy.disableResizePreemption"


def a_store(version: str) -> Store:
    store = Store(Registry(clock=ManualClock(), kinds=builtin_kinds(version), seed=0, history=100))
    store.bootstrap()
    return store


def create(version: str, *owners: str) -> Any:
    return a_store(version).create("nodes", node_object("n", no_resize_preemption=owners))


def test_owners_are_kept_since_1_37():
    spec = create("1.37", "example.com/autoscaler", "other")["spec"]

    assert spec["podPreemptionPolicy"] == {"disableResizePreemption": ["example.com/autoscaler", "other"]}
    assert "podPreemptionPolicy" not in create("1.36", "example.com/autoscaler")["spec"]


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
        create("1.37", *owners)

    assert problem in caught.value.message


def test_an_owner_is_added_and_removed_with_server_side_rules():
    store = a_store("1.37")
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
