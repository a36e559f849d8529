"""Derived snapshots equal the snapshot of a table with the same content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.objects.node import NodeObject
from scheduler.objects.v1 import conflicts_with
from tests.support.builders import node, pod
from tests.support.clusters import CLAIM_NAMES, HOST_PORTS, Cluster, cluster, wild_clusters, wild_pods

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Interned, Snapshot

RESOURCES = (
    "cpu",
    "memory",
    "pods",
    "ephemeral-storage",
    "nvidia.com/gpu",
    "hugepages-2Mi",
    "example.com/foo",
)

USES = [
    use
    for source in (
        *({"persistentVolumeClaim": {"claimName": name}} for name in CLAIM_NAMES),
        {"ephemeral": {}},
        *({"gcePersistentDisk": {"pdName": "d1", "readOnly": read_only}} for read_only in (False, True)),
        {"awsElasticBlockStore": {"volumeID": "d2"}},
        {"iscsi": {"iqn": "d1"}},
        {"rbd": {"monitors": ["m1", "m2"], "pool": "rbd", "image": "d1"}},
    )
    for use in pod("new-0", volumes=[{"name": "v", **source}]).storage_uses
]


def content(snapshot: Snapshot) -> dict[str, Any]:
    """All data of a snapshot, except the change logs."""
    found: dict[str, Any] = {"nodes": [each.name for each in snapshot.nodes]}
    for resource in RESOURCES:
        found[f"allocatable {resource}"] = snapshot.allocatable[resource].tolist()
        found[f"requested {resource}"] = snapshot.requested[resource].tolist()
    for resource in ("cpu", "memory"):
        found[f"nonzero {resource}"] = snapshot.nonzero_requested[resource].tolist()
    found["pod_count"] = snapshot.pod_count.tolist()
    found["unschedulable"] = snapshot.unschedulable.tolist()
    found["taints"] = values(snapshot.taints)
    found["declared_features"] = values(snapshot.declared_features)
    found["zone"] = values(snapshot.label("zone"))
    found["ports"] = [snapshot.used_ports_on(row) for row in range(snapshot.n_nodes)]
    for wanted in HOST_PORTS:
        conflicts = snapshot.port_conflicts([wanted])
        assert conflicts.tolist() == [conflicts_with([wanted])(ports) for ports in found["ports"]]
    image = snapshot.image("a:latest")
    found["image"] = (image.num_nodes, image.present.tolist())
    found["pods"] = [sorted(each.uid for each in snapshot.pods_on(row)) for row in range(snapshot.n_nodes)]
    storage = snapshot.storage
    found["storage"] = {row: sorted(each.uid for each in storage.pods_on(row)) for row in storage.rows()}
    found["holders"] = {use: sorted(storage.holders(use)) for use in USES}
    found["rows"] = [snapshot.row_of(each.name) for each in snapshot.nodes]
    infos = [snapshot.node_info(row) for row in range(snapshot.n_nodes)]
    found["infos"] = [(info.requested, tuple(info.nonzero_requested)) for info in infos]
    return found


def values(interned: Interned[Any]) -> list[Any]:
    return [interned.values[code] for code in interned.codes.tolist()]


@given(wild_clusters(), st.data())
def test_selected_rows_equal_the_cluster_of_their_nodes(whole: Cluster, data: st.DataObject):
    rows = data.draw(st.permutations(range(len(whole.nodes))))
    rows = rows[: data.draw(st.integers(0, len(rows)))]

    taken = whole.snapshot().take(np.array(rows, dtype=np.intp))

    assert content(taken) == content(Cluster([whole.nodes[row] for row in rows], whole.pods).snapshot())


def placed(data: st.DataObject, nodes: Sequence[Any]) -> list[tuple[int, PodInfo]]:
    count = data.draw(st.integers(0, 3)) if nodes else 0
    rows = [data.draw(st.integers(0, len(nodes) - 1)) for _ in range(count)]
    return [
        (
            row,
            data.draw(wild_pods("resources", "ports", "volumes", name=f"new-{number}", node=nodes[row].name)),
        )
        for number, row in enumerate(rows)
    ]


@given(wild_clusters(), st.data())
def test_an_overlay_equals_the_cluster_with_the_added_pods(base: Cluster, data: st.DataObject):
    table = base.table()
    added = placed(data, base.nodes)

    overlay = content(table.snapshot().overlay(add=added))
    for row, each in added:
        table.add_pod(row, each)

    assert overlay == content(table.snapshot())


@given(wild_clusters("resources", "taints", "labels", "images", "features", "volumes"), st.data())
def test_an_overlay_equals_the_cluster_without_the_removed_pods(base: Cluster, data: st.DataObject):
    table = base.table()
    there = [(row, each) for row, n in enumerate(base.nodes) for each in base.pods.get(n.name, ())]
    removed = [pair for pair in there if data.draw(st.booleans())]

    overlay = content(table.snapshot().overlay(remove=removed))
    for row, each in removed:
        table.remove_pod(row, each.uid)

    assert overlay == content(table.snapshot())


@given(wild_clusters(), st.data())
def test_overlays_and_row_selections_can_be_combined(base: Cluster, data: st.DataObject):
    added = placed(data, base.nodes)
    rows = np.array(data.draw(st.permutations(range(len(base.nodes)))), dtype=np.intp)
    at = {int(row): place for place, row in enumerate(rows)}

    before = base.snapshot().overlay(add=added).take(rows)
    after = base.snapshot().take(rows).overlay(add=[(at[row], each) for row, each in added])

    assert content(before) == content(after)


@given(wild_clusters(), st.data())
def test_pods_added_back_leave_no_trace(base: Cluster, data: st.DataObject):
    added = placed(data, base.nodes)
    snapshot = base.snapshot()

    again = snapshot.overlay(add=added).overlay(remove=added)

    expected = content(snapshot)
    expected["ports"] = [
        ports - {port for at, each in added if at == row for port in each.host_ports}
        for row, ports in enumerate(expected["ports"])
    ]
    assert content(again) == expected


def test_an_overlay_does_not_change_its_base():
    table = cluster(node("a"), node("b")).table()
    base = table.snapshot()
    before = content(base)

    overlay = base.overlay(add=[(1, pod("p", cpu="1", node="b"))])

    assert overlay.requested["cpu"].tolist() == [0, 1000]
    assert content(base) == before


@given(wild_clusters("resources"), st.data())
def test_the_values_of_one_node_equal_the_columns(base: Cluster, data: st.DataObject):
    overlay = base.snapshot().overlay(add=placed(data, base.nodes))
    rows = np.array(data.draw(st.permutations(range(len(base.nodes)))), dtype=np.intp)

    for snapshot in (base.snapshot(), overlay, overlay.take(rows), base.snapshot().take(rows[1:])):
        for row in range(snapshot.n_nodes):
            columns = {name: int(snapshot.requested[name][row]) for name in {*snapshot.resources, *RESOURCES}}
            nonzero = [int(snapshot.nonzero_requested[name][row]) for name in ("cpu", "memory")]
            assert snapshot.requested_on(row) == {name: amount for name, amount in columns.items() if amount}
            assert list(snapshot.nonzero_requested_on(row)) == nonzero


def test_results_on_an_overlay_are_cached_only_for_nodes():
    base = cluster(node("a"), node("b")).snapshot()

    overlay = base.overlay(add=[(1, pod("p", node="b"))])

    assert overlay.changes is None
    assert overlay.node_changes is base.node_changes is not None


def test_results_on_some_rows_are_not_cached():
    some = cluster(node("a"), node("b")).snapshot().take(np.array([1]))

    assert some.changes is some.node_changes is None


def test_a_port_of_a_removed_pod_is_free_though_a_second_pod_uses_it():
    ports = [{"name": "c", "ports": [{"hostPort": 80}]}]
    first, second = (pod(name, node="a", containers=ports) for name in "pq")
    base = cluster(node("a"), pods=[first, second]).snapshot()

    freed = base.overlay(remove=[(0, first)])

    assert base.port_conflicts(first.host_ports).tolist() == [True]
    assert freed.port_conflicts(first.host_ports).tolist() == [False]
    assert freed.overlay(add=[(0, first)]).port_conflicts(first.host_ports).tolist() == [True]


@given(wild_clusters(), wild_clusters())
def test_more_nodes_equal_the_cluster_with_these_nodes(whole: Cluster, more: Cluster):
    new = [renamed(each, f"new-{place}") for place, each in enumerate(more.nodes)]

    joined = whole.snapshot().with_nodes_of(Cluster(new).snapshot())

    expected = Cluster([*whole.nodes, *new], whole.pods).snapshot()
    found, wanted = content(joined), content(expected)
    del found["image"], wanted["image"]  # a new node is taken to have no images
    assert found == wanted
    assert joined.has_label("zone") == expected.has_label("zone")
    assert joined.storage.index is None, "its rows are not those of the live cluster"


def renamed(each: NodeObject, name: str) -> NodeObject:
    metadata = replace(each.node.metadata, name=name)
    return NodeObject(replace(each.node, metadata=metadata), each.raw)
