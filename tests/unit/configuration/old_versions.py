"""Configurations of old versions for tests, and the plugins that they enable."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import parse
from scheduler.configuration.profile_plugins import expand, find_args
from scheduler.errors import ConfigurationError
from scheduler.framework.interface import ExtensionPoint
from tests.unit.configuration.plugin_points import POINTS

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration

GROUP = "kubescheduler.config.k8s.io"
VERSIONS = ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")
"""The old ones, oldest first."""
BEFORE_V1BETA3 = VERSIONS[:-1]
OLD_WEIGHTS = {
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "InterPodAffinity": 1,
    "NodeResourcesFit": 1,
    "NodeAffinity": 1,
    "PodTopologySpread": 2,
    "TaintToleration": 1,
}
"""What the default plugins weighed before v1beta3."""
LATER = {"DynamicResources": 2, "VolumeBinding": 1}  # score only pods that request them


def head_of(version: str) -> str:
    return f"apiVersion: {GROUP}/{version}\nkind: KubeSchedulerConfiguration\n"


def of(version: str, body: str, **options: Any) -> Configuration:
    """Parse a configuration of a version, from the text after apiVersion and kind."""
    return parse(head_of(version) + dedent(body), **options)


def faults_of(version: str, body: str, **options: Any) -> list[str]:
    """Return its errors."""
    with pytest.raises(ConfigurationError) as caught:
        of(version, body, **options)
    return [str(error) for error in caught.value.errors]


def names_at(configuration: Configuration, point: ExtensionPoint) -> list[str]:
    """Return the plugins of an extension point in the first profile, in order."""
    profile = configuration.settings.profiles[0]
    return [plugin.name for plugin in expand(profile, POINTS)[point]]


def weights_of(configuration: Configuration) -> dict[str, int]:
    """Return score plugin -> weight in the first profile."""
    profile = configuration.settings.profiles[0]
    return {plugin.name: plugin.weight for plugin in expand(profile, POINTS)[ExtensionPoint.SCORE]}


def args_of(configuration: Configuration, plugin: str) -> dict[str, Any]:
    """Return the arguments of a plugin in the first profile."""
    return find_args(configuration.settings.profiles[0], plugin, "")[0]


def noted(configuration: Configuration) -> dict[str, str]:
    """Return the settings without an effect: path -> reason."""
    return {note.path: note.text for note in configuration.notes}


def old_weights_of(configuration: Configuration) -> dict[str, int]:
    """Return `weights_of`, without later plugins that score only pods that request them."""
    return {name: weight for name, weight in weights_of(configuration).items() if name not in LATER}
