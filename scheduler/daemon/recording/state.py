"""The state of an idle scheduler: the beginning of every file except the first of a run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.configuration.write import to_recorded
from scheduler.daemon.app.watches import NODE_KIND, POD_KIND
from scheduler.daemon.recording.recording_files import Note
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.state.cache import PodState
from scheduler.framework.queued_pod import QueuedPodInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.app.generation import Generation
    from scheduler.daemon.recording.recording_files import AnyNote
    from scheduler.engine.state.cache import Cache
    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_QUEUED: Final = tuple(name for name in QueuedPodInfo.__dataclass_fields__ if name not in {"pod", "group"})


class State(msgspec.Struct, kw_only=True):
    """The state without the objects; times are on the daemon's clock.

    Attributes:
        configuration: the active configuration, as YAML.
        folder: folder that its relative paths start from.
        random: state of the tie breaking.
        next_start: where the next pod's search for nodes begins.
        counted: uid -> node of the counted pods, in that order, including `assumed` ones.
        assumed: uids of pods whose watch has not shown the binding yet.
        placed: uids of the pods that this scheduler placed.
        nominations: uid -> node, in that order.
        pauses: paused nodes, as `NodePauses.kept`.
        queue: uid and fields of `QueuedPodInfo` of each pod, in the order of arrival.
        in_turn: uid and place, in the queue's order.
        flushes: uid, and when the pod is retried without any event, in that order.
        evictions: as `RecentEvictions.kept`.
        plugins: profile, plugin and its own data, as `Plugin.saved_state`.
        buckets: with sharding, the buckets in use, and those that are being released.
    """

    configuration: str
    folder: str
    random: tuple[Any, ...]
    next_start: int
    counted: list[tuple[str, str]]
    assumed: list[str]
    placed: list[str]
    nominations: list[tuple[str, str]]
    pauses: list[tuple[str, float, float, str, bool]]
    queue: list[tuple[str, dict[str, Any]]]
    in_turn: list[tuple[str, str]]
    flushes: list[tuple[str, float]]
    evictions: list[tuple[float, str, str]] = []
    plugins: list[tuple[str, str, Any]] = []
    buckets: tuple[list[int], list[int]] = ([], [])


def is_quiet(daemon: Daemon) -> bool:
    """Return whether nothing is in progress that a replay could not continue."""
    parts, queue = daemon.parts, daemon.parts.queue
    return not (
        parts.freeze.is_on
        or queue.count(Place.IN_FLIGHT)
        or queue.backlog
        or parts.cache.is_behind
        or daemon.generations.retiring
        or not daemon.cycles.rejections.is_idle
        or (daemon.shard_changes is not None and daemon.shard_changes.is_applying)
        or any(
            parts.cache.table.watch_kind(kind).is_assuming for kind in daemon.generations.active.needs.kinds
        )
    )


def forget_cached_results(daemon: Daemon) -> None:
    """Drop cached results, so that work takes as many time slices as in a daemon that continues from the state."""
    for framework in daemon.generations.active.frameworks.values():
        framework.forget_cached_verdicts()


def state_notes(daemon: Daemon, random_state: tuple[Any, ...], us: int) -> Iterator[AnyNote]:
    """Yield the notes of the current state, and forget cached results."""
    forget_cached_results(daemon)
    parts, queue, cache = daemon.parts, daemon.parts.queue, daemon.parts.cache
    active = daemon.generations.active
    yield (
        Note.STATE,
        us,
        State(
            configuration=to_recorded(active.configuration),
            folder=str(active.configuration.folder.absolute()),
            random=random_state,
            next_start=daemon.cycles.sampling.next_start,
            counted=[(pod.uid, pod.node_name) for pod in _by_node(cache)],
            assumed=[pod.uid for pod in cache.pods() if cache.state_of(pod.uid) is PodState.ASSUMED],
            placed=sorted(cache.placed_by_us()),
            nominations=[(pod.uid, parts.nominator.node_of(pod.uid)) for pod in parts.nominator.pods()],
            pauses=cache.pauses.kept(),
            queue=[
                (
                    queued.pod.uid,
                    {name: _plain(getattr(queued, name)) for name in _QUEUED},
                )
                for queued in queue.pods()
            ],
            in_turn=[(queued.pod.uid, queue.place_of(queued.pod.uid).name) for queued in queue.in_turn()],
            flushes=queue.flushes(),
            evictions=daemon.cycles.preemptions.recent.kept(),
            plugins=list(_states_of_plugins(active)),
            buckets=([], []) if daemon.shard_changes is None else daemon.shard_changes.kept(),
        ),
    )
    for node in cache.table.nodes:
        yield (Note.OBJECT, NODE_KIND, node.name, node)
    for kind in sorted(active.needs.kinds):
        for key, obj in cache.table.watch_kind(kind).items():
            yield (Note.OBJECT, kind, key, obj)
    for key, pod in parts.pods.items():
        yield (Note.OBJECT, POD_KIND, key, pod)


def _by_node(cache: Cache) -> list[PodInfo]:
    """Return the counted pods, those of one node in the order of the node."""
    snapshot = cache.snapshot()
    on_nodes = [pod for row in range(snapshot.n_nodes) for pod in snapshot.pods_on(row)]
    known = {pod.uid for pod in on_nodes}
    return [*on_nodes, *(pod for pod in cache.pods() if pod.uid not in known)]


def resume(daemon: Daemon, state: State, objects: Mapping[str, Mapping[str, Any]]) -> None:
    """Bring a new daemon into a recorded state; `objects` is kind -> key -> object."""
    parts, cache, nominator = daemon.parts, daemon.parts.cache, daemon.parts.nominator
    for node in objects.get(NODE_KIND, {}).values():
        cache.add_node(node)
    for kind in daemon.generations.active.needs.kinds:
        cache.table.watch_kind(kind).update(objects.get(kind, {}))
    pods: dict[str, PodInfo] = {pod.uid: pod for pod in parts.pods.values()}
    _count(cache, pods, state)
    cache.note_placed_by_us(state.placed)
    for pause in state.pauses:
        cache.pauses.resume(*pause)
    parts.queue.resume(
        [QueuedPodInfo(pods[uid], **_back(fields)) for uid, fields in state.queue],
        [(uid, Place[place]) for uid, place in state.in_turn],
        state.flushes,
    )
    for uid, node_name in state.nominations:
        if uid in pods:
            nominator.add(pods[uid], node_name)
    if daemon.shard_changes is not None:
        daemon.shard_changes.resume(*state.buckets)
    daemon.cycles.sampling.next_start = state.next_start
    daemon.cycles.preemptions.recent.resume(state.evictions)
    _resume_plugins(daemon.generations.active, state)


def _count(cache: Cache, pods: Mapping[str, PodInfo], state: State) -> None:
    """Count pods, by uid, on their nodes again."""
    assumed = set(state.assumed)
    for uid, node_name in state.counted:
        if uid in assumed:
            cache.assume(pods[uid], node_name)
        elif uid in pods:
            cache.add_pod(pods[uid])
    while cache.is_behind:
        cache.work()


def _resume_plugins(generation: Generation, state: State) -> None:
    own = {(profile, name): recorded for profile, name, recorded in state.plugins}
    for profile, plugin in _plugins(generation):
        if (profile, plugin.name) in own:
            plugin.resume_state(own[profile, plugin.name])


def _plugins(generation: Generation) -> Iterator[tuple[str, Plugin]]:
    for profile, framework in generation.frameworks.items():
        for plugin in framework.plugins.all():
            yield profile, plugin


def _states_of_plugins(generation: Generation) -> Iterator[tuple[str, str, Any]]:
    """Yield profile, plugin and data of the plugins with data to record; an error of a plugin is logged."""
    for profile, plugin in _plugins(generation):
        try:
            recorded = msgspec.to_builtins(plugin.saved_state())
        except Exception:
            fields = {"plugin": plugin.name, "profile": profile}
            logger.exception("State of a plugin cannot be recorded", extra=fields)
        else:
            if recorded is not None:
                yield profile, plugin.name, recorded


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def _back(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: frozenset(tuple(each) if isinstance(each, list) else each for each in value)
        if isinstance(value, list)
        else value
        for name, value in fields.items()
    }
