"""Gauges that are read from the parts of a scheduler at each scrape."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from scheduler.engine.queue.in_flight import POD_POPPED
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.state.cache import PodState
from scheduler.framework.events import describe_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.daemon.app.assembly import Cycles, Parts
    from scheduler.daemon.app.generation import Generation
    from scheduler.daemon.metrics import Metrics
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod_group import GroupKey

_NEXT = (Place.IN_FLIGHT, Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
"""In order of precedence: all pods of a group are tried with the first of them that is popped."""


def group_queue_state(parts: Parts, key: GroupKey) -> dict[str, Any]:
    """Return the state of a group's pods in the queue.

    Returns:
        JSON values: `place`, the place of the pod that is tried first, null if none waits; `places`, the number of pods in
        each place; `before`, the number of pods tried before the group, null outside activeQ; `backoffSeconds` that are left;
        `waitingSeconds` since the first attempt was due; `waitingGroups`, the number of waiting groups, this one included;
        `placed`, the number of its pods on nodes; `requeuingEvents`, as `requeuing_events` returns them.
    """
    queue, now = parts.queue, parts.clock.monotonic()
    groups, leaves = parts.cache.groups, parts.profiles.leaves_below(key)
    members = _members(parts, [uid for leaf in leaves for uid in groups.pending(leaf)])
    places = Counter(queue.place_of(each.pod.uid) for each in members)
    place = next((each for each in _NEXT if places[each]), None)
    turns = [turn for each in members if (turn := queue.turn_of(each.pod.uid)) is not None]
    backoffs = [left for each in members if (left := queue.backoff_left(each.pod.uid, now)) is not None]
    return {
        "place": None if place is None else place.value,
        "places": {each.value: places[each] for each in _NEXT if places[each]},
        "before": min(turns, default=None),
        "backoffSeconds": round(min(backoffs), 3) if backoffs and place is Place.BACKOFF else None,
        "waitingSeconds": round(now - _since(members), 3) if members else None,
        "waitingGroups": sum(1 for _ in waiting_groups(parts)),
        "placed": len({pod.uid for leaf in leaves for pod in groups.placed(leaf)}),
        "requeuingEvents": requeuing_events(
            parts,
            {(each.pod.scheduler_name, plugin) for each in members for plugin in each.unschedulable_plugins},
        ),
    }


def waiting_groups(parts: Parts) -> Iterable[tuple[GroupKey, Place, float]]:
    """Yield each waiting group, its place in the queue, and since when it waits (seconds of the monotonic clock)."""
    for key, uids in parts.cache.groups.all_pending():
        members = _members(parts, uids)
        if not members or parts.profiles.group_of(members[0].pod) is None:
            continue
        places = {parts.queue.place_of(each.pod.uid) for each in members}
        yield key, next(each for each in _NEXT if each in places), _since(members)


def _members(parts: Parts, uids: Iterable[str]) -> list[QueuedPodInfo]:
    """Return the members in the queue that have no node yet."""
    return [
        queued
        for uid in uids
        if (queued := parts.queue.get(uid)) is not None and parts.cache.state_of(uid) is PodState.OUTSIDE
    ]


def _since(members: Iterable[QueuedPodInfo]) -> float:
    return min(
        each.timestamp if each.initial_attempt_timestamp is None else each.initial_attempt_timestamp
        for each in members
    )


def requeuing_events(parts: Parts, rejectors: Iterable[tuple[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Return plugin -> kind of object -> the changes for which its hints are called.

    Args:
        parts: the scheduler's parts.
        rejectors: profiles and plugins.
    """
    return {
        plugin: describe_changes(parts.profiles.events(profile).get(plugin, ()))
        for profile, plugin in sorted(rejectors)
    }


# The labels are those of kube-scheduler's metric.
_WAITING = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)


def show_state(metrics: Metrics, parts: Parts, active: Callable[[], Generation]) -> None:
    """Register the gauges of the cache's contents and of plugins' data."""
    metrics.watch_gauge(
        "scheduler_cache_size",
        "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
        "type",
        parts.cache.counts,
    )
    metrics.families.read_gauges(
        "custom_scheduler_deferred_resizes",
        "Number of pods on nodes whose resize waits until their node has the capacity.",
        (),
        lambda: [((), float(len(parts.cache.deferred_resizes)))],
    )
    refreshes = metrics.refreshes
    refreshes.ages = lambda: active().refresh_ages()
    refreshes.nodes_without_data = lambda: active().nodes_without_data(parts.cache.snapshot())


def show_groups(metrics: Metrics, parts: Parts) -> None:
    """Register the gauges of waiting pod groups and their waiting time."""
    metrics.families.read_gauges(
        "custom_scheduler_pending_podgroups",
        "Number of groups of pods that wait, by the queue of the pod whose turn comes first.",
        ("queue",),
        lambda: _pending_groups(parts),
    )
    metrics.families.read_gauges(
        "custom_scheduler_oldest_podgroup_seconds",
        "For how long the group of pods waits that was to be tried first; 0 if none waits.",
        (),
        lambda: [
            ((), max((parts.clock.monotonic() - since for _, _, since in waiting_groups(parts)), default=0.0))
        ],
    )


