"""Merges a profile's plugin sets with the default ones.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, mergePlugins.
"""

from __future__ import annotations

from scheduler.configuration.types import Plugin, Plugins, PluginSet

ALL = "*"
"""In `disabled`: every default plugin."""


def merge_plugins(default: Plugins, custom: Plugins) -> Plugins:
    """Apply a profile's plugin sets to the default plugins, extension point by extension point."""
    return Plugins(
        **{
            name: merge_plugin_set(getattr(default, name), getattr(custom, name))
            for name in Plugins.__struct_fields__
        }
    )


def merge_plugin_set(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Apply a profile's plugin set of one extension point to the defaults.

    Defaults keep their order; one that the profile enables again keeps its position and gets the profile's
    weight, 1 by default. The profile's other plugins follow. A plugin that is both disabled and enabled is
    enabled, among those that follow. The merge is idempotent.
    """
    disabled = tuple(Plugin(name=plugin.name) for plugin in (*custom.disabled, *default.disabled))
    disabled_names = {plugin.name for plugin in disabled}
    by_name = {plugin.name: plugin for plugin in custom.enabled}
    kept = [
        by_name.get(plugin.name, plugin)
        for plugin in default.enabled
        if ALL not in disabled_names and plugin.name not in disabled_names
    ]
    kept_names = {plugin.name for plugin in kept}
    added = [plugin for plugin in custom.enabled if plugin.name not in kept_names]
    return PluginSet(enabled=(*kept, *added), disabled=disabled)
