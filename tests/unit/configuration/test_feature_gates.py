"""Feature gates: enabled features, and errors with kube-scheduler's messages."""

from __future__ import annotations

import re

import pytest

from scheduler.configuration import profile_plugins
from scheduler.configuration.feature_gates import FeatureGates, gates_of, parse_gates, written_gates
from scheduler.configuration.load import default, parse
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.overrides import with_feature_gates
from scheduler.configuration.write import to_yaml
from scheduler.daemon.app.generations import keep_what_needs_a_restart
from scheduler.errors import ConfigurationError
from scheduler.framework.interface import ExtensionPoint
from tests.unit.configuration.documents import messages, parsed
from tests.unit.configuration.plugin_points import POINTS

NONE = FeatureGates(False, False, False, False)
BASIC_ONLY = FeatureGates(
    gang_scheduling=False, workload_aware_preemption=False, topology_aware_workload_scheduling=False
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, FeatureGates(True, True, True, True), id="all are on by default"),
        pytest.param({"GenericWorkload": False}, NONE, id="without groups there is nothing of groups"),
        pytest.param(
            {"GangScheduling": False},
            FeatureGates(gang_scheduling=False, workload_aware_preemption=False),
            id="a gate is off without its dependency",
        ),
        pytest.param(
            {"TopologyAwareWorkloadScheduling": False},
            FeatureGates(topology_aware_workload_scheduling=False),
            id="a gate without dependents",
        ),
        pytest.param({"AllAlpha": False}, NONE, id="all alpha gates are off at once"),
        pytest.param(
            {"AllAlpha": False, "GenericWorkload": True}, BASIC_ONLY, id="but for those that are named"
        ),
    ],
)
def test_an_omitted_gate_follows_its_dependencies(given: dict[str, bool], expected: FeatureGates):
    assert gates_of(given) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            "featureGates: {GangSchedulin: true}",
            'featureGates.GangSchedulin: unrecognized feature gate: GangSchedulin, did you mean "GangScheduling"?',
            id="a slip of the pen",
        ),
        pytest.param(
            "featureGates: {GangScheduling: 'yes'}",
            'featureGates.GangScheduling: must be true or false, was "yes"',
            id="no boolean",
        ),
        pytest.param(
            "featureGates: [GangScheduling]", "featureGates: must be a mapping, was a list", id="no mapping"
        ),
        pytest.param(
            "featureGates: {SchedulerQueueingHints: false}",
            "featureGates.SchedulerQueueingHints: cannot set feature gate SchedulerQueueingHints to false, "
            "feature is locked to true",
            id="a feature that is always on cannot be switched off",
        ),
        pytest.param(
            "featureGates: {DRADeviceTaintRules: true}",
            "featureGates.DRADeviceTaintRules: cannot set feature gate DRADeviceTaintRules to true, "
            "feature is locked to false",
            id="a feature that does not exist cannot be switched on",
        ),
        pytest.param(
            "featureGates: {GenericWorkload: false, GangScheduling: true}",
            "featureGates.GangScheduling: GangScheduling is enabled, but depends on features that are disabled: "
            "[GenericWorkload]",
            id="a gang without groups",
        ),
        pytest.param(
            "featureGates: {GangScheduling: false, WorkloadAwarePreemption: true}",
            "featureGates.WorkloadAwarePreemption: WorkloadAwarePreemption is enabled, but depends on features that "
            "are disabled: [GangScheduling]",
            id="preemption by groups without gangs",
        ),
    ],
)
def test_invalid_gates_in_a_file_are_refused(body: str, expected: str):
    assert messages(body) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "GenericWorkload=true,GangScheduling=F",
            {"GenericWorkload": True, "GangScheduling": False},
            id="several",
        ),
        pytest.param(" GangScheduling = 1 ,", {"GangScheduling": True}, id="blanks and an empty part"),
        pytest.param("", {}, id="nothing"),
        pytest.param("A=true,A=false", {"A": False}, id="the last one counts"),
    ],
)
def test_a_flag_is_parsed_as_by_kube_scheduler(text: str, expected: dict[str, bool]):
    assert parse_gates(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("GangScheduling", "missing bool value for GangScheduling", id="no value"),
        pytest.param(
            "GangScheduling=yes",
            'invalid value of GangScheduling=yes, err: strconv.ParseBool: parsing "yes": invalid syntax',
            id="no boolean",
        ),
    ],
)
def test_an_invalid_flag_is_refused_with_the_message_of_kube_scheduler(text: str, words: str):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        parse_gates(text)


