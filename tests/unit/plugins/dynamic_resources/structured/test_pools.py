"""Which devices a node sees, and the order of their allocation."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.devices import DRIVER, device_class, resource_slice
from tests.support.builders import node
from tests.support.snapshots import snapshot_of
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, all_of, claim, device, part

HERE, THERE = node("here", labels={"zone": "a"}), node("there", labels={"zone": "b"})
ONE = (device_class(), claim("one"))
ALL = (device_class(), claim("one", all_of()))
BROKEN = "invalid resource pools were encountered"
GPU = [{"name": "gpu-0"}]
ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}

NOT_HERE = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["here"]}
ZONE_A_BUT_HERE = {
    "nodeSelectorTerms": [
        {"matchExpressions": [*ZONE_A["nodeSelectorTerms"][0]["matchExpressions"], NOT_HERE]}
    ]
}
BY_NAME = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["there"]}]}]
}


def counters(name: str, *sets: str, count: int = 2, **more: Any):
    shared = [{"name": each, "counters": {"slots": {"value": "2"}}} for each in sets]
    return part(name, count, [], sharedCounters=shared, **more)


def taking(name: str, counter_set: str, counter: str = "slots"):
    return {
        "name": name,
        "consumesCounters": [{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}],
    }


@pytest.mark.parametrize(
    ("spec", "sees"),
    [
        pytest.param({"node": "here"}, {"here"}, id="of one node"),
        pytest.param({"allNodes": True}, {"here", "there"}, id="of all nodes"),
        pytest.param({"nodeSelector": ZONE_A}, {"here"}, id="of nodes with a label"),
        pytest.param({"nodeSelector": ZONE_A_BUT_HERE}, set(), id="of nodes with two labels"),
        pytest.param({"nodeSelector": BY_NAME}, {"there"}, id="of a node by its name"),
        pytest.param({"nodeSelector": {"nodeSelectorTerms": [{}]}}, set(), id="of a term that is empty"),
        pytest.param({}, set(), id="of a kind that is not known"),
        pytest.param(
            {"perDeviceNodeSelection": True, "devices": [{"name": "gpu-0", "nodeName": "there"}]},
            {"there"},
            id="a device of one node",
        ),
        pytest.param(
            {"perDeviceNodeSelection": True, "devices": [{"name": "gpu-0", "allNodes": True}]},
            {"here", "there"},
            id="a device of all nodes",
        ),
        pytest.param(
            {"perDeviceNodeSelection": True, "devices": [{"name": "gpu-0", "nodeSelector": ZONE_A}]},
            {"here"},
            id="a device of nodes with a label",
        ),
    ],
)
def test_a_slice_is_visible_on_its_nodes(spec: Any, sees: set[str]):
    search = Search(*ONE, part("s", 1, spec.pop("devices", GPU), **spec))

    said = search.judge(snapshot_of(HERE, THERE))

    assert {name for name, words in said.items() if not words} == sees
    assert {each.name for each in (HERE, THERE) if search.devices(each) == [["gpu-0"]]} == sees


def test_each_node_sees_its_own_devices_of_a_slice_for_several_nodes():
    devices = [{"name": "gpu-0", "nodeName": "there"}, {"name": "gpu-1", "nodeName": "here"}]
    search = Search(*ALL, part("s", 1, devices, perDeviceNodeSelection=True))

    assert search.devices(HERE) == [["gpu-1"]]
    assert search.devices(THERE) == [["gpu-0"]]


def test_pools_are_ordered_by_driver_and_name_and_slices_by_name():
    search = Search(
        device_class(),
        claim("one", all_of()),
        resource_slice("", GPU, pool="b", name="s0", allNodes=True),
        part("s3", 2, [{"name": "gpu-3"}], pool="a", node="here"),
        part("s2", 2, [{"name": "gpu-9"}, {"name": "gpu-1"}], pool="a", allNodes=True),
        resource_slice("", [{"name": "first"}], driver="a.example.com", pool="z", name="s9", allNodes=True),
    )

    assert search.devices(HERE) == [["first", "gpu-9", "gpu-1", "gpu-3", "gpu-0"]]


def test_devices_with_binding_conditions_are_allocated_last():
    slow = [{"name": "slow", "bindingConditions": ["Ready"]}]
    search = Search(
        *ALL,
        resource_slice("", slow, pool="a", allNodes=True),
        resource_slice("", GPU, pool="b", allNodes=True),
    )

    assert search.devices(HERE) == [["gpu-0", "slow"]]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        pytest.param(ONE, "none", id="for one device"),
        pytest.param(
            ALL,
            "claim default/one, request r0: asks for all devices, "
            f"but resource pool {DRIVER}/p is currently being updated",
            id="for all devices",
        ),
    ],
)
def test_a_pool_with_missing_slices_allocates_nothing(wanted: Any, words: str):
    search = Search(*wanted, part("s", 2, GPU, pool="p", allNodes=True))

    assert search.devices(HERE) == words

    search.add(part("t", 2, [], pool="p", allNodes=True))

    assert search.devices(HERE) == [["gpu-0"]]


def test_slices_for_other_nodes_count_toward_a_complete_pool():
    search = Search(*ONE, part("s", 2, GPU, pool="p", node="here"), part("t", 2, GPU, pool="p", node="there"))

    assert search.devices(HERE) == [["gpu-0"]]


def test_a_pool_is_complete_once_the_slices_for_other_nodes_exist():
    search = Search(*ONE, part("s", 2, GPU, pool="p", node="here"))
    assert search.judge(snapshot_of(HERE))["here"] == "cannot allocate all claims"

    search.add(part("t", 2, GPU, pool="p", node="there"))
    assert search.judge(snapshot_of(HERE))["here"] == ""

    del search.slices["t"]
    assert search.judge(snapshot_of(HERE))["here"] == "cannot allocate all claims"


def test_newer_slices_of_a_pool_replace_older_ones():
    search = Search(
        *ALL,
        part("old", 1, [{"name": "old"}], pool="p", allNodes=True),
        part("new", 1, [{"name": "new"}], pool="p", allNodes=True, generation=2),
    )

    assert search.devices(HERE) == [["new"]]


def test_a_pool_that_newer_slices_moved_to_another_node_is_gone():
    search = Search(
        *ONE,
        part("old", 2, GPU, pool="p", node="here"),
        part("old-too", 2, GPU, pool="p", node="elsewhere"),
        part("new", 1, GPU, pool="p", node="there", generation=2),
    )

    assert search.judge(snapshot_of(HERE, THERE)) == {"here": "cannot allocate all claims", "there": ""}


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param(
            [part("s", 2, GPU, pool="p", allNodes=True), part("t", 2, GPU, pool="p", allNodes=True)],
            id="two devices of one name",
        ),
        pytest.param(
            [part("s", 2, GPU, pool="p", allNodes=True), counters("t", "a", "a", pool="p", allNodes=True)],
            id="two counter sets of one name",
        ),
        pytest.param(
            [part("s", 1, [taking("gpu-0", "a")], pool="p", allNodes=True)], id="no such counter set"
        ),
        pytest.param(
            [
                part("s", 2, [taking("gpu-0", "a", "other")], pool="p", allNodes=True),
                counters("t", "a", pool="p", allNodes=True),
            ],
            id="no such counter",
        ),
        pytest.param(
            [
                part("s", 3, GPU, pool="p", node="here"),
                part("r", 3, [taking("gpu-1", "b")], pool="p", node="there"),
                counters("t", "a", pool="p", count=3, allNodes=True),
            ],
            id="no such counter set, in a slice for another node",
        ),
    ],
)
def test_a_contradictory_pool_allocates_nothing_and_is_reported(slices: Any):
    search = Search(*ONE, *slices)

    assert search.devices(HERE) == BROKEN
    assert search.judge(snapshot_of(HERE))["here"] == BROKEN

    search.add(resource_slice("here", [{"name": "sound"}], pool="q"))

    assert search.devices(HERE) == [["sound"]]


def test_not_all_devices_of_a_contradictory_pool_can_be_allocated():
    search = Search(*ALL, resource_slice("", [*GPU, *GPU], pool="p", allNodes=True))

    assert search.devices(HERE) == (
        "claim default/one, request r0: asks for all devices, "
        f"but resource pool {DRIVER}/p is currently invalid"
    )


def test_slices_with_different_counts_follow_the_first_of_the_node():
    search = Search(
        *ALL,
        counters("a-counters", "a", pool="p", node="here"),
        part("b-devices", 3, GPU, pool="p", node="here"),
    )

    assert "being updated" in search.judge(snapshot_of(HERE, THERE))["here"]
    assert search.judge(snapshot_of(HERE, THERE))["there"] == "cannot allocate all claims"


def test_an_undecodable_slice_leaves_its_pool_incomplete():
    unreadable = part("t", 2, [device("gpu-1", capacity={"memory": "much"})], pool="p", allNodes=True)
    search = Search(*ONE, part("s", 2, GPU, pool="p", allNodes=True), unreadable)

    assert search.devices(HERE) == "none"


def test_an_invalid_node_selector_fails_every_attempt():
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Is"}]}]}
    search = Search(*ONE, part("s", 1, GPU, nodeSelector=selector))

    words = search.devices(HERE)

    assert words.startswith("gather pool information: failed to perform node selection for slice s: ")
    assert search.judge(snapshot_of(HERE, THERE)) == {"here": words, "there": words}

    del search.slices["s"]

    assert search.devices(HERE) == "none"
