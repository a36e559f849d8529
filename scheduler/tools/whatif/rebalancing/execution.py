"""Carries out a plan: one eviction after another through the eviction API, each confirmed by the current cluster before.

It stops at the first surprise: a refused eviction, a replacement on a worse node or not ready in time, or a change of the
cluster after which the rest of the plan is no gain.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.errors import ApiError, SchedulerError
from scheduler.framework.preemption import RecentEvictions
from scheduler.kube.client.requests import RetriedRequests
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.live_cluster import read_objects
from scheduler.tools.whatif.rebalancing.objectives import NO_GAIN
from scheduler.tools.whatif.rebalancing.rebalancer import Plan, VoidPlanError, gain
from scheduler.tools.whatif.simulation.object_versions import controller_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.rebalancing.rebalancer import Rebalancer, Step

_LOOK_AGAIN_SECONDS: Final = 2.0
_REFUSED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses of an eviction that a change of the cluster explains: the pod is gone, is another one, or a budget protects it.

The API server answers with 500 if a pod has several budgets, and such a pod is in no plan.
"""


class SurpriseError(SchedulerError):
    """The execution of a plan stops, because the cluster is not as expected."""


class CarriedOut(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One eviction that was carried out.

    Attributes:
        pod: `namespace/name` of the evicted pod.
        from_node: its node.
        replacement: `namespace/name` of the pod that replaces it.
        node: the node of that pod.
        expected_node: the node of the plan.
        seconds: the time until the replacement was ready.
    """

    pod: str
    from_node: str
    replacement: str
    node: str
    expected_node: str
    seconds: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the execution of a plan did.

    Attributes:
        plan: the plan.
        carried_out: the evictions, in their order.
        stopped: why the execution stopped; None if the plan was carried out.
        now: name of each objective -> its number at the end.
    """

    plan: Plan
    carried_out: list[CarriedOut]
    stopped: str | None
    now: dict[str, float]


class Execution:
    """Carries out the steps of a plan.

    Args:
        connection: to the API server.
        now: reads the cluster, and returns a copy of it for the objective of the plan.
        patience_seconds: how long an evicted pod may have no ready replacement.
    """

    def __init__(
        self,
        connection: ApiConnection,
        now: Callable[[], Awaitable[Rebalancer]],
        *,
        patience_seconds: float,
    ) -> None:
        self._connection, self._now, self._patience_seconds = connection, now, patience_seconds
        self._requests = RetriedRequests(connection)
        self._evictions = RecentEvictions()

    async def run(self, steps: Sequence[Step]) -> AsyncIterator[CarriedOut]:
        """Carry out steps, and yield each when its replacement is ready.

        Raises:
            SurpriseError: the cluster is not as expected.
            ApiError: the API server does not answer, or refuses a request for another reason.
        """
        for number, step in enumerate(steps):
            cluster = await self._now()
            cluster.count(self._evictions)
            try:
                expected = cluster.confirm(steps[number:])
            except VoidPlanError as error:
                raise SurpriseError(f"another change of the cluster makes the plan void: {error}") from error
            pod = cluster.pods[step.pod]
            began = asyncio.get_running_loop().time()
            await self._evict(pod)
            self._evictions.note([pod], time.monotonic())
            replacement = await self._replacement(cluster, pod, expected)
            seconds = asyncio.get_running_loop().time() - began
            yield CarriedOut(
                pod=pod.key,
                from_node=pod.node_name,
                replacement=replacement.key,
                node=replacement.node_name,
                expected_node=step.to_node,
                seconds=round(seconds, 1),
            )

    async def numbers(self) -> dict[str, float]:
        """Return the number of each objective in the cluster as it is now, by its name.

        Raises:
            ApiError: the cluster cannot be read.
        """
        return (await self._now()).numbers()

    async def _evict(self, pod: PodInfo) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = PODS.path(pod.namespace, pod.name, "eviction")
        try:
            await self._requests.send(Request("POST", path, msgspec.json.encode(eviction)))
        except ApiError as error:
            if error.status in _REFUSED:
                raise SurpriseError(f"the eviction of pod {pod.key} is refused: {error}") from error
            raise

    async def _replacement(self, cluster: Rebalancer, pod: PodInfo, expected: str) -> PodInfo:
        """Wait for the pod that replaces an evicted one, and return it when it is ready.

        Args:
            cluster: the cluster before the eviction.
            pod: the evicted pod.
            expected: the node of the replacement.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_seconds
        found: PodInfo | None = None
        while True:
            found = await self._look_for(pod, cluster.uids) or found
            if found is not None and found.node_name:
                _check_node(cluster, pod, expected, found.node_name)
                if _is_ready(found):
                    return found
            if loop.time() >= deadline:
                raise SurpriseError(_why_late(pod, found, self._patience_seconds))
            await asyncio.sleep(min(_LOOK_AGAIN_SECONDS, max(0.0, deadline - loop.time())))

    async def _look_for(self, pod: PodInfo, known: Collection[str]) -> PodInfo | None:
        """Return the new pod of the same controller; None if there is none, or the API server does not answer now."""
        controller = controller_of(pod)
        assert controller is not None, f"pod {pod.key} has a controller"
        try:
            pods = await read_objects(self._connection, PODS, decode_pod, namespace=pod.namespace)
        except ApiError as error:
            if error.is_transient:
                return None
            raise
        new = [
            each
            for each in pods.values()
            if each.uid not in known
            and (owner := controller_of(each)) is not None
            and owner.uid == controller.uid
            and not (each.is_terminal or each.is_terminating)
        ]
        if len(new) > 1:
            names = ", ".join(sorted(each.key for each in new))
            raise SurpriseError(f"{controller.kind} {controller.name} has several new pods: {names}")
        return new[0] if new else None


def _check_node(cluster: Rebalancer, pod: PodInfo, expected: str, node_name: str) -> None:
    """Raise SurpriseError if a replacement is on another node than expected, and that is worse."""
    if node_name == expected:
        return
    planned, actual = cluster.value_on(pod, expected), cluster.value_on(pod, node_name)
    if actual > planned + NO_GAIN:
        raise SurpriseError(
            f"the replacement of pod {pod.key} is on node {node_name}, expected on {expected}, and that is worse"
            f" ({gain(cluster.objective, planned, actual)})"
        )


def _is_ready(pod: PodInfo) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.pod.status.conditions)


def _why_late(pod: PodInfo, found: PodInfo | None, patience_seconds: float) -> str:
    after = f"{patience_seconds:g} s after its eviction"
    if found is None:
        return f"pod {pod.key} has no replacement {after}"
    if not found.node_name:
        return f"pod {found.key}, the replacement of pod {pod.key}, is pending {after}"
    return (
        f"pod {found.key}, the replacement of pod {pod.key}, is not ready on node {found.node_name} {after}"
    )
