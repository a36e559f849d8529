"""Evaluates a decision of another scheduler with a profile, on the cluster in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.daemon.app.shadow.decisions import ShadowedOutcome
from scheduler.engine.cycle.explanation import refusal
from scheduler.engine.cycle.sampling import nodes_to_find
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.cycle.time_slices import answer_in_slices
from scheduler.framework.preemption import preemption_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.shadow.decisions import ShadowedDecision as TheirDecision
    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.runtime.framework import Framework
    from scheduler.snapshot import Snapshot

BEST: Final = "best"
NOT_LOOKED_AT: Final = "not_looked_at"
WORSE: Final = "worse"
REFUSED: Final = "refused"
LEFT_PENDING: Final = "left_pending"
WAITS: Final = "waits"
PLACED: Final = "placed"
PREEMPTS: Final = "preempts"
PREEMPTS_OF_SOME: Final = "preempts_of_some"
PREEMPTS_ELSEWHERE: Final = "preempts_elsewhere"
OTHER_VICTIMS: Final = "other_victims"
EQUIVALENT_VICTIMS: Final = "victims_alike"
PREEMPTED: Final = "preempted"
NOT_PREEMPTED: Final = "not_preempted"
FAILED: Final = "failed"

AGREEMENT: Final = frozenset({BEST, WAITS, PREEMPTS})
UNKNOWN: Final = frozenset({NOT_LOOKED_AT, PREEMPTS_OF_SOME, EQUIVALENT_VICTIMS})
CAUSES: Final = {
    BEST: "its node was among our best",
    NOT_LOOKED_AT: "its node was feasible and not among our best, which it may not have looked at",
    WORSE: "its node was feasible for us, and another better",
    REFUSED: "its node was not feasible for us, and others were",
    LEFT_PENDING: "it placed a pod that we would have left pending",
    WAITS: "it left a pod pending, and so would we",
    PLACED: "it left a pod pending that we would have placed",
    PREEMPTS: "it preempts where we would, and the same pods",
    PREEMPTS_OF_SOME: "it preempts on another node than we would, whose candidates it may not have looked at",
    PREEMPTS_ELSEWHERE: "it preempts on another node than we would",
    OTHER_VICTIMS: "it preempts where we would, and other pods",
    EQUIVALENT_VICTIMS: "it preempts where we would, and other pods, which are as important: chance decides there",
    PREEMPTED: "it preempts, and we would not",
    NOT_PREEMPTED: "it left a pod pending for which we would preempt",
    FAILED: "a plugin of ours failed",
}
"""Cause -> meaning."""

MILDEST_FIRST: Final = (
    *(WORSE, REFUSED, LEFT_PENDING),
    *(PREEMPTS_ELSEWHERE, OTHER_VICTIMS, NOT_PREEMPTED, PREEMPTED, PLACED, FAILED),
)
"""Disagreements, the least significant first."""

_FEWEST_CANDIDATES = 100
"""The minimum number of nodes that another scheduler considers for preemption. Source: kube-scheduler v1.36,
plugins/defaultpreemption/default_preemption.go, calculateNumCandidates, with default arguments."""
_MOST_NODES = 5  # of the best nodes in a report


@dataclass(slots=True)
class ShadowVerdict:
    """A profile's result for one decision.

    Attributes:
        cause: one of `CAUSES`.
        details: both choices, with scores or rejections, as JSON values; empty for agreement.
        decision: this scheduler's decision.
        snapshot: the cluster of the decision; only its names remain valid.
        victims: the pods that this scheduler would preempt on the nominated node.
    """

    cause: str
    details: dict[str, Any]
    decision: Decision
    snapshot: Snapshot
    victims: frozenset[str] = frozenset()

    @property
    def agrees(self) -> bool:
        """Whether it is agreement, or disagreement cannot be determined."""
        return self.cause in AGREEMENT or self.cause in UNKNOWN


class ShadowEvaluator:
    """Evaluates decisions with one profile.

    Args:
        name: name of the profile in reports.
        parts: the scheduler's parts.
        framework: the profile.
        sampling: the other scheduler's percentageOfNodesToScore.

    Attributes:
        name: name of the profile in reports.
    """

    def __init__(self, name: str, parts: Parts, framework: Framework, sampling: int) -> None:
        self.name = name
        self._cache, self._nominator, self._budget = parts.cache, parts.nominator, parts.budget
        self._framework = framework
        self._sampling = sampling

    def verdict(self, theirs: TheirDecision) -> ShadowVerdict:
        """Evaluate a decision as if it were made now; may raise NeedsTime."""
        verdict: ShadowVerdict = self._budget.run_slice(self._verdict, theirs)
        return verdict

    async def judge(self, theirs: TheirDecision) -> ShadowVerdict:
        """Evaluate a decision, yielding to the event loop while plugins need more than one time slice."""
        return await answer_in_slices(partial(self.verdict, theirs))

    def _verdict(self, theirs: TheirDecision) -> ShadowVerdict:
        snapshot = self._cache.snapshot()
        _ = snapshot.names  # read now, since nodes may have changed when the result is reported
        is_placed = theirs.what is ShadowedOutcome.PLACED
        ours = self._decide(theirs, snapshot, may_preempt=not is_placed)
        if not (ours.status.is_success or ours.status.is_rejected):
            return ShadowVerdict(FAILED, {"message": ours.status.message}, ours, snapshot)
        if not is_placed:
            judged = _waiting if theirs.what is ShadowedOutcome.WAITS else _preempting
            return judged(theirs, ours, snapshot)
        verdict = _placed(theirs, ours, snapshot, self._sampling)
        if verdict.cause == WORSE and ours.scores is None:
            # This scheduler did not score: score its node beside the other's.
            ours = self._decide(theirs, snapshot, may_preempt=False, exhaustive=True)
            verdict.details = _both(theirs.node_name, ours, snapshot)
        return verdict

    def _decide(
        self, theirs: TheirDecision, snapshot: Snapshot, *, may_preempt: bool, exhaustive: bool = False
    ) -> Decision:
        pod = theirs.pod
        return schedule_pod(
            self._framework,
            pod,
            snapshot,
            nominated=self._nominator.others(pod, snapshot),
            random=Random(0),
            may_preempt=may_preempt,
            exhaustive=exhaustive,
            yields_to_loop=True,
        )


def _placed(theirs: TheirDecision, ours: Decision, snapshot: Snapshot, sampling: int) -> ShadowVerdict:
    row = snapshot.row_of(theirs.node_name)
    if row is not None and row in _best(ours, snapshot):
        return ShadowVerdict(BEST, {}, ours, snapshot)
    details = _both(theirs.node_name, ours, snapshot)
    if not ours.node_name:
        return ShadowVerdict(LEFT_PENDING, details, ours, snapshot)
    if row is None or ours.diagnosis.outcome_of(row) is not None:
        return ShadowVerdict(REFUSED, details, ours, snapshot)
    return ShadowVerdict(
        NOT_LOOKED_AT if _may_have_missed(row, ours, sampling) else WORSE, details, ours, snapshot
    )


def _may_have_missed(row: int, ours: Decision, sampling: int) -> bool:
    """Return whether all better nodes may be among those that the other scheduler did not look at.

    It stops after it has found enough feasible nodes, including its own. It normalizes scores over fewer nodes, which changes
    values but not their order: a node is certainly better if it has a higher score from some plugin and a lower one from
    none.
    """
    scores = ours.scores
    if scores is None:
        return False
    n_judged = (
        ours.diagnosis.n_nodes if ours.diagnosis.narrowed_to is None else len(ours.diagnosis.narrowed_to)
    )
    unseen = len(scores.rows) - nodes_to_find(sampling, n_judged)
    its_own = scores.rows == row
    is_better = scores.total > scores.total[its_own]
    for values in scores.by_plugin.values():
        is_better &= values >= values[its_own]
    return unseen > 0 and int(np.count_nonzero(is_better)) <= unseen


def _waiting(theirs: TheirDecision, ours: Decision, snapshot: Snapshot) -> ShadowVerdict:
    if ours.node_name:
        return ShadowVerdict(PLACED, _both("", ours, snapshot), ours, snapshot)
    nominates = ours.nominated_node_name
    if nominates and nominates != theirs.pod.pod.status.nominated_node_name:
        return ShadowVerdict(NOT_PREEMPTED, {"ours": _room(ours, snapshot)}, ours, snapshot)
    return ShadowVerdict(WAITS, {}, ours, snapshot)


def _preempting(theirs: TheirDecision, ours: Decision, snapshot: Snapshot) -> ShadowVerdict:
    if ours.node_name:
        return ShadowVerdict(PLACED, _both("", ours, snapshot), ours, snapshot)
    room, row = preemption_summary(ours.state), snapshot.row_of(theirs.node_name)
    if room is None or not room.candidates:
        details = {"theirs": {"node": theirs.node_name}, "message": ours.status.message}
        return ShadowVerdict(PREEMPTED, details, ours, snapshot)
    there = None if row is None else room.candidates.get(row)
    victims = frozenset[str]() if there is None else frozenset(there[0])
    if row in room.nominated:
        return ShadowVerdict(PREEMPTS, {}, ours, snapshot, victims)
    details = {"theirs": _candidate(room.candidates, row, theirs.node_name), "ours": _room(ours, snapshot)}
    may_have_missed = victims and len(room.candidates) > _FEWEST_CANDIDATES
    return ShadowVerdict(
        PREEMPTS_OF_SOME if may_have_missed else PREEMPTS_ELSEWHERE, details, ours, snapshot, victims
    )


def _best(ours: Decision, snapshot: Snapshot) -> Sequence[int]:
    if ours.scores is not None:
        best: Sequence[int] = ours.scores.best.tolist()
        return best
    row = snapshot.row_of(ours.node_name) if ours.node_name else None
    return () if row is None else (row,)


def _both(node_name: str, ours: Decision, snapshot: Snapshot) -> dict[str, Any]:
    """Return a report of the other scheduler's node and of this scheduler's best ones."""
    details: dict[str, Any] = {"theirs": _node(node_name, ours, snapshot)} if node_name else {}
    best = _best(ours, snapshot)
    if not best:
        return {**details, "message": ours.status.message}
    names = sorted(snapshot.name_of(row) for row in best)
    return {
        **details,
        "ours": {**_node(names[0], ours, snapshot), "best": names[:_MOST_NODES], "ties": len(names)},
    }


def _node(name: str, ours: Decision, snapshot: Snapshot) -> dict[str, Any]:
    row = snapshot.row_of(name)
    if row is None:
        return {"node": name, "reasons": ["unknown node"]}
    found = ours.diagnosis.outcome_of(row)
    if found is not None:
        return {"node": name, **refusal(*found)}
    if ours.scores is None or row not in ours.scores.rows:
        return {"node": name}
    at = int(np.searchsorted(ours.scores.rows, row))
    scores = {plugin: int(values[at]) for plugin, values in ours.scores.by_plugin.items()}
    return {"node": name, "scores": scores, "total": int(ours.scores.total[at])}


def _candidate(candidates: Any, row: int | None, name: str) -> dict[str, Any]:
    if row not in candidates:
        return {"node": name, "reasons": ["no candidate"]}
    victims, violations = candidates[row]
    return {"node": name, "victims": list(victims), "pdbViolations": violations}


def _room(ours: Decision, snapshot: Snapshot) -> dict[str, Any]:
    room = preemption_summary(ours.state)
    if room is None or not room.nominated:
        return {"node": ours.nominated_node_name}
    rows = sorted(room.nominated, key=snapshot.name_of)
    names = [snapshot.name_of(row) for row in rows]
    details = _candidate(room.candidates, rows[0], names[0])
    return {**details, "best": names[:_MOST_NODES], "ties": len(names), "candidates": len(room.candidates)}
