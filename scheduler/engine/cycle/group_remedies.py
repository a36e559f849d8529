"""Completes the explanation of a group: a verdict in plain words, and the changes after which enough of its members fit.

    {"verdict": text, "remedies": [{"changes": [text], "node": name}],
     "rejectedMember": {"pod": "ns/name", "remedies": [{"changes": [text], "node": name}]} | null}

Of the remedies of a group, a smaller `minCount` follows from the attempt, and further nodes are evaluated: the members that
do not fit are placed on them one after the other. Nothing is searched for composite groups.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.engine.cycle.remedies import FoundRemedy, OverLimitError, Remedies, kinds_of, one_like
from scheduler.engine.cycle.verdict import joined_remedies
from scheduler.objects.label_index import some_of
from scheduler.snapshot import ClusterTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.engine.cycle.group_explanation import GroupExplanation
    from scheduler.engine.runtime.budget import LoopBudget
    from scheduler.engine.runtime.framework import Framework
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

_MOST_PLACED: Final = 32
"""The number of members that are placed on new nodes."""
_NEW_NODE: Final = "one-more-node-"


@dataclass(frozen=True, slots=True)
class GroupExplainer:
    """Completes explanations of groups.

    Args:
        framework_of: schedulerName -> the profile; None if there is none.
        pod_of: `namespace/name` -> the pod; None if there is none.
        clock: measures the time limit.
        budget: interrupts endless plugins.
        seconds: time after which nothing further is evaluated.
    """

    framework_of: Callable[[str], Framework | None]
    pod_of: Callable[[str], PodInfo | None]
    clock: Clock
    budget: LoopBudget
    seconds: float = math.inf

    def complete(
        self,
        explanation: GroupExplanation,
        snapshot: Snapshot,
        nominated_of: Callable[[PodInfo], Mapping[int, Sequence[PodInfo]]],
    ) -> GroupExplanation:
        """Return an explanation that begins with its verdict, and has remedies if too few members fit.

        Args:
            explanation: the explanation of an attempt, with the state in the queue.
            snapshot: the cluster.
            nominated_of: returns row -> other pods that are nominated to the node, for a pod.
        """
        if explanation["result"] == "unschedulable" and "groups" not in explanation:
            explanation |= self._remedies(explanation, snapshot, nominated_of)
        return {"verdict": group_verdict(explanation), **explanation}

    def _remedies(
        self,
        explanation: GroupExplanation,
        snapshot: Snapshot,
        nominated_of: Callable[[PodInfo], Mapping[int, Sequence[PodInfo]]],
    ) -> dict[str, Any]:
        fitting, rejected = self._members(explanation, snapshot)
        missing = missing_members(explanation)
        found: list[FoundRemedy] = []
        if (enough := explanation["fits"] + explanation["placed"]) and missing:
            nodes = [snapshot.name_of(row) for row, _ in fitting]
            text = f"minCount were {enough} or less (now {explanation['minCount']})"
            found.append(FoundRemedy((text,), nodes[0] if nodes else ""))
        first = rejected[0] if rejected else None
        framework = None if first is None else self.framework_of(first.scheduler_name)
        of_member: dict[str, Any] | None = None
        if first is not None and framework is not None:
            end = self.clock.monotonic() + self.seconds
            search = Remedies(
                framework,
                snapshot.overlay(add=fitting),
                nominated_of(first),
                self.budget,
                is_over=lambda: self.clock.monotonic() > end,
                is_alone=math.isinf(self.seconds),
            )
            rows = _domain(explanation, snapshot, [row for row, _ in fitting])
            with suppress(OverLimitError):
                found += _more_nodes(replace(search), rejected[: max(missing, 1)], rows)
            remedies, _ = search.find(first)
            of_member = {"pod": first.key, "remedies": [each.as_json() for each in remedies]}
        return {"remedies": [each.as_json() for each in found], "rejectedMember": of_member}

    def _members(
        self, explanation: GroupExplanation, snapshot: Snapshot
    ) -> tuple[list[tuple[int, PodInfo]], list[PodInfo]]:
        """Return the rows and pods of the members that fit, and the members that do not."""
        fitting: list[tuple[int, PodInfo]] = []
        rejected: list[PodInfo] = []
        for member in explanation["members"]:
            pod = self.pod_of(member["pod"])
            if pod is None or pod.node_name:
                continue
            row = snapshot.row_of(member["node"]) if member["fits"] and member["node"] else None
            if row is not None:
                fitting.append((row, pod.placed_on(member["node"])))
            elif not member["fits"]:
                rejected.append(pod)
        return fitting, rejected


def _more_nodes(search: Remedies, members: Sequence[PodInfo], rows: Rows) -> list[FoundRemedy]:
    """Return the remedy of the fewest new nodes that run the members; none if such nodes do not help.

    Raises:
        OverLimitError: the search has used up its limits.
    """
    if len(members) > _MOST_PLACED or any(pod.pod.spec.resource_claims for pod in members):
        return []
    cluster = search.snapshot
    kinds = kinds_of(cluster, rows)
    new = search.fitting(members[0], cluster.with_nodes_of(_new_nodes(cluster, kinds)))
    usable = [] if new is None else new[new >= cluster.n_nodes].tolist()
    if not usable:
        return []
    kind = kinds[usable[0] - cluster.n_nodes]
    larger = cluster.with_nodes_of(_new_nodes(cluster, [kind] * len(members)))
    placed: list[tuple[int, PodInfo]] = []
    for member in members:
        found = search.fitting(member, larger.overlay(add=placed))
        there = [] if found is None else found[found >= cluster.n_nodes].tolist()
        if not there:
            return []
        placed.append((there[0], member.placed_on(larger.name_of(there[0]))))
    count, name = len({row for row, _ in placed}), cluster.name_of(kind)
    text = f"{'one node' if count == 1 else f'{count} nodes'} like {name} were added"
    return [FoundRemedy((text,), name)]


def _new_nodes(cluster: Snapshot, rows: Sequence[int]) -> Snapshot:
    """Return new nodes without pods, each like the node in one of some rows."""
    table = ClusterTable()
    for number, row in enumerate(rows):
        table.add_node(one_like(cluster.nodes[row], f"{_NEW_NODE}{number}"))
    return table.snapshot()


def _domain(explanation: GroupExplanation, snapshot: Snapshot, rows: Sequence[int]) -> Rows:
    """Return the nodes of which more would help: those of the domain of the members that fit, or all nodes."""
    key = explanation["topologyKey"]
    if not key or not rows:
        return snapshot.all_rows
    codes = snapshot.label(key).codes
    return np.flatnonzero(codes == codes[rows[0]])


def missing_members(explanation: GroupExplanation) -> int:
    """Return how many more members a group needs on nodes."""
    needed: int = (explanation["minCount"] or 0) - explanation["fits"] - explanation["placed"]
    return max(needed, 0)


def group_verdict(explanation: GroupExplanation) -> str:
    """Return the verdict about a group in plain words, with the changes after which it would be placed."""
    subject, result = f"Group {explanation['group']}", explanation["result"]
    message = (explanation["message"] or "").strip().removesuffix(".")
    count, total = explanation["fits"], len(explanation["members"])
    fits = f"{count} of {total} members {'fits' if count == 1 else 'fit'}"
    if result == "gated":
        return f"{subject} is not attempted: {message}."
    if result == "error":
        return f"{subject} could not be evaluated: {message}."
    if result == "schedulable":
        return f"{subject} fits: {fits}."
    if result == "waiting_on_preemption":
        victims = explanation["victims"]
        evicts = f" It evicts {some_of(victims)}." if victims else ""
        return f"{subject} waits for preemption: {fits} without it.{evicts}"
    if "groups" in explanation:
        return f"{subject} does not fit: {message}."
    needs = f", and it needs {explanation['minCount']}" if explanation["minCount"] else ""
    sentences = [f"{subject} does not fit: {fits}{needs}."]
    if remedies := explanation.get("remedies"):
        sentences.append(f"It would fit if: {joined_remedies(remedies)}.")
    member = explanation.get("rejectedMember")
    if member and member["remedies"]:
        sentences.append(f"Its member {member['pod']} would fit if: {joined_remedies(member['remedies'])}.")
    return " ".join(sentences)
