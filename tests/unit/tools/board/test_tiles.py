"""The changes of tiles add up to the current state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.state.cache import Cache
from scheduler.objects.decode import decode_node
from scheduler.tools.board.tiles import CORDONED, NOT_READY, TAINTED, Tiles
from tests.support.builders import node, node_object, pod
from tests.support.manual_clock import ManualClock


def told(tiles: Tiles, shown: dict[str, Any]) -> list[str]:
    """Apply changes as a page does, and return the names of the changed tiles."""
    resources, names = tiles.resources, []
    for fresh in tiles.changes():
        if tiles.resources != resources:
            shown.clear()
            resources = tiles.resources
        shown.update({tile[0]: tile for tile in fresh})
        names += [tile[0] for tile in fresh]
    for name in tiles.gone():
        del shown[name]
    return names


def all_of(cache: Cache) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    told(Tiles(cache, ManualClock()), shown)
    return shown


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        pytest.param({}, 0, id="open"),
        pytest.param({"unschedulable": True}, CORDONED, id="cordoned"),
        pytest.param({"taints": [{"key": "a", "effect": "NoSchedule"}]}, TAINTED, id="tainted"),
        pytest.param({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}, 0, id="a soft taint"),
        pytest.param({"unschedulable": True, "taints": ["a=b:NoExecute"]}, CORDONED | TAINTED, id="both"),
        pytest.param(
            {"unschedulable": True, "taints": ["node.kubernetes.io/unschedulable:NoSchedule"]},
            CORDONED,
            id="cordoned, with the taint of that",
        ),
    ],
)
def test_the_shape_of_a_tile_shows_whether_pods_can_be_placed(options: dict[str, Any], flags: int) -> None:
    cache = Cache()
    cache.add_node(node("n", **options))

    assert all_of(cache)["n"][2] == flags


@pytest.mark.parametrize(("status", "flags"), [("True", 0), ("False", NOT_READY), ("Unknown", NOT_READY)])
def test_a_node_is_ready_if_its_condition_is_true(status: str, flags: int) -> None:
    written = node_object("n")
    written["status"]["conditions"] = [{"type": "Ready", "status": status}]
    cache = Cache()
    cache.add_node(decode_node(msgspec.json.encode(written)))

    assert all_of(cache)["n"][2] == flags


def test_a_tile_shows_requested_and_allocatable_amounts() -> None:
    cache = Cache()
    cache.add_node(node("n", cpu="4", memory="1Gi", labels={"topology.kubernetes.io/zone": "z"}))
    cache.add_pod(pod("web", cpu="1500m", node="n"))
    tiles = Tiles(cache, ManualClock())
    shown: dict[str, Any] = {}

    told(tiles, shown)

    name, zone, _, rests, allocatable, requested, pods = shown["n"]
    of = tiles.resources.index
    assert (name, zone, rests, pods) == ("n", "z", "", 1)
    assert (allocatable[of("cpu")], requested[of("cpu")]) == (4000, 1500)
    assert (allocatable[of("memory")], requested[of("memory")]) == (2**30, 0)
    assert requested[of("pods")] == 1


def test_only_changes_are_sent_again() -> None:
    cache = Cache()
    for number in range(50):
        cache.add_node(node(f"n{number}"))
    tiles = Tiles(cache, ManualClock())
    shown: dict[str, Any] = {}
    assert len(told(tiles, shown)) == 50

    assert told(tiles, shown) == []
    cache.add_pod(pod("web", cpu="1", node="n7"))
    assert told(tiles, shown) == ["n7"]


def test_a_paused_node_has_the_reason_while_it_is_paused() -> None:
    cache, clock = Cache(), ManualClock()
    cache.add_node(node("n"))
    tiles = Tiles(cache, clock)
    shown: dict[str, Any] = {}
    told(tiles, shown)

    cache.pauses.rejected("n", "OutOfcpu", at=clock.monotonic())
    told(tiles, shown)
    assert shown["n"][3] == "OutOfcpu"
    clock.advance(3600)
    told(tiles, shown)
    assert shown["n"][3] == ""


_changes = st.lists(
    st.tuples(
        st.sampled_from(["add node", "remove node", "add pod", "remove pod", "look"]),
        st.integers(0, 5),
        st.sampled_from(["cpu", "example.com/gpu"]),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(_changes)
def test_incremental_updates_give_the_state_of_a_new_page(
    changes: list[tuple[str, int, str]],
) -> None:
    cache = Cache()
    tiles = Tiles(cache, ManualClock())
    shown: dict[str, Any] = {}
    for what, number, resource in changes:
        if what == "add node":
            cache.add_node(node(f"n{number}", allocatable={resource: "2"}))
        elif what == "remove node":
            cache.remove_node(f"n{number}")
        elif what == "add pod":
            cache.add_pod(pod(f"p{number}", cpu="1", node=f"n{number % 3}"))
        elif what == "remove pod":
            cache.remove_pod(pod(f"p{number}").uid)
        else:
            told(tiles, shown)
    told(tiles, shown)

    assert shown == all_of(cache)
