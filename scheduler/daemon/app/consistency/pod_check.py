"""Compares pods in the cache, the queue and the nominator with the watched pods, and repairs differences."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scheduler.daemon.app.consistency.findings import Discrepancy, Finding
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.state.pod_states import PodState
from scheduler.framework.changes import ASSIGNED_POD_DELETE
from scheduler.kube.client.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from scheduler.daemon.app.assembly import Cycles, Parts
    from scheduler.daemon.app.watches import Watches
    from scheduler.objects.pod import PodInfo


class PodCheck:
    """Compares one pod at a time.

    Attributes:
        unclear: resource and key of objects for which the API server and the watch differ. A binding may know before the
            watch that a pod is bound or deleted, so their place in the queue and their capacity are not compared.
    """

    def __init__(self, parts: Parts, cycles: Cycles, watches: Watches) -> None:
        self._parts, self._watches = parts, watches
        self._in_hand = cycles.scheduler.has_in_hand
        self.unclear: Container[str] = ()

    def shown(self, key: str) -> Sequence[Finding]:
        """Check that a watched pod is counted on its node, or waits in a place of the queue."""
        pod = self._parts.pods.get(key)
        if pod is None or pod.is_terminal:
            return ()
        return self._on_node(pod) if pod.node_name else self._waiting(pod)

    def _on_node(self, pod: PodInfo) -> Sequence[Finding]:
        cache = self._parts.cache
        counted, repair = cache.pod(pod.uid), partial(cache.add_pod, pod)
        if counted is None:
            return (Finding(Discrepancy.POD, pod.key, f"it is not counted on {pod.node_name}", repair),)
        if cache.state_of(pod.uid) is not PodState.CONFIRMED:
            return (
                Finding(Discrepancy.POD, pod.key, "it is bound, and counted as if it were not yet", repair),
            )
        if counted.node_name != pod.node_name or not counted.takes_the_same_as(pod):
            problem = f"version {pod.resource_version} of it on {pod.node_name} is not what is counted"
            return (Finding(Discrepancy.POD, pod.key, problem, repair),)
        return ()

    def _waiting(self, pod: PodInfo) -> Sequence[Finding]:
        parts, key = self._parts, pod.key
        state, place = parts.cache.state_of(pod.uid), parts.queue.place_of(pod.uid)
        is_lost = place is Place.IN_FLIGHT and not self._in_hand(pod.uid)
        if state is PodState.CONFIRMED:
            finding = Finding(
                Discrepancy.POD, key, "it is counted on a node and has none", self._taking_out(pod)
            )
        elif pod.scheduler_name not in parts.profiles or f"{PODS} {key}" in self.unclear:
            return ()
        elif is_lost:
            problem = "it was taken for an attempt, and nobody is at it"
            finding = Finding(Discrepancy.PENDING, key, problem, self._rescuing(pod))
        elif not parts.queue.holds(pod.uid):
            problem = f"the queue has it as {place.value}, and not there"
            finding = Finding(Discrepancy.PENDING, key, problem, self._putting_back(pod))
        elif place is not Place.OUTSIDE or pod.is_terminating or self._watches.pods.is_outdated(key):
            return ()
        elif state is not PodState.ASSUMED:
            finding = Finding(
                Discrepancy.PENDING, key, "it waits, and is not in the queue", self._putting_back(pod)
            )
        else:
            problem = "it holds room, nobody is binding it, and it is not bound"
            finding = Finding(Discrepancy.ASSUMED, key, problem, self._releasing(pod))
        return (finding,)

    def counted(self, uid: str) -> Sequence[Finding]:
        """Check that a counted pod exists, and is counted on the node that it names."""
        cache = self._parts.cache
        pod = cache.pod(uid)
        if pod is None:
            return ()
        if not cache.is_on_its_node(pod):
            return (
                Finding(
                    Discrepancy.POD,
                    pod.key,
                    "it is not on the node that it is counted on",
                    self._parts.cache.recount,
                ),
            )
        shown = self._parts.pods.get(pod.key)
        if shown is not None and shown.uid == uid:
            return ()
        if self._in_hand(uid):
            return ()  # the binding cycle removes it
        return (Finding(Discrepancy.POD, pod.key, f"{uid} is counted and is no more", self._taking_out(pod)),)

    def queued(self, uid: str) -> Sequence[Finding]:
        """Check that a queued pod waits for this scheduler."""
        queue = self._parts.queue
        queued = queue.get(uid)
        if queued is None or (queue.place_of(uid) is Place.IN_FLIGHT and self._in_hand(uid)):
            return ()
        pod = queued.pod
        shown = self._parts.pods.get(pod.key)
        waits = shown is not None and shown.uid == uid and not (shown.node_name or shown.is_terminal)
        if waits and pod.scheduler_name in self._parts.profiles:
            return ()
        repair = partial(queue.purge, uid, "it does not wait for us")
        return (
            Finding(Discrepancy.QUEUED, pod.key, f"{uid} is in the queue and does not wait for us", repair),
        )

    def nominated(self, pod: PodInfo) -> Sequence[Finding]:
        nominator = self._parts.nominator
        node_name = nominator.node_of(pod.uid)
        shown = self._parts.pods.get(pod.key)
        waits = shown is not None and shown.uid == pod.uid and not (shown.node_name or shown.is_terminal)
        if not node_name or waits:
            return ()
        problem = f"{pod.uid} is nominated to {node_name} and does not wait"
        return (Finding(Discrepancy.NOMINATED, pod.key, problem, partial(nominator.delete, pod.uid)),)

    def _taking_out(self, pod: PodInfo) -> Callable[[], object]:
        def repair() -> None:
            taken = self._parts.cache.remove_pod(pod.uid)
            self._parts.bus.happened(ASSIGNED_POD_DELETE, taken, None)
            if self._parts.pods.get(pod.key) is pod:
                self._parts.queue.readd(pod, "it was counted on a node and has none")

        return repair

    def _releasing(self, pod: PodInfo) -> Callable[[], object]:
        def repair() -> None:
            released = self._parts.cache.forget(pod.uid)
            self._parts.bus.happened(ASSIGNED_POD_DELETE, released, None)
            self._parts.queue.readd(pod, "its binding came to nothing")

        return repair

    def _rescuing(self, pod: PodInfo) -> Callable[[], object]:
        def repair() -> None:
            self._parts.waiting_pods.release(pod.uid)
            self._parts.cache.forget(pod.uid)
            self._parts.queue.readd(pod, "nobody was at its attempt")

        return repair

    def _putting_back(self, pod: PodInfo) -> Callable[[], object]:
        return partial(self._parts.queue.readd, pod, "it was nowhere")
