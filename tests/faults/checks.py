"""The checks: at any time, after the faults, and after the daemon has stopped."""

from __future__ import annotations

import asyncio
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.quotas.fair_queues import FairQueues
from scheduler.daemon.app.consistency.state_check import Discrepancy
from scheduler.daemon.app.needs import needs_of
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.shards import OwnShard
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod_group import COSCHEDULING_LABEL, VOLCANO_ANNOTATIONS
from scheduler.tools.simulator.apimachinery.objects import is_terminating
from scheduler.tools.simulator.controllers.resource_claims import CLAIMS
from tests.faults.actors.configurations import Configurations
from tests.faults.actors.guests import Guests
from tests.faults.actors.machine import WallClocks
from tests.faults.cache_comparison import cache_from, differences
from tests.faults.pod_facts import has_ended, is_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.tools.simulator.apimachinery.objects import Object
    from tests.faults.daemon_runs import Life
    from tests.faults.event_log import PodRecord
    from tests.faults.stage import Stage

_KINDS = {
    "v1/persistentvolumeclaims": "persistentvolumeclaims",
    "v1/persistentvolumes": "persistentvolumes",
    "resource.k8s.io/v1/resourceclaims": "resourceclaims.resource.k8s.io",
    "resource.k8s.io/v1/resourceslices": "resourceslices.resource.k8s.io",
}
"""Kinds of plugins that are written to, and what they are called at the server."""
_MENDED_WITHIN_SECONDS = 20.0
"""After a restore of the server, which may listen only ten seconds later."""
_TICK = 1e-3
"""Times in the API are cut to microseconds, or less."""
_PLACES_IN_THE_END = {Place.UNSCHEDULABLE}
_PLACES_WITHOUT_NODES = {Place.UNSCHEDULABLE, Place.BACKOFF, Place.ACTIVE}
"""Where nobody rejected a pod, no event can help it: it is tried again and again, as by kube-scheduler."""


def check_always(stage: Stage) -> None:
    """Check what holds at every moment of a daemon's life."""
    for life in stage.lives.running:
        if not life.has_ended:
            _check_life(stage, life)
    _check_users(stage)


def _check_users(stage: Stage) -> None:
    """No two replicas use a bucket at the same time."""
    users: dict[int, str] = {}
    for life in stage.lives.running:
        shard = life.daemon.parts.profiles.shards
        used = shard.in_use if isinstance(shard, OwnShard) and life.is_leading else frozenset()
        if both := sorted(used & users.keys()):
            stage.find(f"{life.name} uses buckets of {sorted({users[each] for each in both})}: {both}")
        users |= dict.fromkeys(used, life.name)


def _check_life(stage: Stage, life: Life) -> None:
    if stage.follows_groups and life.is_waiting_for_extender:
        return  # the cache lacks the pods that a dry run leaves out
    for check in (life.daemon.parts.cache.check, life.daemon.parts.queue.check):
        _holds(stage, check)
    known = {pod.uid: pod for pod in life.pods.values()}
    if life.is_waiting_for_extender:
        return  # what watches bring is kept for later
    # Its binding is called off at once, but by another task: within the same moment both are so.
    life.going = {
        uid: life.going.get(uid, stage.now)
        for uid in life.daemon.parts.cache._assumed
        if uid not in known or known[uid].is_terminating
    }
    for uid, since in life.going.items():
        if stage.now > since:
            stage.find(f"{uid} is assumed although the watch has told that it goes", uid)


async def check_state(stage: Stage, life: Life) -> None:
    """Let a daemon look at itself: what it knows follows from what its watches have shown, at any moment."""
    if life.has_ended or not life.daemon.has_synced:
        return
    # What only answers have told, and the server has forgotten, is found by the daemon's own look, some seconds later.
    if stage.was_restored(_MENDED_WITHIN_SECONDS):
        return
    goes_wrong = stage.plan.troubles or {Configurations, Guests} & set(stage.plan.actors)
    consistency, unclear = life.daemon.consistency, _NotAsWatched(stage, life)
    findings = await consistency.look(unclear)
    if findings and stage.plan.shards:  # pods enter and leave the queue in slices when buckets move
        await asyncio.sleep(_TICK)
        findings = await consistency.look(unclear, found_before=findings)
    for finding in findings:
        # A pod that was bound a moment ago holds its room until the watch shows that; and of a plugin that goes wrong at
        # random nothing can be kept.
        if finding.what is not Discrepancy.ASSUMED and not (
            finding.what is Discrepancy.VERDICT and goes_wrong
        ):
            stage.find(f"{life.name} finds {finding}")


