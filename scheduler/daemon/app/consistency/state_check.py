"""Compares the cache, the queue and all derived data with the watched objects, and repairs differences.

Each object is compared within one time slice, in which nothing changes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.consistency.cached_decision_check import difference
from scheduler.daemon.app.consistency.findings import Discrepancy, Finding
from scheduler.daemon.app.consistency.pod_check import PodCheck
from scheduler.engine.queue.pod_places import Place
from scheduler.snapshot.object_store import resource_version
from scheduler.snapshot.recount import wrong_rows, wrong_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from random import Random

    from scheduler.daemon.app.assembly import Cycles, Parts
    from scheduler.daemon.app.watches import Watches
    from scheduler.kube.client.reflector import Reflector
    from scheduler.objects.pod import PodInfo

    Step = Callable[[], Sequence[Finding]]

WHOLE_TURN = 200
"""The work of one time slice; comparing one object is 1."""
_ROWS_AT_A_TIME = 32
_SAMPLE = 4
"""The number of pods that are evaluated again."""


class StateCheck:
    """Compares the state of one daemon.

    Args:
        random: chooses the pods whose results are compared.
    """

    def __init__(self, parts: Parts, cycles: Cycles, watches: Watches, random: Random) -> None:
        self._parts, self._cycles, self._watches = parts, cycles, watches
        self._random = random
        self._pods = PodCheck(parts, cycles, watches)

    def checks(self, unclear: Container[str] = ()) -> Iterator[tuple[int, Step]]:
        """Yield (cost, step) for each object to be compared; state may change between two steps.

        Args:
            unclear: as for `PodCheck`.
        """
        self._pods.unclear = unclear
        for part in (self._of_nodes, self._of_pods, self._of_objects):
            for step in part():
                yield 1, step
        for step in self._of_what_is_derived():
            yield WHOLE_TURN, step

    def _of_nodes(self) -> Iterator[Step]:
        table = self._parts.cache.table
        for name in dict.fromkeys((*self._watches.nodes.store, *(node.name for node in table.nodes))):
            yield partial(self._node, name)
        for name in self._parts.cache.pauses.names():
            yield partial(self._pause, name)

    def _of_pods(self) -> Iterator[Step]:
        parts, look = self._parts, self._pods
        for key in list(parts.pods):
            yield partial(look.shown, key)
        for pod in list(parts.cache.pods()):
            yield partial(look.counted, pod.uid)
        for queued in list(parts.queue.pods()):
            yield partial(look.queued, queued.pod.uid)
        for pod in list(parts.nominator.pods()):
            yield partial(look.nominated, pod)

    def _of_objects(self) -> Iterator[Step]:
        for kind, reflector in list(self._watches.kinds()):
            store = self._parts.cache.table.watch_kind(kind)
            for key in dict.fromkeys((*reflector.store, *store)):
                yield partial(self._object, kind, reflector, key)

    def _of_what_is_derived(self) -> Iterator[Step]:
        names = [node.name for node in self._parts.cache.table.nodes]
        for start in range(0, len(names), _ROWS_AT_A_TIME):
            yield partial(self._columns, names[start : start + _ROWS_AT_A_TIME])
        yield self._terms
        for pod in self._sample():
            yield partial(self._verdict, pod)

    # Nodes, and data derived from them.

    def _node(self, name: str) -> Sequence[Finding]:
        cache, shown = self._parts.cache, self._watches.nodes.store.get(name)
        row = cache.table.row_of(name)
        if shown is None:
            if row is None:
                return ()
            repair: Callable[[], object] = partial(cache.remove_node, name)
            return (Finding(Discrepancy.NODE, name, "it is in the cache and is no more", repair),)
        repair = partial(cache.add_node, shown)
        if row is None:
            return (Finding(Discrepancy.NODE, name, "it is not in the cache", repair),)
        counted = cache.table.nodes[row]
        if counted is shown or shown.is_heartbeat_of(counted):
            return ()
        version = shown.node.metadata.resource_version
        return (
            Finding(Discrepancy.NODE, name, f"the cache has another version of it than {version}", repair),
        )

    def _pause(self, name: str) -> Sequence[Finding]:
        if name in self._watches.nodes.store:
            return ()
        forget = partial(self._parts.cache.pauses.forget, name)
        return (Finding(Discrepancy.PAUSE, name, "it rests and is no more", forget),)

    def _columns(self, names: Sequence[str]) -> Sequence[Finding]:
        table = self._parts.cache.table
        rows = [row for row in map(table.row_of, names) if row is not None]
        return [
            Finding(Discrepancy.COLUMN, table.nodes[row].name, problem, self._recount)
            for row, problem in wrong_rows(table, rows)
        ]

    def _terms(self) -> Sequence[Finding]:
        wrong = wrong_terms(self._parts.cache.table)
        return [Finding(Discrepancy.COLUMN, "affinity terms", problem, self._recount) for problem in wrong]

    def _recount(self) -> None:
        self._parts.cache.recount()
        self._forget_verdicts()

    # Objects that plugins read, and cached results of plugins.

    def _object(self, kind: str, reflector: Reflector[dict[str, Any]], key: str) -> Sequence[Finding]:
        store = self._parts.cache.table.watch_kind(kind)
        shown, kept = reflector.store.get(key), store.from_server(key)
        if shown is kept or shown == kept:
            return self._assumed(kind, reflector, key)
        if shown is None:
            return (
                Finding(
                    Discrepancy.OBJECT,
                    f"{kind} {key}",
                    "plugins see it and it is no more",
                    partial(store.pop, key, None),
                ),
            )
        return (
            Finding(
                Discrepancy.OBJECT,
                f"{kind} {key}",
                "plugins see another version of it",
                partial(store.__setitem__, key, shown),
            ),
        )

    def _assumed(self, kind: str, reflector: Reflector[dict[str, Any]], key: str) -> Sequence[Finding]:
        """Check that an assumed version of an object exists, unless the API server has lost it."""
        store = self._parts.cache.table.watch_kind(kind)
        kept, seen = store.from_server(key), store.get(key)
        if seen is kept or seen is None or f"{reflector.resource} {key}" in self._pods.unclear:
            return ()
        if kept is not None and resource_version(seen) <= resource_version(kept):
            return ()
        problem = f"plugins see version {resource_version(seen)} of it, which the API server does not have"
        return (Finding(Discrepancy.OBJECT, f"{kind} {key}", problem, partial(store.restore, key)),)

    def _sample(self) -> Sequence[PodInfo]:
        """Choose the pods to evaluate again: some waiting pods, and some that were scheduled recently."""
        queue = self._parts.queue
        waiting = [
            queued.pod
            for queued in queue.pods()
            if queue.place_of(queued.pod.uid) not in {Place.GATED, Place.IN_FLIGHT}
        ]
        placed = self._cycles.attempts.latest(_SAMPLE)
        chosen = self._random.sample(waiting, min(len(waiting), _SAMPLE))
        return [*chosen, *placed[: _SAMPLE // 2]]

    def _verdict(self, pod: PodInfo) -> Sequence[Finding]:
        framework = self._parts.profiles.frameworks.get(pod.scheduler_name)
        if framework is None or self._cycles.scheduler.has_in_hand(pod.uid):
            return ()
        problem = difference(framework, pod, self._parts.cache.snapshot(), self._parts.nominator)
        if not problem:
            return ()
        return (Finding(Discrepancy.VERDICT, pod.key, problem, self._forget_verdicts),)

    def _forget_verdicts(self) -> None:
        for framework in self._parts.profiles.frameworks.values():
            framework.forget_cached_verdicts()
