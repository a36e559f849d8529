"""Columns about the pods of nodes, compared with a full recount, over long random histories."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.objects import pod_affinity
from scheduler.objects.decode import decode_pod
from scheduler.objects.label_index import RuleIndex
from scheduler.objects.selectors import (
    LabelRule,
    LabelSelector,
    Operator,
    Requirement,
    SelectorRequirement,
    parse_label_selector,
)
from scheduler.snapshot import (
    ClusterTable,
    PodQuery,
    PodsIn,
    TermKind,
    affinity_index,
    arrays,
    pod_counts,
    term_columns,
)
from scheduler.snapshot.pod_counts import PodCounts
from tests.support import builders
from tests.support.counted_labels import CountedLabels, calls_of

if TYPE_CHECKING:
    from types import ModuleType

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot, TermsThatMean

    Incoming = tuple[str, dict[str, str], dict[str, str]]

LABELS = st.fixed_dictionaries({}, optional={"app": st.sampled_from("ab"), "tier": st.sampled_from("xy")})
NAMESPACES = st.sampled_from(["shop", "lab"])
SELECTORS: list[LabelSelector | None] = [
    None,
    LabelSelector(),
    LabelSelector(match_labels={"app": "a"}),
    LabelSelector(match_labels={"app": "b", "tier": "x"}),
    LabelSelector(match_expressions=(SelectorRequirement("app", "In", ("a", "b")),)),
    LabelSelector(match_expressions=(SelectorRequirement("tier", "NotIn", ("x",)),)),
    LabelSelector(match_expressions=(SelectorRequirement("tier", "Exists"),)),
]
RULES = [parse_label_selector(selector) for selector in SELECTORS]
PLACES = [None, frozenset({"shop"}), frozenset({"shop", "lab"})]
QUERIES = [
    PodQuery((PodsIn(place, label_rule),), counts_terminating)
    for place in PLACES
    for label_rule in RULES
    for counts_terminating in (True, False)
] + [PodQuery((PodsIn(None, RULES[1]), PodsIn(PLACES[1], RULES[2]))), PodQuery(())]

NUMBERS = itertools.count()

RED = {"matchLabels": {"team": "red"}}
NOT_RED = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}


def about(**of_key: tuple[str, ...]) -> dict[str, Any]:
    """Return a selector with requirements, given as key -> operator and values."""
    requirements = [
        {"key": key.rstrip("_"), "operator": operator, "values": list(values)}
        for key, (operator, *values) in of_key.items()
    ]
    return {"matchExpressions": requirements}


TERMS: list[dict[str, Any]] = [
    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}},
    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, "namespaces": ["lab"]},
    {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": RED},
    {"topologyKey": "host", "labelSelector": about(tier=("DoesNotExist",))},
    {"topologyKey": "zone"},
    {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}},
    {"topologyKey": "zone", "labelSelector": about(app=("NotIn", "a")), "namespaceSelector": {}},
    {"topologyKey": "zone", "labelSelector": {}, "namespaces": ["lab"], "namespaceSelector": RED},
    {"topologyKey": "host", "labelSelector": {}, "namespaces": ["lab", "shop"], "namespaceSelector": NOT_RED},
    {"topologyKey": "zone", "labelSelector": about(app=("In", "a", "b"), tier=("Exists",))},
    {"topologyKey": "zone", "labelSelector": about(app=("In", "a", "b"), app_=("NotIn", "b"))},
    {"topologyKey": "zone", "labelSelector": about(app=("Exists",), app_=("NotIn", "b", "c"))},
    {"topologyKey": "zone", "labelSelector": about(app=("In", "a"), app_=("DoesNotExist",))},
    {"topologyKey": "host", "labelSelector": about(tier=("DoesNotExist",), app=("DoesNotExist",))},
    {"topologyKey": "host", "labelSelector": about(tier=("NotIn", "x"), app=("NotIn", "a", "b"))},
    {"topologyKey": "host", "labelSelector": about(app=("In", "a"), app_=("In", "a", "b"))},
    {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": about(team=("Exists",))},
    {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": about(team=("DoesNotExist",))},
]
INCOMING: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("shop", {"app": "a"}, {}),
    ("lab", {"tier": "x"}, {"team": "red"}),
    ("lab", {}, {}),
    ("shop", {"app": "b", "tier": "y"}, {"team": "blue"}),
]


def affinity(required: list[int], preferred: list[int]) -> dict[str, object]:
    return {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [TERMS[place] for place in required]
        },
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": place + 1, "podAffinityTerm": TERMS[place]} for place in preferred
            ]
        },
    }


_PLACES_OF_TERMS = st.lists(st.integers(0, len(TERMS) - 1), max_size=4)


@st.composite
def pods(draw: st.DrawFn) -> PodInfo:
    terminating = {"deletionTimestamp": builders.CREATED} if draw(st.booleans()) else {}
    name = f"pod-{draw(st.integers(0, 10**9))}"
    made = builders.pod_object(
        name,
        namespace=draw(NAMESPACES),
        labels=draw(LABELS),
        affinity=affinity(draw(_PLACES_OF_TERMS), draw(_PLACES_OF_TERMS)),
    )
    made["metadata"].update(terminating)
    return decode_pod(msgspec.json.encode(made))


def check(snapshot: Snapshot) -> None:
    on_rows = [list(snapshot.pods_on(row)) for row in range(snapshot.n_nodes)]
    nobody = f"nobody-{next(NUMBERS)}"
    never_asked = [PodQuery((PodsIn(frozenset({"shop", nobody}), label_rule),)) for label_rule in RULES]
    for query in (*QUERIES, *never_asked):
        expected = [sum(query.matches(pod) for pod in on_row) for on_row in on_rows]
        assert snapshot.pods_matching(query).tolist() == expected
    keys = {key for node in snapshot.nodes for key in node.labels}
    for kind in TermKind:
        for incoming in INCOMING:
            found = snapshot.affinity_terms(kind).matching(*incoming)
            expected: Counter[tuple[str, int]] = Counter()
            for row, on_row in enumerate(on_rows):
                for pod in on_row:
                    weights = weights_by_hand(kind, pod, incoming)
                    expected.update({(key, row): weight for key, weight in weights.items() if key in keys})
                    shown = found.weights_of(pod.affinity_terms)
                    assert {key: shown.get(key, 0) for key in keys} == {key: weights[key] for key in keys}
            # A snapshot of some nodes includes terms whose topology key only other nodes have.
            assert {at: worth for at, worth in summed(found).items() if at[0] in keys} == expected


def weights_by_hand(kind: TermKind, pod: PodInfo, incoming: Incoming) -> Counter[str]:
    """Return topology key -> the sum of the weights of a pod's terms that match another pod."""
    weights: Counter[str] = Counter()
    for term in kind.of(pod.affinity_terms):
        if term.term.matches(*incoming):
            weights[term.term.topology_key] += term.weight
    return weights


