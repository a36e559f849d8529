"""Host ports in use: a lookup does not depend on the number of nodes and of their ports."""

from __future__ import annotations

from scheduler.objects.v1 import ALL_ADDRESSES, HostPort
from scheduler.snapshot.port_index import PortIndex
from tests.support.counted_labels import lines_run


def many(first: int) -> tuple[HostPort, ...]:
    return tuple(HostPort(f"10.0.0.{port % 8}", "TCP", port) for port in range(first, first + 100))


def filled(rows: int) -> PortIndex:
    index = PortIndex()
    for row in range(rows):
        index.add(row, many(1 + 100 * row))
    return index


def test_a_lookup_does_not_read_the_ports_of_each_node():
    wanted = (HostPort(ALL_ADDRESSES, "TCP", 5), HostPort("10.0.0.1", "UDP", 5))
    few, many_more = filled(1), filled(100)

    assert many_more.conflicts(wanted, 100).nonzero()[0].tolist() == [0]
    assert lines_run(lambda: many_more.conflicts(wanted, 100)) == lines_run(lambda: few.conflicts(wanted, 1))


def test_a_pod_is_added_and_removed_without_reading_the_ports_of_other_pods():
    few, many_more, ports = filled(8), filled(100), many(30_000)
    for row in range(100):
        many_more.add(7, many(40_000 + 100 * row))  # the same node has many pods

    assert lines_run(lambda: many_more.add(7, ports)) == lines_run(lambda: few.add(7, ports))
    assert lines_run(lambda: many_more.remove(7, ports)) == lines_run(lambda: few.remove(7, ports))


def test_the_rows_of_ports_that_the_same_pods_hold_are_stored_once():
    index = PortIndex()
    for row in (3000, 4000):
        index.add(row, many(1))

    assert len({id(rows) for rows in index._rows.values()}) == 1


def test_nothing_is_left_of_removed_pods():
    index = filled(3)
    index.add(1, many(1))
    index.add(1, many(101))  # the second pod with these ports on this node
    for row, ports in ((0, many(1)), (1, many(101)), (1, many(1)), (2, many(201))):
        index.remove(row, ports)

    assert index.on(1, many(101)[:1]) == (200, {many(101)[0]: 1, HostPort("", "TCP", 101): 1})
    index.remove(1, many(101))
    assert (len(index), index._again, index._sizes) == (0, {}, {})
