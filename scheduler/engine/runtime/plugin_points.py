"""Maps extension points to the classes and methods of the plugin contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework.group_plugins import PlacementGeneratePlugin, PlacementScorePlugin
from scheduler.framework.interface import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
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
from scheduler.framework.points import ExtensionPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from scheduler.objects.pod import PodInfo

CLASS_OF_POINT: dict[ExtensionPoint, type[Plugin]] = {
    ExtensionPoint.PRE_ENQUEUE: PreEnqueuePlugin,
    ExtensionPoint.QUEUE_SORT: QueueSortPlugin,
    ExtensionPoint.PRE_FILTER: PreFilterPlugin,
    ExtensionPoint.FILTER: FilterPlugin,
    ExtensionPoint.POST_FILTER: PostFilterPlugin,
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
    ExtensionPoint.POST_FILTER: ("post_filter",),
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


def overrides(plugin: Plugin, contract: type[Plugin], method: str) -> bool:
    """Return whether a plugin overrides a method of the contract."""
    return getattr(type(plugin), method) is not getattr(contract, method)


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
        if any(overrides(plugin, PreFilterPlugin, method) for method in ("add_pods", "remove_pods")):
            return False
    return signature(plugin, pod) is not None