def summed(found: TermsThatMean) -> Counter[tuple[str, int]]:
    """Return (topology key, row) -> the sum of the weights of the terms, without zeros."""
    total: Counter[tuple[str, int]] = Counter()
    for key, rows, amounts in found.amounts():
        for row, amount in zip(rows.tolist(), amounts.tolist(), strict=True):
            total[key, row] += amount
    assert all(total.values())
    return total


NODE_LABELS = st.dictionaries(st.sampled_from(["zone", "host"]), st.sampled_from(["a", "b"]), max_size=2)


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = ClusterTable()
        self.nodes = 3
        for number in range(self.nodes):
            self.table.add_node(builders.node(f"node-{number}"))

    @rule(labels=NODE_LABELS)
    def add_node(self, labels: dict[str, str]) -> None:
        self.nodes += 1
        self.table.add_node(builders.node(f"node-{self.nodes}", labels=labels))

    @precondition(lambda self: self.table.n_nodes)
    @rule(data=st.data(), labels=NODE_LABELS)
    def label_node(self, data: st.DataObject, labels: dict[str, str]) -> None:
        name = data.draw(st.sampled_from(self.table.nodes)).name
        self.table.update_node(builders.node(name, labels=labels))

    @precondition(lambda self: self.table.n_nodes)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        self.table.remove_node(data.draw(st.sampled_from(self.table.nodes)).name)

    @precondition(lambda self: self.table.n_nodes)
    @rule(data=st.data(), pod=pods())
    def add_pod(self, data: st.DataObject, pod: PodInfo) -> None:
        row = data.draw(st.integers(0, self.table.n_nodes - 1))
        if pod.uid not in self.table.pods_on(row):
            self.table.add_pod(row, pod)

    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject) -> None:
        there = [(row, uid) for row in range(self.table.n_nodes) for uid in self.table.pods_on(row)]
        if there:
            self.table.remove_pod(*data.draw(st.sampled_from(there)))

    @precondition(lambda self: self.table.n_nodes)
    @rule(data=st.data(), added=st.lists(pods(), max_size=3, unique_by=lambda pod: pod.uid))
    def what_if(self, data: st.DataObject, added: list[PodInfo]) -> None:
        snapshot = self.table.snapshot()
        every_row = st.integers(0, self.table.n_nodes - 1)
        there = [(row, pod) for row in range(snapshot.n_nodes) for pod in snapshot.pods_on(row)]
        gone = [pair for pair in there if data.draw(st.booleans())]
        add = [(data.draw(every_row), pod) for pod in added]
        other = snapshot.overlay(add=add, remove=gone)
        check(other)
        check(other.overlay(remove=add, add=gone))
        rows = data.draw(st.permutations(range(snapshot.n_nodes)))
        check(other.take(np.array(rows[: data.draw(st.integers(0, len(rows)))], dtype=np.intp)))

    @invariant()
    def columns_equal_a_count_from_scratch(self) -> None:
        check(self.table.snapshot())


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


