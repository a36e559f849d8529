from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.engine.state.nominator import Nominator
from tests.support.builders import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects.pod import PodInfo

WEB = "uid-of-default-web"


@pytest.fixture
def nominator() -> Iterator[Nominator]:
    nominator = Nominator()
    yield nominator
    nominator.check()


def web(node: str = "", **fields: object) -> PodInfo:
    """Return a pending pod whose status nominates a node."""
    return pod("web", status={"nominatedNodeName": node}, **fields)


def test_a_pod_is_nominated_to_the_named_node_despite_its_status(nominator: Nominator):
    pending = web("n1")
    nominator.add(pending, "n2")

    assert nominator.node_of(WEB) == "n2"
    assert nominator.nominated_pods_for_node("n2") == (pending,)
    assert nominator.nominated_pods_for_node("n1") == ()
    assert nominator.nominated_nodes == {"n2"}


def test_without_a_name_the_status_decides(nominator: Nominator):
    nominator.add(web("n1"))

    assert nominator.node_of(WEB) == "n1"


def test_without_a_name_and_a_status_an_earlier_nomination_ends(nominator: Nominator):
    nominator.add(web(), "n1")
    nominator.add(web())

    assert nominator.node_of(WEB) == ""


def test_an_empty_name_removes_the_nomination(nominator: Nominator):
    nominator.add(web("n1"))
    nominator.add(web("n1"), "")

    assert nominator.node_of(WEB) == ""
    assert nominator.nominated_nodes == frozenset()


def test_a_new_nomination_replaces_the_old(nominator: Nominator):
    pending = web()
    nominator.add(pending, "n1")
    nominator.add(pending, "n2")

    assert nominator.nominated_nodes == {"n2"}


def test_pods_of_a_node_are_in_the_order_of_their_nominations(nominator: Nominator):
    pods = [pod(name) for name in "cab"]
    for each in pods:
        nominator.add(each, "n1")

    assert nominator.nominated_pods_for_node("n1") == tuple(pods)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param("", "", "noted", id="an update without a node keeps the noted one"),
        pytest.param("", "n1", "n1", id="a node added to the status counts"),
        pytest.param("n1", "n2", "n2", id="a node changed in the status counts"),
        pytest.param("n1", "n1", "n1", id="a node that stays in the status counts"),
        pytest.param("n1", "", "", id="a node removed from the status ends the nomination"),
    ],
)
def test_an_update_follows_the_status_if_it_names_a_node(
    nominator: Nominator, before: str, after: str, expected: str
):
    nominator.add(web(before), "noted")
    new = web(after, labels={"a": "b"})
    nominator.update(web(before), new)

    assert nominator.node_of(WEB) == expected
    assert nominator.nominated_pods_for_node(expected) == ((new,) if expected else ())


def test_deleting_an_unknown_pod_changes_nothing(nominator: Nominator):
    nominator.delete("unknown")

    assert nominator.generation == 0


def test_the_generation_changes_with_every_change_and_only_then(nominator: Nominator):
    pending = web()
    seen = [nominator.generation]
    for change in (
        lambda: nominator.add(pending, "n1"),
        lambda: nominator.add(pending, "n2"),
        lambda: nominator.update(pending, web(labels={"a": "b"})),
        lambda: nominator.delete(WEB),
    ):
        change()
        assert nominator.generation not in seen
        seen.append(nominator.generation)

    nominator.delete(WEB)
    nominator.add(pending, "")
    assert nominator.generation == seen[-1]


def test_a_repeated_nomination_is_no_change(nominator: Nominator):
    pending = web()
    nominator.add(pending, "n1")
    generation = nominator.generation
    nominator.add(pending, "n1")

    assert nominator.generation == generation


def test_a_pod_with_a_node_has_no_nomination(nominator: Nominator):
    nominator.add(web("n1").placed_on("n1"))
    nominator.add(pod("other", node="n1"), "n1")

    assert nominator.nominated_nodes == frozenset()


@pytest.mark.parametrize("update", [True, False], ids=["updated", "added"])
def test_a_bound_version_ends_the_nomination(nominator: Nominator, update: bool):
    pending, bound = web("n1"), web("n1").placed_on("n1")
    nominator.add(pending)
    if update:
        nominator.update(pending, bound)
    else:
        nominator.add(bound, "n1")

    assert nominator.node_of(WEB) == ""
    assert nominator.nominated_nodes == frozenset()
