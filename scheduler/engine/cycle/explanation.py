"""Explains one decision as plain JSON values.

    {"pod": "ns/name", "result": "schedulable" | "unschedulable" | "gated" | "error", "message": text | null,
     "preFilter": {"plugin", "code", "reasons", "details": [text]} | null,
     "nominatedNodeName": name (the pod's nomination before the decision),
     "preFilterNodes": [name] (if PreFilter narrowed the search),
     "nodes": {name: {"feasible": true, "scores": {plugin: number}, "total": number}
                   | {"feasible": false, "plugin", "code", "reasons", "details": [text]}},
     "notExamined": number (of nodes that were not evaluated, if any),
     "weights": {plugin: number}, "best": [name] (if nodes were scored),
     "preemption": {"candidates": {name: {"victims": ["ns/name"], "pdbViolations": number}}, "nominated": [name]} | null}

Scores are normalized and weighted, and contain exactly the plugins that ran. Without such plugins `scores` is absent;
if nodes were not scored, `total` is absent too. A score divided by its plugin's entry in `weights` is the plugin's
normalized score, 0 to 100; `weights` has no extenders. `best` contains the nodes with the highest total; one of them is
drawn. A feasible node that was avoided has a reason in `avoided`; it is scored and chosen only if no other node is
feasible. `preemption` is present if preemption ran: the nodes that would fit without some of their pods, with the most
important victims first, and the best of these nodes. Some rejections have `details`, see `cycle/refusal_details.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.framework.diagnosis import FEASIBLE, NOT_EXAMINED
from scheduler.framework.preemption import preemption_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.runtime.scoring import Scores
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis, Outcome
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo

    Explanation = dict[str, Any]


def explain_gated(pod: PodInfo, status: Status) -> Explanation:
    """Explain a pod that PreEnqueue keeps out of the queue."""
    return {
        "pod": pod.key,
        "result": "gated",
        "message": status.message,
        "preFilter": None,
        "nodes": {},
        "preemption": None,
    }


def explain(decision: Decision, names: Sequence[str]) -> Explanation:
    """Explain a decision; `names` are the names of nodes, by row of its snapshot."""
    status, diagnosis = decision.status, decision.diagnosis
    result = "schedulable" if status.is_success else "unschedulable" if status.is_rejected else "error"
    rejection = diagnosis.pre_filter_status
    explanation: Explanation = {
        "pod": decision.pod.key,
        "result": result,
        "message": None if status.is_success else status.message,
        "preFilter": rejection and refusal(rejection.plugin, rejection),
    }
    if nominated := decision.pod.pod.status.nominated_node_name:
        explanation["nominatedNodeName"] = nominated
    if diagnosis.narrowed_to is not None:
        explanation["preFilterNodes"] = sorted(diagnosis.narrowed_to)
    explanation["nodes"] = {} if rejection is not None else _nodes(diagnosis, decision.scores, names)
    if rejection is None and (left_out := diagnosis.n_not_examined):
        explanation["notExamined"] = left_out
    if decision.scores is not None:
        explanation |= _ranking(decision.scores, names)
    explanation["preemption"] = _preemption(decision.state, names)
    return explanation


def _ranking(scores: Scores, names: Sequence[str]) -> dict[str, Any]:
    total = scores.total
    best = scores.rows[total == total.max()].tolist()  # attempts in the log have totals only
    weights = {each.plugin: each.weight for each in scores.plugins}
    return {"weights": weights, "best": sorted(names[row] for row in best)}


def _preemption(state: CycleState, names: Sequence[str]) -> dict[str, Any] | None:
    room = preemption_summary(state)
    if room is None:
        return None
    candidates = {
        names[row]: {"victims": list(victims), "pdbViolations": violations}
        for row, (victims, violations) in room.candidates.items()
    }
    return {"candidates": candidates, "nominated": sorted(names[row] for row in room.nominated)}


def refusal(plugin: str, outcome: Status | Outcome) -> dict[str, Any]:
    """Return the plugin, the code and the reasons of a rejection."""
    return {"plugin": plugin, "code": outcome.code.value, "reasons": list(outcome.reasons)}


def _nodes(diagnosis: Diagnosis, scores: Scores | None, names: Sequence[str]) -> dict[str, Any]:
    ranked = {} if scores is None else _ranked(scores)
    refused: dict[
        tuple[int, int], dict[str, Any]
    ] = {}  # (position of plugin, position of outcome) -> value of all such nodes
    nodes: dict[str, Any] = {}
    verdicts = zip(diagnosis.rejected_by.tolist(), diagnosis.index.tolist(), strict=True)
    for row, verdict in enumerate(verdicts):
        place = verdict[0]
        if place == NOT_EXAMINED:
            continue
        if place == FEASIBLE:
            nodes[names[row]] = ranked.get(row, {"feasible": True})
            if row in diagnosis.avoided:
                nodes[names[row]]["avoided"] = diagnosis.avoided[row]
            continue
        if verdict not in refused:
            first_refusal = diagnosis.outcome_of(row)
            assert first_refusal is not None, f"no plugin rejected row {row}"
            refused[verdict] = {"feasible": False, **refusal(*first_refusal)}
        nodes[names[row]] = refused[verdict]
    return nodes


def _ranked(scores: Scores) -> dict[int, dict[str, Any]]:
    rows, totals = scores.rows.tolist(), scores.total.tolist()
    if not scores.by_plugin:
        return {row: {"feasible": True, "total": total} for row, total in zip(rows, totals, strict=True)}
    names = list(scores.by_plugin)
    columns = [scores.by_plugin[name].tolist() for name in names]
    return {
        row: {"feasible": True, "scores": dict(zip(names, by_plugin, strict=True)), "total": total}
        for row, total, by_plugin in zip(rows, totals, zip(*columns, strict=True), strict=True)
    }
