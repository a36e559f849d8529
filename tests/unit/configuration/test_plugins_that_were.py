"""Removed plugins of old versions, and their replacements."""

from __future__ import annotations

import pytest

from scheduler.configuration.load import default
from scheduler.framework.interface import ExtensionPoint
from tests.unit.configuration.old_versions import (
    OLD_WEIGHTS,
    VERSIONS,
    args_of,
    faults_of,
    names_at,
    noted,
    of,
    old_weights_of,
    weights_of,
)


@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize("name", ["EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"])
def test_limits_of_clouds_became_node_volume_limits(version: str, name: str) -> None:
    body = """
        profiles:
        - plugins:
            filter: {disabled: [{name: "*"}], enabled: [{name: %s}, {name: NodeName}]}
        """
    configuration = of(version, body % name)
    assert names_at(configuration, ExtensionPoint.FILTER) == ["NodeVolumeLimits", "NodeName"]


def test_several_limits_become_one_plugin() -> None:
    enabled = "{name: EBSLimits}, {name: NodeVolumeLimits}, {name: GCEPDLimits}"
    configuration = of(
        "v1beta3", f'profiles: [{{plugins: {{filter: {{disabled: [{{name: "*"}}], enabled: [{enabled}]}}}}}}]'
    )
    assert names_at(configuration, ExtensionPoint.FILTER) == ["NodeVolumeLimits"]


def test_limits_of_one_cloud_alone_cannot_be_disabled() -> None:
    configuration = of("v1beta3", "profiles: [{plugins: {filter: {disabled: [{name: EBSLimits}]}}}]")
    assert names_at(configuration, ExtensionPoint.FILTER) == names_at(default(), ExtensionPoint.FILTER)
    assert noted(configuration) == {
        "profiles[0].plugins.filter.disabled[0].name": "has no effect: NodeVolumeLimits counts these volumes too"
    }
    assert configuration.converted == {"profiles": [{"plugins": {}}]}


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1", "v1beta2", "v1beta3"])
@pytest.mark.parametrize(("weight", "expected"), [(5, 5), (1, 2)])
def test_selector_spread_becomes_default_topology_spread_with_the_larger_weight(
    version: str, weight: int, expected: int
) -> None:
    configuration = of(
        version,
        f"profiles: [{{plugins: {{score: {{enabled: [{{name: SelectorSpread, weight: {weight}}}]}}}}}}]",
    )
    assert weights_of(configuration)["PodTopologySpread"] == expected
    assert "SelectorSpread" not in weights_of(configuration)
    assert args_of(configuration, "PodTopologySpread") == {"defaultingType": "System"}


def test_selector_spread_and_topology_spread_became_one_with_the_larger_weight() -> None:
    score = "[{name: SelectorSpread, weight: 7}, {name: ImageLocality}, {name: PodTopologySpread, weight: 3}]"
    configuration = of("v1beta2", f"profiles: [{{plugins: {{score: {{enabled: {score}}}}}}}]")

    assert weights_of(configuration)["PodTopologySpread"] == 7


def test_selector_spread_alone_keeps_its_weight() -> None:
    score = '{disabled: [{name: "*"}], enabled: [{name: SelectorSpread, weight: 1}, {name: ImageLocality}]}'
    configuration = of(
        "v1beta2",
        f"profiles: [{{plugins: {{score: {score}, preScore: {{enabled: [{{name: SelectorSpread}}]}}}}}}]",
    )
    assert weights_of(configuration) == {"PodTopologySpread": 1, "ImageLocality": 1}


def test_selector_spread_beside_other_constraints_is_refused() -> None:
    body = """
        profiles:
        - plugins: {score: {enabled: [{name: SelectorSpread}]}}
          pluginConfig:
          - name: NodeName
          - name: PodTopologySpread
            args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
        """
    (reported,) = faults_of("v1beta2", body)
    assert reported == (
        'profiles[0].pluginConfig[1].args.defaultingType: must be "System", without defaultConstraints: '
        "that is what SelectorSpread has become"
    )


