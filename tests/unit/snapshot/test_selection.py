"""A selector matches the same nodes with arrays as with single nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.selectors import (
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    RequiredNodeAffinity,
    SelectorRequirement,
    node_rules,
    parse_node_term,
    required_node_affinity,
)
from scheduler.snapshot import nodes_of_any, nodes_required, weigh_nodes
from tests.support.builders import node
from tests.support.clusters import Cluster, cluster, many_node_selector_terms, wild_clusters, wild_pods
from tests.support.counted_labels import CountedLabels

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import NodeRule
    from scheduler.snapshot import Snapshot


@given(wild_clusters("labels"), wild_pods("labels"))
def test_required_affinity_for_columns_equals_that_for_each_node(cluster: Cluster, pod: PodInfo):
    affinity = required_node_affinity(pod.pod.spec.node_selector, pod.node_affinity)

    chosen = nodes_required(cluster.snapshot(), affinity)

    assert chosen.tolist() == [affinity.matches(node.name, node.labels) for node in cluster.nodes]


terms = st.builds(
    lambda required, selector: required_node_affinity(
        selector,
        msgspec.convert(
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required}}, NodeAffinity
        ),
    ),
    many_node_selector_terms,
    st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from(["a", "b"]), max_size=1),
)


@given(wild_clusters("labels"), terms)
def test_very_many_terms_select_the_nodes_that_any_of_them_selects(
    cluster: Cluster, affinity: RequiredNodeAffinity
):
    assert affinity.terms is not None
    expected = [
        affinity.selects(node.labels) and any(term.matches(node.name, node.labels) for term in affinity.terms)
        for node in cluster.nodes
    ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scheduler.snapshot.selection._FEW_TERMS", 0)
        chosen = nodes_required(cluster.snapshot(), affinity)

    assert chosen.tolist() == expected
    assert [affinity.matches(node.name, node.labels) for node in cluster.nodes] == expected


@given(wild_clusters("labels"), many_node_selector_terms)
def test_weights_of_very_many_terms_add_up_like_those_of_a_few(cluster: Cluster, written: list[Any]):
    selector = NodeSelector(msgspec.convert(written, tuple[NodeSelectorTerm, ...]))
    weighed = [(place + 1, rule) for place, rule in enumerate(node_rules(selector))]
    expected = [
        sum(weight for weight, rule in weighed if rule.matches(node.name, node.labels))
        for node in cluster.nodes
    ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scheduler.snapshot.selection._FEW_TERMS", 0)
        total = weigh_nodes(cluster.snapshot(), weighed)

    assert total.tolist() == expected


def numbered(count: int) -> Snapshot:
    return cluster(*(node(f"n{row}", labels={"number": str(row)}) for row in range(count))).snapshot()


def compared(*operators: str, count: int) -> list[NodeRule]:
    expressions = [
        tuple(SelectorRequirement("number", operator, (str(number),)) for operator in operators)
        for number in range(count)
    ]
    return [parse_node_term(NodeSelectorTerm(match_expressions=each)) for each in expressions]


def test_a_label_is_parsed_as_a_number_once_for_all_terms(monkeypatch: pytest.MonkeyPatch):
    snapshot, between, above = numbered(50), compared("Gt", "Lt", count=200), compared("Gt", count=200)
    read = []

    def counted(text: str) -> int | None:
        read.append(text)
        return int(text)

    for module in ("scheduler.snapshot.interning", "scheduler.objects.selectors"):
        monkeypatch.setattr(f"{module}.parse_int64", counted)

    assert not nodes_of_any(snapshot, between).any()
    assert weigh_nodes(snapshot, [(1, rule) for rule in above]).tolist() == list(range(50))
    assert len(read) <= 50


def test_terms_with_a_node_name_are_evaluated_on_that_node_alone(monkeypatch: pytest.MonkeyPatch):
    snapshot = numbered(50)
    asked = []
    monkeypatch.setattr("scheduler.snapshot.selection.nodes_of", lambda *args: asked.append(args))
    named = [
        parse_node_term(
            NodeSelectorTerm(
                match_expressions=(
                    SelectorRequirement("number", "In", (str(number),)),
                    SelectorRequirement("number", "Exists"),
                )
            )
        )
        for number in range(40)
    ]

    assert nodes_of_any(snapshot, named).tolist() == [row < 40 for row in range(50)]
    assert asked == []


def test_a_node_is_compared_only_with_terms_for_one_of_its_labels():
    labels = CountedLabels(number="7", zone="a")
    written = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "number", "operator": "In", "values": [str(number)]},
                        {"key": "zone", "operator": "Exists"},
                    ]
                }
                for number in range(1000)
            ]
        }
    }
    affinity = required_node_affinity({}, msgspec.convert(written, NodeAffinity))

    assert affinity.matches("n7", labels)
    assert labels.reads <= 4
