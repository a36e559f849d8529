"""Writes the deletion costs of pods, so that the ReplicaSet controller keeps to the node sets when it scales down.

The ReplicaSet controller deletes the pods with the lowest cost first. The pods of each set get the costs of the order in which
the sets would be filled from the first replica to the last, in reverse; so the limits hold for every smaller number of replicas.

Source:
    kube-controller-manager v1.36, pkg/controller/controller_utils.go, ActivePodsWithRanks.
    KEP-2255: the annotation should not be changed often.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.node_preference.controllers import REPLICA_SETS, key_of, owner_of
from scheduler.errors import ApiError
from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from plugins.node_preference.controllers import Controller, Wanted
    from plugins.node_preference.preferences import Preference
    from scheduler.framework import ApiWrite, Background, ClusterObjects, PluginMetrics, Sleep
    from scheduler.objects.pod import PodInfo

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_HIGHEST: Final = 1_000_000
"""The cost before the first replica: of the replica that is deleted last it is one lower."""
_PAUSE_SECONDS: Final = 1.0
"""Pods that are bound within this time are written together."""
_NODES_A_STEP: Final = 32
_REPLICAS_A_STEP: Final = 256
_MOST_ORDERED: Final = 10_000
"""Replicas beyond this number all have the lowest cost of their set."""
_MOST_WRITTEN: Final = 10_000
_MOST_ORDERS: Final = 64
_GONE: Final = frozenset({404, 409})


class FillOrder:
    """The order in which the sets of a preference are filled, from the first replica on.

    Args:
        preference: the sets.
    """

    def __init__(self, preference: Preference) -> None:
        self._sets = preference.sets
        self._filled = 0
        # By set, as they are added.
        self._replicas: list[list[int]] = [[] for _ in range(len(self._sets) + 1)]

    def extend(self, replicas: int) -> Generator[None, None, None]:
        """Compute the order up to a number of replicas, in steps."""
        while self._filled < replicas:
            self._filled += 1
            self._replicas[self._next()].append(self._filled)
            if self._filled % _REPLICAS_A_STEP == 0:
                yield

    def _next(self) -> int:
        """Return the set of the next replica: one below its minimum, else the first one below its maximum."""
        limits = [each.pods(self._filled) for each in self._sets]
        there = [len(each) for each in self._replicas]
        for place, (least, _) in enumerate(limits):
            if there[place] < least:
                return place
        for place, (_, most) in enumerate(limits):
            if most is None or there[place] < most:
                return place
        return len(self._sets)

    def costs(self, place: int, pods: int) -> list[int]:
        """Return the costs of a number of pods on a set, the highest first; more pods than the order has get the lowest."""
        ordered = [_HIGHEST - number for number in self._replicas[place][:pods]]
        return ordered + [-1 - place] * (pods - len(ordered))


class DeletionCosts:
    """Writes the costs of the pods of a ReplicaSet after one of them was bound; only those that differ.

    Args:
        wanted: returns the preference of a pod.
        cluster: the pods on nodes.
        api: writes.
        background: runs the writes.
        sleep: waits between steps.
        metrics: declares the metric.
    """

    def __init__(
        self,
        wanted: Callable[[PodInfo], Wanted],
        cluster: ClusterObjects,
        api: ApiWrite,
        background: Background,
        sleep: Sleep,
        metrics: PluginMetrics,
    ) -> None:
        self._wanted, self._cluster, self._api = wanted, cluster, api
        self._background, self._sleep = background, sleep
        self._due: dict[tuple[str, str], PodInfo] = {}  # key of a ReplicaSet -> one of its pods
        self._is_writing = False
        self._orders: BoundedDict[Preference, FillOrder] = BoundedDict(_MOST_ORDERS)
        # pod uid -> its version, the cost written for it
        self._costs: BoundedDict[str, tuple[str, int]] = BoundedDict(_MOST_WRITTEN)
        self._written = metrics.counter(
            "custom_scheduler_pod_deletion_costs_written_total",
            "Deletion costs of pods that NodePreference wrote.",
        )

    def note(self, pod: PodInfo) -> None:
        """Write the costs of the ReplicaSet of a bound pod soon."""
        key = key_of(pod)
        if key is None or key[0] != REPLICA_SETS:  # other controllers do not read the cost
            return
        self._due[key] = pod
        if not self._is_writing:
            self._is_writing = True
            self._background.start(self._write_all(), "deletion costs of pods")

    async def _write_all(self) -> None:
        failed: ApiError | None = None
        try:
            while self._due:
                await self._sleep.sleep(_PAUSE_SECONDS)
                due, self._due = self._due, {}
                for pod in due.values():
                    wanted = self._wanted(pod)
                    if wanted.preference is None or wanted.controller is None:
                        continue
                    try:
                        await self._write(wanted.preference, wanted.controller)
                    except ApiError as error:
                        failed = error  # such as that of a webhook in one namespace; the other costs are still written
        finally:
            self._is_writing = False
        if failed is not None:
            raise failed

    async def _write(self, preference: Preference, controller: Controller) -> None:
        pods = await self._pods_by_set(preference, controller)
        order = self._orders.get(preference)
        if order is None:
            order = self._orders[preference] = FillOrder(preference)
        for _ in order.extend(min(_MOST_ORDERED, max(controller.replicas, sum(map(len, pods))))):
            await self._sleep.sleep(0.0)
        for place, its in enumerate(pods):
            for pod, cost in self._changes(its, order.costs(place, len(its))):
                await self._write_cost(pod, cost)

    async def _pods_by_set(self, preference: Preference, controller: Controller) -> Sequence[list[PodInfo]]:
        """Return the pods of a controller on each set; nodes may change between steps, and are read by name."""
        pods: list[list[PodInfo]] = [[] for _ in range(len(preference.sets) + 1)]
        snapshot = self._cluster.snapshot()
        rows = np.flatnonzero(snapshot.pods_matching(controller.query)).tolist()
        names = [snapshot.name_of(row) for row in rows]
        for start in range(0, len(names), _NODES_A_STEP):
            snapshot = self._cluster.snapshot()
            for name in names[start : start + _NODES_A_STEP]:
                row = snapshot.row_of(name)
                if row is not None:
                    place = preference.set_of(snapshot.nodes[row].labels)
                    pods[place] += [pod for pod in snapshot.pods_on(row) if _is_of(pod, controller)]
            await self._sleep.sleep(0.0)
        return pods

    def _changes(self, pods: Sequence[PodInfo], costs: Sequence[int]) -> Iterator[tuple[PodInfo, int]]:
        """Yield the pods whose cost must change, with the new one: as few as possible, older pods get higher costs."""
        free = Counter(costs)
        others = []
        for pod in pods:
            cost = self._cost_of(pod)
            if cost is not None and free[cost]:
                free[cost] -= 1
            else:
                others.append(pod)
        others.sort(key=lambda pod: (pod.pod.metadata.creation_timestamp, pod.name))
        yield from zip(others, sorted(free.elements(), reverse=True), strict=True)

    def _cost_of(self, pod: PodInfo) -> int | None:
        """Return the cost of a pod, also one that was written and that the watch has not shown yet."""
        known = self._costs.get(pod.uid)
        if known is not None and known[0] == pod.resource_version:
            return known[1]
        text = pod.annotations.get(DELETION_COST, "")
        return (
            int(text) if text.removeprefix("-").isdecimal() and len(text) <= 11 and text.isascii() else None
        )

    async def _write_cost(self, pod: PodInfo, cost: int) -> None:
        body = {"metadata": {"uid": pod.uid, "annotations": {DELETION_COST: str(cost)}}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            await self._api.api_write("PATCH", path, body, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.status not in _GONE:
                raise
            return  # the pod is deleted, or replaced by one of its name
        self._costs[pod.uid] = pod.resource_version, cost
        self._written.add()


def _is_of(pod: PodInfo, controller: Controller) -> bool:
    if not controller.query.matches(pod):
        return False
    owner = owner_of(pod)
    return owner is not None and owner.uid == controller.uid