class _NotAsWatched:
    """The objects of which a daemon's watch has not shown the last version."""

    def __init__(self, stage: Stage, life: Life) -> None:
        self._stage, self._life = stage, life

    def __contains__(self, key: object) -> bool:
        resource, _, object_key = str(key).partition(" ")
        reflector = next(each for each in self._life.daemon.watches if str(each.resource) == resource)
        there = self._stage.store.find(resource, *reversed(object_key.split("/")))
        shown = reflector.versions.get(object_key, ("", ""))[1]
        return there is None or shown != there["metadata"]["resourceVersion"]


async def check_drift(stage: Stage) -> None:
    """Let every daemon compare itself with the server once faults have ended: nothing differs, everything was compared."""
    for life in stage.lives.running:
        report = await life.daemon.consistency.check(repair=True)
        for finding in report.findings:
            stage.find(f"{life.name} finds {finding}")
        if report.unread:
            stage.find(f"{life.name} could not compare {dict(report.unread)}")


def check_in_the_end(stage: Stage) -> None:
    """Check what holds once faults have ended and time has run on."""
    leader = stage.lives.leader
    if leader is None:
        stage.find("no daemon leads in the end")
        return
    check_always(stage)
    _check_bindings(stage)
    _check_reports(stage)
    stage.groups.check_in_the_end(leader)
    at_work = [life for life in stage.lives.running if life.is_leading] if stage.plan.shards else [leader]
    if stage.plan.shards:
        _check_shards(stage, at_work)
    for life in at_work:
        _check_pending(stage, life)
        _check_queue(stage, life)
        _check_nothing_is_left(stage, life)
    for each in stage.lives.running:
        _check_picture(stage, each)
        _check_storage(stage, each)


def _check_shards(stage: Stage, at_work: Sequence[Life]) -> None:
    """All buckets are in use, each by one replica."""
    shards = [life.daemon.parts.profiles.shards for life in at_work]
    used = sorted(bucket for shard in shards if isinstance(shard, OwnShard) for bucket in shard.in_use)
    if used != list(range(BUCKETS)):
        stage.find(f"{len(used)} buckets are in use, {len(set(used))} different ones")


def check_stopped(stage: Stage, life: Life) -> None:
    """Check what holds when the leader was stopped in good order."""
    pending = life.daemon.writer.pending()
    if any(pending.values()):
        stage.find(f"writes were left when nothing was in their way: {pending}")


def _holds(stage: Stage, check: Callable[[], None]) -> None:
    try:
        check()
    except AssertionError as error:
        stage.find(f"{check.__qualname__}: {error}")


def _check_bindings(stage: Stage) -> None:
    """No pod is bound twice, by us or by the server's account."""
    stage.story.catch_up()
    for record in stage.story.pods.values():
        if len(record.nodes) > 1:
            stage.find(f"{record.key} went from node to node: {record.nodes}", record.uid)
        if record.written_while_gated and not record.is_successor:
            stage.find(f"{record.key} was gated and written to: {record.written_while_gated}", record.uid)
    answered: set[tuple[str, str]] = set()  # (daemon, pod uid)
    restores = list(stage.restores)
    for request in stage.server.requests.matching(method="POST", path="/binding"):
        if restores and request.at_seconds >= restores[0]:
            restores.pop(0)
            answered.clear()
        uid = request.json["metadata"]["uid"]
        if (request.user_agent, uid) in answered:
            stage.find(f"{request.user_agent} sends {request.path} though one was answered", uid)
        if request.status == 201:
            answered.add((request.user_agent, uid))


