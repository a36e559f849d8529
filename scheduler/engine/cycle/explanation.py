"""Explains one decision as plain JSON values, with details of plugins.

    {"verdict": text,
     "pod": "ns/name", "result": "schedulable" | "unschedulable" | "gated" | "error", "message": text | null,
     "causes": [{"code", "plugin", "nodes": number (absent if the cause concerns the pod as a whole)}],
     "preFilter": {"plugin", "code", "reasons", "reasonCodes", "details": [text]} | null,
     "nominatedNodeName": name (the pod's nomination before the decision),
     "preFilterNodes": [name] (if PreFilter narrowed the search),
     "nodes": {name: {"feasible": true, "scores": {plugin: number}, "total": number}
                   | {"feasible": false, "plugin", "code", "reasons", "reasonCodes", "details": [text]}},
     "notExamined": number (of nodes that were not evaluated, if any),
     "weights": {plugin: number}, "best": [name] (if nodes were scored),
     "preemption": {"candidates": {name: {"victims": ["ns/name"], "pdbViolations": number}}, "nominated": [name],
                    "protected": {name: {"pod": "ns/name", "until": time | null, "by": text}}} | null,
     "resize": {"reason": "Deferred", "message": text of the kubelet, "allocated": {resource: amount},
                "requested": {resource: amount} (of the resources that the resize increases),
                "missing": {resource: amount} (empty if the resize fits),
                "heldByOthers": {"ns/name": {resource: amount}} (what other deferred resizes hold of the missing resources),
                "preemption": as above, of the node | null} (of a pod whose resize is deferred),
     "protections": [{"cause": text, "pod": "ns/name", "until": time | null, "by": text}] (of a protected pod on a node),
     "rejections": [{"plugin", "reasons", "reasonCodes", "nodes": number, "summary": text}],
     "remedies": [{"changes": [text], "node": name}],
     "fitsNow": name (if the cluster changed after the attempt)}

`verdict` says in plain words whether the pod fits, and which changes would place it. `causes` counts the nodes by reason
code, the most nodes first; `code` in it is a reason code, and elsewhere what happens next (`Code`). `rejections` counts the nodes by
plugin and reasons, the most nodes first, with what the plugin says of all of them. Each of the `remedies` was evaluated:
after all of its changes the pod fits on its node. `Explainer` adds these four; `rejections` and `remedies` are absent if
the pod fits. Scores are normalized and weighted, and contain exactly the plugins that ran. Without such plugins `scores` is absent;
if nodes were not scored, `total` is absent too. A score divided by its plugin's entry in `weights` is the plugin's
normalized score, 0 to 100; `weights` has no extenders. `best` contains the nodes with the highest total; one of them is
drawn. If several replicas place pods, this is the highest total of the nodes of this replica, if one of them is feasible. A feasible node that was avoided has a reason in `avoided`; it is scored and chosen only if no other node is
feasible. `preemption` is present if preemption ran: the nodes that would fit without some of their pods, with the most
important victims first, and the best of these nodes. Its `protected` is present if pods are protected from
preemption: the pod of each node whose protection ends first. Some rejections have `details`, see `RefusalDetails`.
The `preemption` of a `resize` is the result of the preempting plugin for the pod, with PodDisruptionBudgets and
protections. It is null if the resize fits, and if the pod or the profile does not preempt. No pod is evicted for it: the
gate InPlacePodVerticalScalingSchedulerPreemption decides whether the scheduler does so.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from datetime import UTC, datetime
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.clock import rfc3339
from scheduler.engine.cycle.remedies import Remedies, explained
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.cycle.verdict import with_verdict
from scheduler.engine.runtime.budget import LoopBudget
from scheduler.framework.diagnosis import FEASIBLE, NOT_EXAMINED
from scheduler.framework.interface import ExtensionPoint, PostFilterPlugin
from scheduler.framework.preemption import REPORT, preemption_summary
from scheduler.framework.reasons import codes_of
from scheduler.loop_work import loop_work
from scheduler.objects.label_index import some_of
from scheduler.objects.quantity import amount_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.runtime.scoring import Scores
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis, Outcome
    from scheduler.framework.interface import Plugin
    from scheduler.framework.preemption import PreemptionReport, Protected
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Snapshot

    Preview = Callable[[PostFilterPlugin, Decision], PreemptionReport | None]


logger = logging.getLogger(__name__)

_LAST_SECOND: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()

if TYPE_CHECKING:
    Explanation = dict[str, Any]


def explain_gated(pod: PodInfo, status: Status) -> Explanation:
    """Explain a pod that PreEnqueue keeps out of the queue."""
    return with_verdict(
        {
            "pod": pod.key,
            "result": "gated",
            "message": status.message,
            "causes": [cause.as_json() for cause in status.causes],
            "preFilter": None,
            "nodes": {},
            "preemption": None,
        }
    )


def explain(decision: Decision, names: Sequence[str]) -> Explanation:
    """Explain a decision; `names` are the names of nodes, by row of its snapshot."""
    status, diagnosis = decision.status, decision.diagnosis
    result = "schedulable" if status.is_success else "unschedulable" if status.is_rejected else "error"
    rejection = diagnosis.pre_filter_status
    explanation: Explanation = {
        "pod": decision.pod.key,
        "result": result,
        "message": None if status.is_success else status.message,
        "causes": [cause.as_json() for cause in decision.causes],
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
        explanation |= _ranking(decision, decision.scores, names)
    explanation["preemption"] = _preemption(decision.state, names)
    return explanation


def _ranking(decision: Decision, scores: Scores, names: Sequence[str]) -> dict[str, Any]:
    totals = {
        names[row]: total for row, total in zip(scores.rows.tolist(), scores.total.tolist(), strict=True)
    }
    # If several replicas place pods, nodes of other replicas may have a higher total than the chosen one.
    highest = totals.get(decision.node_name, max(totals.values()))
    best = sorted(name for name, total in totals.items() if total == highest)
    if decision.node_name and decision.node_name == decision.pod.pod.status.nominated_node_name:
        best = [decision.node_name]  # evaluated before the scores of other nodes
    weights = {each.plugin: each.weight for each in scores.plugins}
    return {"weights": weights, "best": best}


def _preemption(state: CycleState, names: Sequence[str]) -> dict[str, Any] | None:
    room = preemption_summary(state)
    if room is None:
        return None
    candidates = {
        names[row]: {"victims": list(victims), "pdbViolations": violations}
        for row, (victims, violations) in room.candidates.items()
    }
    found = {"candidates": candidates, "nominated": sorted(names[row] for row in room.nominated)}
    if not room.protected:
        return found
    return {**found, "protected": {names[row]: protected_json(each) for row, each in room.protected.items()}}


def protected_json(protected: Protected) -> dict[str, Any]:
    """Return the protection of a pod: `pod`, `until`, null if it does not end, and `by`."""
    is_endless = protected.until > _LAST_SECOND
    until = None if is_endless else rfc3339(datetime.fromtimestamp(math.ceil(protected.until), UTC))
    return {"pod": protected.pod, "until": until, "by": protected.by}


def refusal(plugin: str, outcome: Status | Outcome) -> dict[str, Any]:
    """Return the plugin, the code, the reasons and the reason codes of a rejection."""
    return {
        "plugin": plugin,
        "code": outcome.code.value,
        "reasons": [*map(str, outcome.reasons)],
        "reasonCodes": [*codes_of(outcome.reasons, plugin)] if outcome.code.is_rejection else [],
    }


def _nodes(diagnosis: Diagnosis, scores: Scores | None, names: Sequence[str]) -> dict[str, Any]:
    ranked = {} if scores is None else _ranked(scores)
    # (position of plugin, position of outcome) -> value of all such nodes
    refused: dict[tuple[int, int], dict[str, Any]] = {}
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


_NONE: Mapping[int, Sequence[PodInfo]] = MappingProxyType({})

NODES_OF_A_KIND: Final = 20
"""Default number of nodes with the same rejection for which a plugin is called."""


class RefusalDetails:
    """Adds details of plugins to an explanation: the object that keeps a pod from a node, and possible solutions.

    Plugins are called on the current cluster, with nominated pods if the details depend on them. They are called only for
    some nodes of each kind of rejection, because a thousand answers are of no use and the event loop has other work.

    Args:
        plugins: all plugins of the profile.
        clock: measures the time limit.
        seconds: time after which no further plugin is called; a running call may take longer.
        nodes_of_a_kind: maximum number of nodes with the same rejection for which a plugin is called.
        budget: interrupts endless plugins, and suspends them for a while.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin],
        clock: Clock,
        *,
        seconds: float = math.inf,
        nodes_of_a_kind: float = NODES_OF_A_KIND,
        budget: LoopBudget | None = None,
    ) -> None:
        self._plugins = {plugin.name: plugin for plugin in plugins}
        self._clock = clock
        self._seconds = seconds
        self._most = nodes_of_a_kind
        self._budget = budget or LoopBudget(clock.monotonic)

    def add_to(
        self,
        explanation: Explanation,
        pod: PodInfo,
        snapshot: Snapshot,
        nominated: Mapping[int, Sequence[PodInfo]] = _NONE,
    ) -> None:
        """Add `details` to the rejections in an explanation; they are empty if nothing keeps the pod from the node now.

        Args:
            explanation: the explanation of a decision.
            pod: the pod of the decision.
            snapshot: the cluster.
            nominated: row -> other pods of equal or higher priority that are nominated to the node.
        """
        end = self._clock.monotonic() + self._seconds
        if explanation["preFilter"]:
            explanation["preFilter"] = self._detailed(explanation["preFilter"], pod, snapshot, None)
        asked: Counter[int] = Counter()
        nodes = explanation["nodes"]
        for name, verdict in nodes.items():
            kind = id(verdict)  # nodes with the same rejection share one value
            if verdict["feasible"] or asked[kind] >= self._most or verdict["plugin"] not in self._plugins:
                continue
            row = snapshot.row_of(name)
            if row is None:
                continue  # the node was deleted
            if self._clock.monotonic() > end:
                return
            asked[kind] += 1
            detailed = self._detailed(verdict, pod, snapshot, snapshot.node_info(row))
            if row in nominated and detailed.get("details") == []:
                detailed = self._when_crowded(verdict, pod, snapshot, row, nominated[row])
            nodes[name] = detailed

    def _when_crowded(
        self, refusal: dict[str, Any], pod: PodInfo, snapshot: Snapshot, row: int, others: Sequence[PodInfo]
    ) -> dict[str, Any]:
        """Return the details of a node with its nominated pods."""
        crowded = snapshot.overlay(add=[(row, other) for other in others])
        detailed = self._detailed(refusal, pod, crowded, crowded.node_info(row))
        if detailed.get("details"):
            detailed["details"].append(
                f"including the pods nominated to this node: {some_of([each.key for each in others])}"
            )
        return detailed

    def _detailed(
        self, refusal: dict[str, Any], pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None
    ) -> dict[str, Any]:
        plugin = self._plugins.get(refusal["plugin"])
        details = None if plugin is None else _details_of(self._budget, plugin, pod, snapshot, node)
        return refusal if details is None else {**refusal, "details": details}