class HistoryOfLongLists(History):
    """Lower the limits, so that two labels, two values and two terms already count as many."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(pod_counts, "_MOST_LABELS", 1)
        self._patch.setattr(pod_counts, "_FEW", 1)
        self._patch.setattr(pod_affinity, "_LONG", 1)
        self._patch.setattr(affinity_index, "_FEW_TERMS", 1)
        for name, value in (
            ("_MOST_PLACES", 1),
            ("_FEWEST_GONE", 2),
            ("_MOST_UNSORTED", 2),
            ("_SMALLEST", 1),
        ):
            self._patch.setattr(term_columns, name, value)

    def teardown(self) -> None:
        self._patch.undo()


TestHistoryOfLongLists = HistoryOfLongLists.TestCase
TestHistoryOfLongLists.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


class HistoryInSlices(HistoryOfLongLists):
    """Count the terms of pods with more than one term in slices of one term."""

    def __init__(self) -> None:
        super().__init__()
        self._patch.setattr(affinity_index, "MOST_TERMS_AT_ONCE", 1)
        self._patch.setattr(affinity_index, "SLICE_TERMS", 1)
        self.table = ClusterTable(in_slices=True)
        for number in range(self.nodes):
            self.table.add_node(builders.node(f"node-{number}"))

    @rule()
    def work(self) -> None:
        self.table.work()

    @rule()
    def catch_up(self) -> None:
        while self.table.is_behind:
            self.table.work()
        check(self.table.snapshot())

    @precondition(lambda self: self.table.n_nodes and not self.table.is_behind)
    @rule(data=st.data(), added=st.lists(pods(), max_size=3, unique_by=lambda pod: pod.uid))
    def what_if(self, data: st.DataObject, added: list[PodInfo]) -> None:
        super().what_if(data, added)

    @invariant()
    def columns_equal_a_count_from_scratch(self) -> None:
        if not self.table.is_behind:
            check(self.table.snapshot())
            return
        for kind, incoming in itertools.product(TermKind, INCOMING):
            snapshot = self.table.snapshot()
            every_term: Counter[tuple[str, int]] = Counter()
            for row in range(snapshot.n_nodes):
                for pod in snapshot.pods_on(row):
                    for key, weight in weights_by_hand(kind, pod, incoming).items():
                        every_term[key, row] += weight
            assert summed(snapshot.affinity_terms(kind).matching(*incoming)) <= every_term


TestHistoryInSlices = HistoryInSlices.TestCase
TestHistoryInSlices.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_pod_with_very_many_labels_is_not_indexed_by_each_of_them() -> None:
    labels = {f"l{number}": "x" for number in range(1000)}
    classes = pod_counts.PodClasses()
    for name in ("a", "b"):
        classes.count(0, builders.pod(name, labels=labels), 1)
    assert len(classes._classes) == 1
    assert not classes._by_label
    assert len(list(classes.candidates(LabelRule((Requirement("l7", Operator.IN, frozenset("x")),))))) == 1
    for name in ("a", "b"):
        classes.count(0, builders.pod(name, labels=labels), -1)
    assert not classes._classes
    assert not classes._many_labels


@pytest.mark.parametrize(
    ("where", "limit", "value"), [(pod_counts, "_COLUMNS", 2), (arrays, "_KEPT_BYTES", 2 * 16 * 8)]
)
def test_the_least_recently_used_queries_are_dropped_and_counted_again(
    monkeypatch: pytest.MonkeyPatch, where: ModuleType, limit: str, value: int
) -> None:
    monkeypatch.setattr(where, limit, value)
    monkeypatch.setattr(arrays, "_FEWEST_KEPT", 1)
    table = ClusterTable()
    table.add_node(builders.node("node"))
    everything = [PodQuery((PodsIn(frozenset({name}), LabelRule(())),)) for name in ("a", "b", "c")]
    for query in (*everything[:2], everything[0], everything[2]):
        table.snapshot().pods_matching(query)
    assert list(table._pod_counts._columns) == [everything[0], everything[2]]
    for name in ("a", "b", "c"):
        table.add_pod(0, builders.pod(name, namespace=name))
    assert [table.snapshot().pods_matching(query).tolist() for query in everything] == [[1], [1], [1]]


def in_many(name: str, values: int) -> PodQuery:
    """Match pods whose label `app` has one of many values."""
    among = frozenset([name, *(f"{name}-{number}" for number in range(values))])
    return PodQuery((PodsIn(None, LabelRule((Requirement("app", Operator.IN, among),))),))


@pytest.mark.parametrize(
    ("operator", "values", "count"),
    [
        (Operator.DOES_NOT_EXIST, (), 2),
        (Operator.EXISTS, (), 0),
        (Operator.IN, ("web",), 2),
        (Operator.NOT_IN, ("web",), 0),
    ],
    ids=lambda value: value.value if isinstance(value, Operator) else "",
)
def test_a_changed_pod_is_not_compared_with_each_of_many_queries(
    operator: Operator, values: tuple[str, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ClusterTable()
    table.add_node(builders.node("node"))
    queries = []
    for number in range(200):
        key, among = (
            ("app", frozenset({*values, f"v{number}"})) if values else (f"k{number}", frozenset[str]())
        )
        labels = LabelRule((Requirement(key, operator, among),))
        # All pods match the second part: several terms together cost no more than one.
        queries.append(PodQuery((PodsIn(None, labels), PodsIn(frozenset({"default"}), LabelRule(())))))
        table.snapshot().pods_matching(queries[-1])
    asked: list[PodQuery] = []
    matches = PodQuery.matches
    monkeypatch.setattr(PodQuery, "matches", lambda query, pod: asked.append(query) or matches(query, pod))

    for name in "abc":
        table.add_pod(0, builders.pod(name, labels={"app": "web"}))
    table.remove_pod(0, next(iter(table.pods_on(0))))

    assert not asked
    assert {tuple(table.snapshot().pods_matching(query)) for query in queries} == {(count,)}


def test_long_queries_are_cached_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "_DESCRIBED_BYTES", 50_000)
    table = ClusterTable()
    table.add_node(builders.node("node"))
    table.add_pod(0, builders.pod("first", labels={"app": "a"}))
    queries = [in_many(name, 100) for name in "abcdef"]
    for query in queries:
        table.snapshot().pods_matching(query)
    assert list(table._pod_counts._columns) == queries[-3:]
    huge = in_many("a", 5000)
    assert table.snapshot().pods_matching(huge).tolist() == [1]
    assert list(table._pod_counts._columns) == [huge], "the one that is asked for is always there"
    table.add_pod(0, builders.pod("second", labels={"app": "a"}))
    assert table.snapshot().pods_matching(huge).tolist() == [2]
    assert table.snapshot().pods_matching(queries[0]).tolist() == [2]


def test_a_rule_with_many_values_is_not_indexed_by_each_of_them() -> None:
    index = RuleIndex[str]()
    rules = {"few": in_many("a", 20), "many": in_many("a", 5000)}
    for name, query in rules.items():
        index.add(query.parts[0].rule, name)
    assert len(index._named) == 21
    assert list(index.candidates({"app": "a-7"})) == ["few", "many"]
    for name, query in rules.items():
        index.remove(query.parts[0].rule, name)
    assert list(index.candidates({"app": "a-7"})) == []


def test_terminating_pods_count_only_if_the_query_includes_them() -> None:
    leaving = builders.pod_object("leaving")
    leaving["metadata"]["deletionTimestamp"] = builders.CREATED
    table = ClusterTable()
    table.add_node(builders.node("node"))
    table.add_pod(0, decode_pod(msgspec.json.encode(leaving)))
    table.add_pod(0, builders.pod("staying"))
    every_pod = (PodsIn(None, LabelRule(())),)
    assert table.snapshot().pods_matching(PodQuery(every_pod)).tolist() == [2]
    assert table.snapshot().pods_matching(PodQuery(every_pod, counts_terminating=False)).tolist() == [1]


def test_terms_move_with_the_row_of_their_pods() -> None:
    table = ClusterTable()
    for name in ("gone", "between", "last"):
        table.add_node(builders.node(name, labels={"zone": "z"}))
    table.add_pod(0, builders.pod("a", affinity=affinity([0], [])))
    table.add_pod(2, builders.pod("b", affinity=affinity([0], [])))
    table.remove_node("gone")
    terms = table.snapshot().affinity_terms(TermKind.REQUIRED_ANTI_AFFINITY)
    found = terms.matching("default", {"app": "a"}, {})
    assert summed(found) == {("zone", table.snapshot().row_of("last")): 1}


def test_a_term_held_on_very_many_nodes_is_found_on_all_of_them() -> None:
    table = ClusterTable()
    spec = affinity([0], [])
    for row in range(600):
        table.add_node(builders.node(f"node-{row}", labels={"zone": "z"}))
        table.add_pod(row, builders.pod(f"pod-{row}", labels={"app": "a"}, affinity=spec))
    for row in range(0, 600, 2):
        table.remove_pod(row, next(iter(table.pods_on(row))))
    terms = table.snapshot().affinity_terms(TermKind.REQUIRED_ANTI_AFFINITY)
    found = terms.matching("default", {"app": "a"}, {})
    assert summed(found) == {("zone", row): 1 for row in range(1, 600, 2)}


@dataclass
class Counted:
    """A pod that counts the reads of its labels."""

    namespace: str
    labels: CountedLabels
    is_terminating: bool = False


def without(label: str, namespace: str) -> PodQuery:
    """Match pods of a namespace without a label."""
    absent = SelectorRequirement(label, "DoesNotExist")
    rule = parse_label_selector(LabelSelector(match_expressions=(absent,)))
    return PodQuery((PodsIn(frozenset({namespace}), rule),))


def test_a_pod_is_not_compared_with_queries_for_other_namespaces() -> None:
    counts = PodCounts()
    columns = [counts.column(without(f"l{number}", "theirs"), 4) for number in range(100)]
    own = counts.column(without("l0", "mine"), 4)
    pod = Counted("mine", CountedLabels(app="a"))

    counts.count(1, pod, 1)

    assert own.view(4).tolist() == [0, 1, 0, 0]
    assert not any(column.cells.any() for column in columns)
    assert pod.labels.reads <= 1


def test_a_new_query_is_not_compared_with_pods_of_other_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = calls_of(monkeypatch, PodQuery, "matches")
    counts = PodCounts()
    theirs = [Counted("theirs", CountedLabels(app=f"a{number}")) for number in range(100)]
    for pod in theirs:
        counts.count(0, pod, 1)
    counts.count(2, Counted("mine", CountedLabels(app="a")), 1)

    assert counts.column(without("l0", "mine"), 4).view(4).tolist() == [0, 0, 1, 0]
    assert [pod.namespace for _, pod in compared] == ["mine"]


def test_cached_queries_are_bounded_by_the_size_of_their_requirements() -> None:
    counts = PodCounts()
    for number in range(200):
        expressions = [SelectorRequirement(f"l{number}-{place}", "Exists") for place in range(1000)]
        rule = parse_label_selector(LabelSelector(match_expressions=tuple(expressions)))
        counts.column(PodQuery((PodsIn(frozenset({"theirs"}), rule),)), 4)

    assert len(counts.queries) < 50
