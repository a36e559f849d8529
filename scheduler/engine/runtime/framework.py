"""Runs the plugins of one profile at each extension point."""

from __future__ import annotations

import math
import time
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.engine.runtime.budget import OverBudgetError, is_ours
from scheduler.engine.runtime.calls import (
    NO_OTHER,
    REJECTIONS,
    SKIPS,
    NoInstruments,
    PluginCalls,
    PointTiming,
    is_anything,
    is_permit,
    is_sort_key,
)
from scheduler.engine.runtime.equivalence_classes import EquivalenceClasses
from scheduler.engine.runtime.filtering import Filtering
from scheduler.engine.runtime.placing import Placing
from scheduler.engine.runtime.plugin_classes import called_for, enforces_quotas
from scheduler.engine.runtime.scoring import Scoring
from scheduler.framework.events import (
    EVERYTHING,
    EXTENDER,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    QueueingHint,
)
from scheduler.framework.group_plugins import (
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPlugin,
    PodGroupPostFilterPlugin,
)
from scheduler.framework.interface import (
    BindPlugin,
    ExtensionCall,
    ExtensionPoint,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    Wait,
)
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.loop_work import loop_work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.engine.runtime.budget import LoopBudget
    from scheduler.engine.runtime.calls import Instruments
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import Plugin
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    Hint = Callable[[PodInfo, Any, Any], QueueingHint]

P = TypeVar("P", bound="Plugin")
T = TypeVar("T")

_LONGEST_PERMIT_SECONDS = 15 * 60.0
"""Source: kube-scheduler v1.36, framework/runtime/framework.go, maxTimeout."""


_REJECTING = (
    PreEnqueuePlugin,
    PlacementGeneratePlugin,
    PreFilterPlugin,
    FilterPlugin,
    ReservePlugin,
    PermitPlugin,
)


@dataclass(frozen=True, slots=True)
class EnabledPlugins:
    """The plugins of one profile by extension point, in order; a plugin is one object at all its points.

    Attributes:
        at: extension point -> plugins.
        weights: name of a Score plugin -> its weight.
        placement_weights: name of a PlacementScore plugin -> its weight.
        readers: plugins at no extension point, which only read the objects of groups that no other plugin reads.
    """

    at: Mapping[ExtensionPoint, Sequence[Plugin]]
    weights: Mapping[str, int] = field(default_factory=dict)
    placement_weights: Mapping[str, int] = field(default_factory=dict)
    readers: Sequence[Plugin] = ()

    def filters_with(self, has: Callable[[FilterPlugin], bool]) -> frozenset[str]:
        """Return the names of the Filter plugins with a property."""
        filters = self.at.get(ExtensionPoint.FILTER, ())
        return frozenset(each.name for each in filters if isinstance(each, FilterPlugin) and has(each))

    def all(self) -> Sequence[Plugin]:
        """Return each plugin once, in order of first appearance."""
        by_id = {id(plugin): plugin for plugins in (self.readers, *self.at.values()) for plugin in plugins}
        return list(by_id.values())


