"""Pending pods, grouped by their causes."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.engine.queue.pod_places import Place
from scheduler.framework.events import describe_changes
from scheduler.framework.queued_pod import ITS_GROUP
from scheduler.tools.board.filters import EVERY_POD
from scheduler.tools.board.subject import SubjectKind
from scheduler.tools.whatif.pending_causes import Causes, PendingCause, causes_in, last_message

if TYPE_CHECKING:
    from collections.abc import Generator

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.board.filters import PodFilter
    from scheduler.tools.board.subject import PendingPod, Subject

_PODS_AT_A_TIME = 500
_MOST_GROUPS = 200
"""Maximum number of groups; the smallest are merged, because a reason may name an object of the pod's own."""
_SHOWN = 10
_MOST_TOTALS = 12
_OTHERS = Causes((PendingCause("other causes", None),))
_NOT_TRIED = Causes((PendingCause("no attempt yet", None),))
_IN_FLIGHT = Causes((PendingCause("being scheduled or bound", None),))
_WOULD_FIT = Causes((PendingCause("none: a node fits", None),))


@dataclass(slots=True, eq=False)
class PendingGroup:
    """Pending pods with the same causes.

    Attributes:
        causes: causes of the first pod.
        fewest: reason -> the smallest number of nodes that rejected a pod of the group for it.
        most: reason -> the largest number.
        reason_codes: the reason codes of the first pod, sorted.
        places: place in the queue -> number of pods.
        profiles: schedulerName -> number of pods.
        plugins: (profile, plugin) of the plugins that rejected a pod of the group.
        pod_groups: `namespace/name` of their PodGroups -> number of pods in this group.
        pods: creation time and `namespace/name` of each pod.
    """

    causes: Causes
    fewest: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    reason_codes: list[str] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    profiles: Counter[str] = field(default_factory=Counter)
    plugins: set[tuple[str, str]] = field(default_factory=set)
    pod_groups: Counter[str] = field(default_factory=Counter)
    pods: list[tuple[str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """A short text that identifies the causes."""
        reasons = "\0".join(cause.reason for cause in self.causes.reasons)
        return hashlib.sha256(reasons.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def widen(self, causes: Causes) -> None:
        """Add the numbers of nodes of another pod."""
        for reason, nodes in causes.reasons:
            if nodes is not None:
                self.fewest[reason] = min(nodes, self.fewest.get(reason, nodes))
                self.most[reason] = max(nodes, self.most.get(reason, nodes))

    def merge(self, other: PendingGroup) -> None:
        """Add all pods of another group."""
        self.places += other.places
        self.profiles += other.profiles
        self.plugins |= other.plugins
        self.pod_groups += other.pod_groups
        self.pods += other.pods


class PendingPods:
    """All groups at one moment.

    Args:
        subject: the subject of the board.
        wanted: which pods are grouped.
    """

    def __init__(self, subject: Subject, wanted: PodFilter = EVERY_POD) -> None:
        self._subject = subject
        self._wanted = wanted
        self._by_namespace: Counter[str] = Counter()
        self._by_priority: Counter[int] = Counter()
        self._groups: dict[tuple[str, ...], PendingGroup] = {}
        self._is_file = subject.kind is SubjectKind.FILE
        self._known: dict[str, Causes] = {}  # message -> its causes
        self.groups: list[PendingGroup] = []

    def steps(self) -> Generator[None, None, None]:
        """Group all pods, a few milliseconds at a time; after the last step, `groups` is sorted by size."""
        pending = self._subject.pending()
        for start in range(0, len(pending), _PODS_AT_A_TIME):
            for each in pending[start : start + _PODS_AT_A_TIME]:
                if self._wanted.matches(each.pod):
                    self._add(each)
            yield
        groups = sorted(self._groups.values(), key=lambda group: -len(group.pods))
        if small := groups[_MOST_GROUPS:]:
            others = PendingGroup(_OTHERS)
            for group in small:
                others.merge(group)
            groups[_MOST_GROUPS:] = [others]
        for group in groups:
            group.pods.sort()
            yield
        self.groups = groups

    def totals(self) -> dict[str, Any]:
        """Return the number of pods by namespace and by priority as JSON values: the largest numbers, with `others`."""
        return {"namespaces": _largest(self._by_namespace), "priorities": _largest(self._by_priority)}

    def as_json(self) -> Generator[None, None, list[dict[str, Any]]]:
        """Return the groups as JSON values, one in each step."""
        found = []
        for group in self.groups:
            yield
            found.append(self._json_of(group))
        return found

    def _json_of(self, group: PendingGroup) -> dict[str, Any]:
        return {
            "name": group.name,
            "count": len(group.pods),
            "causes": [
                {
                    "reason": cause.reason,
                    "fewest": group.fewest.get(cause.reason),
                    "most": group.most.get(cause.reason),
                }
                for cause in group.causes.reasons
            ],
            "nodes": group.causes.n_nodes,
            "reasonCodes": group.reason_codes,
            "postFilter": group.causes.post_filter,
            "places": dict(group.places),
            "profiles": dict(group.profiles),
            "podGroups": len(group.pod_groups),
            "largestPodGroups": dict(group.pod_groups.most_common(_SHOWN)),
            "requeuingEvents": self._requeuing_events(group),
            "oldest": group.pods[0][0],
            "pods": [key for _, key in group.pods[:_SHOWN]],
        }

    def page(self, name: str, start: int, most: int) -> dict[str, Any] | None:
        """Return some pods of a group, oldest first; None if there is no such group."""
        group = next((group for group in self.groups if group.name == name), None)
        if group is None:
            return None
        shown = [{"pod": key, "since": since} for since, key in group.pods[start : start + most]]
        return {"count": len(group.pods), "start": start, "pods": shown}

    def _requeuing_events(self, group: PendingGroup) -> dict[str, list[tuple[str, list[str]]]]:
        """Return plugin -> the events that it checks: the kind, and its actions."""
        profiles = self._subject.parts.profiles
        events: dict[str, dict[str, dict[str, None]]] = {}
        for profile, plugin in sorted(group.plugins):
            kinds = events.setdefault(plugin, {})
            for kind, actions in describe_changes(profiles.events(profile).get(plugin, ())).items():
                kinds.setdefault(kind, {}).update(dict.fromkeys(actions))
        return {
            plugin: [(kind, list(actions)) for kind, actions in kinds.items()]
            for plugin, kinds in events.items()
        }

    def _add(self, pending: PendingPod) -> None:
        pod, queued = pending
        self._by_namespace[pod.namespace] += 1
        self._by_priority[pod.priority] += 1
        place = self._subject.parts.queue.place_of(pod.uid)
        if queued is not None and queued.is_gated:
            causes = Causes((PendingCause(_gated(pod, queued.gating_plugin), None),))
        else:
            causes = _IN_FLIGHT if place is Place.IN_FLIGHT else self._causes(pod)
        key = tuple(cause.reason for cause in causes.reasons)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = PendingGroup(causes)
            group.reason_codes = self._reason_codes(pending)
        group.widen(causes)
        nobodys = place is Place.OUTSIDE or (self._is_file and place is Place.ACTIVE)
        group.places["waits" if nobodys else place.value] += 1
        group.profiles[pod.scheduler_name] += 1
        pod_group = self._subject.parts.profiles.group_of(pod)
        if pod_group is not None:
            group.pod_groups[pod_group.key] += 1
        if queued is not None:
            group.plugins |= {(pod.scheduler_name, plugin) for plugin in queued.unschedulable_plugins}
        group.pods.append((pod.pod.metadata.creation_timestamp, pod.key))

    def _reason_codes(self, pending: PendingPod) -> list[str]:
        """Return the reason codes of a pod: those of the queue, or of the evaluation of a pod in a file."""
        pod, queued = pending
        if queued is not None and queued.reason_codes:
            return sorted({code for code, _ in queued.reason_codes})
        last = self._subject.attempts.last(pod.key) if self._is_file else None
        return [] if last is None else sorted({cause.code for cause in last.decision.causes})

    def _causes(self, pod: PodInfo) -> Causes:
        message = self._subject.attempts.message(pod.key) or last_message(pod)
        if not message:
            was_judged = self._is_file and self._subject.attempts.last(pod.key) is not None
            return _WOULD_FIT if was_judged else _NOT_TRIED
        causes = self._known.get(message)
        if causes is None:
            causes = self._known[message] = causes_in(message)
        return causes


def _largest(numbers: Counter[Any]) -> dict[str, Any]:
    largest = numbers.most_common(_MOST_TOTALS)
    return {"largest": largest, "others": numbers.total() - sum(number for _, number in largest)}


def _gated(pod: PodInfo, plugin: str) -> str:
    if plugin == ITS_GROUP:
        return "waits for other pods of its group"
    gates = ", ".join(gate.name for gate in pod.pod.spec.scheduling_gates)
    return f"gated by {plugin}: {gates}" if gates else f"gated by {plugin}"
