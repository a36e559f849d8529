"""Loads and builds the plugins of a configuration that are not in-tree, each independently of the others."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from scheduler.configuration.defaults import enabled_names
from scheduler.configuration.profile_plugins import find_args
from scheduler.engine.runtime.construction import build_plugin
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.profiles import read_args
from scheduler.errors import SchedulerError
from scheduler.framework.preemption import PreemptionDryRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.engine.runtime.registry import Registry
    from scheduler.framework.interface import Plugin, PluginArgs

    Say = Callable[[str], None]


class Loaded(NamedTuple):
    """A plugin of one profile."""

    name: str
    plugin: type[Plugin]
    args: PluginArgs


def load_each(
    configuration: Configuration, names: Collection[str], registry: Registry, say: Say
) -> list[Loaded]:
    """Import or compile the named plugins, and read their arguments; plugins that fail are left out.

    Args:
        configuration: the profiles that enable the plugins.
        names: the names of the plugins in the profiles.
        registry: finds the plugins and caches them.
        say: receives a message before each step.
    """
    loaded = []
    for number, profile in enumerate(configuration.settings.profiles):
        path = f"profiles[{number}]"
        for name in enabled_names(profile.plugins):
            if name not in names:
                continue
            say(f"importing {name}")
            with suppress(SchedulerError):
                values, args_path = find_args(profile, name, path)
                plugin = registry.find_for(
                    name, values, folder=configuration.folder, path=f"{path}.plugins", args_path=args_path
                )
                loaded.append(Loaded(name, plugin, read_args(plugin, profile, name, path)))
    return loaded


def build_each(loaded: Iterable[Loaded], capabilities: Mapping[type, object], say: Say) -> None:
    """Build plugins, and discard the instances."""
    for name, plugin, args in loaded:
        say(f"building {name}")
        with suppress(SchedulerError):
            build_plugin(plugin, args, {**capabilities, PreemptionDryRun: DryRun()})
