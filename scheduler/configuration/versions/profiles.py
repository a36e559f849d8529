"""Changes that several steps make to profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, mapping, name_of
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.configuration.versions.conversion import Conversion

ALL = "*"


def each_profile(
    fields: dict[str, Any], conversion: Conversion, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Change every profile, the one included that a configuration without any has."""
    profiles = fields.get("profiles")
    if profiles is None or profiles == []:
        profiles = [{}]
    if not isinstance(profiles, list):
        return fields
    changed = [change(profile) if isinstance(profile, dict) else profile for profile in profiles]
    return conversion.changed(fields, profiles=changed)


def plugin_set(profile: Mapping[str, Any], point: str) -> dict[str, Any]:
    """Return what a profile says of one extension point; nothing is an empty mapping."""
    return mapping(mapping(profile.get("plugins")).get(point))


def names_at(profile: Mapping[str, Any], point: str, key: str) -> list[str]:
    """Return the names a profile lists at one extension point, under `enabled` or `disabled`."""
    return [name_of(plugin) for plugin in entries(plugin_set(profile, point).get(key))]


def is_disabled(profile: Mapping[str, Any], point: str, plugin: str) -> bool:
    """Say whether a profile disables a default plugin at one extension point."""
    return not {plugin, ALL}.isdisjoint(names_at(profile, point, "disabled"))


def with_plugin_set(
    profile: dict[str, Any], conversion: Conversion, point: str, **lists: list[Any]
) -> dict[str, Any]:
    """Return a profile with another `enabled` or `disabled` at one extension point; an empty one is left out."""
    plugins = mapping(profile.get("plugins"))
    old = plugin_set(profile, point)
    new = {key: value for key, value in {**old, **lists}.items() if key not in lists or value}
    others = {key: value for key, value in plugins.items() if key != point}
    if new:
        others[point] = conversion.instead(old, new)
    if "plugins" not in profile and not others:
        return profile
    return conversion.changed(profile, plugins=conversion.instead(plugins, others))


def args_of(profile: Mapping[str, Any], plugin: str) -> dict[str, Any]:
    """Return the arguments a profile has for a plugin; none are an empty mapping."""
    for config in entries(profile.get("pluginConfig")):
        if name_of(config) == plugin:
            return mapping(config.get("args"))
    return {}


def with_args(
    profile: dict[str, Any],
    conversion: Conversion,
    plugin: str,
    args: dict[str, Any],
    *,
    instead_of: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return a profile that has these arguments for a plugin, in the place where it had some.

    Those of the plugins in `instead_of` are dropped; the plugin's own take the first one's place.
    """
    configs: list[Any] = []
    is_there = False
    for config in entries(profile.get("pluginConfig")):
        if name_of(config) not in {plugin, *instead_of}:
            configs.append(config)
        elif not is_there:
            configs.append(
                conversion.changed(config, name=plugin, args=conversion.instead(config.get("args"), args))
            )
            is_there = True
    if not is_there:
        configs.append({"name": plugin, "args": args})
    return conversion.changed(profile, pluginConfig=configs)


def without_args(profile: dict[str, Any], conversion: Conversion, plugins: tuple[str, ...]) -> dict[str, Any]:
    """Return a profile without the arguments of some plugins."""
    configs = profile.get("pluginConfig")
    if not isinstance(configs, list) or not any(name_of(config) in plugins for config in configs):
        return profile
    return conversion.changed(
        profile, pluginConfig=[config for config in configs if name_of(config) not in plugins]
    )


@dataclass(frozen=True, slots=True)
class Removed:
    """A plugin that is no more.

    Attributes:
        by: the plugin that does its work, so that enabling it means this one; "" if enabling it is an error.
        advice: what to do instead, for the error.
        lost: why disabling it alone has no effect, for a note; "" if there is nothing to lose.
    """

    by: str = ""
    advice: str = ""
    lost: str = ""


def without_removed(
    profile: dict[str, Any], conversion: Conversion, removed: Mapping[str, Removed]
) -> dict[str, Any]:
    """Replace plugins that are no more by those that do their work, and refuse those nobody replaces."""
    for point, old in mapping(profile.get("plugins")).items():
        for key, replaced in (("enabled", _enabled), ("disabled", _disabled)):
            listed = entries(mapping(old).get(key))
            if any(name_of(plugin) in removed for plugin in listed):
                kept = replaced(listed, conversion, removed)
                profile = with_plugin_set(profile, conversion, point, **{key: kept})
    return without_args(profile, conversion, tuple(removed))


def _enabled(listed: list[Any], conversion: Conversion, removed: Mapping[str, Removed]) -> list[Any]:
    names = {name_of(plugin) for plugin in listed}
    kept: list[Any] = []
    for plugin in listed:
        fate = removed.get(name_of(plugin))
        if fate is None:
            kept.append(plugin)
        elif not fate.by:
            conversion.fault(plugin, "name", f"{quoted(name_of(plugin))} was removed, {fate.advice}")
        elif fate.by not in names:
            names.add(fate.by)
            kept.append(conversion.changed(plugin, name=fate.by))
    return kept


def _disabled(listed: list[Any], conversion: Conversion, removed: Mapping[str, Removed]) -> list[Any]:
    for plugin in listed:
        fate = removed.get(name_of(plugin))
        if fate is not None and fate.lost:
            conversion.note(plugin, "name", f"has no effect: {fate.lost}")
    return [plugin for plugin in listed if name_of(plugin) not in removed]
