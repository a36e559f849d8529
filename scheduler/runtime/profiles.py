"""From a configuration to profiles ready to run: every plugin found, checked, given its arguments, and built."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.configuration.args import decode_args, find_args
from scheduler.configuration.default_plugins import UPSTREAM_PLUGINS
from scheduler.configuration.defaults import enabled_names
from scheduler.configuration.expand import expand_profiles
from scheduler.errors import ConfigurationError, FieldError, PluginLoadError
from scheduler.framework.points import ExtensionPoint
from scheduler.runtime.construction import build_plugin
from scheduler.runtime.framework import EnabledPlugins, Framework
from scheduler.runtime.points import points_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scheduler.configuration.expand import Expansion
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import Profile
    from scheduler.framework.interface import Plugin
    from scheduler.runtime.instruments import Instruments
    from scheduler.runtime.registry import Registry

logger = logging.getLogger(__name__)


def build_frameworks(
    configuration: Configuration,
    registry: Registry,
    capabilities: Callable[[str], Mapping[type, object]],
    instruments: Instruments | None = None,
) -> dict[str, Framework]:
    """Build every profile of a configuration.

    A plugin of kube-scheduler that is not here yet is left out with a warning.

    Args:
        configuration: what is enabled, and with which arguments.
        registry: where plugins are found.
        capabilities: schedulerName -> Protocol -> what fulfils it.
        instruments: who is told what was measured.

    Returns:
        schedulerName -> profile.

    Raises:
        ConfigurationError: everything that is wrong with any plugin; nothing is kept then.
    """
    found: dict[str, type[Plugin]] = {}
    faults: list[FieldError] = []
    for path, profile in _profiles(configuration):
        for name in enabled_names(profile.plugins):
            if name in found or (name in UPSTREAM_PLUGINS and name not in registry.names()):
                continue
            try:
                found[name] = registry.find(name, configuration.folder)
            except PluginLoadError as error:
                faults.append(FieldError(f"{path}.plugins", str(error)))
    if faults:
        raise ConfigurationError(faults, configuration.source)
    _warn_of_missing(configuration, found)
    expansions = expand_profiles(
        configuration.settings, {name: points_of(plugin) for name, plugin in found.items()}
    )
    frameworks: dict[str, Framework] = {}
    for path, profile in _profiles(configuration):
        name = profile.scheduler_name
        try:
            plugins = _build(profile, path, expansions[name], found, capabilities(name))
        except ConfigurationError as error:
            faults.extend(error.errors)
        else:
            frameworks[name] = Framework(name, plugins, instruments)
    if faults:
        raise ConfigurationError(faults, configuration.source)
    return frameworks


def _profiles(configuration: Configuration) -> Iterator[tuple[str, Profile]]:
    for number, profile in enumerate(configuration.settings.profiles):
        yield f"profiles[{number}]", profile


def _warn_of_missing(configuration: Configuration, found: Mapping[str, type[Plugin]]) -> None:
    names = {name for _, profile in _profiles(configuration) for name in enabled_names(profile.plugins)}
    missing = sorted(names - found.keys())
    if missing:
        logger.warning(
            "Plugins of kube-scheduler that are not here yet are left out", extra={"plugins": missing}
        )


def _build(
    profile: Profile,
    path: str,
    expansion: Expansion,
    found: Mapping[str, type[Plugin]],
    capabilities: Mapping[type, object],
) -> EnabledPlugins:
    built: dict[str, Plugin] = {}  # the configuration's name for it -> plugin
    faults: list[FieldError] = []
    for name in dict.fromkeys(plugin.name for plugins in expansion.values() for plugin in plugins):
        plugin = found[name]
        twin = next((other for other, known in built.items() if known.name == plugin.name), None)
        if twin is not None:
            faults.append(FieldError(f"{path}.plugins", f"{twin} and {name} are both called {plugin.name!r}"))
            continue
        values, where = find_args(profile, name, path)
        if not values:
            values, where = find_args(profile, plugin.name, path)
        try:
            args = decode_args(plugin.Args, values, plugin=plugin.name, path=where)
            built[name] = build_plugin(plugin, args, capabilities)
        except ConfigurationError as error:
            faults.extend(error.errors)
        except PluginLoadError as error:
            faults.append(FieldError(f"{path}.plugins", str(error)))
    if faults:
        raise ConfigurationError(faults)
    return EnabledPlugins(
        at={point: [built[plugin.name] for plugin in plugins] for point, plugins in expansion.items()},
        weights={
            built[plugin.name].name: plugin.weight for plugin in expansion.get(ExtensionPoint.SCORE, ())
        },
    )