class Framework:
    """Runs one profile's plugins.

    Args:
        profile: the schedulerName of the profile.
        plugins: the enabled plugins.
        instruments: receives the measurements.
        clock: seconds, for durations only.
        budget: how long calls may hold the event loop.
        has_extenders: whether extenders may reject pods as well; extenders register for all events.

    Attributes:
        profile: the schedulerName of the profile.
        plugins: the enabled plugins.
        filtering: PreFilter, Filter and PostFilter.
        scoring: PreScore, Score and normalization.
        placing: PlacementGenerate and PlacementScore.
        groups: kind of pod groups -> the plugin that reads their objects.
        group_post_filters: the plugins that preempt pods for whole groups, in their order.
        events: plugin -> the events that may make a pod schedulable after its rejection, of extenders and of every
            plugin that can reject pods.
    """

    def __init__(
        self,
        profile: str,
        plugins: EnabledPlugins,
        instruments: Instruments | None = None,
        clock: Callable[[], float] = time.perf_counter,
        budget: LoopBudget | None = None,
        *,
        has_extenders: bool = False,
    ) -> None:
        self.profile = profile
        self.plugins = plugins
        self._call = PluginCalls(profile, instruments or NoInstruments(), clock, budget, plugins.all())
        self._call.stopped = self.forget_cached_verdicts
        self._pre_enqueue = self._at(ExtensionPoint.PRE_ENQUEUE, PreEnqueuePlugin)
        self._queue_sort = self._at(ExtensionPoint.QUEUE_SORT, QueueSortPlugin)
        self._classes = EquivalenceClasses(plugins.all(), self._call)
        self.filtering = Filtering(
            self._call,
            self._at(ExtensionPoint.PRE_FILTER, PreFilterPlugin),
            self._at(ExtensionPoint.FILTER, FilterPlugin),
            self._at(ExtensionPoint.POST_FILTER, PostFilterPlugin),
            self._classes,
        )
        self.scoring = Scoring(
            self._call,
            self._at(ExtensionPoint.PRE_SCORE, PreScorePlugin),
            self._at(ExtensionPoint.SCORE, ScorePlugin),
            plugins.weights,
        )
        self.groups: Mapping[str, PodGroupPlugin] = {
            kind: plugin
            for plugin in plugins.all()
            if isinstance(plugin, PodGroupPlugin)
            for kind in plugin.group_kinds
        }
        self.group_readers: Mapping[str, PodGroupPlugin] = {
            kind: plugin
            for plugin in plugins.all()
            if isinstance(plugin, PodGroupPlugin)
            for kind in plugin.group_kinds | plugin.composite_kinds
        }
        self.placing = Placing(
            self._call,
            self._at(ExtensionPoint.PLACEMENT_GENERATE, PlacementGeneratePlugin),
            self._at(ExtensionPoint.PLACEMENT_SCORE, PlacementScorePlugin),
            plugins.placement_weights,
        )
        self.group_post_filters = self._at(ExtensionPoint.POD_GROUP_POST_FILTER, PodGroupPostFilterPlugin)
        self._reserve = self._at(ExtensionPoint.RESERVE, ReservePlugin)
        self._permit = self._at(ExtensionPoint.PERMIT, PermitPlugin)
        self._pre_bind = self._at(ExtensionPoint.PRE_BIND, PreBindPlugin)
        self._bind = self._at(ExtensionPoint.BIND, BindPlugin)
        self._post_bind = self._at(ExtensionPoint.POST_BIND, PostBindPlugin)
        self.events: Mapping[str, Sequence[EventWithHint]] = {
            plugin.name: self._bounded_hints(plugin, _with_taint_updates(plugin.events()))
            for plugin in plugins.all()
            if isinstance(plugin, _REJECTING)
        } | ({EXTENDER: EVERYTHING} if has_extenders else {})

    def without(self, names: AbstractSet[str]) -> Framework:
        """Return the profile as it filters without some plugins, for pods and clusters that are hypothetical."""
        other = copy(self)
        other.filtering = self.filtering.without(names)
        return other

    def measure_plugins(self, on: bool) -> None:
        """Measure each plugin call from now on, or stop measuring; kube-scheduler measures one cycle out of ten."""
        self._call.measuring = on

    def forget_cached_verdicts(self) -> None:
        """Drop the cached results of all signatures."""
        self._classes.forget()
        self.filtering.forget_cached_verdicts()
        self.scoring.forget_cached_verdicts()

    def failure(self, plugin: Plugin, point: ExtensionPoint | ExtensionCall, error: BaseException) -> Status:
        """Log a plugin's exception, and return an ERROR status that names plugin and point."""
        return self._call.failure(plugin, point, error)

    # In the queue.

    def run_pre_enqueue(self, pod: PodInfo) -> Status:
        """Return the first rejection or error of a PreEnqueue plugin, or a success."""
        with PointTiming(self._call, ExtensionPoint.PRE_ENQUEUE) as timing:
            plugins: Sequence[PreEnqueuePlugin] = self._pre_enqueue
            if pod.pod.spec.node_name:
                plugins = called_for(pod, plugins)
            for plugin in plugins:
                status = self._call.status(plugin, ExtensionPoint.PRE_ENQUEUE, plugin.pre_enqueue, pod)
                if not status.is_success:
                    timing.code = status.code
                    return status
        return SUCCESS

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        """Return QueueSort's key of a pod; if the plugin fails, the pod is sorted last, so that it is not lost."""
        plugin = self._queue_sort[0]
        key = self._call.guarded(
            plugin,
            ExtensionPoint.QUEUE_SORT,
            plugin.sort_key,
            queued,
            expects=is_sort_key,
            allows=NO_OTHER,
        )
        return (math.inf,) if isinstance(key, Status) else key

    def _bounded_hints(self, plugin: Plugin, events: Sequence[EventWithHint]) -> Sequence[EventWithHint]:
        if is_ours(plugin):
            return events

        def within(function: Callable[..., T] | None) -> Callable[..., T] | None:
            return (
                None if function is None else partial(self._call.budget.call, plugin, function, often="hint")
            )

        return tuple(
            EventWithHint(
                each.event,
                self._bounded(plugin, each.hint),
                within(each.pod_key),
                within(each.event_keys),
                within(each.waits_for_keys),
            )
            for each in events
        )

    def _bounded(self, plugin: Plugin, hint: Hint | None) -> Hint | None:
        """Return a hint with a time limit; a hint beyond the limit requeues the pod."""
        if hint is None:
            return None

        def ask(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
            try:
                return self._call.budget.call(plugin, hint, pod, old, new, often="hint")
            except OverBudgetError as error:
                if error.pause_seconds is not None:
                    return QueueingHint.QUEUE
                raise

        return ask

    # Background data of plugins.

    @loop_work("refresh", lambda plugin: f"plugin {plugin.name} at refresh")
    async def run_refresh(self, plugin: Plugin) -> None:
        """Let a plugin fetch its background data; raises the plugin's exceptions."""
        await self._call.budget.awaited(plugin, plugin.refresh, at="refresh")

    def nodes_without_data(self, plugin: Plugin, snapshot: Snapshot) -> int | None:
        """Return the number of nodes without data of a plugin; raises the plugin's exceptions."""
        return self._call.budget.call(plugin, plugin.nodes_without_data, snapshot, at="nodes_without_data")

    # After a node is chosen.

    def run_reserve(
        self, state: CycleState, pod: PodInfo, node_name: str, *, of_quotas: bool | None = None
    ) -> Status:
        """Run Reserve plugins in order; return the first rejection or error, after which the caller must unreserve.

        `of_quotas` says whether only the plugins that enforce quotas are run, or only the others; None for all.
        """
        with PointTiming(self._call, ExtensionPoint.RESERVE) as timing:
            for plugin in self._reserve:
                if of_quotas is not None and enforces_quotas(plugin) != of_quotas:
                    continue
                status = self._call.status(
                    plugin, ExtensionPoint.RESERVE, plugin.reserve, state, pod, node_name
                )
                if not status.is_success:
                    timing.code = status.code
                    return status
        return SUCCESS

    def run_unreserve(
        self,
        state: CycleState,
        pod: PodInfo,
        node_name: str,
        *,
        goes_on: bool = False,
        of_quotas: bool = False,
    ) -> None:
        """Run `unreserve` of all Reserve plugins in reverse order; an exception is logged and the others still run.

        `goes_on` is true if the attempt continues afterwards. `of_quotas` is true if only the plugins that enforce quotas ran.
        """
        self._call.budget.run_cleanup(self._unreserve, state, pod, node_name, of_quotas, goes_on=goes_on)

    def _unreserve(self, state: CycleState, pod: PodInfo, node_name: str, of_quotas: bool) -> None:
        for plugin in reversed(self._reserve):
            if of_quotas and not enforces_quotas(plugin):
                continue
            try:
                self._call.guarded(
                    plugin,
                    ExtensionPoint.RESERVE,
                    plugin.unreserve,
                    state,
                    pod,
                    node_name,
                    expects=is_anything,
                )
            except NeedsTime as error:
                self.failure(plugin, ExtensionPoint.RESERVE, error)

    def run_permit(
        self, state: CycleState, pod: PodInfo, node_name: str, *, of_group: bool | None = None
    ) -> Status | Mapping[str, float]:
        """Run Permit plugins.

        Args:
            state: the state of the attempt.
            pod: the pod.
            node_name: its node.
            of_group: whether only the plugin that reads the pod's group is run, or only the others; None for all.

        Returns:
            A success; the first rejection or error; or, if a plugin holds the pod, plugin -> maximum seconds.
        """
        with PointTiming(self._call, ExtensionPoint.PERMIT) as timing:
            holds: dict[str, float] = {}
            plugins: Sequence[PermitPlugin] = self._permit
            if pod.pod.spec.node_name:
                plugins = called_for(pod, plugins)
            if of_group is not None:
                reader: object = None if pod.group is None else self.groups.get(pod.group.kind)
                plugins = [plugin for plugin in plugins if (plugin is reader) == of_group]
            for plugin in plugins:
                answer = self._call.guarded(
                    plugin, ExtensionPoint.PERMIT, plugin.permit, state, pod, node_name, expects=is_permit
                )
                if isinstance(answer, Wait):
                    holds[plugin.name] = max(0.0, min(answer.timeout_seconds, _LONGEST_PERMIT_SECONDS))
                    timing.code = Code.WAIT
                elif answer is not None and not answer.is_success:
                    timing.code = answer.code
                    return answer
        return holds or SUCCESS

    # Binding.

    def run_pre_bind_pre_flights(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | frozenset[str]:
        """Return the names of the PreBind plugins that do not skip the pod, or an error.

        Source:
            kube-scheduler v1.36, framework/runtime/framework.go, RunPreBindPreFlights.
        """
        busy: set[str] = set()
        for plugin in self._pre_bind:
            status = self._call.status(
                plugin,
                ExtensionCall.PRE_BIND_PRE_FLIGHT,
                plugin.pre_bind_pre_flight,
                state,
                pod,
                node_name,
                allows=SKIPS,
            )
            if status.is_success:
                busy.add(plugin.name)
            elif status.code is not Code.SKIP:
                return status
        return frozenset(busy)

    async def run_pre_bind(
        self, state: CycleState, pod: PodInfo, node_name: str, plugins: AbstractSet[str]
    ) -> Status:
        """Run the named PreBind plugins in order, and stop at the first failure."""
        with PointTiming(self._call, ExtensionPoint.PRE_BIND) as timing:
            for plugin in self._pre_bind:
                if plugin.name not in plugins:
                    continue
                status = await self._call.awaited(
                    plugin, ExtensionPoint.PRE_BIND, plugin.pre_bind, state, pod, node_name
                )
                if not status.is_success:
                    timing.code = status.code
                    return status
        return SUCCESS

    async def run_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Bind plugins until one does not skip; return an error if all skip."""
        with PointTiming(self._call, ExtensionPoint.BIND) as timing:
            for plugin in self._bind:
                status = await self._call.awaited(
                    plugin,
                    ExtensionPoint.BIND,
                    plugin.bind,
                    state,
                    pod,
                    node_name,
                    allows=REJECTIONS | SKIPS,
                )
                if status.code is not Code.SKIP:
                    timing.code = status.code
                    return status
            timing.code = Code.ERROR
        return Status.failed("no Bind plugin handled the pod")

    async def run_post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Run PostBind plugins; exceptions are logged."""
        with PointTiming(self._call, ExtensionPoint.POST_BIND):
            for plugin in self._post_bind:
                await self._call.awaited(
                    plugin,
                    ExtensionPoint.POST_BIND,
                    plugin.post_bind,
                    state,
                    pod,
                    node_name,
                    allows=NO_OTHER,
                )

    def _at(self, point: ExtensionPoint, kind: type[P]) -> list[P]:
        plugins = list(self.plugins.at.get(point, ()))
        assert all(isinstance(plugin, kind) for plugin in plugins), f"{point.value} holds {plugins}"
        return plugins  # type: ignore[return-value]


def _with_taint_updates(events: Sequence[EventWithHint]) -> Sequence[EventWithHint]:
    """Register a plugin for changes of taints, without a hint, if it registered for new nodes, as in kube-scheduler.

    Source:
        kube-scheduler v1.36, scheduler.go, buildQueueingHintMap.
    """
    of_nodes = [event.event.action for event in events if event.event.resource is EventResource.NODE]
    added = any(ActionType.ADD in action for action in of_nodes)
    if added and not any(ActionType.UPDATE_NODE_TAINT in action for action in of_nodes):
        return (*events, EventWithHint(ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_TAINT)))
    return events
