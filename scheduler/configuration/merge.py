"""A profile's plugin sets merged with the default ones.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, mergePlugins.
"""

from __future__ import annotations

from scheduler.configuration.types import Plugin, Plugins, PluginSet

ALL = "*"
"""In `disabled`: every default plugin."""


def merge_plugins(default: Plugins, custom: Plugins) -> Plugins:
    """Apply what a profile says to the default plugins, extension point by extension point."""
    return Plugins(
        **{
            name: merge_plugin_set(getattr(default, name), getattr(custom, name))
            for name in Plugins.__struct_fields__
        }
    )


def merge_plugin_set(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Apply what a profile says of one extension point to the defaults there.

    Defaults keep their order; one that the profile enables again keeps its place and takes the weight given
    there, 1 if none is. The profile's other plugins follow. A plugin both disabled and enabled is enabled,
    among those that follow. Merging the result once more changes nothing.
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
