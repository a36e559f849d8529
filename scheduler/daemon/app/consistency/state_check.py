"""Compares the cache, the queue and all derived data with the watched objects, and repairs differences.

Columns are updated incrementally, so the error of a missed change would stay until the node is removed.

Each object is compared within one time slice, in which nothing changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scheduler.engine.queue.pod_places import Place
from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.sharding.shards import SHARDING
from scheduler.engine.state.cache import PodState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import Code
from scheduler.kube.client.resources import PODS
from scheduler.objects.pod_affinity import NO_TERMS
from scheduler.snapshot.affinity_index import TermKind
from scheduler.snapshot.object_store import resource_version
from scheduler.snapshot.table import ClusterTable

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from scheduler.daemon.app.assembly import Cycles, Parts
    from scheduler.daemon.app.watches import Watches
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.state.nominator import Nominator
    from scheduler.kube.client.reflector import Reflector
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerms
    from scheduler.snapshot import Snapshot
    from scheduler.snapshot.interning import Interned
    from scheduler.snapshot.table import KeptColumns


class Discrepancy(Enum):
    """The kind of a difference; the values are labels of a metric."""

    WATCHED = "watched"
    """The watch has shown another version of an object than the API server has."""
    MISSED = "missed"
    """The API server has an object that the watch has not shown."""
    REDUNDANT = "redundant"
    """The watch has shown an object that the API server does not have."""
    NODE = "node"
    """A node of the cache differs from the watched node."""
    POD = "pod"
    """A pod is not counted on its node as watched, or is counted although it is deleted."""
    OBJECT = "object"
    """An object that plugins read differs from the watched object."""
    ASSUMED = "assumed"
    """A pod uses capacity although it is not bound and no binding is in progress."""
    PENDING = "pending"
    """A pod of this scheduler is neither in the queue, nor in a cycle, nor being bound."""
    QUEUED = "queued"
    """The queue contains a pod that must not be scheduled."""
    NOMINATED = "nominated"
    """Capacity is kept for a pod that does not wait."""
    PAUSE = "pause"
    """A deleted node is paused."""
    COLUMN = "column"
    """A column differs from the node and its pods."""
    VERDICT = "verdict"
    """A cached result differs from a new evaluation."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference. Two findings are equal if they have the same kind, key and problem.

    Attributes:
        what: the kind.
        key: `namespace/name` or a name of the object; for watched objects after the kind.
        problem: a description that stays the same as long as the difference does.
        repair: repairs it; must be called in the time slice in which it was found. None if the repair takes longer.
    """

    what: Discrepancy
    key: str
    problem: str
    repair: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.what.value} {self.key}: {self.problem}"


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
        return self._waiting_for_resize(pod) if self._parts.profiles.tries_resize_of(pod) else ()

    def _waiting_for_resize(self, pod: PodInfo) -> Sequence[Finding]:
        queue = self._parts.queue
        place = queue.place_of(pod.uid)
        if place is Place.IN_FLIGHT and not self._in_hand(pod.uid):
            problem = "it was taken for an attempt at its resize, and nobody is at it"
        elif queue.holds(pod.uid) and (place is not Place.OUTSIDE or self._watches.pods.is_outdated(pod.key)):
            return ()
        else:
            problem = "its resize is deferred, and it is not in the queue"
        return (Finding(Discrepancy.PENDING, pod.key, problem, self._putting_back(pod)),)

    def _waiting(self, pod: PodInfo) -> Sequence[Finding]:
        parts, key = self._parts, pod.key
        state, place = parts.cache.state_of(pod.uid), parts.queue.place_of(pod.uid)
        is_lost = place is Place.IN_FLIGHT and not self._in_hand(pod.uid)
        if state is PodState.CONFIRMED:
            finding = Finding(
                Discrepancy.POD, key, "it is counted on a node and has none", self._taking_out(pod)
            )
        elif not parts.is_ours(pod) or f"{PODS} {key}" in self.unclear:
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
        elif SHARDING in parts.waiting_pods.seconds_left(pod.uid):
            return ()
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
        if shown is not None and shown.uid == uid:
            is_pending = not (shown.node_name or shown.is_terminal)
            profiles = self._parts.profiles
            if self._parts.is_ours(shown) if is_pending else profiles.tries_resize_of(shown):
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


class _CachedDecision(NamedTuple):
    """The result for a pod: the rejections of nodes, and the scores of the others."""

    message: str
    totals: Mapping[str, int]  # node -> its score; 0 for all if there was nothing to score


def difference(framework: Framework, pod: PodInfo, snapshot: Snapshot, nominator: Nominator) -> str:
    """Return how the result for a pod differs from one for which every plugin is called again; "" if it does not.

    No difference is reported if a plugin fails, needs more than one time slice, or returns different results for the same
    input: then nothing can be cached. No pod is preempted, and nothing is written.
    """
    try:
        kept, anew = both = _both(framework, pod, snapshot, nominator)
        if kept == anew or both != _both(framework, pod, snapshot, nominator):
            return ""
    except (PluginError, NeedsTime):
        return ""
    if kept.message != anew.message:
        return f"it is kept that {kept.message!r}, and decided that {anew.message!r}"
    nodes = sorted(
        node
        for node in kept.totals.keys() | anew.totals.keys()
        if kept.totals.get(node) != anew.totals.get(node)
    )
    node = nodes[0]
    return f"{node} and {len(nodes) - 1} more score {kept.totals.get(node)} by what is kept, {anew.totals.get(node)} anew"


def _both(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, nominator: Nominator
) -> tuple[_CachedDecision, _CachedDecision]:
    """Decide with cached results, and without."""
    # A new set of rows has no log of changes, so nothing is cached for it.
    rows = snapshot.take(snapshot.all_rows)
    return _decision(framework, pod, snapshot, nominator), _decision(framework, pod, rows, nominator)


def _decision(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, nominator: Nominator
) -> _CachedDecision:
    """Decide without PostFilter.

    Raises:
        PluginError: a plugin failed.
    """
    nominated = nominator.others(pod, snapshot)
    state, diagnosis = AttemptState(nominated, exhaustive=True), Diagnosis.blank(snapshot.n_nodes)
    status = framework.filtering.run_pre_filter(state, pod, snapshot, diagnosis)
    if status.code is Code.ERROR:
        raise PluginError(status)
    if not status.is_success:
        return _CachedDecision(status.message, {})
    rows = snapshot.all_rows if diagnosis.narrowed_to is None else diagnosis.feasible
    feasible = framework.filtering.find_feasible(
        state, pod, snapshot, diagnosis, rows=rows, nominated=nominated
    )
    totals = [0] * len(feasible)
    if len(feasible) > 1:
        totals = framework.scoring.run(state, pod, snapshot, feasible).total.tolist()
    names = (snapshot.name_of(row) for row in feasible.tolist())
    return _CachedDecision(diagnosis.message(), dict(zip(names, totals, strict=True)))


if TYPE_CHECKING:
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
            for row, problem in _wrong_rows(table, rows)
        ]

    def _terms(self) -> Sequence[Finding]:
        wrong = _wrong_terms(self._parts.cache.table)
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


def _wrong_rows(table: ClusterTable, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield (row, problem) for each column that disagrees with a row's node and pods."""
    fresh = ClusterTable()
    for row in rows:
        place = fresh.add_node(table.nodes[row])
        for pod in table.pods_on(row).values():
            fresh.add_pod(place, pod)
    kept = table.kept_columns
    resources = {*kept.resources, *fresh.resources()}
    here, places = list(rows), list(range(len(rows)))
    found, wanted = (_columns(each, at, kept, resources) for each, at in ((table, here), (fresh, places)))
    for (name, values), (_, counted) in zip(found, wanted, strict=True):
        for row, value, count in zip(rows, values, counted, strict=True):
            if value != count:
                yield row, f"{name} is {value}, should be {count}"


