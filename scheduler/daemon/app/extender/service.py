"""Answers requests of another scheduler with the plugins of a configuration, and binds pods for it.

kube-scheduler chooses nodes faster than the watch shows its choices. A plugin that counts what pods use would therefore
admit too many. If the extender also binds, it evaluates each pod again on its node, counting all pods that were bound
before. It rejects a pod that no longer fits; kube-scheduler then tries the pod again.

It watches the cluster as the daemon does and evaluates on request. Any number of replicas may run.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from scheduler.daemon.app.api_access import ApiClient
from scheduler.daemon.app.assembly import Parts, limited
from scheduler.daemon.app.extender.verb_results import VerbResults, best_total
from scheduler.daemon.app.gauges import show_state
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.watches import Watches
from scheduler.daemon.metrics import Metrics
from scheduler.daemon.metrics.additional import ExtenderRequestMetrics
from scheduler.engine.cycle.binding import may_be_bound
from scheduler.engine.cycle.event_handlers import PodHandler
from scheduler.engine.cycle.time_slices import answer_in_slices
from scheduler.engine.state.cache import PodState
from scheduler.errors import ApiError, ConfigurationError, FieldError, SchedulerError
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from random import Random

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.ports import PodReader
    from scheduler.engine.runtime.framework import Framework
    from scheduler.extensions.extender_serving_wire import BindingRequest, NodesRequest, PreemptionRequest
    from scheduler.extensions.extender_wire import FilterAnswer, MetaVictims
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import Plugin
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)


class ExtenderBinding:
    """Binds pods to the nodes that another scheduler has chosen.

    Args:
        framework_of: returns the profile that evaluates a pod; raises SchedulerError if there is none.
    """

    def __init__(
        self,
        shared: Shared,
        verdicts: VerbResults,
        reader: PodReader,
        framework_of: Callable[[PodInfo], Framework],
    ) -> None:
        self._cache, self._newest = shared.cache, shared.pods.get
        self._budget = shared.budget
        self._verdicts = verdicts
        self._reader = reader
        self._framework_of = framework_of

    async def bind(self, request: BindingRequest) -> None:
        """Bind a pod; does nothing if the pod is already on that node.

        Raises:
            SchedulerError: the pod is not bound, or it is unknown whether it is.
        """
        pod = await self._pod(request)
        if pod.node_name == request.node_name:
            return
        problem = _problem(pod, request)
        if problem:
            raise SchedulerError(problem)
        if self._cache.state_of(pod.uid) is not PodState.OUTSIDE:
            raise SchedulerError(f"pod {pod.key} is being bound already")
        framework = self._framework_of(pod)
        look = partial(self._budget.run_slice, self._verdicts.last_look, framework, pod, request.node_name)
        refusal, state = await answer_in_slices(look)
        if refusal:
            raise SchedulerError(f"node {request.node_name} cannot run pod {pod.key} any more: {refusal}")
        placed = self._cache.assume(pod, request.node_name)
        try:
            status = await self._carry_out(framework, state, placed, request.node_name)
        except BaseException:
            self._cache.forget(pod.uid)
            raise
        if not status.is_success:
            self._cache.forget(pod.uid)
            raise SchedulerError(f"pod {pod.key}: {status.message}") from status.error
        logger.debug("Pod bound", extra={"pod": pod.key, "node": request.node_name})

    async def _pod(self, request: BindingRequest) -> PodInfo:
        """Return the requested pod: as watched last, or, if it was not watched yet, as the API server has it."""
        pod = self._newest(request.key)
        if pod is None or pod.uid != request.uid:
            pod = await self._reader.read_pod(request.namespace, request.name)
        if pod is None:
            raise SchedulerError(f"pod {request.key} is gone")
        if pod.uid != request.uid:
            raise SchedulerError(f"pod {request.key} has been replaced: its UID is {pod.uid}")
        return pod

    async def _carry_out(
        self, framework: Framework, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status:
        """Run Reserve, PreBind, Bind and PostBind of the profile; undo the reservation on failure."""
        status = await answer_in_slices(partial(_reserve, framework, state, pod, node_name))
        try:
            if status.is_success:
                status = await self._bind(framework, state, pod, node_name)
        except BaseException:
            framework.run_unreserve(state, pod, node_name)
            raise
        if status.is_success:
            await framework.run_post_bind(state, pod, node_name)
        else:
            framework.run_unreserve(state, pod, node_name)
        return status

    async def _bind(self, framework: Framework, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        busy = framework.run_pre_bind_pre_flights(state, pod, node_name)
        if isinstance(busy, Status):
            return busy
        status = await framework.run_pre_bind(state, pod, node_name, busy)
        if not status.is_success:
            return status
        status = await framework.run_bind(state, pod, node_name)
        error = status.error
        if status.is_success or not isinstance(error, ApiError) or not may_be_bound(error):
            return status
        # The request may have taken effect. Forgetting the pod now would free its capacity wrongly, so read it first.
        newest = await self._reader.read_pod(pod.namespace, pod.name)
        is_bound = newest is not None and newest.uid == pod.uid and newest.node_name == node_name
        return SUCCESS if is_bound else status


def _reserve(framework: Framework, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Reserve; undo it if a plugin needs more time."""
    try:
        return framework.run_reserve(state, pod, node_name)
    except NeedsTime:
        framework.run_unreserve(state, pod, node_name)
        raise


def _problem(pod: PodInfo, request: BindingRequest) -> str:
    """Return why a pod cannot be bound to any node; "" if no reason is known."""
    if pod.node_name:
        return f"pod {pod.key} is bound to node {pod.node_name}, not to {request.node_name}"
    if pod.is_terminal:
        return f"pod {pod.key} has ended"
    if pod.is_terminating:
        return f"pod {pod.key} is being deleted"
    return ""


