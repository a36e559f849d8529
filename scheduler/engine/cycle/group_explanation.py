"""Explains decisions about pod groups as plain JSON values, and keeps the last attempt at each group.

    {"group": "ns/name", "kind": "scheduling.k8s.io/v1alpha2/podgroups", "minCount": number, "topologyKey": label | null,
     "result": "schedulable" | "unschedulable" | "waiting_on_preemption" | "error" | "gated", "message": text | null,
     "fits": number (of members), "causes": [{"code", "plugin", "members": number}],
     "members": [{"pod": "ns/name", "fits": true | false, "node": name | null, "message": text | null (the member's message),
         "causes": [{"code", "plugin", "nodes": number}], "plugin": name (the plugin that rejected it for all nodes)}],
     "placements": [{"name": domain, "nodes": number, "room": number, "fits": number | null, "total": number | null,
         "chosen": true | false}] | null, "searched": number, "victims": ["ns/name"],
     "protected": {"pod": "ns/name", "until": time | null, "by": text} (if protection kept pods from being victims),
     "groups": [the same without `members` and what follows, for each child of a composite group]}

`causes` of a group counts the members without a node by reason code; a member with several causes counts for each.
`fits` of a member is true if it found a node after the members before it; it may still have to wait for other members.
`placements` is present if the group must be placed in one domain, most promising first: `room` is the maximum number of
members that the domain could hold, `fits` is the number of members that found a node in it, or null if it was not tried.
`searched` is the number of decisions in the search for other orders. `victims` are the pods to evict for the group.
`protected` is the protection that ends first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.engine.cycle.explanation import protected_json
from scheduler.framework.reasons import GroupCause, causes_by_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from scheduler.clock import Clock
    from scheduler.engine.cycle.group_pass import Member, Pass, SeenPlacement
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.status import Status
    from scheduler.objects.pod_group import GroupKey

if TYPE_CHECKING:
    GroupExplanation = dict[str, Any]

_RESULTS = {"scheduled": "schedulable"}


def explain_pass(tried: Pass, status: Status, result: str) -> GroupExplanation:
    """Explain an attempt at a group.

    Args:
        tried: the pass over its members.
        status: the status of the group.
        result: the value of the metric's result label.
    """
    return {
        **_summary(tried, status, result),
        "members": [
            _member(member, why, is_placed=status.is_success and (leaf is tried or leaf.has_enough))
            for leaf in tried.leaves
            for member, why in zip(leaf.members, leaf.statuses(), strict=True)
        ],
        "placements": _placements(tried),
        "searched": tried.searched,
        "victims": [pod.key for pod in tried.victims],
        **({} if tried.protected is None else {"protected": protected_json(tried.protected)}),
        **({"groups": [_part(part) for part in tried.parts]} if tried.group.is_composite else {}),
    }


def _summary(tried: Pass, status: Status, result: str) -> dict[str, Any]:
    return {
        **about(tried.group.key, tried.group),
        "result": _RESULTS.get(result, result),
        "message": None if status.is_success else status.message,
        "fits": len(tried.kept),
        "causes": [cause.as_json() for cause in tried.causes],
    }


def _part(part: Pass) -> dict[str, Any]:
    """Explain the attempt at a child of a composite group."""
    below = {"groups": [_part(each) for each in part.parts]} if part.group.is_composite else {}
    return {**_summary(part, *part.outcome()), **below}


def explain_untried(
    key: GroupKey, group: PodGroup | None, result: str, message: str | None, members: Mapping[str, Status]
) -> GroupExplanation:
    """Explain a group that is not tried; `members` maps `namespace/name` to the status of each member."""
    counts = Counter((cause.code, cause.plugin) for status in members.values() for cause in status.causes)
    return {
        **about(key, group),
        "result": result,
        "message": message,
        "fits": 0,
        "causes": [GroupCause(*cause).as_json() for cause in causes_by_number(counts)],
        "members": [untried_member(pod, status) for pod, status in members.items()],
        "placements": None,
        "searched": 0,
        "victims": [],
    }


def untried_member(pod: str, status: Status) -> dict[str, Any]:
    """Explain a member that is not tried; `pod` is `namespace/name`."""
    causes = [cause.as_json() for cause in status.causes]
    return {"pod": pod, "fits": False, "node": None, "message": status.message, "causes": causes}


def about(key: GroupKey, group: PodGroup | None) -> dict[str, Any]:
    """Return the identity of a group, and the requirements of its object."""
    return {
        "group": key.key,
        "kind": key.kind,
        "minCount": None if group is None else group.min_count,
        "topologyKey": (group.topology_key or None) if group is not None else None,
    }


def brief(explanation: GroupExplanation) -> dict[str, Any]:
    """Return the short form of a group's explanation, for the explanations of its members."""
    names = ("group", "kind", "minCount", "topologyKey", "result", "message", "fits", "causes")
    return {**{name: explanation[name] for name in names}, "members": len(explanation["members"])}