def _wrong_terms(table: ClusterTable) -> Iterator[str]:
    """Yield a problem for affinity terms whose indexed rows disagree with the pods on nodes."""
    wanted: defaultdict[AffinityTerms, Counter[int]] = defaultdict(Counter)
    for row in range(table.n_nodes):  # a loop over all nodes; no pod waits for it
        for pod in table.pods_on(row).values():
            if pod.affinity_terms is not NO_TERMS:
                wanted[pod.affinity_terms][row] += 1
    found = {
        terms: Counter(dict(zip(rows.tolist(), counts.tolist(), strict=True)))
        for terms, (rows, counts) in table.pods_by_terms
    }
    for terms in dict.fromkeys((*found, *wanted)):
        if found.get(terms) != wanted.get(terms):
            yield f"{_named(terms)} are counted on wrong nodes"


def _named(terms: AffinityTerms) -> str:
    lists = {kind.value: kind.of(terms) for kind in TermKind if kind.of(terms)}
    kinds = [f"{name} by {terms_of_kind[0].term.topology_key}" for name, terms_of_kind in lists.items()]
    return ", ".join(kinds) or "invalid terms"


def _columns(
    table: ClusterTable, rows: list[int], kept: KeptColumns, resources: Iterable[str]
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield (name, value of each row) of every column; in this order, no column evicts another."""
    zeros = np.zeros(table.n_nodes, dtype=np.int64)
    for resource in sorted(resources):
        for name, column in (
            ("allocatable", table.allocatable(resource)),
            ("requested", table.requested(resource)),
        ):
            yield f"{name} {resource}", (zeros if column is None else column)[rows].tolist()
    yield "requested", [dict(table.requested_on(row)) for row in rows]
    yield "nonzero requested", [list(table.nonzero_requested_on(row)) for row in rows]
    for resource in ("cpu", "memory"):
        yield f"nonzero requested {resource}", table.nonzero_requested(resource)[rows].tolist()
    yield "pod count", table.pod_count()[rows].tolist()
    yield "unschedulable", table.unschedulable()[rows].tolist()
    yield "taints", _values(table.taints(), rows)
    yield "declared features", _values(table.declared_features(), rows)
    yield "used ports", [table.indexed_ports(row) for row in rows]
    for key in kept.labels:
        yield f"label {key}", _values(table.label(key), rows)
    for image in kept.images:
        state = table.images((image,)).get(image)
        yield f"image {image}", [False] * len(rows) if state is None else state.present[rows].tolist()
    for query in kept.queries:
        yield "pods of a query", table.pods_matching(query)[rows].tolist()
    storage = table.storage()
    yield "pods with volumes", [sorted(pod.uid for pod in storage.pods_on(row)) for row in rows]


def _values(column: Interned[Any], rows: list[int]) -> list[Any]:
    return [column.values[code] for code in column.codes[rows].tolist()]
