"""Checks that must hold for every plugin.

A check is a function of a `PluginSubject`; it raises AssertionError with the reason. Parametrize a test over all of them:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_plugin_keeps_the_contract(check):
        check(subject(MyPlugin))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.runtime.adapters import outcomes_of, scores_of
from scheduler.engine.runtime.plugin_classes import constructor_wants, overrides
from scheduler.framework import (
    MAX_NODE_SCORE,
    SUCCESS,
    ActionType,
    ClusterObjects,
    Code,
    CycleState,
    EventResource,
    FilterPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    QueueingHint,
    ScorePlugin,
    Status,
)
from scheduler.testing.fakes import Fakes
from scheduler.testing.probes import Probes
from scheduler.testing.samples import sample_pods, sample_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scheduler.framework import Outcome
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ClusterTable, Rows, Snapshot


@dataclass
class PluginSubject:
    """A plugin, with a cluster and pods to check it on."""

    plugin: Plugin
    table: ClusterTable = field(default_factory=sample_table)
    pods: Sequence[PodInfo] = field(default_factory=sample_pods)

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot()


def subject(
    plugin: type[Plugin],
    *,
    args: Mapping[str, Any] | None = None,
    pods: Iterable[PodInfo] = (),
    nodes: Iterable[NodeObject] = (),
    **capabilities: Any,
) -> PluginSubject:
    """Build a plugin from arguments as in a configuration, by default none.

    Args:
        plugin: its class.
        args: its arguments.
        pods: pending pods that the plugin has a rule for, beside the samples.
        nodes: nodes that the plugin has a rule for, beside the samples.
        capabilities: by the names of its constructor's parameters; all others are fakes.
    """
    table = sample_table()
    fakes = {**Fakes().by_protocol(), ClusterObjects: TableObjects(table)}
    given: dict[str, Any] = {}
    for name, protocol in constructor_wants(plugin).items():
        if protocol is None:
            given[name] = msgspec.convert(dict(args or {}), plugin.Args)
        elif name in capabilities:
            given[name] = capabilities[name]
        elif protocol in fakes:
            given[name] = fakes[protocol]
    for node in nodes:
        table.add_node(node)
    return PluginSubject(plugin(**given), table, [*sample_pods(), *pods])


# Running a plugin.


@dataclass(frozen=True)
class PluginVerdict:
    """A plugin's result for a pod: the result of PreFilter, and Filter's result for each node."""

    pre_filter: object
    outcomes: tuple[Outcome, ...] = ()


def verdict(
    plugin: Plugin, pod: PodInfo, snapshot: Snapshot, rows: Rows | None = None, *, clone: bool = False
) -> PluginVerdict:
    """Run PreFilter and Filter."""
    rows = snapshot.all_rows if rows is None else rows
    state = CycleState()
    answer: object = None
    if isinstance(plugin, PreFilterPlugin):
        answer = plugin.pre_filter(state, pod, snapshot)
        if isinstance(answer, Status) and not answer.is_success:
            return PluginVerdict((answer.code, answer.reasons))
        answer = answer.node_names if isinstance(answer, PreFilterResult) else None
    if not isinstance(plugin, FilterPlugin):
        return PluginVerdict(answer)
    outcomes = outcomes_of(plugin, state.clone() if clone else state, pod, snapshot, rows)
    assert outcomes.index.dtype == np.uint16, f"the index is uint16, was {outcomes.index.dtype}"
    assert outcomes.index.shape == (snapshot.n_nodes,), f"one number per node, was {outcomes.index.shape}"
    assert outcomes.index.max(initial=0) < len(outcomes.table), "every number is a place in the table"
    return PluginVerdict(answer, tuple(outcomes.of(row) for row in rows.tolist()))


def ranking(
    plugin: Plugin,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows | None = None,
    *,
    clone: bool = False,
    normalize: bool = True,
) -> object:
    """Run PreScore, Score and, if wanted, normalization; return the feasible nodes' scores, or PreScore's code."""
    if not isinstance(plugin, ScorePlugin):
        return None
    rows = snapshot.all_rows if rows is None else rows
    state = CycleState()
    if isinstance(plugin, PreScorePlugin):
        answer = plugin.pre_score(state, pod, snapshot, rows)
        if answer is not None and not answer.is_success:
            return answer.code
    state = state.clone() if clone else state
    scores = scores_of(plugin, state, pod, snapshot, rows)
    _check_scores(scores, snapshot)
    if normalize:
        scores = plugin.normalize(state, pod, scores, rows)
        _check_scores(scores, snapshot)
    return tuple(scores[rows].tolist())


def _check_scores(scores: np.ndarray[Any, Any], snapshot: Snapshot) -> None:
    assert scores.dtype == np.int64, f"scores are int64, were {scores.dtype}"
    assert scores.shape == (snapshot.n_nodes,), f"one score per node, was {scores.shape}"


def _answers(
    each: PluginSubject, snapshot: Snapshot, rows: Rows | None = None
) -> Iterator[tuple[PodInfo, PluginVerdict, object]]:
    for pod in each.pods:
        yield pod, verdict(each.plugin, pod, snapshot, rows), ranking(each.plugin, pod, snapshot, rows)


# The checks.


def check_is_made_from_no_arguments(each: PluginSubject) -> None:
    """A plugin has a name, and its default arguments are valid."""
    plugin = type(each.plugin)
    args = msgspec.convert({}, plugin.Args)
    assert plugin.name, f"{plugin.__name__} has a name"
    assert not list(args.faults()), "the default arguments are valid"


def check_follows_the_nodes_when_rows_are_reordered(each: PluginSubject) -> None:
    """Results do not depend on row numbers: they follow the nodes."""
    order = np.random.default_rng(7).permutation(each.snapshot.n_nodes)
    for pod, before, scores in _answers(each, each.snapshot):
        shuffled = each.snapshot.take(order)
        after = verdict(each.plugin, pod, shuffled)
        assert after.pre_filter == before.pre_filter, f"{pod}: {before.pre_filter} became {after.pre_filter}"
        if before.outcomes:
            expected = tuple(before.outcomes[row] for row in order.tolist())
            assert after.outcomes == expected, f"{pod}: the outcomes did not follow their nodes"
        reordered = ranking(each.plugin, pod, shuffled)
        if isinstance(scores, tuple):
            expected_scores = tuple(scores[row] for row in order.tolist())
            assert reordered == expected_scores, f"{pod}: the scores did not follow their nodes"


def check_a_part_of_the_nodes_gives_that_part_of_the_verdicts(each: PluginSubject) -> None:
    """For plugins with signatures; normalization depends on all nodes, so scores are compared before it."""
    rows = each.snapshot.all_rows
    for pod in each.pods:
        if each.plugin.signature(pod) is None:
            continue
        whole = verdict(each.plugin, pod, each.snapshot)
        raw = ranking(each.plugin, pod, each.snapshot, normalize=False)
        for part in (rows[::2], rows[:3], rows[-1:]):
            some = verdict(each.plugin, pod, each.snapshot.take(part))
            if whole.outcomes:
                expected = tuple(whole.outcomes[row] for row in part.tolist())
                assert some.outcomes == expected, f"{pod}: the result of a node depends on other nodes"
            some_raw = ranking(each.plugin, pod, each.snapshot.take(part), normalize=False)
            if isinstance(raw, tuple) and isinstance(some_raw, tuple):
                expected_raw = tuple(raw[row] for row in part.tolist())
                assert some_raw == expected_raw, f"{pod}: a score depends on other nodes"


def _filter_state(plugin: Plugin, pod: PodInfo, snapshot: Snapshot) -> CycleState | None:
    """Return the state after PreFilter; None if Filter is not called."""
    state = CycleState()
    answer = plugin.pre_filter(state, pod, snapshot) if isinstance(plugin, PreFilterPlugin) else None
    return None if isinstance(answer, Status) and not answer.is_success else state


def _score_state(plugin: Plugin, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> CycleState | None:
    """Return the state after PreScore; None if Score is not called."""
    state = CycleState()
    answer = plugin.pre_score(state, pod, snapshot, rows) if isinstance(plugin, PreScorePlugin) else None
    return state if answer is None or answer.is_success else None


def check_answers_only_for_the_rows_still_standing(each: PluginSubject) -> None:
    """Nodes that another plugin rejected do not change the results of other nodes."""
    rows = np.arange(1, each.snapshot.n_nodes, 2, dtype=np.intp)
    for pod, whole, _ in _answers(each, each.snapshot):
        if whole.outcomes:
            some = verdict(each.plugin, pod, each.snapshot, rows)
            expected = tuple(whole.outcomes[row] for row in rows.tolist())
            assert some.outcomes == expected, f"{pod}: fewer rows changed the result"


def check_takes_a_cluster_of_no_nodes(each: PluginSubject) -> None:
    """A cluster may be empty."""
    nothing = each.snapshot.take(np.array([], dtype=np.intp))
    for pod, found, scores in _answers(each, nothing):
        assert not found.outcomes, f"{pod}: outcomes of no nodes"
        assert not isinstance(scores, tuple) or not scores, f"{pod}: scores of no nodes"


def check_says_the_same_twice(each: PluginSubject) -> None:
    """The same call returns the same result."""
    first = list(_answers(each, each.snapshot))
    assert list(_answers(each, each.snapshot)) == first, "the second result differs from the first"


def check_leaves_the_snapshot_alone(each: PluginSubject) -> None:
    """The arrays of a snapshot are not changed."""
    before = _columns(each.snapshot)
    list(_answers(each, each.snapshot))
    after = _columns(each.snapshot)
    for name, column in before.items():
        assert np.array_equal(column, after[name]), f"the plugin changed {name}"


def _columns(snapshot: Snapshot) -> dict[str, np.ndarray[Any, Any]]:
    columns = {
        "pod_count": snapshot.pod_count,
        "unschedulable": snapshot.unschedulable,
        "taints": snapshot.taints.codes,
        "declared_features": snapshot.declared_features.codes,
        "label zone": snapshot.label("topology.kubernetes.io/zone").codes,
    }
    for resource in snapshot.resources:
        columns[f"allocatable {resource}"] = snapshot.allocatable[resource]
        columns[f"requested {resource}"] = snapshot.requested[resource]
    for resource in ("cpu", "memory"):
        columns[f"nonzero_requested {resource}"] = snapshot.nonzero_requested[resource]
    return {name: column.copy() for name, column in columns.items()}


def check_gives_a_reason_for_every_refusal(each: PluginSubject) -> None:
    """Every rejection has a reason."""
    for pod, found, _ in _answers(each, each.snapshot):
        for outcome in found.outcomes:
            assert outcome.code is Code.SUCCESS or outcome.code.is_rejection, f"{pod}: {outcome}"
            assert outcome.code is Code.SUCCESS or all(outcome.reasons), f"{pod}: rejected without a reason"
        if isinstance(found.pre_filter, tuple):
            code, reasons = found.pre_filter
            assert code is Code.SKIP or reasons, f"{pod}: PreFilter rejected without a reason"
        if isinstance(each.plugin, PreEnqueuePlugin):
            answer = each.plugin.pre_enqueue(pod)
            assert answer is None or answer.is_success or answer.reasons, f"{pod}: gated without a reason"


def check_explains_in_sentences_and_changes_nothing(each: PluginSubject) -> None:
    """`why` returns a list of texts, or None; it changes neither the plugin nor the snapshot."""
    snapshot = each.snapshot
    nodes = [None, *(snapshot.node_info(row) for row in snapshot.all_rows.tolist())]
    for pod in each.pods:
        before = verdict(each.plugin, pod, snapshot)
        for node in nodes:
            details = each.plugin.why(pod, snapshot, node)
            is_texts = not isinstance(details, str) and all(isinstance(line, str) for line in details or ())
            assert is_texts, f"{pod} on {node}: a list of texts or None is expected, was {details!r}"
        assert verdict(each.plugin, pod, snapshot) == before, f"{pod}: a call of why changed the result"


def check_can_be_woken_after_a_refusal(each: PluginSubject) -> None:
    """A rejected pod can be requeued."""
    if isinstance(each.plugin, FilterPlugin | PreFilterPlugin | PreEnqueuePlugin):
        assert each.plugin.events(), (
            "a plugin that rejects pods must declare events that may make them schedulable"
        )


def check_hints_take_every_event_they_are_registered_for(each: PluginSubject) -> None:
    """Nodes and pods are passed as additions, updates and deletions; other kinds have no samples."""
    nodes, pods = list(each.snapshot.nodes), [*each.pods, *each.snapshot.pods_on(0)]
    objects: dict[EventResource, Sequence[Any]] = {EventResource.NODE: nodes, EventResource.POD: pods}
    for registered in each.plugin.events():
        samples = objects.get(registered.event.resource, ())
        hint = registered.hint
        if hint is None:
            continue
        for pod in each.pods:
            for old, new in zip(samples, [*samples[1:], *samples[:1]], strict=True):
                answers = []
                if registered.event.action & ActionType.ADD:
                    answers.append(hint(pod, None, new))
                if registered.event.action & ActionType.UPDATE:
                    answers.append(hint(pod, old, new))
                if registered.event.action & ActionType.DELETE:
                    answers.append(hint(pod, old, None))
                assert all(isinstance(answer, QueueingHint) for answer in answers), f"{answers} are not hints"


def check_scores_are_in_range(each: PluginSubject) -> None:
    """Scores are from 0 to 100 after normalization."""
    for pod, _, scores in _answers(each, each.snapshot):
        for score in scores if isinstance(scores, tuple) else ():
            assert 0 <= score <= MAX_NODE_SCORE, f"{pod}: a score of {score}"


def check_pods_of_one_signature_get_one_verdict(each: PluginSubject) -> None:
    """The signature contains every part of a pod that the result depends on.

    Checked with the pods and nodes of the subject, and with probes that contain values from the plugin's code.
    """
    plugin, table = each.plugin, each.table

    def ask(pod: PodInfo) -> tuple[object, object, object]:
        snapshot = table.snapshot()
        try:
            return plugin.signature(pod), verdict(plugin, pod, snapshot), ranking(plugin, pod, snapshot)
        except Exception as error:  # noqa: BLE001 - an error on a probe says nothing about signatures
            return None, error, None

    if all(plugin.signature(pod) is None for pod in each.pods):
        return
    probes = Probes(plugin, each.pods, ask)
    nodes = probes.nodes(like=each.snapshot.nodes[0])
    for node in nodes:
        table.add_node(node)
    try:
        nodes = _without_unreadable(each, nodes)
        kept: dict[object, tuple[PodInfo, object, object]] = {}
        for pod in (*each.pods, *probes.pods()):
            signature, found, scores = ask(pod)
            if signature is None:
                continue
            other, expected, expected_scores = kept.setdefault(signature, (pod, found, scores))
            assert found == expected, f"{pod} and {other} have the same signature and different results"
            assert scores == expected_scores, (
                f"{pod} and {other} have the same signature and different scores"
            )
    finally:
        for node in nodes:
            table.remove_node(node.name)


def _without_unreadable(each: PluginSubject, nodes: Iterable[NodeObject]) -> list[NodeObject]:
    """Remove probes for which the plugin raises, for example because an annotation is not a number."""
    left, snapshot = [], each.table.snapshot()
    for node in nodes:
        rows = np.array([snapshot.row_of(node.name)], dtype=np.intp)
        try:
            verdict(each.plugin, each.pods[0], snapshot, rows)
            ranking(each.plugin, each.pods[0], snapshot, rows)
        except Exception:  # noqa: BLE001 - a plugin may raise any exception
            each.table.remove_node(node.name)
        else:
            left.append(node)
    return left


def check_both_ways_say_the_same(each: PluginSubject) -> None:
    """For plugins that evaluate all nodes at once as well as single nodes: both ways return the same."""
    plugin, rows = each.plugin, each.snapshot.all_rows
    for pod in each.pods:
        if isinstance(plugin, FilterPlugin) and _has_both(plugin, FilterPlugin, "filter", "filter_node"):
            state = _filter_state(plugin, pod, each.snapshot)
            if state is not None:
                at_once = plugin.filter(state, pod, each.snapshot, rows)
                for row in rows.tolist():
                    status = plugin.filter_node(state, pod, each.snapshot.node_info(row)) or SUCCESS
                    outcome = at_once.of(row)
                    assert (status.code, status.reasons) == (outcome.code, outcome.reasons), (
                        f"{pod}: filter returns {outcome} for {each.snapshot.name_of(row)}, filter_node {status}"
                    )
        if isinstance(plugin, ScorePlugin) and _has_both(plugin, ScorePlugin, "score", "score_node"):
            state = _score_state(plugin, pod, each.snapshot, rows)
            if state is not None:
                scores = np.broadcast_to(plugin.score(state, pod, each.snapshot, rows), rows.shape).tolist()
                one_by_one = [plugin.score_node(state, pod, each.snapshot.node_info(row)) for row in rows]
                assert one_by_one == scores, f"{pod}: score returns {scores}, score_node {one_by_one}"


def _has_both(plugin: Plugin, contract: type[Plugin], *methods: str) -> bool:
    return all(overrides(plugin, contract, method) for method in methods)


def check_what_does_not_read_pods_says_the_same_whoever_is_there(each: PluginSubject) -> None:
    """`reads_pods = False` means that results do not depend on the pods on nodes."""
    if each.plugin.reads_pods:
        return
    snapshot = each.snapshot
    there = [(row, pod) for row in range(snapshot.n_nodes) for pod in snapshot.pods_on(row)]
    coming = [
        (row, pod.placed_on(snapshot.name_of(row)))
        for row in range(snapshot.n_nodes)
        for pod in each.pods[row % 3 :: 3]
    ]
    for pod in each.pods:
        if each.plugin.signature(pod) is None:
            continue
        results = verdict(each.plugin, pod, snapshot), ranking(each.plugin, pod, snapshot)
        for other in (snapshot.overlay(remove=there), snapshot.overlay(add=coming)):
            now = verdict(each.plugin, pod, other), ranking(each.plugin, pod, other)
            assert now == results, f"{pod}: the result of a node depends on its pods"


def check_replicas_share_a_signature(each: PluginSubject) -> None:
    """For plugins with signatures: pods that differ only in name and uid have the same signature."""
    for pod in each.pods:
        metadata = msgspec.structs.replace(pod.pod.metadata, name=f"{pod.name}-2", uid=f"{pod.uid}-2")
        replica = type(pod)(msgspec.structs.replace(pod.pod, metadata=metadata), pod.raw)
        assert each.plugin.signature(replica) == each.plugin.signature(pod), (
            f"{pod}: its replica has another signature"
        )


def check_works_from_a_cloned_state(each: PluginSubject) -> None:
    """The results of PreFilter and PreScore are in the state, not in the plugin."""
    for pod, found, scores in _answers(each, each.snapshot):
        assert verdict(each.plugin, pod, each.snapshot, clone=True) == found, f"{pod}: a clone differs"
        assert ranking(each.plugin, pod, each.snapshot, clone=True) == scores, f"{pod}: a clone differs"


def check_an_overlay_is_as_good_as_the_pods_themselves(each: PluginSubject) -> None:
    """Pods are read from the given snapshot, with assumed and nominated pods."""
    added = [
        (row, pod.placed_on(each.snapshot.name_of(row)))
        for row, pod in zip(range(0, each.snapshot.n_nodes, 3), each.pods, strict=False)
    ]
    overlay = list(_answers(each, each.snapshot.overlay(add=added)))
    for row, pod in added:
        each.table.add_pod(row, pod)
    try:
        really = list(_answers(each, each.table.snapshot()))
    finally:
        for row, pod in added:
            each.table.remove_pod(row, pod.uid)
    assert overlay == really, "pods of an overlay count differently from pods on the nodes"


CHECKS: tuple[Callable[[PluginSubject], None], ...] = tuple(
    check for name, check in list(globals().items()) if name.startswith("check_")
)
"""All checks."""
