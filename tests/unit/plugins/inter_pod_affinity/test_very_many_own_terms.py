"""Pending pods with very many affinity terms or spread requirements: equal results, for a counted amount of work."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from plugins.inter_pod_affinity import plugin as affinity_plugin
from plugins.inter_pod_affinity import terms as affinity_terms
from plugins.inter_pod_affinity.plugin import InterPodAffinity
from plugins.inter_pod_affinity.terms import NAMESPACES
from plugins.pod_topology_spread import constraints
from plugins.pod_topology_spread.plugin import PodTopologySpread
from plugins.work_in_steps import PluginWork
from scheduler.framework import SKIP, CycleState, EventResource, NeedsTime
from scheduler.loop_work import run_to_end
from scheduler.objects import selectors
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod_affinity import LongTerms
from scheduler.objects.selectors import Requirement
from scheduler.snapshot import ClusterTable, TermKind, pod_tally
from scheduler.snapshot.pod_tally import PodTally
from scheduler.snapshot.term_columns import TermColumns
from scheduler.testing.fakes import FakeTimeSlice
from tests.support import builders
from tests.support.counted_labels import calls_of, lines_run
from tests.unit.plugins.plugin_calls import made, requeues
from tests.unit.snapshot.test_many_affinity_terms import LISTS, PREFERRED, SHAPES, requirement, selecting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Conditions, Snapshot

NODES = 6
SPREAD_SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "keys that are not there": lambda place: requirement(f"evil-{place}", "DoesNotExist"),
    "other values of a popular key": lambda place: requirement("app", "NotIn", f"evil-{place}"),
    "a popular key": lambda _: requirement("app", "Exists"),
    "one of two values": lambda place: requirement("tier", "In", "front", f"evil-{place}"),
}


def cluster(classes: int = 30) -> ClusterTable:
    """Return nodes with pods that all differ, in several namespaces; some are terminating, some nodes lack a zone."""
    table = ClusterTable()
    namespaces = table.watch_kind(NAMESPACES)
    for name, team in (("shop", "blue"), ("bank", "red"), ("lab", "")):
        labels = {"team": team} if team else {}
        namespaces.update([(name, {"metadata": {"name": name, "labels": labels}})])
    for row in range(NODES):
        labels = {"host": f"node-{row}"} | ({"zone": f"zone-{row % 2}"} if row else {})
        table.add_node(builders.node(f"node-{row}", labels=labels))
    for place in range(classes):
        table.add_pod(place % NODES, bound(place))
    return table


def bound(place: int, uid: str = "") -> PodInfo:
    labels = {"app": ("web", "db", "mail")[place % 3], "i": f"{place}"}
    if place % 2:
        labels["tier"] = "front"
    namespace = ("shop", "bank", "lab", "gone")[place % 4]
    made_up = builders.pod_object(f"bound-{place}", namespace=namespace, labels=labels)
    made_up["metadata"]["uid"] = uid or f"bound-{place}"
    if place % 7 == 4:
        made_up["metadata"] |= {"deletionTimestamp": builders.CREATED, "finalizers": ["example.com/hold"]}
    return decode_pod(msgspec.json.encode(made_up))


def pending(*lists: tuple[TermKind, Iterable[dict[str, Any]]], **more: Any) -> PodInfo:
    affinity: dict[str, dict[str, Any]] = {}
    for kind, terms in lists:
        side, when = LISTS[kind]
        written = list(terms)
        if when == PREFERRED:
            written = [
                {"weight": 1 + place % 100, "podAffinityTerm": term} for place, term in enumerate(written)
            ]
        affinity.setdefault(side, {})[when] = written
    made_up = builders.pod_object("evil", namespace="shop", labels={"app": "web"}, affinity=affinity, **more)
    return decode_pod(msgspec.json.encode(made_up))


def spreading(
    shape: Callable[[int], dict[str, Any]], count: int, action: str, *more: dict[str, Any]
) -> PodInfo:
    written = [
        {
            "maxSkew": 100 if more else 1,
            "topologyKey": key,
            "whenUnsatisfiable": action,
            "labelSelector": {"matchExpressions": [shape(place) for place in range(count)]},
        }
        for key in (("host",) if more else ("host", "zone"))
    ]
    written += [{"maxSkew": 1, "whenUnsatisfiable": action, **each} for each in more]
    made_up = builders.pod_object("evil", namespace="shop", labels={"app": "web"})
    made_up["spec"]["topologySpreadConstraints"] = written
    return decode_pod(msgspec.json.encode(made_up))


def answers(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> list[Any]:
    """Return all results of a plugin for a pod: on the nodes as they are, and with pods removed from each."""
    state, rows = CycleState(), snapshot.all_rows
    reported: list[Any] = []
    skipped = plugin.pre_filter(state, pod, snapshot) is SKIP
    reported.append(skipped)
    if not skipped:
        reported.append(plugin.filter(state, pod, snapshot, rows).index.tolist())
        gone = [(row, each) for row in rows.tolist() for each in list(snapshot.pods_on(row))[::2]]
        plugin.remove_pods(state, pod, gone, snapshot)
        reported.append(plugin.filter(state, pod, snapshot, rows).index.tolist())
        new = [bound(place) for place in (96, 99, 100, 104, 108)]
        plugin.add_pods(state, pod, [(row, each) for row in rows.tolist() for each in new], snapshot)
        reported.append(plugin.filter(state, pod, snapshot, rows).index.tolist())
    skipped = plugin.pre_score(state, pod, snapshot, rows) is SKIP
    reported += [skipped] if skipped else [False, plugin.score(state, pod, snapshot, rows).tolist()]
    return reported


def snapshots(table: ClusterTable) -> list[Snapshot]:
    """Return the live cluster, some of its nodes, and the cluster with other pods."""
    snapshot = table.snapshot()
    gone = [(row, each) for row in range(NODES) for each in list(snapshot.pods_on(row))[::3]]
    new = [(1, bound(50)), (1, bound(52)), (4, bound(3, uid="another"))]
    overlay = snapshot.overlay(new, gone)
    rows = np.array([4, 1, 5], dtype=np.intp)
    return [snapshot, snapshot.take(rows), overlay, overlay.take(rows)]


class Work:
    """Counts the look-ups of classes, the terms that are read, and the requirements that are evaluated one by one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.classes = self.terms = self.requirements = 0
        asked, read, admits = PodTally._asked, PodTally._file, Requirement.admits

        def counted(tally: PodTally, *args: Any) -> Any:
            self.classes += 1
            return asked(tally, *args)

        def counted_read(tally: PodTally, *args: Any) -> Any:
            self.terms += 1
            return read(tally, *args)

        def counted_admits(rule: Requirement, value: str | None) -> bool:
            self.requirements += 1
            return admits(rule, value)

        patch.setattr(PodTally, "_asked", counted)
        patch.setattr(PodTally, "_file", counted_read)
        patch.setattr(Requirement, "admits", counted_admits)

    def begin(self) -> None:
        self.classes = self.terms = self.requirements = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest.mark.parametrize("kind", TermKind)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_very_many_terms_give_the_same_result_as_counting_each(
    kind: TermKind, shape: Callable[[str], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pending((kind, [shape(f"evil-{place}") for place in range(20)]))

    found = [answers(made(InterPodAffinity), pod, each) for each in snapshots(cluster())]

    monkeypatch.setattr(affinity_plugin, "MOST_ONE_BY_ONE", 1000)
    monkeypatch.setattr(affinity_plugin, "MOST_REQUIREMENTS", 1000)
    assert found == [answers(made(InterPodAffinity), pod, each) for each in snapshots(cluster())]


@pytest.mark.parametrize("kind", TermKind)
def test_selectors_of_many_namespaces_are_answered_as_if_each_were_evaluated(
    kind: TermKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {
        "topologyKey": "host",
        "labelSelector": {"matchExpressions": [requirement("app", "Exists")]},
        "namespaceSelector": {"matchLabels": {"team": "blue"}},
    }
    pod = pending((kind, [wanted, {**wanted, "namespaceSelector": {"matchLabels": {"team": "red"}}}]))
    expected = [answers(made(InterPodAffinity), pod, each) for each in snapshots(cluster())]

    monkeypatch.setattr(affinity_terms, "_MOST_MATCHED", 5)

    assert [answers(made(InterPodAffinity), pod, each) for each in snapshots(cluster())] == expected


def test_few_namespaces_are_matched_for_a_pod_whatever_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The selectors of 16 terms and 4000 namespaces would take a tenth of a second whenever a namespace changes."""
    table = cluster()
    namespaces = table.watch_kind(NAMESPACES)
    namespaces.update({f"n-{place}": {"metadata": {"name": f"n-{place}"}} for place in range(500)})
    wanted = {"topologyKey": "host", "namespaceSelector": {"matchLabels": {"team": "blue"}}}
    pod = pending((TermKind.REQUIRED_ANTI_AFFINITY, [{**wanted, "labelSelector": {}}] * 16))
    plugin, matched = made(InterPodAffinity), calls_of(monkeypatch, affinity_terms, "_labels")
    for place in range(10):
        namespaces["bank"] = {"metadata": {"name": "bank", "labels": {"team": f"{place}"}}}
        answers(plugin, pod, table.snapshot())

    assert 0 < len(matched) < 1000


def test_one_selector_of_namespaces_with_very_many_requirements_is_looked_up_in_steps(work: Work) -> None:
    """Matched with 4000 namespaces one by one, 60,000 requirements would take a minute."""
    few_are_needed = [*(requirement(f"evil-{place}", "DoesNotExist") for place in range(2000)), requirement("team", "Exists")]  # fmt: skip
    wanted = selecting(requirement("app", "Exists"), namespaceSelector={"matchExpressions": few_are_needed})
    pod, table = pending((TermKind.REQUIRED_ANTI_AFFINITY, [wanted])), cluster()
    table.watch_kind(NAMESPACES).update(
        {f"n-{place}": {"metadata": {"name": f"n-{place}"}} for place in range(50)}
    )
    work.begin()

    assert made(InterPodAffinity).pre_filter(CycleState(), pod, table.snapshot()) is None

    assert work.requirements < 3 * 2001
    assert work.classes > 0


@pytest.mark.parametrize(
    "term",
    [
        selecting(requirement("app", "In", *(f"evil-{place}" for place in range(5000)))),
        {
            **selecting(requirement("app", "Exists"), namespaceSelector=None),
            "namespaces": [f"evil-{place}" for place in range(5000)],
        },
    ],
    ids=["values", "namespaces"],
)
def test_very_many_values_and_namespaces_of_one_term_are_counted_in_steps(term: dict[str, Any]) -> None:
    pod = pending((TermKind.REQUIRED_ANTI_AFFINITY, [term]))

    with pytest.raises(NeedsTime):
        impatient(InterPodAffinity).pre_filter(CycleState(), pod, cluster().snapshot())


def test_very_many_values_of_one_spread_constraint_are_counted_in_steps(work: Work) -> None:
    pod = spreading(lambda _: requirement("app", "In", *(f"evil-{place}" for place in range(5000))), 1, "DoNotSchedule")  # fmt: skip

    made(PodTopologySpread).pre_filter(CycleState(), pod, cluster().snapshot())

    assert work.classes > 0


def test_a_hint_does_not_evaluate_a_term_with_very_many_requirements(work: Work) -> None:
    wanted = selecting(*(requirement(f"evil-{place}", "DoesNotExist") for place in range(300)))
    pod = pending((TermKind.REQUIRED_AFFINITY, [wanted]))
    other = bound(0).placed_on("node-0")
    work.begin()

    assert requeues(made(InterPodAffinity), EventResource.POD, pod, None, other)
    relabelled = builders.pod("bound-0", node="node-0", labels={"app": "db"})
    assert requeues(made(InterPodAffinity), EventResource.POD, pod, other, relabelled)
    assert work.requirements == 0


def test_no_step_reads_terms_in_the_turn_of_the_caller(work: Work) -> None:
    """What the caller has done before, such as parsing the terms, may have taken the whole time slice."""
    terms = [selecting(requirement("app", "NotIn", f"evil-{place}")) for place in range(300)]
    pod = pending((TermKind.PREFERRED_AFFINITY, terms))
    snapshot = cluster().snapshot()

    with pytest.raises(NeedsTime):
        impatient(InterPodAffinity).pre_score(CycleState(), pod, snapshot, snapshot.all_rows)

    assert work.terms == 0


def test_equal_pods_share_the_parsed_terms_of_a_large_affinity() -> None:
    def large() -> PodInfo:
        wanted = selecting(requirement("app", "In", *(f"evil-{place}" for place in range(20_000))))
        return pending((TermKind.REQUIRED_AFFINITY, [wanted]))

    pods = [large(), large()]

    assert pods[0].affinity_terms is pods[1].affinity_terms


def test_constraints_share_the_requirements_of_their_label_keys_and_are_read_once() -> None:
    keys = [f"k{place}" for place in range(100)]
    written = [
        {"maxSkew": 1, "topologyKey": f"t{place}", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": keys, "labelSelector": {}}
        for place in range(100)
    ]  # fmt: skip
    pod = builders.pod("evil", labels=dict.fromkeys(keys, "v"), topology_spread_constraints=written)
    reader = constraints.ConstraintReader(merges_keys=True)

    found = reader.of_pod(pod, "DoNotSchedule", PluginWork())

    distinct = {id(each) for constraint in found for each in constraint.rule.labels}
    assert len(distinct) == 100
    assert lines_run(lambda: reader.of_pod(pod, "DoNotSchedule", PluginWork())) < 200
    other = builders.pod("evil", labels=dict.fromkeys(keys, "w"), topology_spread_constraints=written)
    rules = [each.rule for each in reader.of_pod(other, "DoNotSchedule", PluginWork())]
    assert all(rule.matches(other.labels) and not rule.matches(pod.labels) for rule in rules)


def test_classes_are_not_matched_for_kinds_of_terms_that_the_pod_lacks(work: Work) -> None:
    shape = SHAPES["neither the pod's value nor a made-up one"]
    pod = pending((TermKind.REQUIRED_ANTI_AFFINITY, [shape(f"evil-{place}") for place in range(20)]))

    made(InterPodAffinity).pre_score(CycleState(), pod, cluster().snapshot(), cluster().snapshot().all_rows)

    assert work.classes == 0


def test_a_selector_for_everything_counts_no_pods_of_nodes_and_every_removed_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod = spreading(
        SPREAD_SHAPES["a popular key"], 130, "DoNotSchedule", {"topologyKey": "zone", "labelSelector": {}}
    )

    found = answers(made(PodTopologySpread), pod, cluster().snapshot())

    monkeypatch.setattr(constraints, "MOST_REQUIREMENTS", 1000)
    assert found == answers(made(PodTopologySpread), pod, cluster().snapshot())


@pytest.mark.parametrize("action", ["DoNotSchedule", "ScheduleAnyway"])
@pytest.mark.parametrize("shape", SPREAD_SHAPES.values(), ids=SPREAD_SHAPES)
def test_many_requirements_of_spread_constraints_equal_the_naive_result(
    shape: Callable[[int], dict[str, Any]], action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = spreading(shape, 80, action)

    found = [answers(made(PodTopologySpread), pod, each) for each in snapshots(cluster())]

    monkeypatch.setattr(constraints, "MOST_REQUIREMENTS", 1000)
    assert found == [answers(made(PodTopologySpread), pod, each) for each in snapshots(cluster())]


def test_different_pods_are_matched_once_each_for_any_number_of_terms(work: Work) -> None:
    table, plugin = cluster(40), made(InterPodAffinity)
    terms = [selecting(requirement("app", "NotIn", f"evil-{place}")) for place in range(300)]
    pod = pending((TermKind.PREFERRED_AFFINITY, terms))
    pod.affinity_terms  # noqa: B018  # parsed before anything is counted
    work.begin()

    assert plugin.pre_score(CycleState(), pod, table.snapshot(), table.snapshot().all_rows) is None

    assert (work.classes, work.terms) == (40, 300)
    assert work.requirements == 0

    work.begin()
    table.add_pod(0, bound(41))
    table.add_pod(1, bound(41, uid="its twin"))
    table.remove_pod(1, "its twin")
    plugin.pre_score(CycleState(), pod, table.snapshot(), table.snapshot().all_rows)
    assert (work.classes, work.terms) == (1, 0)


def test_requirements_of_a_constraint_are_matched_once_for_a_class(work: Work) -> None:
    table, plugin = cluster(40), made(PodTopologySpread)
    pod = spreading(SPREAD_SHAPES["keys that are not there"], 300, "DoNotSchedule")

    state = CycleState()
    assert plugin.pre_filter(state, pod, table.snapshot()) is None
    plugin.filter(state, pod, table.snapshot(), table.snapshot().all_rows)

    assert work.classes <= 40 + 1  # one more for the pod to place
    assert work.requirements == 0


def test_only_pods_of_a_namespace_with_new_labels_are_matched_again(work: Work) -> None:
    table, plugin = cluster(40), made(InterPodAffinity)
    blue = [selecting(requirement(f"evil-{place}", "DoesNotExist"), namespaceSelector={"matchLabels": {"team": "blue"}}) for place in range(20)]  # fmt: skip
    pod = pending((TermKind.REQUIRED_ANTI_AFFINITY, blue))

    def refused() -> list[bool]:
        state, snapshot = CycleState(), table.snapshot()
        if plugin.pre_filter(state, pod, snapshot) is SKIP:
            return [False] * NODES
        return [bool(place) for place in plugin.filter(state, pod, snapshot, snapshot.all_rows).index]

    before = [any(each.namespace == "shop" for each in table.snapshot().pods_on(row)) for row in range(NODES)]
    assert refused() == before
    work.begin()

    table.watch_kind(NAMESPACES).update(
        [("bank", {"metadata": {"name": "bank", "labels": {"team": "blue"}}})]
    )

    both = {"shop", "bank"}
    assert refused() == [any(each.namespace in both for each in table.snapshot().pods_on(row)) for row in range(NODES)]  # fmt: skip
    assert refused() != before
    assert work.classes == 10  # a quarter of the pods are in each of four namespaces


def test_terms_of_a_topology_key_count_from_the_first_node_with_it(work: Work) -> None:
    table, plugin = cluster(), made(InterPodAffinity)
    terms = [selecting(requirement("app", "Exists"), topologyKey="rack") for _ in range(20)]
    pod = pending((TermKind.REQUIRED_ANTI_AFFINITY, terms))

    def refused() -> list[bool]:
        state, snapshot = CycleState(), table.snapshot()
        assert plugin.pre_filter(state, pod, snapshot) is None
        return [bool(place) for place in plugin.filter(state, pod, snapshot, snapshot.all_rows).index]

    assert refused() == [False] * NODES
    assert work.classes == 0
    table.update_node(builders.node("node-0", labels={"rack": "r"}))
    assert refused() == [True, *[False] * (NODES - 1)]


def impatient(plugin: type[Any]) -> Any:
    """Return a plugin whose time slice always ends at once."""
    limit = FakeTimeSlice()
    limit.slice_seconds, limit.each_reading = 1.0, 1.0
    return made(plugin, time_slice=limit)


def test_a_pod_with_very_many_labels_is_matched_with_the_terms_of_others_in_steps() -> None:
    labels = {f"k{place}": "v" for place in range(300)}
    pod = builders.pod("many", namespace="shop", labels=labels)
    table = cluster(0)
    for row, kind in enumerate(TermKind):
        terms = [selecting(*(requirement(key, "Exists") for key in labels))]
        table.add_pod(row, pending((kind, terms)))
    plugin, state, snapshot = impatient(InterPodAffinity), CycleState(), table.snapshot()

    def in_steps(call: Callable[..., Any], *more: Any) -> int:
        for count in range(10):
            try:
                assert call(state, pod, snapshot, *more) is None
            except NeedsTime as needs:
                run_to_end(needs.steps)
            else:
                return count
        raise AssertionError("it does not end")

    assert in_steps(plugin.pre_filter) == 1
    assert in_steps(plugin.pre_score, snapshot.all_rows) == 3
    assert plugin.filter(state, pod, snapshot, snapshot.all_rows).index.tolist() == [0, 3, 0, 0, 0, 0]
    assert plugin.score(state, pod, snapshot, snapshot.all_rows).tolist() == [1, 0, 1, -1, 0, 0]


def test_work_over_the_time_slice_is_done_in_short_steps(work: Work) -> None:
    table, plugin = cluster(200), impatient(InterPodAffinity)
    kinds = (TermKind.REQUIRED_AFFINITY, TermKind.REQUIRED_ANTI_AFFINITY)
    shape = SHAPES["neither the pod's value nor a made-up one"]
    pod = pending(*[(kind, [shape(f"evil-{place}") for place in range(400)]) for kind in kinds])

    asked = steps = 0
    while asked < 10:
        work.begin()
        try:
            plugin.pre_filter(CycleState(), pod, table.snapshot())
        except NeedsTime as needs:
            asked += 1
            for _ in needs.steps:
                steps += 1
                assert work.classes <= 100
                assert work.terms <= 2 * 110
                work.begin()
                if steps % 5 == 0 and asked < 4:  # the cluster changes meanwhile
                    table.add_pod(0, bound(1000 + steps))
        else:
            break

    assert steps > 10
    assert 2 <= asked < 10
    work.begin()
    state = CycleState()
    plugin.pre_filter(state, pod, table.snapshot())
    assert (work.classes, work.terms) == (0, 0)
    patient = made(InterPodAffinity)
    assert answers(plugin, pod, table.snapshot()) == answers(patient, pod, table.snapshot())


def test_work_interrupted_by_an_error_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table, plugin = cluster(), made(InterPodAffinity)
    shape = SHAPES["neither the pod's value nor a made-up one"]
    pod = pending((TermKind.REQUIRED_AFFINITY, [shape(f"evil-{place}") for place in range(20)]))
    with monkeypatch.context() as patch:
        add = TermColumns.add

        def breaks(columns: TermColumns, needs: Conditions) -> int:
            if columns.size == 15:
                add(columns, needs)
                raise TimeoutError("over budget")
            return add(columns, needs)

        patch.setattr(TermColumns, "add", breaks)
        with pytest.raises(TimeoutError):
            plugin.pre_filter(CycleState(), pod, table.snapshot())

    assert answers(plugin, pod, table.snapshot()) == answers(
        made(InterPodAffinity), pod, cluster().snapshot()
    )


def test_the_cache_is_bounded_by_bytes_and_keeps_the_latest_entry(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, plugin = cluster(), made(InterPodAffinity)
    pods = [
        pending(
            (TermKind.PREFERRED_AFFINITY, [SHAPES["two labels"](f"{name}-{place}") for place in range(20)])
        )
        for name in "abc"
    ]

    def looked_up(pod: PodInfo) -> int:
        work.begin()
        plugin.pre_score(CycleState(), pod, table.snapshot(), table.snapshot().all_rows)
        return work.classes

    assert [looked_up(each) for each in (*pods, *pods)] == [30, 30, 30, 0, 0, 0]
    monkeypatch.setattr(pod_tally, "_MOST_BYTES", 1)
    assert [looked_up(pods[0]), looked_up(pods[0]), looked_up(pods[1]), looked_up(pods[0])] == [0, 0, 30, 30]


class TestHints:
    terms = [selecting(requirement("app", "Exists"))] * 5000

    def test_a_hint_reads_only_a_few_of_very_many_terms(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pod = pending((TermKind.REQUIRED_AFFINITY, self.terms))
        pod.affinity_terms  # noqa: B018
        read: list[Any] = []
        weighted = LongTerms.__iter__
        monkeypatch.setattr(
            LongTerms,
            "__iter__",
            lambda terms: (read.append(each) or each for each in weighted(terms)),  # type: ignore[func-returns-value]
        )

        new = builders.pod("new", namespace="shop", labels={"app": "web"}, node_name="node-0")
        assert requeues(made(InterPodAffinity), EventResource.POD, pod, None, new)

        assert 0 < len(read) <= 100

    @pytest.mark.parametrize("kind", [TermKind.REQUIRED_AFFINITY, TermKind.REQUIRED_ANTI_AFFINITY])
    def test_a_label_change_that_only_the_last_term_selects_requeues_the_pod(self, kind: TermKind) -> None:
        pod = pending((kind, [*self.terms[:200], selecting(requirement("ready", "Exists"))]))
        labels = [{"app": "web"}, {"app": "web", "ready": ""}]
        if kind is TermKind.REQUIRED_ANTI_AFFINITY:
            labels.reverse()
        old, new = (builders.pod("new", namespace="shop", labels=each, node_name="node-0") for each in labels)

        assert requeues(made(InterPodAffinity), EventResource.POD, pod, old, new)


class TestLongConstraints:
    """Topology spread constraints with thousands of requirements are read in steps, and not by queueing hints."""

    def test_long_constraints_are_read_in_steps_and_then_cached(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = []
        made_up = selectors.Requirement
        monkeypatch.setattr(selectors, "Requirement", lambda *args: read.append(args[0]) or made_up(*args))
        plugin, table = impatient(PodTopologySpread), cluster()
        each = spreading(SPREAD_SHAPES["other values of a popular key"], 3000, "DoNotSchedule")

        state, most, asked = CycleState(), 0, 0
        while asked < 10:
            try:
                assert plugin.pre_filter(state, each, table.snapshot()) is None
            except NeedsTime as needs:
                asked, before = asked + 1, len(read)
                for _ in needs.steps:
                    most, before = max(most, len(read) - before), len(read)
            else:
                break

        assert most <= 256
        assert asked > 1
        assert len(read) == 2 * 3000
        found = answers(made(PodTopologySpread), each, table.snapshot())
        monkeypatch.setattr(constraints, "_MOST_WORDS", 1 << 30)
        assert found == answers(made(PodTopologySpread), each, table.snapshot())

    def test_long_constraints_are_encoded_once_for_all_attempts_at_a_pod(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plugin, table, encoded = made(PodTopologySpread), cluster(), []
        monkeypatch.setattr(constraints, "sha256", lambda content: encoded.append(content) or sha256(content))
        each = spreading(SPREAD_SHAPES["a popular key"], 300, "DoNotSchedule")

        for _ in range(3):
            assert plugin.pre_filter(CycleState(), each, table.snapshot()) is None

        assert len(encoded) == 1

    def test_an_invalid_constraint_fails_in_the_end(self) -> None:
        wrong = spreading(SPREAD_SHAPES["keys that are not there"], 300, "DoNotSchedule", {"topologyKey": "zone", "labelSelector": {"matchExpressions": [requirement("a b", "Exists")]}})  # fmt: skip
        plugin, table = impatient(PodTopologySpread), cluster()
        with pytest.raises(NeedsTime) as needs:
            plugin.pre_filter(CycleState(), wrong, table.snapshot())
        for _ in needs.value.steps:
            pass

        answer = plugin.pre_filter(CycleState(), wrong, table.snapshot())

        assert (
            "hard topology spread constraints: matchExpressions[0].key: must be a label's key"
            in answer.message
        )

    def test_a_read_interrupted_by_an_error_starts_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plugin, table = made(PodTopologySpread), cluster()
        each = spreading(SPREAD_SHAPES["keys that are not there"], 300, "DoNotSchedule")
        with monkeypatch.context() as patch:
            patch.setattr(constraints, "read_label_selector", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                plugin.pre_filter(CycleState(), each, table.snapshot())

        assert plugin.pre_filter(CycleState(), each, table.snapshot()) is None

    def test_hints_requeue_the_pod_without_reading_the_constraints(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(constraints, "read_label_selector", None)
        each, plugin = (
            spreading(SPREAD_SHAPES["a popular key"], 300, "DoNotSchedule"),
            made(PodTopologySpread),
        )
        new, there = (
            builders.node("new", labels={"zone": "1"}),
            builders.pod("x", namespace="shop", node="node-1"),
        )

        assert requeues(plugin, EventResource.NODE, each, None, new)
        assert requeues(plugin, EventResource.POD, each, None, there)
        elsewhere = builders.pod("x", namespace="bank", node="node-1")
        assert not requeues(plugin, EventResource.POD, each, None, elsewhere)
        of_pods, of_nodes = plugin.events()
        assert of_pods.waits_for_keys(each) == of_pods.event_keys(
            None, builders.pod("y", namespace="shop", node="n")
        )
        assert of_nodes.waits_for_keys(each) is None
        assert of_pods.pod_key(each) == of_nodes.pod_key(each) == ("shop", None)

    def test_node_affinity_of_counted_nodes_is_evaluated_in_steps(self) -> None:
        terms = [{"matchExpressions": [requirement("zone", "NotIn", f"x-{place}")]} for place in range(1000)]
        made_up = builders.pod_object("evil", namespace="shop", labels={"app": "web"})
        made_up["spec"] |= {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}],
        }  # fmt: skip
        each = decode_pod(msgspec.json.encode(made_up))

        with pytest.raises(NeedsTime) as needs:
            impatient(PodTopologySpread).pre_filter(CycleState(), each, cluster().snapshot())

        assert sum(1 for _ in needs.value.steps) > 20
