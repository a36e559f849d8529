"""Builds the profiles of a configuration: finds, validates, configures and builds their plugins."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.configuration.defaults import (
    GATED_PLUGINS,
    GROUP_READERS,
    UPSTREAM_PLUGINS,
    enabled_names,
)
from scheduler.configuration.profile_plugins import decode_args, expand_in_steps, find_args
from scheduler.engine.runtime.adapters import slow_last
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.framework import EnabledPlugins, Framework
from scheduler.engine.runtime.plugin_classes import constructor_wants, overrides, points_of, refresh_faults
from scheduler.errors import ConfigurationError, FieldError, PluginLoadError, SchedulerError
from scheduler.framework.events import ClusterEvent, EventWithHint
from scheduler.framework.features import Features
from scheduler.framework.interface import ExtensionPoint, Plugin
from scheduler.framework.preemption import PreemptionDryRun
from scheduler.loop_work import calls_plugin_code, loop_work
from scheduler.objects.wording import did_you_mean, entry, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from scheduler.configuration.feature_gates import Features as GivenFeatures
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.profile_plugins import Expansion
    from scheduler.configuration.types import Profile
    from scheduler.engine.runtime.budget import LoopBudget
    from scheduler.engine.runtime.calls import Instruments
    from scheduler.engine.runtime.registry import Registry
    from scheduler.framework.interface import PluginArgs

logger = logging.getLogger(__name__)


@calls_plugin_code
@loop_work("reload", lambda plugin: f"plugin {plugin.name} at its constructor")
def build_plugin(plugin: type[Plugin], args: PluginArgs, capabilities: Mapping[type, object]) -> Plugin:
    """Return an instance of a plugin class.

    Args:
        plugin: a validated class.
        args: an instance of the class's own `Args`.
        capabilities: Protocol -> its implementation.

    Raises:
        PluginLoadError: the constructor, `events` or `version` raised, `events` or `version` returned an invalid value, or
            the constructor needs a capability that is not available here, for example a binder in an offline simulation.
    """
    given: dict[str, Any] = {}
    for name, capability in constructor_wants(plugin).items():
        if capability is None:
            given[name] = args
        elif capability in capabilities:
            given[name] = capabilities[capability]
        else:
            raise PluginLoadError(plugin.name, f"needs {capability.__name__}, which is not available here")
    try:
        built = plugin(**given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # SystemExit and CancelledError of a constructor are failures of the plugin.
        message = f"cannot be built: {type(error).__name__}: {error}"
        raise PluginLoadError(plugin.name, message) from error
    for fault in refresh_faults(built):
        raise PluginLoadError(plugin.name, fault)
    _check_events(built)
    _check_version(built)
    return built


@contextmanager
def _failing_as(plugin: Plugin, function: str) -> Iterator[None]:
    """Raise an exception of a plugin's function as a PluginLoadError."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as in `build_plugin`
        raise PluginLoadError(plugin.name, f"{function}: {type(error).__name__}: {error}") from error


def _check_version(plugin: Plugin) -> None:
    """Check the result of `version`: in a cycle, a wrong one would only cause wrong cached results."""
    if not overrides(plugin, Plugin, "version"):
        return
    with _failing_as(plugin, "version"):
        version: object = plugin.version()
    if not isinstance(version, int) or isinstance(version, bool):
        raise PluginLoadError(plugin.name, f"version: a whole number is expected, was {version!r:.200}")


def _check_events(plugin: Plugin) -> None:
    with _failing_as(plugin, "events"):
        events = list(plugin.events())
    for event in events:
        if not isinstance(event, EventWithHint) or not isinstance(event.event, ClusterEvent):
            raise PluginLoadError(
                plugin.name, f"events: EventWithHint of a ClusterEvent is expected, was {event!r:.200}"
            )


