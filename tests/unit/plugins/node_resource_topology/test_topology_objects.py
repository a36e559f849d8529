"""What is read of a NodeResourceTopology, and that odd objects are named, never raised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.node_resource_topology.topology_objects import MOST_AMOUNTS, NodeTopology, read_topology
from scheduler.testing.samples import node_topology


def read(obj: dict[str, Any]) -> NodeTopology:
    found = read_topology(obj)
    assert isinstance(found, NodeTopology), found
    return found


@pytest.mark.parametrize(
    ("policies", "attributes", "expected"),
    [
        pytest.param([], {}, ("none", "container", 8), id="nothing"),
        pytest.param(["SingleNUMANodePodLevel"], {}, ("single-numa-node", "pod", 8), id="the old field"),
        pytest.param(["RestrictedContainerLevel"], {}, ("restricted", "container", 8), id="restricted"),
        pytest.param(["BestEffortPodLevel", "None"], {}, ("best-effort", "pod", 8), id="the first one"),
        pytest.param(["Restricted"], {}, ("none", "container", 8), id="an old value without an effect"),
        pytest.param(
            ["BestEffortPodLevel"],
            {"topologyManagerPolicy": "restricted", "topologyManagerMaxNUMANodes": "16"},
            ("restricted", "pod", 16),
            id="attributes take precedence",
        ),
        pytest.param(
            [],
            {"topologyManagerScope": "pod", "topologyManagerMaxNUMANodes": "99999"},
            ("none", "pod", 1024),
            id="a limit of the number of zones",
        ),
    ],
)
def test_the_settings_of_the_kubelet(policies: list[str], attributes: dict[str, str], expected: Any):
    named = [{"name": name, "value": value} for name, value in attributes.items()]
    found = read({"topologyPolicies": policies, "attributes": named, "zones": []})

    assert found.kubelet_settings == expected
    assert found.problems == ()


def test_zones_are_sorted_and_rounded_down():
    topology = node_topology("n", {"cpu": "1500500u", "memory": "1500m"}, {"cpu": "2"})
    topology["zones"].reverse()
    topology["zones"].append({"name": "socket-0", "type": "Socket"})

    found = read(topology)

    assert [(zone.name, dict(zone.available)) for zone in found.zones] == [
        ("node-0", {"cpu": 1500, "memory": 1}),
        ("node-1", {"cpu": 2000}),
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            {"topologyPolicies": ["Sideways"]},
            "topologyPolicies[0]: unknown value 'Sideways'",
            id="an old policy",
        ),
        pytest.param(
            {"attributes": [{"name": "topologyManagerPolicy", "value": "x" * 500}]},
            f"attributes[0].value: unknown value '{'x' * 79} of topologyManagerPolicy",
            id="a policy",
        ),
        pytest.param(
            {"attributes": [{"name": "topologyManagerScope", "value": "node"}]},
            "attributes[0].value: unknown value 'node' of topologyManagerScope",
            id="a scope",
        ),
        pytest.param(
            {"attributes": [{"name": "topologyManagerMaxNUMANodes", "value": "1"}]},
            "attributes[0].value: unknown value '1' of topologyManagerMaxNUMANodes",
            id="too few zones",
        ),
        pytest.param(
            {"zones": [{"name": "numa-node-0", "type": "Node"}]},
            "zones[0].name: node-0 to node-63 is expected, was 'numa-node-0'",
            id="a name",
        ),
        pytest.param(
            {"zones": [{"name": "node-0", "type": "Node"}] * 2},
            "zones[1].name: 'node-0' was named before",
            id="two zones of one name",
        ),
        pytest.param(
            {
                "zones": [
                    {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "available": "-1"}]}
                ]
            },
            "zones[0].resources[0].available: at least 0 is expected, was -1",
            id="a negative amount",
        ),
        pytest.param(
            {"zones": [{"name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": -(2**70)}]}]},
            f"zones[0].costs[0].value: 0 to 255 is expected, was {str(-(2**70))[:30]}",
            id="a negative cost",
        ),
    ],
)
def test_an_invalid_field_does_not_count_and_is_named(change: dict[str, Any], problem: str):
    assert read({"zones": [], **change}).problems == (problem,)


def test_an_amount_that_is_no_quantity_is_0():
    resources = [{"name": "cpu", "available": "many"}, {"name": "memory", "available": "-5Gi"}]
    found = read({"zones": [{"name": "node-0", "type": "Node", "resources": resources}]})

    assert dict(found.zones[0].available) == {"cpu": 0, "memory": 0}
    assert found.problems[0].startswith("zones[0].resources[0].available: ")


def test_a_field_of_another_type_makes_the_object_invalid():
    assert read_topology({"zones": [{"name": 1}]}) == "zones[0].name: expected `str`, got `int`"


def test_parents_of_zones_may_be_a_cycle():
    zones = [{"name": f"node-{number}", "type": "Node", "parent": f"node-{1 - number}"} for number in (0, 1)]

    assert [zone.number for zone in read({"zones": zones}).zones] == [0, 1]


def test_only_so_many_amounts_count():
    resources = [{"name": f"example.com/r{number}", "available": "1"} for number in range(MOST_AMOUNTS)]
    zones = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in (0, 1)]

    found = read({"zones": zones})

    assert [len(zone.available) for zone in found.zones] == [MOST_AMOUNTS, 0]
    assert found.problems == ("zones[1].resources: only the first 1024 amounts of all zones count",)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_zone = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["node-0", "node-1", "node-٣", "node-", "node-999999999"]) | _json,
        "type": st.just("Node") | _json,
        "resources": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["cpu", ""]), "available": _json}), max_size=2
        )
        | _json,
        "costs": _json,
    },
)
_objects = st.fixed_dictionaries(
    {},
    optional={
        "zones": st.lists(_zone, max_size=3) | _json,
        "attributes": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["topologyManagerMaxNUMANodes", "topologyManagerPolicy"]),
                    "value": _json,
                }
            ),
            max_size=2,
        )
        | _json,
        "topologyPolicies": _json,
        "metadata": _json,
    },
)


@given(_objects)
def test_no_object_raises(obj: dict[str, Any]):
    found = read_topology(obj)

    assert isinstance(found, str | NodeTopology)
    if isinstance(found, NodeTopology):
        assert all(amount >= 0 for zone in found.zones for amount in zone.available.values())
        assert len(found.problems) <= 3
        assert all(len(problem) < 400 for problem in found.problems)
