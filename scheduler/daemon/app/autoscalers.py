"""Compares the profiles with what an autoscaler knows, so that it adds nodes if they help, and only then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from plugins.autoscalers import (
    ARGUMENTS_UNKNOWN_TO_KARPENTER,
    SPREAD_DEFAULTS,
    UNKNOWN_TO_CLUSTER_AUTOSCALER,
    UNKNOWN_TO_KARPENTER,
)
from scheduler.configuration.defaults import (
    DEFAULT_ARGS,
    DEFAULT_PLUGINS,
    GATED_PLUGINS,
    UPSTREAM_PLUGINS,
)
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.types import API_VERSION, KIND
from scheduler.configuration.yaml_text import write
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.framework.interface import ExtensionPoint, FilterPlugin, PreFilterPlugin
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import Profile
    from scheduler.engine.runtime.framework import Framework

CLUSTER_AUTOSCALER: Final = "Cluster Autoscaler"
KARPENTER: Final = "Karpenter"
_UNKNOWN: Final = {
    CLUSTER_AUTOSCALER: UNKNOWN_TO_CLUSTER_AUTOSCALER,
    KARPENTER: UNKNOWN_TO_KARPENTER,
}
_REJECTS: Final = (
    "rejects pods or nodes, and {} does not know its rules: it adds no node while it believes that a node fits, and may "
    "add nodes that are rejected as well"
)


def unknown_rules(
    autoscaler: str, configuration: Configuration, built: Iterable[Framework]
) -> Iterator[ConfigurationNote]:
    """Yield the rules by which profiles and extenders reject nodes, and that an autoscaler does not know.

    Args:
        autoscaler: `CLUSTER_AUTOSCALER` or `KARPENTER`.
        configuration: the configuration.
        built: its profiles.
    """
    frameworks = {each.profile: each for each in built}
    for i, profile in enumerate(configuration.settings.profiles):
        place = configuration.place(f"profiles[{i}]")
        for name in _rejecting(frameworks[profile.scheduler_name]):
            if name not in UPSTREAM_PLUGINS:
                yield ConfigurationNote(place, f"{name} {_REJECTS.format(autoscaler)}")
            elif text := _UNKNOWN[autoscaler].get(name):
                yield ConfigurationNote(place, f"of the rules of {name}, {autoscaler} does not know {text}")
        if autoscaler == KARPENTER:
            yield from _arguments(configuration, i)
    for i, extender in enumerate(configuration.settings.extenders):
        if extender.filter_verb:
            text = f"extender {shown_url(extender.url_prefix)} {_REJECTS.format(autoscaler)}"
            yield ConfigurationNote(configuration.place(f"extenders[{i}].filterVerb"), text)
    settings = [
        _settings_of(autoscaler, profile, frameworks[profile.scheduler_name])
        for profile in configuration.settings.profiles
    ]
    if any(each != settings[0] for each in settings):
        text = (
            f"{autoscaler} has one setting for all pods; the printed one is that of the first profile, and the other "
            "profiles need another"
        )
        yield ConfigurationNote(configuration.place("profiles"), text)


def _rejecting(framework: Framework) -> list[str]:
    """Return the names of the plugins at PreFilter and Filter."""
    at = framework.plugins.at
    points = (ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER)
    return list(dict.fromkeys(plugin.name for point in points for plugin in at.get(point, ())))


def _arguments(configuration: Configuration, index: int) -> Iterator[ConfigurationNote]:
    for j, config in enumerate(configuration.settings.profiles[index].plugin_config):
        for name in ARGUMENTS_UNKNOWN_TO_KARPENTER.get(config.name, ()):
            if config.args.get(name):
                place = configuration.place(f"profiles[{index}].pluginConfig[{j}].args.{name}")
                yield ConfigurationNote(place, f"changes which nodes fit, and {KARPENTER} does not know it")


def settings_yaml(autoscaler: str, configuration: Configuration, built: Iterable[Framework]) -> str:
    """Return the settings with which an autoscaler knows as much as it can of the first profile, as YAML.

    For Cluster Autoscaler they are the file of `--scheduler-config-file`, for Karpenter the value of `SCHEDULER_CONFIG`.
    """
    profile = configuration.settings.profiles[0]
    framework = next(each for each in built if each.profile == profile.scheduler_name)
    settings = _settings_of(autoscaler, profile, framework)
    if not settings:
        return f"# {autoscaler} needs no settings for this profile.\n"
    if autoscaler == KARPENTER:
        return write(settings)
    document = {"schedulerName": profile.scheduler_name, **settings}
    return write({"apiVersion": API_VERSION, "kind": KIND, "profiles": [document]})


def _settings_of(autoscaler: str, profile: Profile, framework: Framework) -> dict[str, Any]:
    """Return what an autoscaler has to know of a profile, besides the name; for Cluster Autoscaler as in a profile."""
    args = {config.name: config.args for config in profile.plugin_config}
    if autoscaler == KARPENTER:
        plugin, argument = SPREAD_DEFAULTS
        constraints = args.get(plugin, {}).get(argument)
        return {"podTopologySpread": {argument: constraints}} if constraints else {}
    changed = [
        {"name": name, "args": {**given}}
        for name, given in args.items()
        if name in UPSTREAM_PLUGINS and _rejects(name) and _differs(name, given)
    ]
    disabled = _disabled(framework)
    plugins = {"plugins": {"multiPoint": {"disabled": disabled}}} if disabled else {}
    return {**plugins, "pluginConfig": changed} if changed else plugins


def _disabled(framework: Framework) -> list[dict[str, str]]:
    """Return the plugins of kube-scheduler's default profile that reject nodes there, but not in a profile.

    Feature gates decide about some plugins, in Cluster Autoscaler too.
    """
    enabled = _rejecting(framework)
    defaults = [plugin.name for plugin in DEFAULT_PLUGINS.multi_point.enabled]
    return [
        {"name": name}
        for name in defaults
        if name not in enabled and name not in GATED_PLUGINS and _rejects(name)
    ]


def _rejects(name: str) -> bool:
    return name in IN_TREE and issubclass(IN_TREE[name], FilterPlugin | PreFilterPlugin)


def _differs(name: str, given: Mapping[str, Any]) -> bool:
    return {key: value for key, value in given.items() if value not in (None, [], {})} != DEFAULT_ARGS.get(
        name
    )
