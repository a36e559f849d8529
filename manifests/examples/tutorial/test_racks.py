"""The decisions of both plugins, and the contract of all plugins."""

import json

import pytest
from cool_racks import CoolRacks
from rack_power import RackPower

from scheduler.testing import CHECKS, Fakes, ProfileSimulation, node, pod, subject

NODES = [
    node("n1", labels={"example.com/rack": "a"}),
    node("n2", labels={"example.com/rack": "a"}),
    node("n3", labels={"example.com/rack": "b"}),
]
QUERY = (
    "http://prometheus.monitoring:9090/api/v1/query?query=max%20by%20%28rack%29%20%28rack_inlet_celsius%29"
)


def training(name, watts="400", **fields):
    return pod(name, labels={"example.com/watts": watts}, **fields)


def test_a_rack_takes_no_more_power_than_its_limit():
    racks = ProfileSimulation(*NODES, training("old", watts="700", node="n1"), plugins=[RackPower])

    assert racks.schedule(training("first")) == "n3"
    assert racks.schedule(training("second")) == "n3"
    assert racks.schedule(training("third")) is None
    reasons = racks.explain(training("third"))["nodes"]["n2"]["reasons"]
    assert reasons == ["node(s) were in a rack without enough power"]


def test_a_pod_without_the_label_goes_anywhere():
    racks = ProfileSimulation(NODES[0], training("old", watts="1000", node="n1"), plugins=[RackPower])

    assert racks.schedule(pod("web")) == "n1"


def test_the_coolest_rack_wins():
    fakes = Fakes()
    fakes.web.pages[QUERY] = answer({"a": 27.5, "b": 22.0})
    racks = ProfileSimulation(*NODES, plugins=[CoolRacks], weights={"CoolRacks": 10}, fakes=fakes)
    racks.refresh()

    assert racks.schedule(pod("web")) == "n3"


def test_without_data_all_racks_are_equal():
    racks = ProfileSimulation(*NODES, plugins=[CoolRacks], only=True)

    assert racks.explain(pod("web"))["best"] == ["n1", "n2", "n3"]


@pytest.mark.parametrize("plugin", [RackPower, CoolRacks])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_is_kept(check, plugin):
    check(subject(plugin))


def answer(celsius):
    series = [{"metric": {"rack": rack}, "value": [0, str(degrees)]} for rack, degrees in celsius.items()]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode()
