"""The plugins that need no path: in-tree plugins, and plugins added to a command."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

from plugins.registry import IN_TREE as _OURS
from scheduler.engine.runtime.plugin_classes import check_plugin
from scheduler.errors import PluginLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.interface import Plugin

_ADDED: dict[str, type[Plugin]] = {}

IN_TREE: Mapping[str, type[Plugin]] = ChainMap(_ADDED, dict(_OURS))
"""Name in a profile -> class."""


def add_plugins(plugins: Mapping[str, type[Plugin]]) -> None:
    """Let profiles name additional plugins, in every command of this process.

    Args:
        plugins: name in a profile -> class with the same `name`.

    Raises:
        PluginLoadError: a class is not a complete plugin, has another name, or the name is taken; then none is added.

    Source:
        kube-scheduler v1.36, cmd/kube-scheduler/daemon/app/server.go, WithPlugin.
    """
    checked: dict[str, type[Plugin]] = {}
    for name, candidate in plugins.items():
        plugin = check_plugin(candidate, f"main(plugins={{{name!r}: ...}})")
        if plugin.name != name:
            problem = f"{plugin.__name__}.name is {plugin.name!r}; give it under that name"
            raise PluginLoadError(name, problem)
        if name in IN_TREE:
            raise PluginLoadError(
                name, f"there is a plugin of that name, {IN_TREE[name].__module__}; choose another"
            )
        checked[name] = plugin
    _ADDED.update(checked)
