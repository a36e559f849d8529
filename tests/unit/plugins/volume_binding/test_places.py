"""Things are filed by the nodes that reach them, and nodes find theirs however both change."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plugins.volume_binding.places import NONE, Places, Reach, reaches
from scheduler.objects.selectors import NodeRule, Operator, Requirement
from scheduler.snapshot import ClusterTable
from tests.builders import node

VALUES = ["x", "y", "z"]

requirements = st.builds(
    lambda key, operator, values: Requirement(key, operator, frozenset(values)),
    st.sampled_from(["a", "b"]),
    st.sampled_from([Operator.IN, Operator.IN, Operator.NOT_IN, Operator.EXISTS]),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
)
rules = st.lists(requirements, max_size=2).map(lambda found: NodeRule(tuple(found)))
reach_of_things = st.one_of(
    st.none(), st.lists(rules, max_size=2).map(tuple), rules.map(lambda rule: (rule,))
)
labels_of_nodes = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(VALUES))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("file"), st.integers(0, 9), reach_of_things),
        st.tuples(st.just("take out"), st.integers(0, 9), st.none()),
        st.tuples(st.just("node"), st.integers(0, 4), labels_of_nodes),
        st.tuples(st.just("node goes"), st.integers(0, 4), st.none()),
    ),
    max_size=25,
)


def expected(table: ClusterTable, filed: dict[int, Reach], count: int) -> Any:
    found = []
    for each in table.nodes:
        numbers = sorted(number for number, reach in filed.items() if reaches(reach, each.labels))
        found.append([*numbers, *[NONE] * count][:count])
    return np.array(found, dtype=np.int64).reshape(table.n_nodes, count).T


@given(steps)
def test_nodes_reach_the_smallest_of_what_their_labels_choose(story: Any):
    table, places, filed = ClusterTable(), Places(), dict[int, Reach]()
    for what, number, detail in story:
        name = f"n{number}"
        if what == "file" and number not in filed:
            filed[number] = detail
            places.add(number, detail)
        elif what == "take out" and number in filed:
            places.remove(number, filed.pop(number))
        elif what == "node" and table.row_of(name) is None:
            table.add_node(node(name, labels=detail))
        elif what == "node":
            table.update_node(node(name, labels=detail))
        elif what == "node goes" and table.row_of(name) is not None:
            table.remove_node(name)
        snapshot = table.snapshot()
        for count in (1, 3):
            assert (places.first(snapshot, count) == expected(table, filed, count)).all()
        backwards = np.arange(snapshot.n_nodes, dtype=np.intp)[::-1]
        assert (places.first(snapshot.take(backwards), 2) == expected(table, filed, 2)[:, ::-1]).all()


def on_host(*names: str) -> Reach:
    return (NodeRule((Requirement("kubernetes.io/hostname", Operator.IN, frozenset(names)),)),)


def test_thousands_of_hosts_have_one_each():
    table, places = ClusterTable(), Places()
    for number in range(3000):
        table.add_node(node(f"n{number}"))
        places.add(2999 - number, on_host(f"n{number}"))

    assert places.first(table.snapshot())[0].tolist() == list(range(2999, -1, -1))


def test_hosts_that_are_gone_are_forgotten():
    table, places = ClusterTable(), Places()
    places.add(7, on_host("n5999"))
    for number in range(6000):
        table.add_node(node(f"n{number}"))
        if number % 100 == 99:
            first = places.first(table.snapshot())[0]
            for old in range(number - 99, number):
                table.remove_node(f"n{old}")
    row = table.row_of("n5999")

    assert first[-1] == 7
    assert places.first(table.snapshot())[0].tolist() == [
        7 if place == row else NONE for place in range(table.n_nodes)
    ]
    (drawer,) = places._by_labels.values()
    assert len(drawer._columns) < 2000


def test_things_on_more_combinations_of_labels_than_are_worth_a_column_are_found_all_the_same():
    table, places = ClusterTable(), Places()
    table.add_node(node("n1"))
    table.add_node(node("n2"))
    places.add(3, on_host("n1", *(f"other-{number}" for number in range(100))))

    assert places.first(table.snapshot())[0].tolist() == [3, NONE]
