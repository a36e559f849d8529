"""The classes of plugins: the extension points that they implement, and their complete validation before use."""

from __future__ import annotations

import difflib
import inspect
import math
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from scheduler import clock
from scheduler.errors import PluginLoadError
from scheduler.framework import capabilities as known
from scheduler.framework import features, pod_groups, preemption
from scheduler.framework.group_plugins import (
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
)
from scheduler.framework.interface import (
    API_VERSION,
    BindPlugin,
    ExtensionPoint,
    FilterPlugin,
    Needs,
    PermitPlugin,
    Plugin,
    PluginArgs,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.framework.reasons import MOST_CHARACTERS, is_reason_code

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from scheduler.objects.pod import PodInfo

P = TypeVar("P", bound=Plugin)

CLASS_OF_POINT: dict[ExtensionPoint, type[Plugin]] = {
    ExtensionPoint.PRE_ENQUEUE: PreEnqueuePlugin,
    ExtensionPoint.QUEUE_SORT: QueueSortPlugin,
    ExtensionPoint.PRE_FILTER: PreFilterPlugin,
    ExtensionPoint.FILTER: FilterPlugin,
    ExtensionPoint.POST_FILTER: PostFilterPlugin,
    ExtensionPoint.POD_GROUP_POST_FILTER: PodGroupPostFilterPlugin,
    ExtensionPoint.PRE_SCORE: PreScorePlugin,
    ExtensionPoint.SCORE: ScorePlugin,
    ExtensionPoint.PLACEMENT_GENERATE: PlacementGeneratePlugin,
    ExtensionPoint.PLACEMENT_SCORE: PlacementScorePlugin,
    ExtensionPoint.RESERVE: ReservePlugin,
    ExtensionPoint.PERMIT: PermitPlugin,
    ExtensionPoint.PRE_BIND: PreBindPlugin,
    ExtensionPoint.BIND: BindPlugin,
    ExtensionPoint.POST_BIND: PostBindPlugin,
}

METHODS_OF: dict[ExtensionPoint, tuple[str, ...]] = {
    ExtensionPoint.PRE_ENQUEUE: ("pre_enqueue",),
    ExtensionPoint.QUEUE_SORT: ("sort_key",),
    ExtensionPoint.PRE_FILTER: ("pre_filter", "add_pods", "remove_pods"),
    ExtensionPoint.FILTER: ("filter", "filter_node"),
    ExtensionPoint.POST_FILTER: ("post_filter", "remedy", "preview"),
    ExtensionPoint.POD_GROUP_POST_FILTER: ("post_filter_group",),
    ExtensionPoint.PRE_SCORE: ("pre_score",),
    ExtensionPoint.SCORE: ("score", "score_node", "normalize"),
    ExtensionPoint.PLACEMENT_GENERATE: ("generate_placements",),
    ExtensionPoint.PLACEMENT_SCORE: ("score_placement", "foresee", "normalize_placement_scores"),
    ExtensionPoint.RESERVE: ("reserve", "unreserve"),
    ExtensionPoint.PERMIT: ("permit",),
    ExtensionPoint.PRE_BIND: ("pre_bind_pre_flight", "pre_bind"),
    ExtensionPoint.BIND: ("bind",),
    ExtensionPoint.POST_BIND: ("post_bind",),
}


def points_of(plugin: type[Plugin]) -> frozenset[ExtensionPoint]:
    """Return the extension points that a plugin implements."""
    return frozenset(point for point, of in CLASS_OF_POINT.items() if issubclass(plugin, of))


def overrides(plugin: Plugin | type[Plugin], contract: type[Plugin], *methods: str) -> bool:
    """Return whether a plugin overrides one of some methods of the contract."""
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return any(getattr(kind, method) is not getattr(contract, method) for method in methods)


def enforces_quotas(plugin: Plugin) -> bool:
    """Return whether a plugin enforces queues or quotas."""
    return overrides(plugin, Plugin, "quota_usages")


def called_for(pod: PodInfo, plugins: Sequence[P]) -> Sequence[P]:
    """Return the plugins that are called for a pod; see `Plugin.evaluates_resizes`.

    On hot paths call it only for pods whose spec names a node.
    """
    return [plugin for plugin in plugins if plugin.evaluates_resizes] if pod.has_deferred_resize else plugins


def keeps_rows_apart(
    plugins: Iterable[Plugin],
    pod: PodInfo,
    skipped: frozenset[str] = frozenset(),
    signature: Callable[[Plugin, PodInfo], Hashable | None] = lambda plugin, pod: plugin.signature(pod),
) -> bool:
    """Return whether pods of several nodes may be added and removed together: each node depends on its own pods only.

    An exception of `signature` gives false; a later call of the plugin reports it.

    Args:
        plugins: the plugins that are called.
        pod: the pod to place.
        skipped: the names of the plugins that skip the pod.
        signature: returns a plugin's signature of a pod.
    """
    try:
        return all(plugin.name in skipped or _is_apart(plugin, pod, signature) for plugin in plugins)
    except Exception:  # noqa: BLE001 - a later call of the plugin reports its failure
        return False


def _is_apart(plugin: Plugin, pod: PodInfo, signature: Callable[[Plugin, PodInfo], Hashable | None]) -> bool:
    if isinstance(plugin, PreFilterPlugin):
        if plugin.keeps_rows_apart:
            return True
        if overrides(plugin, PreFilterPlugin, "add_pods", "remove_pods"):
            return False
    return signature(plugin, pod) is not None


CAPABILITIES: Mapping[str, type] = {
    name: found
    for module in (known, features, preemption, pod_groups, clock)
    for name, found in vars(module).items()
    if getattr(found, "_is_protocol", False) and found.__module__ == module.__name__
}
"""Name of a capability -> its Protocol."""


def check_plugin(candidate: object, where: str) -> type[Plugin]:
    """Return the candidate if it fulfils the plugin contract.

    Raises:
        PluginLoadError: all errors, one on each line.
    """
    if not (isinstance(candidate, type) and issubclass(candidate, Plugin)):
        raise PluginLoadError(where, f"{candidate!r} is not a subclass of scheduler.framework.Plugin")
    faults = list(_faults(candidate))
    if faults:
        raise PluginLoadError(where, "\n  ".join([f"{candidate.__name__} is not a valid plugin:", *faults]))
    return candidate


def _faults(plugin: type[Plugin]) -> Iterator[str]:
    name: object = plugin.name
    args: object = plugin.Args
    needs: object = plugin.needs
    if not isinstance(name, str) or not name:
        yield f'name: a string such as "LicenceAware" is expected, write name = "{plugin.__name__}" in the class'
    if not plugin.api_version:
        yield f"api_version: set the version of the contract that the plugin uses: api_version = {API_VERSION}"
    elif plugin.api_version != API_VERSION:
        yield f"api_version: this scheduler has {API_VERSION}, the plugin uses {plugin.api_version}"
    if not (isinstance(args, type) and issubclass(args, PluginArgs)):
        yield f"Args: a subclass of scheduler.framework.PluginArgs is expected, was {args!r}"
    for flag in (
        "reads_pods",
        "evaluates_resizes",
        "refreshes_in_simulations",
        "reads_only_nodes",
        "checks_free_capacity",
    ):
        value: object = getattr(plugin, flag, False)
        if not isinstance(value, bool):
            yield f"{flag}: True or False is expected, was {value!r}"
    if getattr(plugin, "reads_only_nodes", False) is True and plugin.reads_pods is True:
        yield "reads_only_nodes: such a plugin reads no pods, add reads_pods = False"
    if not isinstance(needs, Needs):
        yield f"needs: scheduler.framework.Needs is expected, was {needs!r}"
    else:
        yield from (f"needs: {fault}" for fault in needs.faults())
    yield from _reason_code_faults(plugin)
    yield from refresh_faults(plugin)
    yield from _method_faults(plugin)
    try:
        constructor_wants(plugin)
    except TypeError as error:
        yield f"__init__: {error}"


def _reason_code_faults(plugin: type[Plugin]) -> Iterator[str]:
    codes: object = plugin.reason_codes
    if not isinstance(codes, Mapping):
        yield f"reason_codes: a mapping from codes to their meanings is expected, was {codes!r:.200}"
        return
    for code, meaning in codes.items():
        if not (isinstance(code, str) and is_reason_code(code)):
            yield f"reason_codes: a code is in CamelCase and has at most {MOST_CHARACTERS} characters, was {code!r:.200}"
        elif not isinstance(meaning, str) or not meaning:
            yield f"reason_codes: the meaning of {code} is a text, was {meaning!r:.200}"


def refresh_faults(plugin: type[Plugin] | Plugin) -> Iterator[str]:
    """Yield errors in a plugin's `refresh_seconds`, which its constructor may have set."""
    seconds: object = plugin.refresh_seconds
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
        yield f"refresh_seconds: a positive number of seconds or None is expected, was {seconds!r}"


def _method_faults(plugin: type[Plugin]) -> Iterator[str]:
    points = points_of(plugin)
    if not points:
        yield "the plugin implements no extension point; inherit FilterPlugin, ScorePlugin, ..."
    for name in sorted(getattr(plugin, "__abstractmethods__", ())):
        yield f"{name}: not implemented{_near_miss(plugin, name)}"
    if issubclass(plugin, FilterPlugin) and not overrides(plugin, FilterPlugin, "filter", "filter_node"):
        yield f"a FilterPlugin overrides filter or filter_node{_near_miss(plugin, 'filter_node', 'filter')}"
    if issubclass(plugin, ScorePlugin) and not overrides(plugin, ScorePlugin, "score", "score_node"):
        yield f"a ScorePlugin overrides score or score_node{_near_miss(plugin, 'score_node', 'score')}"
    contracts = [
        (CLASS_OF_POINT[point], method)
        for point in CLASS_OF_POINT
        if point in points
        for method in METHODS_OF[point]
    ]
    contracts += [(Plugin, name) for name, value in vars(Plugin).items() if inspect.isfunction(value)]
    for contract, method in contracts:
        yield from _signature_faults(plugin, contract, method)
    yield from _misspelled(plugin, points)


_NAMED_ELSEWHERE = frozenset({"filter", "filter_node", "score", "score_node"})
_MISSPELLED = 0.88
"""Similarity of two names, of which one is a mistake: `signatures` for `signature`, but not `events_of` for `events`."""


def _misspelled(plugin: type[Plugin], points: frozenset[ExtensionPoint]) -> Iterator[str]:
    """Yield an error for each public member whose name is nearly that of an optional one, because nothing uses it."""
    contracts = (Plugin, *(of for point, of in CLASS_OF_POINT.items() if point in points))
    members = {name: of for of in contracts for name in vars(of) if not name.startswith("_")}
    elsewhere = _NAMED_ELSEWHERE | getattr(plugin, "__abstractmethods__", frozenset())
    missing = {
        name.lower(): name
        for name, of in members.items()
        if name not in elsewhere and getattr(plugin, name) is getattr(of, name)
    }
    own = {
        name: None
        for kind in plugin.__mro__
        if issubclass(kind, Plugin) and not kind.__module__.startswith("scheduler.framework.")
        for name in vars(kind)
        if not name.startswith("_") and name not in members
    }
    for name in own:
        if near := difflib.get_close_matches(name.lower(), missing, n=1, cutoff=_MISSPELLED):
            yield f"{name}: the contract has no such member; did you mean {missing[near[0]]}?"


def _near_miss(plugin: type[Plugin], *wanted: str) -> str:
    """Return that a method of a plugin has a similar name; "" if none has."""
    own = [name for name, value in vars(plugin).items() if callable(value) and not hasattr(Plugin, name)]
    for name in wanted:
        if near := difflib.get_close_matches(name, own, n=1):
            return f"; it has {near[0]}, which is not called: did you mean {name}?"
    return ""


_EITHER = frozenset({"post_filter"})
"""Methods that may be a `def` or an `async def`."""


def _signature_faults(plugin: type[Plugin], contract: type[Plugin], method: str) -> Iterator[str]:
    found, wanted = getattr(plugin, method), getattr(contract, method)
    if found is wanted:
        return
    if not callable(found):
        yield f"{method}: a method is expected, was {found!r}"
        return
    if method not in _EITHER and inspect.iscoroutinefunction(found) != inspect.iscoroutinefunction(wanted):
        kind = "async def" if inspect.iscoroutinefunction(wanted) else "a plain def"
        yield f"{method}: {kind} is expected"
        return
    arguments = list(inspect.signature(wanted).parameters)
    if isinstance(inspect.getattr_static(plugin, method), staticmethod | classmethod):
        arguments = arguments[1:]  # it takes no `self`, or is already bound
    try:
        taken = inspect.signature(found)
    except ValueError:  # a class or a C function without a signature
        yield f"{method}: a method is expected, was {found!r}"
        return
    try:
        taken.bind(*arguments)
    except TypeError:
        yield f"{method}: takes {taken}, is called with ({', '.join(arguments)})"


_wants: WeakKeyDictionary[type[Plugin], dict[str, type | None]] = WeakKeyDictionary()


def constructor_wants(plugin: type[Plugin]) -> dict[str, type | None]:
    """Return the parameters of a plugin's constructor: name -> the capability's Protocol, None for `args`.

    The result is cached for each class, because each profile builds the plugin again.

    Raises:
        TypeError: a parameter is not keyword-only, or its annotation is no capability.
    """
    wants = _wants.get(plugin)
    if wants is None:
        wants = _wants[plugin] = _found_wants(plugin)
    return wants


def _found_wants(plugin: type[Plugin]) -> dict[str, type | None]:
    constructor = plugin.__init__
    if constructor is object.__init__:
        return {}
    hints = _annotations(plugin)
    wants: dict[str, type | None] = {}
    for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
        if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            raise TypeError(f"{parameter}: name each argument, so that the scheduler can pass it")
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise TypeError(f"{name}: arguments are keyword-only, put a * before it")
        if name == "args":
            wants[name] = None
        elif hints.get(name) in CAPABILITIES.values():
            wants[name] = hints[name]
        elif parameter.default is inspect.Parameter.empty:
            raise TypeError(
                f"{name}: annotate it with one of the capabilities {', '.join(sorted(CAPABILITIES))}"
            )
    return wants


def _annotations(plugin: type[Plugin]) -> dict[str, Any]:
    # Authors import capabilities under TYPE_CHECKING, so they are missing in the module at run time.
    names = {**CAPABILITIES, "Args": plugin.Args, plugin.__name__: plugin}
    try:
        return typing.get_type_hints(plugin.__init__, localns=names)
    except Exception as error:
        message = f"an annotation cannot be resolved: {error}; the capabilities are {', '.join(sorted(CAPABILITIES))}"
        raise TypeError(message) from error