def test_the_plugin_for_most_allocated_became_a_strategy() -> None:
    configuration = of(
        "v1beta1",
        """
        profiles:
        - plugins:
            score:
              disabled: [{name: NodeResourcesLeastAllocated}]
              enabled: [{name: NodeResourcesMostAllocated, weight: 5}]
          pluginConfig:
          - name: NodeResourcesMostAllocated
            args: {resources: [{name: cpu, weight: 3}, {name: nvidia.com/gpu, weight: 1}]}
          - name: NodeResourcesFit
            args: {ignoredResources: [example.com/foo]}
        """,
    )
    assert old_weights_of(configuration) == {**OLD_WEIGHTS, "NodeResourcesFit": 5}
    assert args_of(configuration, "NodeResourcesFit") == {
        "ignoredResources": ["example.com/foo"],
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [{"name": "cpu", "weight": 3}, {"name": "nvidia.com/gpu", "weight": 1}],
        },
    }


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
def test_the_plugin_for_a_ratio_became_a_strategy(version: str) -> None:
    point = "{Utilization: 100, Score: 10}" if version == "v1alpha2" else "{utilization: 100, score: 10}"
    configuration = of(
        version,
        f"""
        profiles:
        - plugins:
            score:
              disabled: [{{name: NodeResourcesLeastAllocated}}]
              enabled: [{{name: RequestedToCapacityRatio, weight: 2}}]
          pluginConfig:
          - name: RequestedToCapacityRatio
            args: {{shape: [{point}], resources: [{{name: cpu, weight: 1}}]}}
        """,
    )
    assert weights_of(configuration)["NodeResourcesFit"] == 2
    assert args_of(configuration, "NodeResourcesFit")["scoringStrategy"] == {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 1}],
        "requestedToCapacityRatio": {"shape": [{"utilization": 100, "score": 10}]},
    }


def test_arguments_of_the_default_plugin_became_those_of_the_default_strategy() -> None:
    configuration = of(
        "v1beta1",
        """
        profiles:
        - pluginConfig:
          - {name: NodeResourcesLeastAllocated, args: {resources: [{name: memory, weight: 2}]}}
        """,
    )
    assert old_weights_of(configuration) == OLD_WEIGHTS
    assert args_of(configuration, "NodeResourcesFit")["scoringStrategy"] == {
        "type": "LeastAllocated",
        "resources": [{"name": "memory", "weight": 2}],
    }


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
@pytest.mark.parametrize("disabled", ["NodeResourcesLeastAllocated", "*"])
def test_without_a_plugin_for_resources_they_do_not_score(version: str, disabled: str) -> None:
    configuration = of(version, f'profiles: [{{plugins: {{score: {{disabled: [{{name: "{disabled}"}}]}}}}}}]')
    assert "NodeResourcesFit" not in weights_of(configuration)
    assert "NodeResourcesFit" in names_at(configuration, ExtensionPoint.FILTER)


def test_two_strategies_at_once_are_refused() -> None:
    score = "enabled: [{name: X}, {name: NodeResourcesMostAllocated, weight: 5}]"
    (reported,) = faults_of("v1beta1", f"profiles: [{{plugins: {{score: {{{score}}}}}}}]")
    assert reported == (
        'profiles[0].plugins.score.enabled[1].name: "NodeResourcesMostAllocated" cannot score beside NodeResourcesLeast'
        "Allocated: one strategy scores resources now, disable NodeResourcesLeastAllocated"
    )


@pytest.mark.parametrize(
    ("point", "name", "way_out"),
    [
        ("score", "NodePreferAvoidPods", "use a taint with the effect PreferNoSchedule on the nodes"),
        ("filter", "ServiceAffinity", "use podAffinity or podAntiAffinity in the pods"),
        ("score", "ServiceAffinity", "use podAffinity or podAntiAffinity in the pods"),
        ("score", "NodeLabel", "use addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"),
        ("score", "NodeResourceLimits", "it was an alpha feature that nothing replaces"),
    ],
)
def test_a_plugin_without_a_replacement_is_refused_with_an_alternative(
    point: str, name: str, way_out: str
) -> None:
    (reported,) = faults_of(
        "v1alpha2", f"profiles: [{{plugins: {{{point}: {{enabled: [{{name: {name}}}]}}}}}}]"
    )
    assert reported.startswith(
        f'profiles[0].plugins.{point}.enabled[0].name: "{name}" was removed, {way_out}'
    )


def test_a_plugin_that_was_removed_may_be_disabled() -> None:
    body = "profiles: [{plugins: {score: {disabled: [{name: NodePreferAvoidPods}]}}}]"
    assert of("v1beta1", body) == of("v1beta1", "")
    assert of("v1beta1", body).converted == of("v1beta1", "").converted
    assert not of("v1beta1", body).notes


def test_required_node_labels_became_an_added_affinity() -> None:
    configuration = of(
        "v1beta1",
        """
        profiles:
        - plugins: {filter: {enabled: [{name: NodeLabel}]}}
          pluginConfig:
          - {name: NodeLabel, args: {presentLabels: [ssd, zone], absentLabels: [retiring]}}
        """,
    )
    assert names_at(configuration, ExtensionPoint.FILTER) == names_at(default(), ExtensionPoint.FILTER)
    (term,) = args_of(configuration, "NodeAffinity")["addedAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "ssd", "operator": "Exists"},
        {"key": "zone", "operator": "Exists"},
        {"key": "retiring", "operator": "DoesNotExist"},
    ]


def test_listed_constraints_are_the_defaults_as_before() -> None:
    constraint = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}"
    body = f"profiles: [{{pluginConfig: [{{name: PodTopologySpread, args: {{defaultConstraints: [{constraint}]}}}}]}}]"
    assert args_of(of("v1beta1", body), "PodTopologySpread")["defaultingType"] == "List"