def test_gates_are_written_in_the_format_of_the_flag():
    assert written_gates({"B": False, "A": True}) == "A=true,B=false"


def test_the_flag_overrides_the_file_for_each_gate():
    file = parsed("featureGates: {GangScheduling: false, TopologyAwareWorkloadScheduling: false}")

    both = with_feature_gates(file, {"GangScheduling": True})

    assert both.feature_gates == FeatureGates(topology_aware_workload_scheduling=False)
    assert file.feature_gates.gang_scheduling is False


def test_the_file_with_its_flag_is_validated_as_a_whole():
    file = parsed("featureGates: {WorkloadAwarePreemption: true}")

    with pytest.raises(ConfigurationError) as caught:
        with_feature_gates(file, {"GangScheduling": False, "Unheard": True})
    with pytest.raises(ConfigurationError) as of_the_file:
        with_feature_gates(file, {"GangScheduling": False})

    assert [str(each) for each in caught.value.errors] == [
        "--feature-gates: unrecognized feature gate: Unheard"
    ]
    assert [str(each) for each in of_the_file.value.errors] == [
        (
            "featureGates.WorkloadAwarePreemption: WorkloadAwarePreemption is enabled, but depends on features that are "
            "disabled: [GangScheduling]"
        )
    ]


def test_a_gate_without_effect_is_noted():
    file = parsed("featureGates: {SchedulerQueueingHints: true, OpportunisticBatching: false}")

    both = with_feature_gates(file, {"StorageCapacityScoring": False})

    assert both.notes == (
        ConfigurationNote("featureGates.SchedulerQueueingHints", "has no effect: it is always true here"),
        ConfigurationNote(
            "featureGates.OpportunisticBatching",
            "has no effect: it is about the implementation of kube-scheduler",
        ),
        ConfigurationNote("--feature-gates", "StorageCapacityScoring has no effect: it is always false here"),
    )


def test_only_named_gates_are_written_so_that_a_flag_can_still_override_them():
    given = with_feature_gates(default(), {"GenericWorkload": False})

    assert "featureGates:\n  GenericWorkload: false\n" in to_yaml(given)
    assert parse(to_yaml(given)).feature_gates == NONE
    assert with_feature_gates(parse(to_yaml(default())), {"GenericWorkload": False}).feature_gates == NONE


def test_a_plugin_behind_a_gate_runs_only_while_it_is_on():
    points = {**POINTS, "GangScheduling": frozenset({ExtensionPoint.PERMIT})}
    file = parsed("profiles: [{plugins: {multiPoint: {enabled: [{name: GangScheduling}]}}}]")
    off = with_feature_gates(file, {"GangScheduling": False})

    def permits(configuration: object) -> list[str]:
        expansion = profile_plugins.expand_profiles(configuration.settings, points)  # type: ignore[attr-defined]
        return [each.name for each in expansion["custom-scheduler"][ExtensionPoint.PERMIT]]

    assert (permits(file), permits(off)) == (["GangScheduling"], [])


def test_a_reload_does_not_change_the_gates():
    new, left = keep_what_needs_a_restart(parsed("featureGates: {GangScheduling: false}"), default())

    assert (new.feature_gates, left) == (FeatureGates(), ("featureGates",))
