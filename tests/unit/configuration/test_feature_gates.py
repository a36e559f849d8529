"""Feature gates: enabled features, and errors with kube-scheduler's messages."""

from __future__ import annotations

import re

import pytest

from scheduler.configuration import profile_plugins
from scheduler.configuration.feature_gates import (
    DEFAULT_VERSION,
    VERSIONS,
    Stage,
    accepted_gates,
    features_of,
    gate_faults,
    parse_gates,
    parse_version,
    stages_at,
    version_for,
    written_gates,
)
from scheduler.configuration.gate_stages import NEEDS, STAGES
from scheduler.configuration.load import Configuration, default, parse
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.overrides import GivenFeatures, with_features
from scheduler.configuration.write import to_yaml
from scheduler.daemon.app.generations import keep_what_needs_a_restart
from scheduler.errors import ConfigurationError
from scheduler.framework.interface import ExtensionPoint
from scheduler.loop_work import run_to_end
from tests.unit.configuration.documents import HEAD, messages, parsed
from tests.unit.configuration.plugin_points import POINTS

GROUPS = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption")
ALL, NONE = {*GROUPS}, set[str]()


def of_groups(configuration: Configuration) -> set[str]:
    """Return the gates of groups that are on."""
    return {gate for gate in GROUPS if configuration.features.enabled(gate)}


def with_gates(configuration: Configuration, **gates: bool) -> Configuration:
    return with_features(configuration, GivenFeatures(gates=gates))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, ALL, id="all are on by default"),
        pytest.param({"GenericWorkload": False}, NONE, id="without groups there is nothing of groups"),
        pytest.param(
            {"GangScheduling": False},
            {"GenericWorkload", "TopologyAwareWorkloadScheduling"},
            id="a gate is off without its dependency",
        ),
        pytest.param(
            {"TopologyAwareWorkloadScheduling": False},
            ALL - {"TopologyAwareWorkloadScheduling"},
            id="a gate without dependents",
        ),
        pytest.param({"AllAlpha": False}, NONE, id="all alpha gates are off at once"),
        pytest.param(
            {"AllAlpha": False, "GenericWorkload": True},
            {"GenericWorkload"},
            id="but for those that are named",
        ),
    ],
)
def test_an_omitted_gate_follows_its_dependencies(given: dict[str, bool], expected: set[str]):
    assert {*GROUPS} & features_of(given).names == expected


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
        pytest.param("kube:GangScheduling=true", {"GangScheduling": True}, id="the name of the component"),
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
        pytest.param("wardle:A=true", "component not registered: wardle", id="another component"),
    ],
)
def test_an_invalid_flag_is_refused_with_the_message_of_kube_scheduler(text: str, words: str):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        parse_gates(text)


def test_gates_are_written_in_the_format_of_the_flag():
    assert written_gates({"B": False, "A": True}) == "A=true,B=false"


def test_the_flag_overrides_the_file_for_each_gate():
    file = parsed("featureGates: {GangScheduling: false, TopologyAwareWorkloadScheduling: false}")

    both = with_gates(file, GangScheduling=True)

    assert of_groups(both) == ALL - {"TopologyAwareWorkloadScheduling"}
    assert not file.features.enabled("GangScheduling")


def test_the_file_with_its_flag_is_validated_as_a_whole():
    file = parsed("featureGates: {WorkloadAwarePreemption: true}")

    with pytest.raises(ConfigurationError) as caught:
        with_gates(file, GangScheduling=False, Unheard=True)
    with pytest.raises(ConfigurationError) as of_the_file:
        with_gates(file, GangScheduling=False)

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
    gates = "{NodeInclusionPolicyInPodTopologySpread: true, OpportunisticBatching: false}"
    file = parsed(f"emulatedVersion: '1.37'\nfeatureGates: {gates}")

    both = with_gates(file, InterPodAffinityHostnameFastPath=False)

    assert both.notes == (
        ConfigurationNote(
            "featureGates.NodeInclusionPolicyInPodTopologySpread",
            "has no effect: it does not change decisions",
        ),
        ConfigurationNote(
            "featureGates.OpportunisticBatching", "has no effect: it does not change decisions"
        ),
        ConfigurationNote(
            "--feature-gates", "InterPodAffinityHostnameFastPath has no effect: it does not change decisions"
        ),
    )


def test_only_named_gates_are_written_so_that_a_flag_can_still_override_them():
    given = with_gates(default(), GenericWorkload=False)

    assert "featureGates:\n  GenericWorkload: false\n" in to_yaml(given)
    assert of_groups(parse(to_yaml(given))) == NONE
    assert of_groups(with_gates(parse(to_yaml(default())), GenericWorkload=False)) == NONE