class Explainer:
    """Completes explanations of one profile: details of plugins, counted rejections, remedies, and the verdict.

    Args:
        framework: the profile.
        clock: measures the time limit.
        seconds: time after which no further plugin is called, and no further remedy evaluated.
        nodes_of_a_kind: as of `RefusalDetails`.
        budget: as of `RefusalDetails`.
    """

    def __init__(
        self,
        framework: Framework,
        clock: Clock,
        *,
        seconds: float = math.inf,
        nodes_of_a_kind: float = NODES_OF_A_KIND,
        budget: LoopBudget | None = None,
    ) -> None:
        # Half of the time for the details of nodes, and half for the remedies.
        self._framework, self._clock, self._seconds = framework, clock, seconds / 2
        self._budget = budget or LoopBudget(clock.monotonic)
        self._details = RefusalDetails(
            framework.plugins.all(),
            clock,
            seconds=self._seconds,
            nodes_of_a_kind=nodes_of_a_kind,
            budget=self._budget,
        )

    def complete(
        self,
        explanation: Explanation,
        pod: PodInfo,
        snapshot: Snapshot,
        nominated: Mapping[int, Sequence[PodInfo]] = _NONE,
    ) -> Explanation:
        """Return an explanation with everything that is said of the current cluster, the verdict first.

        Args:
            explanation: the explanation of a decision.
            pod: the pod of the decision.
            snapshot: the cluster.
            nominated: as of `RefusalDetails.add_to`.
        """
        self._details.add_to(explanation, pod, snapshot, nominated)
        is_rejected = explanation["result"] == "unschedulable"
        if is_rejected and not any(each["feasible"] for each in explanation["nodes"].values()):
            explanation["rejections"] = self._rejections(explanation, pod, snapshot)
            explanation |= self._remedies(pod, snapshot, nominated)
        return with_verdict(explanation)

    def protections(self, pod: PodInfo, snapshot: Snapshot) -> dict[str, Any]:
        """Return the `protections` of a pod on a node, if there are any; not of one that is terminating."""
        found = [
            {"cause": cause, **protected_json(each)}
            for plugin in self._framework.plugins.at.get(ExtensionPoint.POST_FILTER, ())
            for cause, each in _protections_by(self._budget, plugin, pod, snapshot).items()
        ]
        return {"protections": found} if found else {}

    def resize(
        self,
        pod: PodInfo,
        snapshot: Snapshot,
        nominated: Mapping[int, Sequence[PodInfo]] = _NONE,
        *,
        yields_to_loop: bool = False,
    ) -> dict[str, Any]:
        """Return the `resize` of a pod on a node, if it is deferred.

        Raises:
            NeedsTime: a plugin needs more time than one turn of the event loop, and `yields_to_loop` is set.
        """
        row = snapshot.row_of(pod.node_name) if pod.has_deferred_resize else None
        if row is None:
            return {}

        hypothetical = snapshot.overlay()  # so that plugins record nothing

        def preview(plugin: PostFilterPlugin, decision: Decision) -> PreemptionReport | None:
            return _preview_of(self._budget, plugin, decision, hypothetical)

        decision = decision_about_resize(
            self._framework, pod, hypothetical, preview, nominated=nominated, yields_to_loop=yields_to_loop
        )
        preemption = _preemption(decision.state, snapshot.names)
        return {"resize": explain_resize(pod, snapshot.node_info(row), preemption)}

    def _rejections(self, explanation: Explanation, pod: PodInfo, snapshot: Snapshot) -> list[dict[str, Any]]:
        plugins = {each.name: each for each in self._framework.plugins.all()}
        kinds: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        codes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for name, verdict in explanation["nodes"].items():
            row = snapshot.row_of(name)
            kind = verdict["plugin"], tuple(verdict["reasons"])
            codes[kind] = verdict["reasonCodes"]
            rows = kinds.setdefault(kind, [])
            if row is not None:
                rows.append(row)
        found = []
        for (name, reasons), rows in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
            told = None
            if name in plugins and rows:
                told = explained(self._budget, plugins[name], pod, snapshot, np.array(rows, dtype=np.intp))
            summary = "" if told is None else told.summary
            found.append(
                {
                    "plugin": name,
                    "reasons": list(reasons),
                    "reasonCodes": codes[name, reasons],
                    "nodes": len(rows),
                    "summary": summary,
                }
            )
        return found

    def _remedies(
        self, pod: PodInfo, snapshot: Snapshot, nominated: Mapping[int, Sequence[PodInfo]]
    ) -> dict[str, Any]:
        end = self._clock.monotonic() + self._seconds
        search = Remedies(
            self._framework,
            snapshot,
            nominated,
            self._budget,
            is_over=lambda: self._clock.monotonic() > end,
            is_alone=math.isinf(self._seconds),
        )
        remedies, fits_now = search.find(pod)
        found: dict[str, Any] = {"remedies": [each.as_json() for each in remedies]}
        return {**found, "fitsNow": fits_now} if fits_now else found


