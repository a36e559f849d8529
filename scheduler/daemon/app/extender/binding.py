"""Binds pods for another scheduler after a final check, and counts each pod on its node from then on.

kube-scheduler chooses nodes faster than the watch shows its choices. A plugin that counts what pods use would therefore
admit too many. If the extender also binds, it evaluates each pod again on its node, counting all pods that were bound
before. It rejects a pod that no longer fits; kube-scheduler then tries the pod again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from scheduler.engine.cycle.binding import may_be_bound
from scheduler.engine.cycle.time_slices import answer_in_slices
from scheduler.engine.state.pod_states import PodState
from scheduler.errors import ApiError, SchedulerError
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.daemon.app.extender.verb_results import VerbResults
    from scheduler.engine.cycle.binding import PodGet
    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.runtime.framework import Framework
    from scheduler.extensions.extenders.serving_wire import BindingRequest
    from scheduler.framework.cycle_state import CycleState
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
        reader: PodGet,
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