def _pending_groups(parts: Parts) -> list[tuple[tuple[str, ...], float]]:
    groups = parts.queue.group_places
    tried = Counter(map(groups.place_of, _tried_groups(parts)))
    return [((place.value,), float(groups.count(place) - tried[place])) for place in _WAITING]


def _pending_pods(parts: Parts) -> dict[str, float]:
    queue = parts.queue
    counts = {place.value: float(queue.count(place)) for place in _WAITING}
    if not (parts.features.enabled("PodGroupEntities") and parts.features.enabled("GenericWorkload")):
        return counts
    apart = Counter({"incomplete": 0, "pending": 0})
    for key, name in _groups_apart(parts):
        for place in _WAITING:
            number = queue.group_places.places_of(key).get(place, 0)
            counts[place.value] -= number
            apart[name] += number
    return {**counts, **apart}


def _queued_entities(parts: Parts) -> list[tuple[tuple[str, ...], float]]:
    queue, groups = parts.queue, parts.queue.group_places
    apart = Counter(groups.place_of(key) for key, _ in _groups_apart(parts))
    return [
        ((place.value, kind), float(number))
        for place in _WAITING
        for kind, number in (
            ("pod", queue.count(place) - groups.count_pods(place)),
            ("podgroup", groups.count(place) - apart[place]),
        )
    ]


def _groups_apart(parts: Parts) -> Iterator[tuple[GroupKey, str]]:
    """Yield the groups that are in no queue, and why: `pending` during an attempt, `incomplete` without the group's object.

    Source:
        kube-scheduler v1.37, backend/queue/scheduling_queue.go, pendingPodGroupPods and incompletePodGroupPods.
    """
    groups = parts.queue.group_places
    tried = set(_tried_groups(parts))
    for key in groups.groups():
        if key in tried:
            yield key, "pending"
        elif Place.GATED in groups.places_of(key) and parts.profiles.pod_group(key) is None:
            yield key, "incomplete"


def _tried_groups(parts: Parts) -> Iterator[GroupKey]:
    """Yield the groups that are being tried; members that are being bound are not tried any more."""
    queue, cache = parts.queue, parts.cache
    for key in queue.group_places.groups():
        if Place.IN_FLIGHT in queue.group_places.places_of(key) and any(
            queue.place_of(uid) is Place.IN_FLIGHT and cache.state_of(uid) is PodState.OUTSIDE
            for uid in cache.groups.pending(key)
        ):
            yield key


def show_queue(metrics: Metrics, parts: Parts, cycles: Cycles) -> None:
    """Register the gauges of waiting pods and of work in progress."""
    queue = parts.queue
    metrics.watch_gauge(
        "scheduler_pending_pods",
        "Number of pending pods, by the queue type. Since Kubernetes 1.37, incomplete are those whose group does not exist, "
        "and pending those that wait for the end of an attempt at their group.",
        "queue",
        lambda: _pending_pods(parts),
    )
    metrics.families.read_gauges(
        "scheduler_queued_entities",
        "Number of pods without a group, and of groups, by the queue type. A group is in the first of the queues active, "
        "backoff, unschedulable and gated that has one of its pods, except during an attempt.",
        ("queue", "type"),
        lambda: _queued_entities(parts),
    )
    metrics.watch_gauge(
        "scheduler_inflight_events",
        "Number of events kept for pods that are being scheduled.",
        "event",
        lambda: {
            POD_POPPED: 0,
            **{
                metrics.event_name(event, is_own=True): count
                for event, count in queue.in_flight_events.items()
            },
        },
    )
    metrics.families.read_gauges(
        "custom_scheduler_requeue_backlog_events",
        "Number of events that some of the waiting pods have not been shown yet.",
        (),
        lambda: [((), float(queue.backlog))],
    )
    metrics.watch_gauge(
        "scheduler_goroutines",
        "Number of running tasks split by the work they do.",
        "operation",
        lambda: {"binding": cycles.binding.under_way},
    )
    metrics.families.read_gauges(
        "custom_scheduler_long_attempts",
        "Number of attempts under way that need more time than a turn of the loop.",
        (),
        lambda: [((), float(len(cycles.long)))],
    )
    metrics.families.read_gauges(
        "scheduler_unschedulable_pods",
        "Number of waiting pods that a plugin rejected in their last attempt, or gates.",
        ("plugin", "profile"),
        queue.rejections.items,
    )
    metrics.families.read_gauges(
        "custom_scheduler_rejected_pods",
        "Number of waiting pods by the causes for which their last attempt was rejected, or for which they are gated. A "
        "pod with several causes counts for each. Of the namespaces, 100 at once have their name; further ones are `other`.",
        ("code", "plugin", "namespace", "profile"),
        lambda: [*queue.rejections_by_code.items()],
    )
    metrics.families.read_gauges(
        "custom_scheduler_paused_nodes",
        "Number of nodes that are avoided for a while because their kubelets rejected pods.",
        (),
        lambda: [((), float(parts.cache.pauses.paused(at=parts.clock.monotonic())))],
    )
