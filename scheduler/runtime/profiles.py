"""From a configuration to profiles ready to run: every plugin found, checked, given its arguments, and built."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.configuration.args import decode_args, find_args
from scheduler.configuration.default_plugins import UPSTREAM_PLUGINS
from scheduler.configuration.defaults import enabled_names
from scheduler.configuration.expand import expand_in_steps
from scheduler.configuration.feature_gates import gates_of
from scheduler.errors import ConfigurationError, FieldError, PluginLoadError
from scheduler.framework.long_work import at_once
from scheduler.framework.pod_groups import WorkloadFeatures
from scheduler.framework.points import ExtensionPoint
from scheduler.framework.preemption import PreemptionDryRun
from scheduler.objects.wording import did_you_mean, entry, quoted
from scheduler.runtime.asking import slow_last
from scheduler.runtime.construction import build_plugin
from scheduler.runtime.dry_run import DryRun
from scheduler.runtime.framework import EnabledPlugins, Framework
from scheduler.runtime.points import points_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

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
    """Do as `build_in_steps`, at once."""
    return at_once(build_in_steps(configuration, registry, capabilities, instruments, budget))


def build_in_steps(
    configuration: Configuration,
    registry: Registry,
    capabilities: Callable[[str], Mapping[type, object]],
    instruments: Instruments | None = None,
    budget: LoopBudget | None = None,
) -> Generator[None, None, dict[str, Framework]]:
    """Build every profile of a configuration. Each step takes a few milliseconds at most, but for plugins that take longer.

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
    loader = _Loader()
    yield from loader.find(configuration, registry)
    faults = [*loader.faults, *_args_of_nobody(configuration, registry, loader)]
    _warn_of_missing(configuration, loader)
    expansions: Mapping[str, Expansion] = {}
    try:
        expansions = yield from expand_in_steps(configuration.settings, loader.points(configuration))
    except ConfigurationError as error:
        faults.extend(error.errors)
    frameworks: dict[str, Framework] = {}
    for path, profile in _profiles(configuration):
        yield
        name = profile.scheduler_name
        expansion = expansions.get(name, {})
        dry_run = DryRun()
        own: Mapping[type, object] = {
            **capabilities(name),
            PreemptionDryRun: dry_run,
            WorkloadFeatures: gates_of(configuration.settings.feature_gates),
        }
        # Where it is not known which plugins run, all are built all the same: each may have something wrong with it.
        names = _names_in(expansion) if expansions else enabled_names(profile.plugins)
        built, wrong = _build(path, names, loader, own)
        faults.extend(wrong)
        if not faults:
            has_extenders = bool(configuration.settings.extenders)
            frameworks[name] = Framework(
                name, _enabled(expansion, built), instruments, budget=budget, has_extenders=has_extenders
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
        lost: the configuration's names for those that cannot be had.
        faults: what is wrong with any of them.
    """

    def __init__(self) -> None:
        self.found: dict[str, type[Plugin]] = {}
        self.args: dict[tuple[str, str], PluginArgs] = {}
        self.lost: set[str] = set()
        self.faults: list[FieldError] = []

    def find(self, configuration: Configuration, registry: Registry) -> Generator[None, None, None]:
        """Find the plugins of all profiles; each step is one profile."""
        for path, profile in _profiles(configuration):
            yield
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
                if name not in self.found:
                    self.lost.add(name)

    def points(self, configuration: Configuration) -> dict[str, frozenset[ExtensionPoint]]:
        """Return what each plugin implements; of one that cannot be had, what profiles take it to implement."""
        taken = {
            name: frozenset(
                point
                for _, profile in _profiles(configuration)
                for point in ExtensionPoint
                if any(plugin.name == name for plugin in profile.plugins.at(point).enabled)
            )
            for name in self.lost
        }
        return taken | {name: points_of(plugin) for name, plugin in self.found.items()}


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


def _args_of_nobody(
    configuration: Configuration, registry: Registry, loader: _Loader
) -> Iterator[FieldError]:
    """Yield the names that arguments are given for and no plugin has."""
    known = {*UPSTREAM_PLUGINS, *loader.found, *loader.lost, *(each.name for each in loader.found.values())}
    for path, profile in _profiles(configuration):
        for number, config in enumerate(profile.plugin_config):
            if config.name in known or registry.may_know(config.name, config.args):
                continue
            hint = did_you_mean(config.name, known | registry.names())
            if hint or not loader.lost:  # it may be the own name of one that cannot be had
                place = f"{entry(f'{path}.pluginConfig', number)}.name"
                yield FieldError(place, f"no plugin is called {quoted(config.name)}{hint}")


def _warn_of_missing(configuration: Configuration, loader: _Loader) -> None:
    names = {name for _, profile in _profiles(configuration) for name in enabled_names(profile.plugins)}
    missing = sorted(names - loader.found.keys() - loader.lost)
    if missing:
        logger.warning(
            "Plugins of kube-scheduler that are not here yet are left out", extra={"plugins": missing}
        )


def _build(
    path: str, names: Iterable[str], loader: _Loader, capabilities: Mapping[type, object]
) -> tuple[dict[str, Plugin], list[FieldError]]:
    """Build the plugins of a profile that could be had, and say what is wrong with the others of them."""
    built: dict[str, Plugin] = {}  # the configuration's name for it -> plugin
    twins: dict[str, str] = {}  # a plugin's own name -> the configuration's
    faults: list[FieldError] = []
    for name in names:
        if (path, name) not in loader.args:
            continue
        plugin = loader.found[name]
        twin = twins.setdefault(plugin.name, name)
        if twin != name:
            faults.append(FieldError(f"{path}.plugins", f"{twin} and {name} are both called {plugin.name!r}"))
            continue
        try:
            built[name] = build_plugin(plugin, loader.args[path, name], capabilities)
        except PluginLoadError as error:
            faults.append(FieldError(f"{path}.plugins", str(error)))
    return built, faults


def _names_in(expansion: Expansion) -> Iterable[str]:
    return dict.fromkeys(plugin.name for plugins in expansion.values() for plugin in plugins)


def _enabled(expansion: Expansion, built: Mapping[str, Plugin]) -> EnabledPlugins:
    return EnabledPlugins(
        at={
            point: slow_last([built[plugin.name] for plugin in plugins])
            for point, plugins in expansion.items()
        },
        weights=_weights(expansion, ExtensionPoint.SCORE, built),
        placement_weights=_weights(expansion, ExtensionPoint.PLACEMENT_SCORE, built),
    )


def _weights(expansion: Expansion, point: ExtensionPoint, built: Mapping[str, Plugin]) -> dict[str, int]:
    return {built[plugin.name].name: plugin.weight for plugin in expansion.get(point, ())}
