"""Default values for absent parts of a configuration.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/defaults.go,
    SetDefaults_KubeSchedulerConfiguration. Differences: the names of the profile and of the lease, and the
    defaults of `clientConnection.qps`, `burst` and `percentageOfNodesToScore`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from scheduler.configuration.default_plugins import DEFAULT_ARGS, DEFAULT_PLUGINS, with_default_args
from scheduler.configuration.merge import merge_plugins
from scheduler.configuration.types import (
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    PluginConfig,
    Plugins,
    Profile,
)

DEFAULT_SCHEDULER_NAME = "custom-scheduler"


def with_a_profile(document: dict[str, Any], scheduler_name: str) -> dict[str, Any]:
    """Name the only profile, or create one.

    Several profiles must all have names, so that adding a second one cannot rename the first.
    """
    profiles = document.get("profiles")
    if profiles is None or profiles == []:
        return {**document, "profiles": [{"schedulerName": scheduler_name}]}
    match profiles:
        case [{**only}] if only.get("schedulerName") is None:
            return {**document, "profiles": [{**only, "schedulerName": scheduler_name}]}
    return document


def with_scalars(settings: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Replace zero values by their defaults, as Go does."""
    contention = settings.enable_contention_profiling
    client = settings.client_connection
    return replace(
        settings,
        leader_election=_or_default(settings.leader_election, LeaderElection(), keep="leader_elect"),
        client_connection=client if client.content_type else replace(client, content_type=_PROTOBUF),
        enable_contention_profiling=settings.enable_profiling if contention is None else contention,
        extenders=tuple(_with_timeout(extender) for extender in settings.extenders),
    )


def with_profiles(settings: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Merge every profile's plugins with the default ones, and fill in arguments."""
    ignored = [
        resource.name
        for extender in settings.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    ]
    profiles = (_with_plugins(profile) for profile in settings.profiles)
    return replace(settings, profiles=tuple(_ignoring(profile, ignored) for profile in profiles))


_PROTOBUF = KubeSchedulerConfiguration().client_connection.content_type


def _or_default(given: LeaderElection, default: LeaderElection, *, keep: str) -> LeaderElection:
    filled = {}
    for name in LeaderElection.__struct_fields__:
        value = getattr(given, name)
        is_zero = value == type(value)() and name != keep
        filled[name] = getattr(default, name) if is_zero else value
    return LeaderElection(**filled)


def _with_timeout(extender: Extender) -> Extender:
    if extender.http_timeout.nanoseconds:
        return extender
    return replace(extender, http_timeout=Extender().http_timeout)


def _with_plugins(profile: Profile) -> Profile:
    plugins = merge_plugins(DEFAULT_PLUGINS, profile.plugins)
    given = [
        replace(config, args=with_default_args(config.name, config.args)) for config in profile.plugin_config
    ]
    named = {config.name for config in given}
    added = [
        PluginConfig(name=name, args=with_default_args(name, {}))
        for name in sorted(enabled_names(plugins))
        if name in DEFAULT_ARGS and name not in named
    ]
    return replace(profile, plugins=plugins, plugin_config=(*given, *added))


def enabled_names(plugins: Plugins) -> tuple[str, ...]:
    """Return the names of all enabled plugins, each once, in the order of the file's extension points."""
    sets = (getattr(plugins, name) for name in Plugins.__struct_fields__)
    return tuple(dict.fromkeys(plugin.name for plugin_set in sets for plugin in plugin_set.enabled))


def _ignoring(profile: Profile, resources: list[str]) -> Profile:
    """Let NodeResourcesFit ignore the resources that extenders manage; this replaces the profile's own list.

    Source:
        kube-scheduler v1.36, pkg/scheduler/scheduler.go, buildExtenders.
    """
    if not resources:
        return profile
    configs = [
        replace(config, args={**config.args, "ignoredResources": resources})
        if config.name == "NodeResourcesFit"
        else config
        for config in profile.plugin_config
    ]
    return replace(profile, plugin_config=tuple(configs))