def _member(member: Member, why: Status, *, is_placed: bool) -> dict[str, Any]:
    fits = member.assumed is not None
    has_node = fits and not member.needs_room
    explanation: dict[str, Any] = {
        "pod": member.attempt.queued.pod.key,
        "fits": has_node,
        "node": member.expected or (member.assumed.node_name if member.assumed is not None else None),
    }
    status = member.status if is_placed and not fits else why
    explanation["message"] = None if is_placed and fits else status.message
    explanation["causes"] = [] if has_node else [cause.as_json() for cause in member.causes]
    rejection = member.decision.diagnosis.pre_filter_status
    if rejection is not None and rejection.plugin:
        explanation["plugin"] = rejection.plugin
    return explanation


def _placements(tried: Pass) -> list[dict[str, Any]] | None:
    if tried.placements is None:
        return None
    chosen = _chosen(tried, tried.placements)
    return [
        {
            "name": seen.placement.name,
            "nodes": len(seen.placement.rows),
            "room": seen.room,
            "fits": seen.fits,
            "total": seen.total,
            "chosen": seen is chosen,
        }
        for seen in tried.placements
    ]


def _chosen(tried: Pass, placements: Iterable[SeenPlacement]) -> SeenPlacement | None:
    """Return the placement of the members, if the group fits."""
    if not tried.is_enough:
        return None
    first = tried.kept[0]
    assert first.assumed is not None
    row = first.snapshot.row_of(first.assumed.node_name)
    return next((seen for seen in placements if np.any(seen.placement.rows == row)), None)


_MOST_MEMBERS: Final = 20_000
"""Maximum number of members of all groups, a few hundred bytes each; the group tried longest ago is evicted first."""


@dataclass(frozen=True, slots=True)
class PastGroupAttempt:
    """One attempt at a group.

    Attributes:
        at: time of the decision.
        seconds: duration of the attempt.
        explanation: the result of `explain_pass`.
    """

    at: datetime
    seconds: float
    explanation: dict[str, Any]


class GroupLog:
    """The last attempts, by group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[GroupKey, PastGroupAttempt] = OrderedDict()
        self._members = 0

    def note(self, tried: Pass, status: Status, result: str, *, seconds: float) -> None:
        """Add an attempt; it becomes the last one at its group, and at the groups of pods in its tree."""
        self._add(tried.group.key, explain_pass(tried, status, result), seconds)
        for leaf in tried.leaves if tried.group.is_composite else ():
            self._add(leaf.group.key, explain_pass(leaf, *leaf.outcome()), seconds)
        while self._members > _MOST_MEMBERS and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _add(self, key: GroupKey, explanation: GroupExplanation, seconds: float) -> None:
        self._drop(key)
        self._kept[key] = PastGroupAttempt(self._clock.utc_now(), seconds, explanation)
        self._members += _size(explanation)

    def last(self, key: GroupKey) -> PastGroupAttempt | None:
        """Return the last attempt at a group; None if there is none or it was evicted."""
        return self._kept.get(key)

    def called(self, key: str) -> list[GroupKey]:
        """Return the logged groups with the name `namespace/name`."""
        return [group for group in self._kept if group.key == key]

    def _drop(self, key: GroupKey) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._members -= _size(found.explanation)


def _size(explanation: Mapping[str, Any]) -> int:
    return 1 + len(explanation["members"])  # a group without placements has no members here
