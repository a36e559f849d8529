"""The index returns the objects that each node reaches after any change of objects and nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plugins.volume_binding.reachability import NONE, Reach, ReachabilityIndex, reaches
from scheduler.loop_work import run_to_end
from scheduler.objects.selectors import NodeRule, Operator, Requirement
from scheduler.snapshot import ClusterTable
from tests.support.builders import node

if TYPE_CHECKING:
    from scheduler.snapshot import Bools, Snapshot

VALUES = ["x", "y", "z"]
EVERYTHING = np.ones(3000, dtype=np.bool_)

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
        st.tuples(st.just("leave out"), st.integers(0, 9), st.none()),
        st.tuples(st.just("node"), st.integers(0, 4), labels_of_nodes),
        st.tuples(st.just("node goes"), st.integers(0, 4), st.none()),
    ),
    max_size=25,
)


def first(places: ReachabilityIndex, snapshot: Snapshot, fitting: Bools, numbers: Any = 0) -> list[int]:
    selection = run_to_end(places.select(snapshot, fitting))
    return run_to_end(selection.first(numbers)).tolist()


def reached(table: ClusterTable, filed: dict[int, Reach]) -> list[list[int]]:
    """By row, the ascending numbers of the objects that the node reaches."""
    return [
        sorted(number for number, reach in filed.items() if reaches(reach, each.labels))
        for each in table.nodes
    ]


@given(steps)
def test_nodes_reach_the_smallest_volume_that_their_labels_select(story: Any):
    table, places, filed = ClusterTable(), ReachabilityIndex(), dict[int, Reach]()
    fitting, values = np.ones(10, dtype=np.bool_), np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], dtype=np.int64)
    for what, number, detail in story:
        name = f"n{number}"
        if what == "file" and number not in filed:
            filed[number] = detail
            places.add(number, detail)
        elif what == "leave out":
            fitting[number] = not fitting[number]
        elif what == "node" and table.row_of(name) is None:
            table.add_node(node(name, labels=detail))
        elif what == "node":
            table.update_node(node(name, labels=detail))
        elif what == "node goes" and table.row_of(name) is not None:
            table.remove_node(name)
        snapshot = table.snapshot()
        here = reached(table, filed)
        starts = np.arange(snapshot.n_nodes) % 4 * 3
        expected = [
            next((each for each in numbers if fitting[each] and each >= start), NONE)
            for numbers, start in zip(here, starts, strict=True)
        ]
        assert first(places, snapshot, fitting, starts) == expected
        backwards = np.arange(snapshot.n_nodes, dtype=np.intp)[::-1]
        taken = snapshot.take(backwards)
        assert first(places, taken, fitting, starts[::-1]) == expected[::-1]
        highest = [max((int(values[each]) for each in numbers), default=-1) for numbers in here]
        assert run_to_end(places.highest(snapshot, values)).tolist() == highest
        assert run_to_end(places.highest(taken, values)).tolist() == highest[::-1]


def on_host(*names: str) -> Reach:
    return (NodeRule((Requirement("kubernetes.io/hostname", Operator.IN, frozenset(names)),)),)


def test_thousands_of_hosts_have_one_volume_each():
    table, places = ClusterTable(), ReachabilityIndex()
    for number in range(3000):
        table.add_node(node(f"n{number}"))
        places.add(2999 - number, on_host(f"n{number}"))

    assert first(places, table.snapshot(), EVERYTHING) == list(range(2999, -1, -1))


def test_deleted_hosts_are_dropped():
    table, places = ClusterTable(), ReachabilityIndex()
    places.add(7, on_host("n5999"))
    for number in range(6000):
        table.add_node(node(f"n{number}"))
        if number % 100 == 99:
            found = first(places, table.snapshot(), EVERYTHING)
            for old in range(number - 99, number):
                table.remove_node(f"n{old}")
    row = table.row_of("n5999")

    assert found[-1] == 7
    assert first(places, table.snapshot(), EVERYTHING) == [
        7 if place == row else NONE for place in range(table.n_nodes)
    ]
    (drawer,) = places._by_labels.values()
    assert len(drawer._columns) < 2000


def test_volumes_with_many_label_combinations_are_found():
    table, places = ClusterTable(), ReachabilityIndex()
    table.add_node(node("n1"))
    table.add_node(node("n2"))
    places.add(3, on_host("n1", *(f"other-{number}" for number in range(100))))

    assert first(places, table.snapshot(), EVERYTHING) == [3, NONE]
