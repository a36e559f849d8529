"""The plugins of a profile: the list at each extension point, and the arguments of each plugin.

Source:
    kube-scheduler v1.36, pkg/scheduler/framework/runtime/framework.go, NewFramework, updatePluginList,
    expandMultiPointPlugins, getValidScoreWeights; pkg/scheduler/profile/profile.go, cfgValidator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from scheduler.configuration.decode import decode, unknown_field
from scheduler.configuration.defaults import ALL, GATED_PLUGINS, UPSTREAM_PLUGINS, enabled_names
from scheduler.configuration.feature_gates import features_of
from scheduler.configuration.types import Plugins, PluginSet
from scheduler.configuration.validation import type_meta_faults
from scheduler.errors import ConfigurationError, FieldError
from scheduler.framework.interface import ExtensionPoint
from scheduler.objects.wording import did_you_mean, entry, quoted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from scheduler.configuration.feature_gates import Features
    from scheduler.configuration.types import KubeSchedulerConfiguration, Plugin, Profile

T = TypeVar("T", bound=msgspec.Struct)


def find_args(profile: Profile, plugin: str, path: str) -> tuple[dict[str, Any], str]:
    """Return the arguments of a plugin in a profile, and their path.

    Args:
        profile: the profile.
        plugin: the plugin's name in the configuration.
        path: path of the profile, as in `profiles[0]`.

    Returns:
        The arguments, empty if there are none, and a path as in `profiles[0].pluginConfig[2].args`.
    """
    for i, config in enumerate(profile.plugin_config):
        if config.name == plugin:
            return config.args, f"{entry(f'{path}.pluginConfig', i)}.args"
    return {}, f"{path}.pluginConfig"


def decode_args(cls: type[T], args: dict[str, Any], *, plugin: str, path: str) -> T:
    """Convert a plugin's arguments into its type, strictly.

    The arguments may contain `apiVersion` and `kind`, as in kube-scheduler; they are checked and removed,
    unless the type has fields of these names. The errors of the type's `faults()` are added, with the path
    before their own.

    Args:
        cls: the plugin's type of arguments.
        args: plain values, as `find_args` returns them.
        plugin: the plugin's own name; its arguments have the kind `<plugin>Args`.
        path: path of the arguments.

    Raises:
        ConfigurationError: all errors, each with its full path.
        TypeError: the type has fields that cannot be read from a configuration.
    """
    type_meta = {"apiVersion", "kind"}.difference(cls.__struct_encode_fields__)
    kept = {key: value for key, value in args.items() if key not in type_meta}
    errors = list(type_meta_faults(plugin, {key: args.get(key) for key in type_meta}, path))
    result, decode_errors = decode(kept, cls, path)
    errors.extend(decode_errors)
    if result is not None and not decode_errors and hasattr(result, "faults"):
        own: Iterable[FieldError] = result.faults()
        errors.extend(FieldError(_below(path, fault.path), fault.problem) for fault in own)
    if errors or result is None:
        raise ConfigurationError(errors)
    return result


def _below(path: str, relative: str) -> str:
    """Join two paths: `args` and `shape[1].score` make `args.shape[1].score`."""
    if not relative or relative.startswith("["):
        return path + relative
    return f"{path}.{relative}"


if TYPE_CHECKING:
    Expansion = Mapping[ExtensionPoint, tuple["EnabledPlugin", ...]]
    PointsOf = Mapping[str, frozenset[ExtensionPoint]]

_MAX_SCORE = 100
_MAX_TOTAL_SCORE = 2**63 - 1  # the sum of a node's weighted scores is an int64


class EnabledPlugin(NamedTuple):
    """A plugin at one extension point; the weight is at least 1 at scoring points, and 0 elsewhere."""

    name: str
    weight: int


_WEIGHTED = (ExtensionPoint.SCORE, ExtensionPoint.PLACEMENT_SCORE)


def expand_in_steps(
    settings: KubeSchedulerConfiguration, points_of: PointsOf
) -> Generator[None, None, dict[str, Expansion]]:
    """Expand all profiles: scheduler name -> its plugins. Plugins with a disabled feature gate are left out.

    Each step is one profile.

    Raises:
        ConfigurationError: the errors of `expand` in all profiles, or profiles with different queue sort
            plugins: they share one queue.
    """
    features = features_of(settings.feature_gates, settings.emulated_version)
    points_of = {
        name: points
        for name, points in points_of.items()
        if name not in GATED_PLUGINS or features.enabled(GATED_PLUGINS[name])
    }
    errors: list[FieldError] = []
    expansions: dict[str, Expansion] = {}
    sorters: list[tuple[str, Profile, str]] = []  # (path, profile, its queue sort plugin)
    for i, profile in enumerate(settings.profiles):
        yield
        path = entry("profiles", i)
        errors.extend(_version_faults(profile.plugins, features, path))
        try:
            expansion = expand(profile, points_of, path)
        except ConfigurationError as error:
            errors.extend(error.errors)
            continue
        expansions[profile.scheduler_name] = expansion
        sorters.append((path, profile, expansion[ExtensionPoint.QUEUE_SORT][0].name))
    errors.extend(_queue_sort_faults(sorters))
    if errors:
        raise ConfigurationError(errors)
    return expansions


def expand(profile: Profile, points_of: PointsOf, path: str = "profiles[0]") -> Expansion:
    """List the plugins of every extension point, in execution order.

    A plugin of kube-scheduler that is not in `points_of` is left out: this scheduler does not have it.

    Args:
        profile: a profile, merged with the default plugins.
        points_of: the extension points of every available plugin.
        path: path of the profile, for errors.

    Raises:
        ConfigurationError: a plugin is unknown, or enabled at a point it does not implement; there is not
            exactly one queue sort plugin; there is no bind plugin; the weights are too large to add up
            scores.
    """
    errors = list(_unknown_plugins(profile, points_of, path))
    errors.extend(_misplaced_plugins(profile, points_of, path))
    expansion: dict[ExtensionPoint, tuple[EnabledPlugin, ...]] = {}
    for point in ExtensionPoint:
        weights = _weights(profile.plugins, points_of, point) if point in _WEIGHTED else {}
        names = _order(profile.plugins, point, points_of)
        expansion[point] = tuple(EnabledPlugin(name, weights.get(name, 0)) for name in names)
    if any(
        sum(plugin.weight for plugin in expansion[point]) * _MAX_SCORE > _MAX_TOTAL_SCORE
        for point in _WEIGHTED
    ):
        errors.append(
            FieldError(f"{path}.plugins", "the weights are so large that the sum of scores could overflow")
        )
    sorters = [plugin.name for plugin in expansion[ExtensionPoint.QUEUE_SORT]]
    if len(sorters) != 1:
        found = ", ".join(sorters) or "none"
        errors.append(
            FieldError(f"{path}.plugins.queueSort", f"exactly one queue sort plugin is needed, found {found}")
        )
    if len(expansion[ExtensionPoint.PLACEMENT_GENERATE]) > 1:
        message = "at most one placement generate plugin is allowed for profile with scheduler name "
        problem = f"{message}{quoted(profile.scheduler_name)}"
        errors.append(FieldError(f"{path}.plugins.placementGenerate", problem))
    if not expansion[ExtensionPoint.BIND]:
        errors.append(FieldError(f"{path}.plugins.bind", "at least one bind plugin is needed, found none"))
    if errors:
        raise ConfigurationError(errors)
    return expansion


def _order(plugins: Plugins, point: ExtensionPoint, points_of: PointsOf) -> list[str]:
    """Return the names of one extension point's plugins.

    First those that both the point and multiPoint list, in the point's order; then the others of multiPoint;
    then the others of the point.
    """

    def implements(plugin: Plugin) -> bool:
        return point in points_of.get(plugin.name, frozenset())

    own = plugins.at(point)
    if point is ExtensionPoint.POD_GROUP_POST_FILTER and own == PluginSet():
        # Profiles from before Kubernetes 1.37 replace the preempting plugin only at postFilter.
        own = plugins.post_filter
    listed = [plugin.name for plugin in own.enabled if implements(plugin)]
    disabled = {plugin.name for plugin in own.disabled}
    if ALL in disabled:
        return listed
    brought = [
        plugin.name
        for plugin in plugins.multi_point.enabled
        if implements(plugin) and plugin.name not in disabled
    ]
    overriding = [name for name in listed if name in brought]
    return [
        *overriding,
        *(name for name in brought if name not in listed),
        *(name for name in listed if name not in overriding),
    ]


def _weights(plugins: Plugins, points_of: PointsOf, point: ExtensionPoint) -> dict[str, int]:
    """Return the weight of every scoring plugin of a point: the point's own, else multiPoint's; 0 becomes 1."""
    weights: dict[str, int] = {}
    for plugin in (*plugins.at(point).enabled, *plugins.multi_point.enabled):
        if point in points_of.get(plugin.name, frozenset()):
            weights.setdefault(plugin.name, plugin.weight or 1)
    return weights


def _version_faults(plugins: Plugins, features: Features, path: str) -> Iterator[FieldError]:
    """Yield an error for each extension point that the emulated version does not have."""
    point = ExtensionPoint.POD_GROUP_POST_FILTER
    if plugins.at(point) != PluginSet() and not features.enabled("PodGroupPostFilter"):
        others = [each.value for each in ExtensionPoint if each is not point]
        problem = unknown_field(Plugins, point.value, others)
        yield FieldError(f"{path}.plugins.{point.value}", problem)


def _unknown_plugins(profile: Profile, points_of: PointsOf, path: str) -> Iterator[FieldError]:
    known = {*points_of, *UPSTREAM_PLUGINS}
    for name in enabled_names(profile.plugins):
        if name not in known:
            yield FieldError(
                f"{path}.plugins", f"no plugin {quoted(name)} is known{did_you_mean(name, known)}"
            )


def _misplaced_plugins(profile: Profile, points_of: PointsOf, path: str) -> Iterator[FieldError]:
    for point in ExtensionPoint:
        for plugin in profile.plugins.at(point).enabled:
            if plugin.name in points_of and point not in points_of[plugin.name]:
                yield FieldError(
                    f"{path}.plugins.{point.value}",
                    f"the plugin {quoted(plugin.name)} does not implement {point.metric_name}",
                )


def _queue_sort_faults(sorters: list[tuple[str, Profile, str]]) -> Iterator[FieldError]:
    for path, profile, name in sorters[1:]:
        first_path, first_profile, first_name = sorters[0]
        if name != first_name:
            yield FieldError(
                f"{path}.plugins.queueSort",
                f"must be the same in all profiles, was {name}, but {first_name} in {first_path}",
            )
            continue
        args, args_path = find_args(profile, name, path)
        if args != find_args(first_profile, name, first_path)[0]:
            yield FieldError(
                args_path, f"the arguments of {name} must be those in {first_path}: it sorts for all"
            )
