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
from scheduler.framework.preemption import PreemptionDryRun
from scheduler.runtime.asking import slow_last
from scheduler.runtime.construction import build_plugin
from scheduler.runtime.dry_run import DryRun
from scheduler.runtime.framework import EnabledPlugins, Framework
from scheduler.runtime.points import points_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scheduler.configuration.expand import Expansion
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import Profile
    from scheduler.framework.interface import Plugin, PluginArgs
    from scheduler.runtime.budget import LoopBudget
    from scheduler.runtime.instruments import Instruments
    from scheduler.runtime.registry import Registry

logger = logging.getLogger(__name__)


def build_frameworks(
    configuration: Configuration,
    registry: Registry,
    capabilities: Callable[[str], Mapping[type, object]],
    instruments: Instruments | None = None,
    budget: LoopBudget | None = None,
) -> dict[str, Framework]:
    """Build every profile of a configuration.

    A plugin of kube-scheduler that is not here yet is left out with a warning.

    Args:
        configuration: what is enabled, and with which arguments.
        registry: where plugins are found.
        capabilities: schedulerName -> Protocol -> what fulfils it.
        instruments: who is told what was measured.
        budget: how long the loop may be held.

    Returns:
        schedulerName -> profile.

    Raises:
        ConfigurationError: everything that is wrong with any plugin; nothing is kept then.
    """
    loader = _Loader(configuration, registry)
    if loader.faults:
        raise _at_their_places(loader.faults, configuration)
    _warn_of_missing(configuration, loader.found)
    try:
        expansions = expand_profiles(
            configuration.settings, {name: points_of(plugin) for name, plugin in loader.found.items()}
        )
    except ConfigurationError as error:
        raise _at_their_places(error.errors, configuration) from error
    frameworks: dict[str, Framework] = {}
    faults: list[FieldError] = []
    for path, profile in _profiles(configuration):
        name = profile.scheduler_name
        try:
            dry_run = DryRun()
            own: Mapping[type, object] = {**capabilities(name), PreemptionDryRun: dry_run}
            plugins = _build(path, expansions[name], loader, own)
        except ConfigurationError as error:
            faults.extend(error.errors)
        else:
            has_extenders = bool(configuration.settings.extenders)
            frameworks[name] = Framework(
                name, plugins, instruments, budget=budget, has_extenders=has_extenders
            )
            dry_run.filtering = frameworks[name].filtering
    if faults:
        raise _at_their_places(faults, configuration)
    return frameworks


def _at_their_places(faults: Iterable[FieldError], configuration: Configuration) -> ConfigurationError:
    """Return faults as an error that names the fields of the file as it is written."""
    placed = [FieldError(configuration.place(fault.path), fault.problem) for fault in faults]
    return ConfigurationError(placed, configuration.source)


class _Loader:
    """Finds every plugin that any profile enables, and reads its arguments.

    Attributes:
        found: the configuration's name for a plugin -> its class.
        args: (path of a profile, the same name) -> its arguments there.
        faults: what is wrong with any of them.
    """

    def __init__(self, configuration: Configuration, registry: Registry) -> None:
        self.found: dict[str, type[Plugin]] = {}
        self.args: dict[tuple[str, str], PluginArgs] = {}
        self.faults: list[FieldError] = []
        for path, profile in _profiles(configuration):
            for name in enabled_names(profile.plugins):
                if name in UPSTREAM_PLUGINS and not registry.knows(name):
                    continue
                try:
                    values, args_path = find_args(profile, name, path)
                    plugin = registry.find_for(
                        name,
                        values,
                        folder=configuration.folder,
                        path=f"{path}.plugins",
                        args_path=args_path,
                    )
                    if self.found.setdefault(name, plugin) is not plugin:
                        # Which points a plugin has is known by its name, whatever the profile.
                        told = f"{name!r} is another guest in an earlier profile; give it a name of its own"
                        self.faults.append(FieldError(args_path, told))
                        continue
                    self.args[path, name] = read_args(plugin, profile, name, path)
                except PluginLoadError as error:
                    self.faults.append(FieldError(f"{path}.plugins", str(error)))
                except ConfigurationError as error:
                    self.faults.extend(error.errors)


def read_args(plugin: type[Plugin], profile: Profile, name: str, path: str) -> PluginArgs:
    """Read a plugin's arguments, given for the name it is enabled by or for its own.

    Raises:
        ConfigurationError: what is wrong with them.
        PluginLoadError: the plugin's own checks of them raise.
    """
    values, where = find_args(profile, name, path)
    if not values:
        values, where = find_args(profile, plugin.name, path)
    try:
        return decode_args(plugin.Args, values, plugin=plugin.name, path=where)
    except ConfigurationError:
        raise
    except Exception as error:  # the author's types and `faults`
        raise PluginLoadError(name, f"Args: {type(error).__name__}: {error}") from error


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
    path: str, expansion: Expansion, loader: _Loader, capabilities: Mapping[type, object]
) -> EnabledPlugins:
    built: dict[str, Plugin] = {}  # the configuration's name for it -> plugin
    names: dict[str, str] = {}  # a plugin's own name -> the configuration's
    faults: list[FieldError] = []
    for name in dict.fromkeys(plugin.name for plugins in expansion.values() for plugin in plugins):
        plugin = loader.found[name]
        twin = names.setdefault(plugin.name, name)
        if twin != name:
            faults.append(FieldError(f"{path}.plugins", f"{twin} and {name} are both called {plugin.name!r}"))
            continue
        try:
            built[name] = build_plugin(plugin, loader.args[path, name], capabilities)
        except PluginLoadError as error:
            faults.append(FieldError(f"{path}.plugins", str(error)))
    if faults:
        raise ConfigurationError(faults)
    return EnabledPlugins(
        at={
            point: slow_last([built[plugin.name] for plugin in plugins])
            for point, plugins in expansion.items()
        },
        weights={
            built[plugin.name].name: plugin.weight for plugin in expansion.get(ExtensionPoint.SCORE, ())
        },
    )