@loop_work("request", lambda plugin: f"plugin {plugin.name} at why")
def _details_of(
    budget: LoopBudget, plugin: Plugin, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None
) -> list[str] | None:
    try:
        details = budget.call(plugin, plugin.why, pod, snapshot, node, often="why")
        if details is None:
            return None
        if isinstance(details, str) or not all(isinstance(each, str) for each in details):
            return [
                f"{plugin.name} returned no valid details: expected a list of strings, was {details!r:.200}"
            ]
        return [*map(str, details)]  # a `Reason` is no plain JSON value
    except Exception as error:
        logger.exception("Plugin failed to explain", extra={"plugin": plugin.name, "pod": pod.key})
        return [f"{plugin.name} returned no valid details: {type(error).__name__}: {error}"]


@loop_work("request", lambda plugin: f"plugin {plugin.name} at preview")
def _preview_of(
    budget: LoopBudget, plugin: PostFilterPlugin, decision: Decision, snapshot: Snapshot
) -> PreemptionReport | None:
    pod = decision.pod
    try:
        return budget.call(
            plugin, plugin.preview, decision.state, pod, snapshot, decision.diagnosis, often="preview"
        )
    except Exception:
        logger.exception("Plugin failed to explain", extra={"plugin": plugin.name, "pod": pod.key})
        return None