def _check_reports(stage: Stage) -> None:
    """What events and conditions say of pods is true."""
    for pod in stage.our_pods():
        record = stage.story.pods[pod["metadata"]["uid"]]
        # What is said of a pod while somebody else binds it, nobody can know to be wrong.
        excused = (
            record.is_successor or record.uid in stage.story.foreign or _was_told_unknowing(stage, record)
        )
        if pod["spec"].get("nodeName") and _condition(pod).get("status") != "True" and not excused:
            stage.find(f"{_key(pod)} is bound, its condition is {_condition(pod)}", pod["metadata"]["uid"])
    _check_events(stage)


def _was_told_unknowing(stage: Stage, record: PodRecord) -> bool:
    """Whether the last who wrote a pod's condition after its binding could not know of that.

    A daemon that comes to lead while its watch is silent does not know what the one before it has bound. A status patch
    asks for no version of the pod, as kube-scheduler's, so the API server does not refuse it.
    """
    namespace, _, name = record.key.partition("/")
    patches = stage.server.requests.matching(
        method="PATCH", path=f"/namespaces/{namespace}/pods/{name}/status"
    )
    writers = {life.name: life for life in stage.lives.all}
    later = [
        request
        for request in patches
        if request.user_agent in writers
        and record.nodes
        and request.at_seconds >= record.nodes[0][0]
        and "conditions" in request.json["status"]
    ]
    return bool(later) and not writers[later[-1].user_agent].ledger.knows(record)


def _is_rejected(stage: Stage, record: PodRecord) -> bool:
    """Whether a kubelet may have rejected the pod: it had a node, and has failed or is gone by now."""
    pod = stage.store.find("pods", *reversed(record.key.split("/")))
    is_there = pod is not None and pod["metadata"]["uid"] == record.uid
    return bool(record.nodes) and (pod is None or not is_there or pod["status"].get("phase") == "Failed")


def _check_events(stage: Stage) -> None:
    """What events say was so when they say it."""
    authors = _authors_of_events(stage)
    clocks_agree = WallClocks not in stage.plan.actors
    for event in stage.store.list("events.events.k8s.io"):
        record = stage.story.pods.get(event["regarding"].get("uid", ""))
        if record is None or event.get("reportingController") not in stage.plan.scheduler_names:
            continue
        if record.ungated_at is None or (
            clocks_agree and _seconds(event["eventTime"]) < record.ungated_at - _TICK
        ):
            stage.find(f"{record.key} was gated and has the event {event['note']}", record.uid)
        match event["reason"]:
            case "Scheduled":
                node = record.nodes[0][1] if record.nodes else "no node"
                if not any(event["note"].endswith(f" to {name}") for name in (node, *record.lost_nodes)):
                    stage.find(f"{record.key} is on {node}, its event says {event['note']}", record.uid)
            case "Preempted" | "AffinityCountedLate":
                continue  # told of pods on nodes
            case "RejectedByKubelet":
                if not _is_rejected(stage, record):
                    stage.find(f"{record.key} was not rejected, its event says {event['note']}", record.uid)
            case _ if clocks_agree:
                _check_before_binding(stage, record, event, authors.get(event["metadata"]["name"]))


def _check_before_binding(stage: Stage, record: PodRecord, event: Object, author: Life | None) -> None:
    """That a pod waits is said only before it was bound, as far as whoever said it could know."""
    if not record.nodes or record.uid in stage.story.foreign:
        return
    if author is None or not author.ledger.knows(record):
        return
    last = event.get("series", {}).get("lastObservedTime") or event["eventTime"]
    bound_at = record.nodes[0][0]
    if _seconds(last) > bound_at + _TICK:
        stage.find(f"{record.key} was bound at {bound_at}, then: {event['note']}", record.uid)


def _authors_of_events(stage: Stage) -> dict[str, Life]:
    """Return event name -> the daemon it is from."""
    lives = {life.name: life for life in stage.lives.all}
    posted = stage.server.requests.matching(method="POST", path="/events")
    return {
        request.json["metadata"]["name"]: lives[request.user_agent]
        for request in posted
        if request.user_agent in lives
    }