def build_in_steps(
    configuration: Configuration,
    registry: Registry,
    capabilities: Callable[[str], Mapping[type, object]],
    instruments: Instruments | None = None,
    budget: LoopBudget | None = None,
) -> Generator[None, None, dict[str, Framework]]:
    """Build every profile of a configuration. Each step takes a few milliseconds, unless a plugin takes longer.

    A plugin of kube-scheduler that this scheduler does not have is left out with a warning.

    Args:
        configuration: the enabled plugins and their arguments.
        registry: finds plugin classes.
        capabilities: returns, for a schedulerName, Protocol -> its implementation.
        instruments: receives the measurements.
        budget: how long calls may hold the event loop.

    Returns:
        schedulerName -> profile.

    Raises:
        ConfigurationError: all errors of all plugins; no profile is built then.
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
            Features: configuration.features,
        }
        # Without expansions, all enabled plugins are built, so that all their errors are reported.
        names = (
            dict.fromkeys(plugin.name for plugins in expansion.values() for plugin in plugins)
            if expansions
            else enabled_names(profile.plugins)
        )
        built, wrong = _build(path, names, loader, own)
        faults.extend(wrong)
        readers: list[Plugin] = []
        for reader, features in _readers(names, loader, configuration.features):
            read, wrong = _build(path, [reader], loader, {**own, Features: features})
            readers.extend(read.values())
            faults.extend(wrong)
        if not faults:
            has_extenders = bool(configuration.settings.extenders)
            enabled = _enabled(expansion, built, readers)
            frameworks[name] = Framework(
                name, enabled, instruments, budget=budget, has_extenders=has_extenders
            )
            dry_run.filtering = frameworks[name].filtering
    if faults:
        raise _at_their_places(faults, configuration)
    return frameworks


def _at_their_places(faults: Iterable[FieldError], configuration: Configuration) -> ConfigurationError:
    """Return errors that name the fields of the file in its own API version."""
    placed = [replace(fault, path=configuration.place(fault.path)) for fault in faults]
    return ConfigurationError(placed, configuration.source)


class _Loader:
    """Finds every enabled plugin, and reads its arguments.

    Attributes:
        found: name of a plugin in the configuration -> its class.
        args: (path of a profile, name of a plugin) -> its arguments in the profile.
        lost: names of the plugins that cannot be loaded.
        faults: all errors.
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
            for name in dict.fromkeys((*enabled_names(profile.plugins), *GROUP_READERS)):
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
                        # The extension points of a plugin depend on its name only, not on the profile.
                        message = f"{name!r} is another guest in an earlier profile; use a different name"
                        self.faults.append(FieldError(args_path, message))
                        continue
                    self.args[path, name] = read_args(plugin, profile, name, path)
                except PluginLoadError as error:
                    self.faults.append(FieldError(f"{path}.plugins", str(error), error.where))
                except ConfigurationError as error:
                    self.faults.extend(error.errors)
                if name not in self.found:
                    self.lost.add(name)

    def points(self, configuration: Configuration) -> dict[str, frozenset[ExtensionPoint]]:
        """Return the extension points of each plugin; for one that cannot be loaded, the points where profiles enable it."""
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
    """Read a plugin's arguments, under the name that enables the plugin or under its own name.

    Raises:
        ConfigurationError: all errors in the arguments.
        PluginLoadError: the plugin's own validation raised.
    """
    values, where = find_args(profile, name, path)
    if not values:
        values, where = find_args(profile, plugin.name, path)
    try:
        return decode_args(plugin.Args, values, plugin=plugin.name, path=where)
    except ConfigurationError:
        raise
    except Exception as error:  # the plugin's types and its `faults`
        raise PluginLoadError(name, f"Args: {type(error).__name__}: {error}") from error


def _profiles(configuration: Configuration) -> Iterator[tuple[str, Profile]]:
    for number, profile in enumerate(configuration.settings.profiles):
        yield f"profiles[{number}]", profile


def _args_of_nobody(
    configuration: Configuration, registry: Registry, loader: _Loader
) -> Iterator[FieldError]:
    """Yield errors for arguments of unknown plugins."""
    known = {*UPSTREAM_PLUGINS, *loader.found, *loader.lost, *(each.name for each in loader.found.values())}
    for path, profile in _profiles(configuration):
        for number, config in enumerate(profile.plugin_config):
            if config.name in known or registry.may_know(config.name, config.args):
                continue
            # The name of a plugin that cannot be loaded is no hint: the arguments are probably its own.
            hint = did_you_mean(config.name, (known - loader.lost) | registry.names())
            if hint or not loader.lost:  # else it may be the own name of a plugin that cannot be loaded
                place = f"{entry(f'{path}.pluginConfig', number)}.name"
                yield FieldError(place, f"no plugin is called {quoted(config.name)}{hint}")


def _warn_of_missing(configuration: Configuration, loader: _Loader) -> None:
    names = {name for _, profile in _profiles(configuration) for name in enabled_names(profile.plugins)}
    missing = sorted(names - loader.found.keys() - loader.lost)
    if missing:
        logger.warning(
            "Plugins of kube-scheduler that this scheduler does not have are left out",
            extra={"plugins": missing},
        )


def _build(
    path: str, names: Iterable[str], loader: _Loader, capabilities: Mapping[type, object]
) -> tuple[dict[str, Plugin], list[FieldError]]:
    """Build the loaded plugins of a profile; return the plugins and all errors."""
    built: dict[str, Plugin] = {}  # name in the configuration -> plugin
    twins: dict[str, str] = {}  # a plugin's own name -> its name in the configuration
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
            # The name in the configuration names the file, if the plugin is one.
            found = PluginLoadError(name, error.problem)
            faults.append(FieldError(f"{path}.plugins", str(found), name))
    return built, faults


def _readers(
    names: Collection[str], loader: _Loader, features: GivenFeatures
) -> Iterator[tuple[str, GivenFeatures]]:
    """Yield the names of plugins that only read the objects of groups, with what is on for them: not their own gate."""
    for name, gate in GROUP_READERS.items():
        if name in loader.found and name not in names and features.enabled(gate):
            yield name, replace(features, names=features.names - {GATED_PLUGINS[name]})


def _enabled(expansion: Expansion, built: Mapping[str, Plugin], readers: Sequence[Plugin]) -> EnabledPlugins:
    return EnabledPlugins(
        at={
            point: slow_last([built[plugin.name] for plugin in plugins])
            for point, plugins in expansion.items()
        },
        weights=_weights(expansion, ExtensionPoint.SCORE, built),
        placement_weights=_weights(expansion, ExtensionPoint.PLACEMENT_SCORE, built),
        readers=readers,
    )


def _weights(expansion: Expansion, point: ExtensionPoint, built: Mapping[str, Plugin]) -> dict[str, int]:
    return {built[plugin.name].name: plugin.weight for plugin in expansion.get(point, ())}


if TYPE_CHECKING:
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
