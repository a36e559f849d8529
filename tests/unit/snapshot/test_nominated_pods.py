"""A snapshot with nominated pods equals the snapshot of a table with these pods on their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.selectors import LabelRule
from scheduler.snapshot import NominatedOthers, NominatedPods, PodQuery, PodsIn
from tests.support.builders import node, pod
from tests.support.clusters import Cluster, cluster, wild_clusters, wild_pods
from tests.unit.snapshot.test_derived import content

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

A, B, C = pod("a", cpu="1"), pod("b", cpu="2", memory="1Gi"), pod("c", requests={"x.io/a": "3"})


@given(wild_clusters(), st.data())
def test_nominated_pods_count_as_pods_on_their_nodes(base: Cluster, data: st.DataObject):
    table, nominated, serial = base.table(), NominatedPods(0), 0
    nominated.resize(len(base.nodes))
    for _ in range(data.draw(st.integers(1, 4)) if base.nodes else 0):
        row = data.draw(st.integers(0, len(base.nodes) - 1))
        there: dict[str, PodInfo] = {}
        for _ in range(data.draw(st.integers(0, 3))):
            serial += 1
            made = data.draw(
                wild_pods("resources", "ports", "volumes", name=f"new-{serial}", node=base.nodes[row].name)
            )
            there[made.uid] = made
        nominated.set(row, there)
        content(table.snapshot().with_nominated(nominated))  # the columns exist before the next change

    found = content(table.snapshot().with_nominated(nominated))
    for row, pods in nominated.by_row.items():
        for each in pods.values():
            table.add_pod(row, each)

    assert found == content(table.snapshot())


def test_columns_of_nominated_pods_follow_the_pods_on_nodes():
    table, nominated = cluster(node("n0", cpu="8"), node("n1", cpu="8")).table(), NominatedPods(2)
    nominated.set(1, {A.uid: A})
    before = table.snapshot().with_nominated(nominated).requested["cpu"].tolist()
    table.add_pod(1, pod("bound", cpu="3"))

    assert before == [0, 1000]
    assert table.snapshot().with_nominated(nominated).requested["cpu"].tolist() == [0, 4000]


def test_the_rows_of_nominated_pods_follow_the_number_of_nodes():
    nominated = NominatedPods.of({0: [A], 2: [B]}, 3)
    nominated.requested("cpu")
    nominated.resize(2)

    assert nominated.by_row == {0: {A.uid: A}}
    assert nominated.has_pods.tolist() == [True, False]
    requested = nominated.requested("cpu")
    assert requested is not None
    assert requested.tolist() == [1000, 0]
    assert nominated.requested("memory") is None


def test_the_number_of_columns_is_limited():
    names = [f"x.io/{number}" for number in range(200)]
    nominated = NominatedPods.of({0: [pod("many", requests=dict.fromkeys(names, "1"))]}, 1)
    for name in names:
        assert nominated.requested(name) is not None

    assert len(nominated._columns) <= 64


def test_queries_match_nominated_pods():
    table = cluster(node("n0"), node("n1")).table()
    query = PodQuery((PodsIn(None, LabelRule(())),))
    nominated = NominatedPods.of({1: [A, B]}, 2)

    assert table.snapshot().with_nominated(nominated).pods_matching(query).tolist() == [0, 2]


class TestOthers:
    @pytest.fixture
    def pods(self) -> NominatedPods:
        return NominatedPods.of({0: [A], 2: [B, C]}, 4)

    def test_without_an_exception_all_pods_are_others(self, pods: NominatedPods):
        assert dict(NominatedOthers(pods)) == {0: (A,), 2: (B, C)}

    def test_a_pod_is_not_one_of_the_others(self, pods: NominatedPods):
        others = NominatedOthers(pods, 2, C.uid)

        assert dict(others) == {0: (A,), 2: (B,)}
        assert others.shared(np.arange(4)).tolist() == [0]

    def test_a_node_without_others_is_left_out(self, pods: NominatedPods):
        others = NominatedOthers(pods, 0, A.uid)

        assert dict(others) == {2: (B, C)}
        assert len(others) == 1
        assert 0 not in others