def _check_pending(stage: Stage, life: Life) -> None:
    """Who waits does so for a reason that is true and told, at the right place."""
    judge = _informed_judge(stage, life)
    of_others = {pod.uid for pod in life.pods.values() if not life.daemon.parts.is_ours(pod)}
    for pod in stage.our_pods():
        if not is_pending(pod) or pod["metadata"]["uid"] in of_others:
            continue
        uid, queue = pod["metadata"]["uid"], life.daemon.parts.queue
        place, condition = queue.place_of(uid), _condition(pod)
        if pod["spec"].get("schedulingGates") or _lacks_device_claims(stage, pod):
            # What sleeps without gates, and has some in an older state of the server, sleeps on.
            if place is not Place.GATED and not (place is Place.UNSCHEDULABLE and stage.restores):
                stage.find(f"{_key(pod)} is gated, and {place.value}", uid)
            continue
        if _waits_for_others(stage, pod):
            continue  # and is judged with them
        places = _PLACES_IN_THE_END if judge.cache.table.n_nodes else _PLACES_WITHOUT_NODES
        if place not in places:
            stage.find(f"{_key(pod)} is pending, and {place.value}", uid)
        # What is known of a pod while watches are refused may be older than what was said of it last, and is not said again.
        is_told = condition.get("reason") == "Unschedulable" or (condition and not stage.plan.flushes)
        if (condition.get("status") != "False" or not is_told) and not _was_given_up(stage, pod):
            stage.find(f"{_key(pod)} is pending, its condition is {condition}", uid)
        node, message = _judge(judge, life.daemon, pod)
        if node:
            stage.find(f"{_key(pod)} would fit on {node}, and says {condition.get('message')}", uid)
        elif stage.plan.flushes and not _says_the_same(stage, str(condition.get("message")), message):
            stage.find(f"{_key(pod)} waits because {message!r}, and says {condition.get('message')!r}", uid)


def _was_given_up(stage: Stage, pod: Object) -> bool:
    """Whether a status of the pod could not be written for so long that the next attempt has to write it.

    Without flushes there may be no other attempt.
    """
    logged = f"Write was given up queue=status object={_key(pod)} "
    return not stage.plan.flushes and any(
        line.who == "log" and logged in line.what for line in stage.story.lines
    )


def _informed_judge(stage: Stage, life: Life) -> Daemon:
    """Return a daemon that knows what the server says of nodes and pods, and of all else what this life knows."""
    judge = life.judge()
    judge.cache = cache_from(stage.store)
    # Room that a preemption would make is for the daemon to make; a pod may sleep until the next flush before it tries.
    judge.cycles.preemptions.start = lambda *_: None  # type: ignore[method-assign]
    for kind in needs_of(judge.frameworks.values()).kinds:
        known = life.daemon.parts.cache.table.objects(kind) or {}
        for table in (judge.cache.table, judge.parts.cache.table):  # plugins ask the second for objects
            table.watch_kind(kind).update(known)
    return judge


def _lacks_device_claims(stage: Stage, pod: Object) -> bool:
    """Whether a pod waits at PreEnqueue: a claim of devices is not there, was not made yet, or is being deleted.

    The last lasts as long as other pods use the claim. Nothing is written of who is gated, so what was said of the pod
    before stays: as with kube-scheduler.
    """
    names = {
        each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses", ())
    }
    asked = pod["spec"].get("resourceClaims", ())
    used = [each.get("resourceClaimName") or names.get(each["name"]) for each in asked]
    found = [name and stage.store.find(CLAIMS, name, pod["metadata"]["namespace"]) for name in used]
    return any(not claim or is_terminating(claim) for claim in found)


