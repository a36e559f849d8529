"""The tests of a plugin: its decisions, and the contract of all plugins."""

import pytest
from scheduler.testing import CHECKS, ProfileSimulation, node, pod, subject

from quiet_racks import QuietRacks

NOISY = {"example.com/noisy": "yes"}


def test_pods_go_to_quiet_racks():
    trial = ProfileSimulation(node("loud", labels=NOISY), node("quiet"), plugins=[QuietRacks])

    assert trial.schedule(pod("web")) == "quiet"
    assert trial.explain(pod("db"))["nodes"]["loud"]["reasons"] == ["node(s) were in a noisy rack"]


def test_a_pod_without_the_annotation_goes_anywhere():
    trial = ProfileSimulation(node("loud", labels=NOISY), plugins=[QuietRacks])

    assert trial.schedule(pod("web")) is None
    assert trial.schedule(pod("batch", labels={"example.com/noisy": "fine"})) == "loud"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_is_kept(check):
    check(subject(QuietRacks))
