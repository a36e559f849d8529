"""Many node selector terms are evaluated in steps, with the same sums, also if nodes change between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorError,
    SelectorRequirement,
    node_rules,
)
from scheduler.snapshot import ClusterTable, WeighedTerms, interning, node_tally, nodes_of_any
from scheduler.snapshot.node_tally import NodeTallies
from tests.support.builders import node
from tests.support.clusters import Cluster, cluster, many_node_selector_terms, wild_clusters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.snapshot import NodeTally


def between(low: int, high: int) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(
            SelectorRequirement("number", "Gt", (str(low),)),
            SelectorRequirement("number", "Lt", (str(high),)),
        )
    )


def numbered(count: int) -> ClusterTable:
    return cluster(*(node(f"n{row}", labels={"number": str(row)}) for row in range(count))).table()


def done(tally: NodeTally) -> list[int]:
    for _ in tally.steps():
        pass
    return tally.worth().tolist()


@given(wild_clusters("labels"), many_node_selector_terms, st.data())
def test_the_sum_of_the_weights_of_matching_terms_follows_changed_nodes(
    cluster: Cluster, written: list[Any], data: st.DataObject
):
    terms = msgspec.convert(written, tuple[NodeSelectorTerm, ...])
    table = cluster.table()
    tally = table.node_tally(WeighedTerms("key", terms, range(1, len(terms) + 1)))
    others = st.sampled_from([{"zone": "a"}, {"n": "10"}, {"n": "-3", "disk": "ü"}, {}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_tally, "_REQUIREMENTS_A_STEP", 1)
        for step, _ in enumerate(tally.steps()):
            what = data.draw(st.sampled_from(["nothing", "add", "remove", "change"])) if step < 20 else ""
            if what == "add":
                table.add_node(node(f"new-{step}", labels=data.draw(others)))
            elif what == "remove" and table.n_nodes:
                table.remove_node(table.nodes[data.draw(st.integers(0, table.n_nodes - 1))].name)
            elif what == "change" and table.n_nodes:
                name = table.nodes[data.draw(st.integers(0, table.n_nodes - 1))].name
                table.update_node(node(name, labels=data.draw(others)))

    rules = [node_rules(NodeSelector((term,))) for term in terms]
    expected = [
        sum(place for place, each in enumerate(rules, 1) if each and each[0].matches(at.name, at.labels))
        for at in table.nodes
    ]
    assert tally.worth().tolist() == expected
    rows = table.snapshot().all_rows[::-2]
    assert table.snapshot().take(rows).node_tally(WeighedTerms("key", terms)).worth().tolist() == [
        expected[row] for row in rows.tolist()
    ]


class Judged:
    """Counts the evaluated requirements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.nodes = 0
        real = node_tally.nodes_with_label

        def counted(label: interning.Interned[str | None], requirement: Requirement) -> Any:
            self.count += 1
            self.nodes += len(label.codes)
            return real(label, requirement)

        monkeypatch.setattr(node_tally, "nodes_with_label", counted)

    def begin(self) -> None:
        self.count = self.nodes = 0


def test_each_step_evaluates_a_few_requirements_and_none_twice(
    monkeypatch: pytest.MonkeyPatch,
):
    table, judged = numbered(50), Judged(monkeypatch)
    terms = WeighedTerms("key", [between(number, number + 2) for number in range(500)])
    tally = table.node_tally(terms)

    total = 0
    for _ in tally.steps():
        assert judged.count <= 32
        total += judged.count
        judged.begin()
    assert total == 1000
    assert tally.worth().tolist() == [0, *[1] * 49]

    assert done(table.node_tally(terms)) == [0, *[1] * 49]
    assert judged.count == 0


def test_a_changed_node_is_evaluated_again_by_itself(monkeypatch: pytest.MonkeyPatch):
    table, judged = numbered(50), Judged(monkeypatch)
    tally = table.node_tally(WeighedTerms("key", [between(number, number + 2) for number in range(100)]))
    done(tally)
    table.update_node(node("n7", labels={"number": "1000"}))
    judged.begin()

    assert done(tally)[7] == 0
    assert judged.nodes == judged.count == 200


def test_values_of_one_requirement_are_checked_in_steps(monkeypatch: pytest.MonkeyPatch):
    values = tuple(map(str, range(10_000)))
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement("number", "In", values),))
    checked: list[str] = []

    def counted(texts: Sequence[str]) -> bool:
        checked.extend(texts)
        return True

    monkeypatch.setattr("scheduler.objects.selectors.are_label_values", counted)
    tally = numbered(5).node_tally(WeighedTerms("key", [term]))
    most = before = 0
    for _ in tally.steps():
        most, before = max(most, len(checked) - before), len(checked)

    assert len(checked) == 10_000
    assert most <= 1024
    assert tally.worth().tolist() == [1] * 5


def test_an_invalid_term_matches_nothing_or_fails_each_time_at_once():
    table = numbered(3)
    wrong = NodeSelectorTerm(match_expressions=(SelectorRequirement("number", "Gt", ("x",)),))
    terms = [*[between(0, 9)] * 100, wrong]
    assert done(table.node_tally(WeighedTerms("any", terms))) == [0, 100, 100]
    tally = table.node_tally(WeighedTerms("all", terms, needs_rules=True))

    with pytest.raises(SelectorError, match=r"\[100\].matchExpressions\[0\].values\[0\]") as first:
        done(tally)
    with pytest.raises(SelectorError) as second:
        next(tally.steps())
    assert str(second.value) == str(first.value)


def test_work_interrupted_by_an_error_starts_again(monkeypatch: pytest.MonkeyPatch):
    table = numbered(3)
    tally = table.node_tally(WeighedTerms("key", [between(0, 9)] * 100))
    with monkeypatch.context() as patch:
        patch.setattr(node_tally, "nodes_with_label", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            done(tally)

    assert done(tally) == [0, 100, 100]


def test_only_the_most_recent_tallies_are_kept():
    table = numbered(3)
    tallies = NodeTallies(table, table.node_changes)
    first = tallies.of(WeighedTerms("first", [between(0, 9)]))
    for number in range(15):
        tallies.of(WeighedTerms(number, [between(0, 9)]))
    assert tallies.of(WeighedTerms("first", [between(0, 9)])) is first
    for number in range(16):
        tallies.of(WeighedTerms(number, [between(0, 9)]))
    assert tallies.of(WeighedTerms("first", [between(0, 9)])) is not first


def test_the_cost_of_a_membership_test_depends_on_the_smaller_side():
    snapshot = numbered(5).snapshot()
    asked: list[str | None] = []

    class Values(frozenset[str]):
        def __contains__(self, value: object) -> bool:
            asked.append(value)  # type: ignore[arg-type]
            return super().__contains__(value)

        def __iter__(self) -> Any:
            raise AssertionError("all values are looked at")

    assert snapshot.label("number").among(Values(map(str, range(10_000)))).all()
    assert len(asked) <= 6
    assert nodes_of_any(snapshot, ()).tolist() == [False] * 5