def _waits_for_others(stage: Stage, pod: Object) -> bool:
    """Whether a pod is in a group that its profile places as a whole."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    is_in_older_group = COSCHEDULING_LABEL in labels or any(
        each in annotations for each in VOLCANO_ANNOTATIONS
    )
    return "schedulingGroup" in pod["spec"] or (stage.plan.optional == "Coscheduling" and is_in_older_group)


def _says_the_same(stage: Stage, told: str, message: str) -> bool:
    """Whether a message is the judge's; who leaves as a whole group is counted by daemons only."""
    if stage.follows_groups:
        told, message = (each.partition(" preemption: ")[0] for each in (told, message))
    return told == message


def _judge(judge: Daemon, daemon: Daemon, pod: Object) -> tuple[str, str]:
    """Return the node a pod would go to, and what would be said if there is none."""
    snapshot = judge.cache.snapshot()
    _inform_of_waiting(judge, daemon)
    info = decode_pod(msgspec.json.encode(pod))
    decision = schedule_pod(
        judge.frameworks[info.scheduler_name],
        info,
        snapshot,
        nominated=daemon.parts.nominator.others(info, snapshot),
        random=Random(0),
    )
    return decision.node_name, decision.status.message


def _inform_of_waiting(judge: Daemon, daemon: Daemon) -> None:
    """Let FairQueues of the judge know, before each pod, which pods wait and for how long, as the daemon knows it."""
    for name, framework in judge.frameworks.items():
        theirs = {plugin.name: plugin for plugin in daemon.frameworks[name].plugins.all()}
        for plugin in framework.plugins.all():
            if isinstance(plugin, FairQueues):
                known = theirs[plugin.name]
                assert isinstance(known, FairQueues)
                pending, order = _copied(known._pending), _copied(known._waiting_order)
                order._pending = plugin._pending = plugin._ledger.pending = pending
                plugin._queued, plugin._waiting_order = known._queued, order


def _copied(known: Any) -> Any:
    """Return a copy of an object that shares no dict and no set with it."""
    found = copy(known)
    for name, held in vars(found).items():
        if isinstance(held, dict):
            setattr(
                found,
                name,
                {key: copy(each) if isinstance(each, dict) else each for key, each in held.items()},
            )
        elif isinstance(held, set):
            setattr(found, name, set(held))
    return found


def _check_queue(stage: Stage, life: Life) -> None:
    """The queue holds pending pods of ours and nothing else; nominations are those the API server knows."""
    pending = {pod["metadata"]["uid"]: pod for pod in stage.our_pods() if is_pending(pod)}
    for waiting in life.daemon.parts.queue.pods():
        uid = waiting.pod.uid
        if uid not in pending:
            stage.find(f"{waiting.pod.key} is in the queue, and not pending", uid)
    # Of a pod that is gated when it is first seen, no nomination is noted until it changes; of one that is gated later,
    # it stays noted: as with kube-scheduler, moveToActiveQ.
    queue, noted = life.daemon.parts.queue, life.daemon.parts.nominator._nodes
    forgiven = {uid for uid in pending if queue.place_of(uid) is Place.GATED}
    forgiven |= life.first_gated - noted.keys()
    noted = {uid: node for uid, node in noted.items() if uid not in forgiven}
    nominated = {
        uid: pod["status"]["nominatedNodeName"]
        for uid, pod in pending.items()
        if pod["status"].get("nominatedNodeName") and uid not in forgiven
    }
    if noted != nominated:
        stage.find(f"nominated are {noted}, the server says {nominated}")


def _check_picture(stage: Stage, life: Life) -> None:
    """The cache and the watches' stores equal the server."""
    for difference in differences(life.daemon.parts.cache, cache_from(stage.store)):
        stage.find(difference)
    pods = [pod for pod in stage.store.list("pods") if not has_ended(pod)]
    known_pods = {pod.key: (pod.uid, pod.resource_version) for pod in life.pods.values()}
    _compare(stage, "pods", known_pods, pods)
    known_nodes = {
        name: (node.node.metadata.uid, node.node.metadata.resource_version)
        for name, node in life.nodes.items()
    }
    _compare(stage, "nodes", known_nodes, stage.store.list("nodes"))


