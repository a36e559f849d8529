"""What must hold of groups: judged by slow and obvious rules, at each decision, once a second, and in the end.

That a group fits is judged by trying all ways to place its members, one after another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.shards import OwnShard
from scheduler.objects.decode import decode_node, decode_pod
from tests.faults.decision_checker import problems
from tests.faults.pod_facts import has_ended, is_pending

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.engine.cycle.attempt import AssumedPod
    from scheduler.engine.cycle.preemption import Preemptor
    from scheduler.framework import PodGroup
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.server import LoggedRequest
    from tests.faults.daemon_runs import Life
    from tests.faults.stage import Stage

POD_GROUPS = "podgroups.scheduling.k8s.io"
_PARTLY_SECONDS = 60.0
"""So long a gang may be partly running: a Binding that is not answered is given up after 30 seconds, then the pod is read,
and the member is tried again at once."""
_BACKOFF_SECONDS = 1.0
_QUIET_SECONDS = 240.0
_QUIET_ATTEMPTS = 5
"""The most attempts at a group in four minutes without events and evictions: one every two minutes, and those that began
before."""


class Key(NamedTuple):
    """Whose group."""

    namespace: str
    name: str


_STEPS = 3000
"""So many members are put somewhere at most, to see whether a group fits."""


@dataclass(slots=True)
class Followed:
    """What is known of one group.

    Attributes:
        seen_placed: the uids of its pods that were on nodes.
        partly_since: since when fewer than enough of its pods run, though some do; None if not so.
        is_excused: whether somebody else took a member that ran.
        attempts: when it was tried.
        made_room_at: when pods were told to leave for it, with which daemon.
    """

    seen_placed: set[str] = field(default_factory=set)
    partly_since: float | None = None
    is_excused: bool = False
    attempts: list[float] = field(default_factory=list)
    made_room_at: float | None = None


class Groups:
    """Follows all groups of a campaign.

    Attributes:
        partly: how often a gang was found partly running.
        troubled_at: when something last happened after which a binding may not come to its end.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._groups: dict[Key, Followed] = {}
        self._requests = 0
        self._lines = 0
        self._ended = 0
        self._looked_at = 0.0
        self.troubled_at = float("-inf")
        self.partly = 0

    # Each decision.

    def follow(self, life: Life) -> None:
        """Be told what a daemon decides of groups."""
        cycle = life.daemon.cycles.scheduler._groups
        preemptions = life.daemon.cycles.preemptions
        schedule, start = cycle.schedule, preemptions.start_for_group
        before: tuple[object, object] = ({}, {})

        def is_as_it_was() -> bool:
            """Or watches have told since the attempt began what a decision could not know."""
            return before == (life.nodes, life.pods)

        async def judged(members: Sequence[QueuedPodInfo]) -> Sequence[AssumedPod]:
            nonlocal before
            key = members[0].pod.group
            assert key is not None
            self._of(Key(key.namespace, key.name)).attempts.append(self._stage.now)
            before = dict(life.nodes), dict(life.pods)
            assumed = await schedule(members)
            for each in assumed:
                if each.is_passed_on:
                    life.ledger.passed_on[each.pod.uid] = each.pod, each.node_name
            for each in assumed:
                life.ledger.chosen(each.pod, each.node_name, is_to_be_judged=is_as_it_was())
            if assumed and is_as_it_was():
                self._judge_domain(life, assumed)
                self._judge_quota(life, assumed)
            return assumed

        def judged_start(preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
            group = preemptor.group
            assert group is not None, "called for groups"
            self._of(Key(group.key.namespace, group.key.name)).made_room_at = self._stage.now
            if is_as_it_was():
                self._judge_room(life, group, preemptor.pods, victims)
            start(preemptor, victims)

        cycle.schedule = judged  # type: ignore[method-assign]
        preemptions.start_for_group = judged_start  # type: ignore[method-assign]

    def _of(self, key: Key) -> Followed:
        return self._groups.setdefault(key, Followed())

    def _judge_domain(self, life: Life, assumed: Sequence[AssumedPod]) -> None:
        """All members of one attempt go to one domain, if the group as the daemon knows it asks for one."""
        pod = assumed[0].pod
        assert pod.group is not None
        groups = life.daemon.parts.cache.table.objects(pod.group.kind) or {}
        group = groups.get(pod.group.key)
        if group is None or self._stage.plan.gates.get("TopologyAwareWorkloadScheduling") is False:
            return
        keys = [each["key"] for each in group["spec"].get("schedulingConstraints", {}).get("topology", ())]
        for key in keys:
            domains = {life.nodes[each.node_name].labels.get(key) for each in assumed}
            if len(domains) > 1 or None in domains:
                self._stage.find(f"{pod.group.key} goes to several domains {domains}", pod.uid)

    def _judge_quota(self, life: Life, assumed: Sequence[AssumedPod]) -> None:
        """No quota's max is exceeded by a decision."""
        namespace = assumed[0].pod.namespace
        known = life.daemon.parts.cache.table.objects("scheduling.x-k8s.io/v1alpha1/elasticquotas") or {}
        quota = known.get(f"{namespace}/{namespace}")
        if quota is None:
            return
        there = {uid: pod for name in life.nodes for uid, pod in life.ledger.there(name).items()}
        used = sum(pod.resources.taken.get("cpu", 0) for pod in there.values() if pod.namespace == namespace)
        most = 1000 * int(quota["spec"]["max"]["cpu"])
        if used > most:
            self._stage.find(f"{namespace} has {used} milliCPU, and may have {most}", assumed[0].pod.uid)

    def _judge_room(
        self, life: Life, group: PodGroup, members: Sequence[PodInfo], victims: Sequence[PodInfo]
    ) -> None:
        """Who has to leave makes room for the whole gang; nobody has to who need not be looked at again at once."""
        gone = {pod.uid for pod in victims}
        there = {
            name: [pod for pod in life.ledger.there(name).values() if pod.uid not in gone]
            for name in life.nodes
        }
        on = {pod.uid: (pod, name) for name, pods in there.items() for pod in pods}
        on |= {
            pod.uid: (pod, pod.node_name)
            for pod in life.pods.values()
            if pod.node_name and pod.uid not in gone
        }
        on |= {pod.uid: (pod, name) for pod, name in life.ledger.bound_and_not_shown() if pod.uid not in gone}
        placed = [name for pod, name in on.values() if pod.group == group.key and not pod.is_terminal]
        needed = max(1, group.min_count - len(placed))
        domain = group.topology_key
        if not fit(members, needed, life.nodes, there, domain, placed):
            self._stage.find(
                f"{sorted(pod.name for pod in victims)} have to leave, and {group.key.key} does not fit then"
            )

    # Once a second.

    def look(self) -> None:
        """See which gangs run in part."""
        if not self._stage.follows_groups:
            return
        self._note_troubles()
        now = self._stage.now
        lately_placed = self._lately_placed()
        for group, pods in self._all():
            key = Key(group["metadata"]["namespace"], group["metadata"]["name"])
            known = self._of(key)
            placed = [pod for pod in pods if pod["spec"].get("nodeName")]
            least = group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 0)
            uids = {pod["metadata"]["uid"] for pod in placed}
            known.seen_placed |= lately_placed.get(key, set())
            lost = known.seen_placed - uids
            if not uids:
                known.seen_placed.clear()
                known.is_excused = False
            known.seen_placed |= uids
            known.is_excused = (
                known.is_excused or bool(lost and uids) or bool(uids & self._stage.story.foreign)
            )
            if not 0 < len(placed) < least <= len(pods):
                known.partly_since = None
                continue
            if known.partly_since is None:
                known.partly_since = now
                self.partly += 1
            self._judge_partly(key, known, group, pods)

    def _lately_placed(self) -> Mapping[Key, set[str]]:
        """Return the uids of pods that came on nodes since the last look, by their groups: some are gone again."""
        since, self._looked_at = self._looked_at, self._stage.now
        found: dict[Key, set[str]] = {}
        for record in self._stage.story.pods.values():
            if record.group_name and record.nodes and record.nodes[0][0] >= since:
                namespace, _, _ = record.key.partition("/")
                found.setdefault(Key(namespace, record.group_name), set()).add(record.uid)
        return found

    def _judge_partly(
        self, key: Key, known: Followed, group: dict[str, Any], pods: Sequence[dict[str, Any]]
    ) -> None:
        assert known.partly_since is not None
        seconds = self._stage.now - known.partly_since
        if seconds <= _PARTLY_SECONDS or known.is_excused or self._stage.plan.troubles:
            return
        told = f"{key.name} runs in part since {known.partly_since:.0f}"
        if self.troubled_at < known.partly_since - 2.0:
            self._stage.find(f"{told}, though nothing went wrong", pods[0]["metadata"]["uid"])
            return
        is_long_calm = self._stage.is_calm and self._stage.now - self.troubled_at > _PARTLY_SECONDS
        # In other namespaces a quota may be what they wait for.
        if is_long_calm and key.namespace == "default" and self._would_fit(group, pods):
            self._stage.find(f"{told}, though the others fit", pods[0]["metadata"]["uid"])

    def _note_troubles(self) -> None:
        stage = self._stage
        stage.story.catch_up()
        lines, requests = stage.story.lines, stage.server.requests
        ended = len(stage.lives.past)
        for line in lines[self._lines :]:
            # A binding without an answer may have come a long way before that is given up.
            failed_to_bind = line.who == "log" and "/binding: " in line.what
            if failed_to_bind or line.who in {"node", "server", "operator", "tuning"}:
                self.troubled_at = line.at_seconds
        self._lines = len(lines)
        all_requests = list(requests)
        for request in all_requests[self._requests :]:
            is_refused = (
                request.method == "POST" and request.path.endswith("/binding") and request.status != 201
            )
            if is_refused or (stage.plan.shards and _returns(request)):
                self.troubled_at = stage.now
        self._requests = len(all_requests)
        if ended != self._ended or stage.lives.leader is None or not self._are_all_buckets_in_use():
            self._ended, self.troubled_at = ended, stage.now

    def _are_all_buckets_in_use(self) -> bool:
        """Whether each pod and node has a replica, if there are several: new ones may wait for a bookmark of the pods."""
        if not self._stage.plan.shards:
            return True
        shards = [life.daemon.parts.profiles.shards for life in self._stage.lives.running if life.is_leading]
        return sum(len(shard.in_use) for shard in shards if isinstance(shard, OwnShard)) == BUCKETS

    # In the end.

    def check_in_the_end(self, life: Life) -> None:
        """Who waits does so because it does not fit, and is left in peace."""
        if not self._stage.follows_groups:
            return
        stage = self._stage
        nominated = life.daemon.parts.nominator._nodes
        deletions = stage.server.requests.matching(method="DELETE")
        evictions = [each.at_seconds for each in deletions if "/pods/" in each.path]
        is_over = (
            stage.now - _QUIET_SECONDS / 2
        )  # later evictions are no excuse: groups may evict pods without end
        quiet_since = max([stage.now - _QUIET_SECONDS, *(at for at in evictions if at < is_over)])
        for group, pods in self._all():
            key = Key(group["metadata"]["namespace"], group["metadata"]["name"])
            least = group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)
            waiting = [pod for pod in pods if is_pending(pod)]
            quiet = [at for at in self._of(key).attempts if at > quiet_since]
            if len(quiet) > _QUIET_ATTEMPTS and self._placed_can_be_joined(group) and life.nodes:
                stage.find(
                    f"{key.name} was tried {len(quiet)} times since {quiet_since:.0f}, though nothing happened"
                )
            if (
                waiting
                and len(pods) >= least
                and not nominated
                and key.namespace == "default"
                and self._would_fit(group, pods)
            ):
                stage.find(f"{key.name} would fit, and waits", waiting[0]["metadata"]["uid"])
        self._check_attempts()

    def _check_attempts(self) -> None:
        """Attempts follow events and backoff, and no closer."""
        for key, known in self._groups.items():
            seconds = self._stage.now
            written = sum(
                1 for record in self._stage.story.pods.values() if record.key.startswith(f"{key.namespace}/")
            )
            most = 10 + written + seconds / _BACKOFF_SECONDS
            if len(known.attempts) > most:
                self._stage.find(f"{key.name} was tried {len(known.attempts)} times in {seconds:.0f} s")
            crowd = max(
                (sum(1 for other in known.attempts if at <= other < at + 1.0) for at in known.attempts),
                default=0,
            )
            if crowd > 20:
                self._stage.find(f"{key.name} was tried {crowd} times within a second")

    def _would_fit(self, group: dict[str, Any], pods: Sequence[dict[str, Any]]) -> bool:
        """Whether the pods of a group that wait would find room for enough of them, by the server's account."""
        store = self._stage.store
        nodes = {
            each["metadata"]["name"]: decode_node(msgspec.json.encode(each)) for each in store.list("nodes")
        }
        there: dict[str, list[PodInfo]] = {name: [] for name in nodes}
        for each in store.list("pods"):
            node = each["spec"].get("nodeName")
            if node in there and not has_ended(each):
                there[node].append(_decoded(each))
        placed = self._nodes_of_placed(group)
        waiting = [_decoded(pod) for pod in pods if is_pending(pod)]
        if len({pod.scheduler_name for pod in waiting}) > 1:
            return False
        least = group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)
        return bool(waiting) and fit(
            waiting, max(1, least - len(placed)), nodes, there, self._topology_key(group), placed
        )

    def _topology_key(self, group: dict[str, Any]) -> str:
        if self._stage.plan.gates.get("TopologyAwareWorkloadScheduling") is False:
            return ""
        keys = [each["key"] for each in group["spec"].get("schedulingConstraints", {}).get("topology", ())]
        return keys[0] if keys else ""

    def _placed_can_be_joined(self, group: dict[str, Any]) -> bool:
        """Whether those that run are in one domain: where they are not, members are errors, tried after backoff."""
        key = self._topology_key(group)
        if not key:
            return True
        domains = set()
        for name in self._nodes_of_placed(group):
            node = self._stage.store.find("nodes", name)
            domains.add(None if node is None else node["metadata"]["labels"].get(key))
        return len(domains) <= 1 and None not in domains

    def _nodes_of_placed(self, group: dict[str, Any]) -> list[str]:
        """Return where members are, also those that are going."""
        namespace, name = group["metadata"]["namespace"], group["metadata"]["name"]
        return [
            pod["spec"]["nodeName"]
            for pod in self._stage.our_pods()
            if pod["metadata"]["namespace"] == namespace and _group_name(pod) == name
            if pod["spec"].get("nodeName")
        ]

    def check_all_run(self) -> None:
        """Every group that has enough pods runs, now that there is room for all."""
        for group, pods in self._all():
            least = group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)
            waiting = [pod for pod in pods if is_pending(pod)]
            if waiting and len(pods) >= least and self._would_fit(group, pods):
                names = sorted(pod["metadata"]["name"] for pod in waiting)
                self._stage.find(
                    f"{group['metadata']['name']} has room, and {names} wait", waiting[0]["metadata"]["uid"]
                )

    def _all(self) -> Iterable[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield each group's object and its pods that have not ended."""
        by_group: dict[Key, list[dict[str, Any]]] = {}
        for pod in self._stage.our_pods():
            name = _group_name(pod)
            if name and "deletionTimestamp" not in pod["metadata"]:
                by_group.setdefault(Key(pod["metadata"]["namespace"], name), []).append(pod)
        for group in self._stage.store.list(POD_GROUPS):
            key = Key(group["metadata"]["namespace"], group["metadata"]["name"])
            yield group, by_group.get(key, [])


def fit(
    members: Sequence[PodInfo],
    needed: int,
    nodes: Any,
    there: dict[str, list[PodInfo]],
    topology_key: str,
    placed: Sequence[str],
) -> bool:
    """Whether enough members find room; within the domain of the nodes where others are `placed`, if one is asked for."""
    domains: set[str | None] = {None}
    if topology_key:
        domains = {node.labels.get(topology_key) for node in nodes.values()} - {None}
        if placed:
            theirs = {nodes[name].labels.get(topology_key) if name in nodes else None for name in placed}
            domains = domains & theirs if len(theirs) == 1 else set()
    return any(
        _fill(
            sorted(members, key=lambda pod: (-pod.resources.requests.get("cpu", 0), pod.name)),
            needed,
            {
                name: node
                for name, node in nodes.items()
                if domain is None or node.labels.get(topology_key) == domain
            },
            {name: list(pods) for name, pods in there.items()},
            [_STEPS],
        )
        for domain in domains
    )


def _fill(
    members: Sequence[PodInfo],
    needed: int,
    nodes: Mapping[str, NodeObject],
    on: dict[str, list[PodInfo]],
    steps: list[int],
) -> bool:
    """Whether so many members find room, tried in all ways, the first member on each node, or left out; if in doubt, no."""
    if needed <= 0:
        return True
    if len(members) < needed or steps[0] <= 0:
        return False
    steps[0] -= 1
    first, rest = members[0], members[1:]
    for name, node in nodes.items():
        there = on.setdefault(name, [])
        if any(problems(first, node, there)):
            continue
        there.append(first)
        if _fill(rest, needed - 1, nodes, on, steps):
            return True
        there.pop()
    return _fill(rest, needed, nodes, on, steps)


def _returns(request: LoggedRequest) -> bool:
    """Whether a replica returns a pod that was passed on to it, because other pods took its capacity."""
    return request.method == "PATCH" and request.json == {"status": {"nominatedNodeName": None}}


def _group_name(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("schedulingGroup", {}).get("podGroupName", ""))


def _decoded(pod: dict[str, Any]) -> PodInfo:
    return decode_pod(msgspec.json.encode(pod))
