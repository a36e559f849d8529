"""Finds settings without an effect: they are valid, but a user may expect an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scheduler.configuration.defaults import ALL, UPSTREAM_PLUGINS, enabled_names
from scheduler.configuration.feature_gates import gates_in_vain
from scheduler.configuration.types import KubeSchedulerConfiguration, Plugins
from scheduler.objects.wording import child, did_you_mean, entry, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.configuration.types import Profile

_DEFAULT = KubeSchedulerConfiguration()
_ARGS_IN_VAIN: Mapping[str, Mapping[str, str]] = {
    "Coscheduling": {
        "podGroupBackoffSeconds": "has no effect: a group backs off as one, for as long as pods do",
        "podGroupRejectPercentage": "has no effect: a group is decided in one cycle, none waits half placed",
    }
}
"""Plugin -> argument -> why it has no effect."""


class ConfigurationNote(NamedTuple):
    """A setting without an effect, for a line in the log at startup.

    Attributes:
        is_left_out: whether the setting has an effect with another version of the API server.
    """

    path: str
    text: str
    is_left_out: bool = False


def notes(settings: KubeSchedulerConfiguration) -> Iterator[ConfigurationNote]:
    """Yield the settings without an effect, except those with the default value.

    Expects the profiles of the file, before they are merged with the default plugins.
    """
    client = settings.client_connection
    if settings.parallelism != _DEFAULT.parallelism:
        yield ConfigurationNote(
            "parallelism", "has no effect: all nodes are evaluated at once, in one thread"
        )
    if client.accept_content_types:
        yield ConfigurationNote(
            "clientConnection.acceptContentTypes", "has no effect: answers are requested in JSON"
        )
    if client.content_type not in {"application/json", _DEFAULT.client_connection.content_type}:
        yield ConfigurationNote("clientConnection.contentType", "has no effect: requests are sent as JSON")
    if client.burst and client.qps <= 0:
        yield ConfigurationNote(
            "clientConnection.burst", "has no effect without a qps: the rate of requests adapts"
        )
    if settings.delay_cache_until_active:
        yield ConfigurationNote(
            "delayCacheUntilActive",
            "has no effect: standby schedulers keep their cache, to take over quickly",
        )
    if not settings.enable_profiling:
        yield ConfigurationNote("enableProfiling", "has no effect: there are no Go profiles to serve")
    if settings.enable_contention_profiling not in {None, settings.enable_profiling}:
        yield ConfigurationNote(
            "enableContentionProfiling", "has no effect: there are no Go profiles to serve"
        )
    for gate, why in gates_in_vain(settings.feature_gates):
        yield ConfigurationNote(child("featureGates", gate), why)
    for i, profile in enumerate(settings.profiles):
        yield from _profile_notes(profile, entry("profiles", i))


def _profile_notes(profile: Profile, path: str) -> Iterator[ConfigurationNote]:
    plugins = profile.plugins
    for i, config in enumerate(profile.plugin_config):
        for name, why in _ARGS_IN_VAIN.get(config.name, {}).items():
            if config.args and config.args.get(name):
                yield ConfigurationNote(child(f"{entry(f'{path}.pluginConfig', i)}.args", name), why)
    known = {*UPSTREAM_PLUGINS, *enabled_names(plugins)}
    for name, key in zip(Plugins.__struct_fields__, Plugins.__struct_encode_fields__, strict=True):
        for i, plugin in enumerate(getattr(plugins, name).disabled):
            if plugin.name not in known and plugin.name != ALL:
                yield ConfigurationNote(
                    f"{entry(f'{path}.plugins.{key}.disabled', i)}.name",
                    f"disables nothing: no plugin {quoted(plugin.name)} is enabled"
                    f"{did_you_mean(plugin.name, known)}",
                )