def _check_storage(stage: Stage, life: Life) -> None:
    """No volume has two claims and no claim two volumes; what the daemon knows is what the server says."""
    holders: dict[str, str] = {}
    for claim in stage.store.list("persistentvolumeclaims"):
        volume_name = claim["spec"].get("volumeName")
        if not volume_name or claim["status"].get("phase") == "Lost":
            continue
        if volume_name in holders:
            stage.find(f"{_key(claim)} and {holders[volume_name]} have the same volume {volume_name}")
        holders[volume_name] = _key(claim)
        volume = stage.store.find("persistentvolumes", volume_name)
        if volume is None or volume["spec"].get("claimRef", {}).get("uid") != claim["metadata"]["uid"]:
            stage.find(f"{_key(claim)} has the volume {volume_name}, which is not for it")
    for volume in stage.store.list("persistentvolumes"):
        claim_ref = volume["spec"].get("claimRef", {})
        holder = holders.get(volume["metadata"]["name"])
        if holder is None and volume["status"].get("phase") == "Bound":
            stage.find(f"{volume['metadata']['name']} is bound to {claim_ref}, which does not have it")
    _check_devices(stage)
    for kind, resource in _KINDS.items():
        known = life.daemon.parts.cache.table.objects(kind)
        if known is None:
            continue
        assumed = sorted(known._assumed)
        if assumed:
            stage.find(f"{kind}: assumed in the end are {assumed}")
        versions = {
            key: (each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for key, each in known.items()
        }
        _compare(stage, resource, versions, stage.store.list(resource))


def _check_devices(stage: Stage) -> None:
    """No device is allocated twice."""
    holders: dict[tuple[str, str], str] = {}
    for claim in stage.store.list("resourceclaims.resource.k8s.io"):
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", ())
        for device in [(result["pool"], result["device"]) for result in results]:
            if device in holders:
                stage.find(f"{device} is allocated to {_key(claim)} and {holders[device]}")
            holders[device] = _key(claim)


def _compare(stage: Stage, what: str, known: Mapping[str, Any], objects: list[Object]) -> None:
    wanted = {_key(each): (each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in objects}
    for key in sorted(known.keys() | wanted.keys()):
        if known.get(key) != wanted.get(key):
            stage.find(f"{what} {key}: the watch knows {known.get(key)}, the server {wanted.get(key)}")


def _check_nothing_is_left(stage: Stage, life: Life) -> None:
    """Nothing is under way any more."""
    for problem in _leftovers(life):
        stage.find(f"left in the end: {problem}")


def _leftovers(life: Life) -> Iterator[str]:
    daemon = life.daemon
    if daemon.parts.cache.counts()["assumed_pods"]:
        yield f"{daemon.parts.cache.counts()['assumed_pods']} assumed pods"
    if daemon.parts.queue.count(Place.IN_FLIGHT) and daemon.parts.cache.table.n_nodes:
        yield f"{daemon.parts.queue.count(Place.IN_FLIGHT)} pods in flight"
    if daemon.parts.queue.in_flight_events:
        yield f"events kept for pods in flight: {dict(daemon.parts.queue.in_flight_events)}"
    if daemon.parts.waiting_pods._pods:
        yield f"pods held at Permit: {sorted(daemon.parts.waiting_pods._pods)}"
    if daemon.parts.bus._waiters:
        yield f"{len(daemon.parts.bus._waiters)} who wait for events"
    if life.ledger.held:
        yield f"choices neither carried out nor taken back: {sorted(life.ledger.held)}"
    writes = {what: count for what, count in daemon.writer.pending().items() if count}
    if writes and daemon.parts.cache.table.n_nodes:
        yield f"unfinished writes: {writes}"


def _condition(pod: Object) -> Mapping[str, Any]:
    conditions = pod["status"].get("conditions", ())
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def _key(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


def _seconds(timestamp: str) -> float:
    """Return an API time as seconds of the loop."""
    from datetime import datetime

    from tests.support.virtual_time import EPOCH

    return (datetime.fromisoformat(timestamp) - EPOCH).total_seconds()
