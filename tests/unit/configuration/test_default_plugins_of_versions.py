"""The default plugins of old versions, and their weights."""

from __future__ import annotations

import json

import pytest

from scheduler.configuration.load import Configuration, default
from scheduler.framework.interface import ExtensionPoint
from tests.unit.configuration.old_versions import (
    BEFORE_V1BETA3,
    OLD_WEIGHTS,
    VERSIONS,
    names_at,
    of,
    old_weights_of,
)
from tests.unit.configuration.plugin_points import DEFAULT_ORDER

LATER = {"DeferredPodScheduling", "DynamicResources", "NodeDeclaredFeatures"}
FILTERS = [name for name in DEFAULT_ORDER[ExtensionPoint.FILTER] if name not in LATER]
"""Of v1beta2 and v1beta1, without the limits that NodeVolumeLimits replaced."""


def test_the_defaults_of_v1beta3_are_the_current_ones() -> None:
    assert of("v1beta3", "") == default()


@pytest.mark.parametrize("version", BEFORE_V1BETA3)
def test_before_v1beta3_default_plugins_had_other_weights(version: str) -> None:
    assert old_weights_of(of(version, "")) == OLD_WEIGHTS


@pytest.mark.parametrize("version", VERSIONS)
def test_the_default_filters_keep_their_order(version: str) -> None:
    filters = names_at(of(version, ""), ExtensionPoint.FILTER)
    assert [name for name in filters if name not in LATER] == FILTERS


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        pytest.param("{disabled: [{name: NodeAffinity}]}", {**OLD_WEIGHTS, "NodeAffinity": None}, id="disabled"),
        pytest.param(
            "{enabled: [{name: NodeAffinity, weight: 9}]}", {**OLD_WEIGHTS, "NodeAffinity": 9}, id="another weight"
        ),
        pytest.param("{enabled: [{name: NodeAffinity}]}", OLD_WEIGHTS, id="no weight"),
        pytest.param(
            '{disabled: [{name: "*"}], enabled: [{name: ImageLocality, weight: 3}]}', {"ImageLocality": 3}, id="alone"
        ),
    ],
)  # fmt: skip
def test_a_weight_in_the_file_takes_precedence_over_the_old_default(
    score: str, expected: dict[str, int | None]
) -> None:
    configuration = of("v1beta2", f"profiles: [{{plugins: {{score: {score}}}}}]")
    assert old_weights_of(configuration) == {name: weight for name, weight in expected.items() if weight}


def test_every_profile_has_the_old_weights() -> None:
    configuration = of("v1beta2", "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {}}]")
    a, b = configuration.settings.profiles
    assert a.plugins == b.plugins != default().settings.profiles[0].plugins


LISTED = {  # the default plugins of v1beta1, as files copied from kube-scheduler list them; v1beta2 replaced one
    "queueSort": ["PrioritySort"],
    "preFilter": [
        "NodeResourcesFit",
        "NodePorts",
        "PodTopologySpread",
        "InterPodAffinity",
        "VolumeBinding",
        "NodeAffinity",
    ],
    "filter": [*FILTERS[:7], "EBSLimits", "GCEPDLimits", "NodeVolumeLimits", "AzureDiskLimits", *FILTERS[8:]],
    "postFilter": ["DefaultPreemption"],
    "preScore": ["InterPodAffinity", "PodTopologySpread", "TaintToleration", "NodeAffinity"],
    "score": [
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
        "InterPodAffinity",
        "NodeResourcesLeastAllocated",
        "NodeAffinity",
        "PodTopologySpread",
        "TaintToleration",
    ],
    "reserve": ["VolumeBinding"],
    "preBind": ["VolumeBinding"],
    "bind": ["DefaultBinder"],
}

POINTS_SINCE = {
    "preFilter": ["VolumeRestrictions", "NodeVolumeLimits", "VolumeZone"],
    "filter": [],
    "score": [],
}

"""Plugins that have come to implement a point."""


def listed_at(version: str, point: str) -> list[str]:
    """Return the default plugins of a version at an extension point, by the version's names."""
    successors = {"NodeResourcesLeastAllocated": "NodeResourcesFit"} if version == "v1beta2" else {}
    return [successors.get(name, name) for name in LISTED[point]]


def listed(version: str) -> Configuration:
    """Return a configuration that lists every default plugin of its version."""
    weights = {"PodTopologySpread": 2}
    plugins = {
        point: {
            "enabled": [
                {"name": name, "weight": weights.get(name, 1)} if point == "score" else {"name": name}
                for name in listed_at(version, point)
            ]
        }
        for point in LISTED
    }
    return of(version, f"profiles: {json.dumps([{'plugins': plugins}])}")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_file_that_lists_the_defaults_of_its_version_selects_them(version: str) -> None:
    configuration = listed(version)
    for point in ExtensionPoint:
        assert set(names_at(configuration, point)) == set(names_at(of(version, ""), point))
    assert old_weights_of(configuration) == OLD_WEIGHTS
    assert [name for name in names_at(configuration, ExtensionPoint.FILTER) if name in FILTERS] == FILTERS


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("point", ["preFilter", "filter", "score"])
def test_a_file_that_disables_the_defaults_of_a_point_keeps_later_plugins(version: str, point: str) -> None:
    disabled = [{"name": name} for name in listed_at(version, point)]
    plugins = json.dumps({point: {"disabled": disabled}})
    left = names_at(of(version, f"profiles: [{{plugins: {plugins}}}]"), ExtensionPoint(point))
    later = {"DeferredPodScheduling", "DynamicResources", "NodeDeclaredFeatures", "VolumeBinding"}
    assert set(left) <= {*later, *POINTS_SINCE[point]}