def test_a_plugin_behind_a_gate_runs_only_while_it_is_on():
    points = {**POINTS, "GangScheduling": frozenset({ExtensionPoint.PERMIT})}
    file = parsed("profiles: [{plugins: {multiPoint: {enabled: [{name: GangScheduling}]}}}]")
    off = with_gates(file, GangScheduling=False)

    def permits(configuration: object) -> list[str]:
        expansion = run_to_end(profile_plugins.expand_in_steps(configuration.settings, points))  # type: ignore[attr-defined]
        return [each.name for each in expansion["custom-scheduler"][ExtensionPoint.PERMIT]]

    assert (permits(file), permits(off)) == (["GangScheduling"], [])


def test_a_reload_changes_the_gates_and_the_version():
    text = "featureGates: {GenericWorkload: false}\nemulatedVersion: '1.37'"

    new, left = keep_what_needs_a_restart(parsed(text), default())

    assert (of_groups(new), new.features.version, left) == (NONE, "1.37", ())


@pytest.mark.parametrize(
    ("given", "version", "kept"),
    [
        pytest.param({"GangScheduling": False}, "1.37", {}, id="a gate that the server has no more"),
        pytest.param({"CompositePodGroup": False}, "1.36", {}, id="a gate that the server does not have yet"),
        pytest.param(
            {"SELinuxChangePolicy": False, "GenericWorkload": False},
            "1.36",
            {"GenericWorkload": False},
            id="a gate that the server has locked, beside another one",
        ),
        pytest.param(
            {"GenericWorkload": False, "TopologyAwareWorkloadScheduling": True},
            "1.37",
            {"GenericWorkload": False},
            id="a gate that needs another one",
        ),
    ],
)
def test_gates_that_the_server_version_refuses_are_left_out_with_a_note(
    given: dict[str, bool], version: str, kept: dict[str, bool]
):
    body = (
        "featureGates: {" + ", ".join(f"{gate}: {str(value).lower()}" for gate, value in given.items()) + "}"
    )

    file = parse(f"{HEAD}{body}", version=None)
    settled = with_features(file, GivenFeatures(), server=version)

    assert settled.features.version == version
    assert settled.settings.feature_gates == kept
    left_out = {note.path for note in settled.notes if note.is_left_out}
    assert left_out == {f"featureGates.{gate}" for gate in given.keys() - kept.keys()}


def test_gates_are_left_out_also_if_a_gate_that_is_on_by_default_needs_them():
    kept, left_out = accepted_gates({"DRAWorkloadResourceClaims": True, "AllBeta": False}, "1.37")

    assert not list(gate_faults(kept, "1.37"))
    assert dict(left_out).keys() | kept.keys() == {"DRAWorkloadResourceClaims", "AllBeta"}


def test_a_named_version_is_not_that_of_the_server_and_its_gates_are_errors():
    file = parsed("emulatedVersion: '1.36'")

    assert with_features(file, GivenFeatures(), server="1.37").features.version == "1.36"
    assert with_features(file, GivenFeatures("1.35"), server="1.37").features.version == "1.35"
    with pytest.raises(ConfigurationError, match="unrecognized feature gate: CompositePodGroup"):
        with_features(file, GivenFeatures(gates={"CompositePodGroup": False}), server="1.37")


def test_a_gate_of_no_known_version_is_an_error_before_the_server_answers():
    with pytest.raises(ConfigurationError, match="unrecognized feature gate: GangScheduled"):
        parse(f"{HEAD}featureGates: {{GangScheduled: true}}", version=None)


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        pytest.param(
            "DRADeviceTaintRules",
            [None, Stage("alpha", False, False), Stage("beta", False, False), Stage("ga", True, False)],
            id="a new gate that becomes stable",
        ),
        pytest.param(
            "GangScheduling",
            [None, Stage("alpha", False, False), Stage("alpha", False, False), None],
            id="a gate that is removed",
        ),
        pytest.param(
            "GitRepoVolumeDriver",
            [Stage("deprecated", False, False)] * 2 + [Stage("deprecated", False, True)] * 2,
            id="a deprecated gate that is locked",
        ),
        pytest.param(
            "KubeProxyIPVS", [None] * 3 + [Stage("deprecated", True, False)], id="deprecated, and on"
        ),
    ],
)
def test_a_gate_has_the_stage_of_the_version(gate: str, expected: list[Stage | None]):
    assert [stages_at(version).get(gate) for version in VERSIONS] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_every_gate_of_a_version_is_accepted_with_its_default(version: str):
    given = {gate: stage.default for gate, stage in stages_at(version).items()}

    assert dict(gate_faults(given, version)) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_defaults_of_a_version_satisfy_the_dependencies(version: str):
    assert list(gate_faults({}, version)) == []