@loop_work("request", lambda plugin: f"plugin {plugin.name} at protections")
def _protections_by(
    budget: LoopBudget, plugin: Plugin, pod: PodInfo, snapshot: Snapshot
) -> Mapping[str, Protected]:
    assert isinstance(plugin, PostFilterPlugin), f"{plugin.name} is enabled at PostFilter"
    try:
        return budget.call(plugin, plugin.protections, pod, snapshot, often="why")
    except Exception:
        logger.exception("Plugin failed to explain", extra={"plugin": plugin.name, "pod": pod.key})
        return {}


def decision_about_resize(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    preview: Preview,
    *,
    nominated: Mapping[int, Sequence[PodInfo]],
    yields_to_loop: bool,
) -> Decision:
    """Return the decision about a deferred resize, with the victims that preemption would choose in its state.

    Args:
        framework: the pod's profile.
        pod: a pod on a node of the snapshot, with a deferred resize.
        snapshot: the cluster.
        preview: calls the plugin's `preview` for a decision that rejects the pod.
        nominated: row -> other pods of equal or higher priority that are nominated to the node.
        yields_to_loop: as of `schedule_pod`.

    Raises:
        NeedsTime: a plugin needs more time than one turn of the event loop, and `yields_to_loop` is set.
    """
    decision = schedule_pod(
        framework,
        pod,
        snapshot,
        nominated=nominated,
        random=Random(0),
        may_preempt=False,
        yields_to_loop=yields_to_loop,
    )
    if decision.status.is_rejected:
        for plugin in framework.plugins.at.get(ExtensionPoint.POST_FILTER, ()):
            assert isinstance(plugin, PostFilterPlugin), f"{plugin.name} is enabled at PostFilter"
            if plugin.evaluates_resizes and (found := preview(plugin, decision)) is not None:
                decision.state.write(REPORT, found)
                break
    return decision


def explain_resize(pod: PodInfo, node: NodeInfo, preemption: dict[str, Any] | None) -> dict[str, Any]:
    """Return the `resize` of a pod.

    Args:
        pod: a pod with a deferred resize.
        node: its node.
        preemption: as in an explanation.
    """
    [condition] = [each for each in pod.pod.status.conditions if each.type == "PodResizePending"][:1]
    held, taken = pod.resources.not_allocated, pod.resources.taken
    offered, requested = node.allocatable, node.requested
    lacking = {name: requested.get(name, 0) - offered.get(name, 0) for name in pod.resources.requests}
    missing = {name: amount for name, amount in lacking.items() if amount > 0}
    others = {
        each.key: {name: amount for name, amount in each.held_for_resize.items() if name in missing}
        for each in node.pods
        if each.uid != pod.uid
    }
    return {
        "reason": condition.reason,
        "message": condition.message,
        "allocated": _texts({name: taken[name] - amount for name, amount in held.items()}),
        "requested": _texts({name: taken[name] for name in held}),
        "missing": _texts(missing),
        "heldByOthers": {key: _texts(amounts) for key, amounts in others.items() if amounts},
        "preemption": preemption if missing else None,
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: amount_text(name, amount) for name, amount in amounts.items()}