_DRAIN_SECONDS = 5.0
_NOT_SYNCED = "the extender has not read the cluster yet, or its plugins their data"


class ExtenderService:
    """Answers a scheduler's requests with the plugins of a configuration; a `Judge`.

    Args:
        connection: connection to the API server; the caller closes it.
        profile: the schedulerName of the profile that evaluates all pods; "" uses the only profile, or, if there are
            several, the profile of the pod's own schedulerName.

    Attributes:
        configuration: the configuration.
        metrics: all metrics.
        requests: counts the requests.
        frameworks: schedulerName -> profile.
        parts: the cluster's state and its handlers.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments; there is no such profile.
    """

    def __init__(
        self,
        connection: ApiConnection,
        configuration: Configuration,
        *,
        profile: str = "",
        clock: Clock,
        random: Random,
        in_tree: Mapping[str, type[Plugin]] = IN_TREE,
    ) -> None:
        self.configuration = configuration
        self.metrics = Metrics()
        self.requests = ExtenderRequestMetrics(self.metrics.families)
        connection.observer = self.metrics.rest_client
        self.parts = Parts(clock, self.metrics, in_tree)
        writes = limited(connection, configuration.settings.client_connection)
        self._client = ApiClient(self.parts, connection, writes, metrics=self.metrics, random=random)
        self._has_refreshed = False
        self._generation = self.parts.build(configuration, self._client.access)
        self.frameworks = self._generation.frameworks
        for framework in self.frameworks.values():
            framework.measure_plugins(True)  # its cost is negligible beside an HTTP request
        self.parts.activate(self._generation)
        self._profile = checked_profile(profile, self.frameworks)
        self._watches = Watches(
            connection,
            self.parts,
            PodHandler(self.parts),
            metrics=self.metrics,
            random=random,
            needs=self._generation.needs,
        )
        self._verdicts = VerbResults(
            self.parts.cache,
            self.parts.nominator,
            best_total(self.judging),
            self.requests.unknown_nodes,
        )
        self._binding = ExtenderBinding(
            self.parts, self._verdicts, self._client.access.reader, self.framework_of
        )
        show_state(self.metrics, self.parts, lambda: self._generation)

    @property
    def judging(self) -> Sequence[Framework]:
        """The profiles that may evaluate a pod."""
        return judging(self._profile, self.frameworks)

    @property
    def has_synced(self) -> bool:
        """Whether all objects that answers depend on have been read once, and plugins had time to read their own data."""
        return self._has_refreshed and self._watches.has_synced

    def framework_of(self, pod: PodInfo) -> Framework:
        """Return the profile that evaluates a pod.

        Raises:
            SchedulerError: there are several, and none has the pod's schedulerName.
        """
        name = self._profile or pod.scheduler_name
        framework = self.frameworks.get(name)
        if framework is None:
            there = ", ".join(sorted(self.frameworks))
            raise SchedulerError(
                f"pod {pod.key}: spec.schedulerName is {name}, the profiles of the extender are {there}; "
                "give it --profile to evaluate all pods with one of them"
            )
        return framework

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the cluster while the block runs."""
        client = self._client
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.parts.web.close)
            await stack.enter_async_context(client.writer)
            async with client.tasks as tasks:
                self._watches.start(tasks.spawn)
                tasks.spawn(client.recorders.run(), "events")
                self._generation.start_refreshing(tasks.spawn, self.metrics.refreshes)
                tasks.spawn(self._note_refreshed(), "first refresh")
                yield
                await client.background.drain(_DRAIN_SECONDS)
                await client.writer.drain(_DRAIN_SECONDS)

    # Requests of a scheduler.

    def filter(self, request: NodesRequest) -> FilterAnswer:
        self._check_synced()
        framework = self.framework_of(request.pod)
        return self.parts.budget.run_slice(self._verdicts.filter, framework, request.pod, request.node_names)

    def prioritize(self, request: NodesRequest) -> Sequence[tuple[str, int]]:
        self._check_synced()
        framework = self.framework_of(request.pod)
        return self.parts.budget.run_slice(
            self._verdicts.prioritize, framework, request.pod, request.node_names
        )

    def preempt(self, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
        self._check_synced()
        framework = self.framework_of(request.pod)
        return self.parts.budget.run_slice(self._verdicts.preempt, framework, request.pod, request.victims)

    async def bind(self, request: BindingRequest) -> None:
        self._check_synced()
        await self._binding.bind(request)

    async def _note_refreshed(self) -> None:
        await self._generation.wait_refreshed()
        self._has_refreshed = True

    def _check_synced(self) -> None:
        if not self.has_synced:
            raise SchedulerError(_NOT_SYNCED)


def checked_profile(profile: str, frameworks: Mapping[str, Framework]) -> str:
    """Return the profile that evaluates all pods; "" if that depends on the pod.

    Raises:
        ConfigurationError: there is no such profile.
    """
    if profile and profile not in frameworks:
        there = ", ".join(sorted(frameworks))
        raise ConfigurationError([FieldError("--profile", f"there is no {profile}; there is {there}")])
    return profile or (next(iter(frameworks)) if len(frameworks) == 1 else "")


def judging(profile: str, frameworks: Mapping[str, Framework]) -> Sequence[Framework]:
    """Return the profiles that may evaluate a pod: the given one, or all if it is ""."""
    return [frameworks[profile]] if profile else list(frameworks.values())