def test_dependencies_are_gates_of_the_table():
    assert {gate for gate, needed in NEEDS.items() for gate in (gate, *needed)} <= STAGES.keys()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("1.34", NONE, id="before groups"),
        pytest.param("1.35", {"GenericWorkload", "GangScheduling"}, id="the first gates"),
        pytest.param("1.36", ALL, id="all"),
        pytest.param("1.37", ALL, id="GenericWorkload includes the removed gates"),
    ],
)
def test_groups_are_on_as_far_as_the_version_has_them(version: str, expected: set[str]):
    assert {*GROUPS} & features_of({}, version).names == expected


def test_a_removed_gate_follows_the_gate_that_replaces_it():
    assert {*GROUPS} & features_of({"GenericWorkload": False}, "1.37").names == NONE


def test_a_feature_whose_gate_was_removed_stays_on():
    assert features_of({}, "1.37").enabled("SchedulerQueueingHints")
    assert not features_of({}, "1.37").enabled("UserNamespacesPodSecurityStandards")


def test_alpha_and_beta_gates_are_set_at_once_but_for_those_that_are_named():
    given = {"AllAlpha": True, "AllBeta": False, "EventedPLEG": False, "WatchList": True}

    features = features_of(given, "1.36")

    assert features.enabled("ContainerStopSignals")
    assert not features.enabled("EventedPLEG")
    assert features.enabled("WatchList")
    assert not features.enabled("ContainerCheckpoint")
    assert features.enabled("ImageVolume"), "stable gates stay on"


def test_an_unknown_feature_is_an_error_of_the_caller():
    with pytest.raises(KeyError, match="GangSchedulin"):
        features_of({}).enabled("GangSchedulin")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("1.37", "unrecognized feature gate: GangScheduling", id="removed"),
        pytest.param("1.34", "unrecognized feature gate: GangScheduling", id="not there yet"),
        pytest.param("1.36", None, id="known"),
    ],
)
def test_a_gate_is_validated_for_the_emulated_version(version: str, expected: str | None):
    body = f"emulatedVersion: '{version}'\nfeatureGates: {{GangScheduling: false}}"

    if expected is None:
        assert not parsed(body).features.enabled("GangScheduling")
    else:
        assert messages(body) == [f"featureGates.GangScheduling: {expected}"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("1.38", "emulation version 1.38 is not between [1.34, 1.37]", id="too new"),
        pytest.param("1.33", "emulation version 1.33 is not between [1.34, 1.37]", id="too old"),
        pytest.param("v1.36.2", "illegal version string 'v1.36.2'", id="a patch release"),
        pytest.param("wardle=1.36", "illegal version string 'wardle=1.36'", id="another component"),
    ],
)
def test_an_invalid_version_is_refused(text: str, words: str):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        parse_version(text)
    assert any(
        message.startswith(f"emulatedVersion: {words}") for message in messages(f"emulatedVersion: '{text}'")
    )


def test_a_version_may_name_the_component():
    assert parse_version("kube=1.35") == parse_version("1.35") == "1.35"


@pytest.mark.parametrize(
    ("major", "minor", "expected"),
    [
        pytest.param("1", "36", "1.36", id="known"),
        pytest.param("1", "36+", "1.36", id="a provider's build"),
        pytest.param("1", "41", "1.37", id="newer than all known ones"),
        pytest.param("2", "0", "1.37", id="the next major version"),
        pytest.param("1", "30", "1.34", id="older than all known ones"),
    ],
)
def test_the_known_version_closest_to_the_api_server_is_chosen(major: str, minor: str, expected: str):
    assert version_for(major, minor) == expected


def test_a_version_without_numbers_is_an_error():
    with pytest.raises(ValueError, match=r"version 1\.$"):
        version_for("1", "")


def test_the_flag_overrides_the_version_of_the_file():
    file = parsed("emulatedVersion: '1.35'")

    assert file.features.version == "1.35"
    assert with_features(file, GivenFeatures("1.37")).features.version == "1.37"
    assert with_features(file, GivenFeatures()).features.version == "1.35"
    assert default().features.version == DEFAULT_VERSION
