"""The table compared with a slow model: plain dicts, which are summed up again after every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.objects.v1 import conflicts_with
from scheduler.snapshot import ClusterTable
from scheduler.snapshot.images import ImageColumns
from tests.support.builders import node, pod
from tests.support.clusters import HOST_PORTS, ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu", "example.com/foo")
LABELS = ("zone", "disk")
IMAGES = ("a:1", "b:1")
CLAIM_C, CLAIM_D = ({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in "cd")
DISK = {"name": "e", "iscsi": {"iqn": "disk"}}
USES = sorted(pod("p", volumes=[CLAIM_C, CLAIM_D, DISK]).storage_uses)


@dataclass
class Model:
    """The slow model of the columns."""

    nodes: dict[str, NodeObject] = field(default_factory=dict)
    pods: dict[str, dict[str, PodInfo]] = field(default_factory=dict)  # node name -> uid -> pod

    def requested(self, name: str, resource: str) -> int:
        return wrapped(sum(each.resources.taken.get(resource, 0) for each in self.pods[name].values()))

    def nonzero(self, name: str) -> tuple[int, int]:
        pods = [each.resources for each in self.pods[name].values()]
        return (
            wrapped(sum(each.nonzero_milli_cpu for each in pods)),
            wrapped(sum(each.nonzero_memory_bytes for each in pods)),
        )


def wrapped(total: int) -> int:
    """Wrap a number as an int64 sum in Go."""
    return (total + 2**63) % 2**64 - 2**63


def compare(model: Model, snapshot: Snapshot) -> None:
    assert sorted(model.nodes) == sorted(each.name for each in snapshot.nodes)
    assert snapshot.n_nodes == len(model.nodes)
    assert snapshot.all_rows.tolist() == list(range(len(model.nodes)))
    for row in snapshot.all_rows.tolist():
        name = snapshot.name_of(row)
        expected, pods = model.nodes[name], model.pods[name]
        assert snapshot.row_of(name) == row
        assert snapshot.nodes[row] is expected
        for resource in RESOURCES:
            assert snapshot.allocatable[resource][row] == expected.allocatable.get(resource, 0)
            assert snapshot.requested[resource][row] == model.requested(name, resource)
        nonzero = snapshot.nonzero_requested
        assert (nonzero["cpu"][row], nonzero["memory"][row]) == model.nonzero(name)
        held = {resource for each in pods.values() for resource in each.resources.taken}
        requested = {resource: model.requested(name, resource) for resource in held}
        assert snapshot.requested_on(row) == {resource: some for resource, some in requested.items() if some}
        assert tuple(snapshot.nonzero_requested_on(row)) == model.nonzero(name)
        assert snapshot.pod_count[row] == len(pods)
        assert {each.uid for each in snapshot.pods_on(row)} == set(pods)
        assert snapshot.unschedulable[row] == expected.unschedulable
        assert snapshot.taints.values[snapshot.taints.codes[row]] == expected.taints
        features = snapshot.declared_features
        assert features.values[features.codes[row]] == expected.declared_features
        for key in LABELS:
            label = snapshot.label(key)
            assert label.values[label.codes[row]] == expected.labels.get(key)
        used = {port for each in pods.values() for port in each.host_ports}
        assert snapshot.used_ports_on(row) == used
        for wanted in HOST_PORTS:
            assert bool(snapshot.port_conflicts([wanted])[row]) is conflicts_with([wanted])(used)
        for image in IMAGES:
            assert snapshot.image(image).present[row] == (image in expected.images)
        assert list(snapshot.storage.pods_on(row)) == [each for each in pods.values() if each.storage_volumes]
    assert set(snapshot.resources) == {name for each in model.nodes.values() for name in each.allocatable}
    assert set(snapshot.overdrawn) == {
        resource for name in model.nodes for resource in RESOURCES if model.requested(name, resource) < 0
    }
    for key in LABELS:
        assert snapshot.has_label(key) == any(key in each.labels for each in model.nodes.values())
    with_storage = {
        name for name, pods in model.pods.items() if any(p.storage_volumes for p in pods.values())
    }
    assert {snapshot.name_of(row) for row in snapshot.storage.rows()} == with_storage
    for use in USES:
        holders = {
            name for name, pods in model.pods.items() if any(use in p.storage_uses for p in pods.values())
        }
        assert {snapshot.name_of(row) for row in snapshot.storage.holders(use)} == holders
    for image in IMAGES:
        state = snapshot.image(image)
        assert state.num_nodes == sum(image in each.images for each in model.nodes.values())
        assert state.present.shape == (len(model.nodes),)
    assert snapshot.row_of("no such node") is None


names = st.sampled_from([f"n{number}" for number in range(20)])
node_fields = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["1", "4", "-1"]),
        "allocatable": st.dictionaries(
            st.sampled_from(RESOURCES[3:]), st.sampled_from(["1", "3"]), max_size=2
        ),
        "labels": st.dictionaries(st.sampled_from(LABELS), st.sampled_from(["x", "y", "ü"]), max_size=2),
        "taints": st.lists(st.sampled_from(["k:NoSchedule", "l=v:PreferNoSchedule"]), max_size=2),
        "unschedulable": st.booleans(),
        "declaredFeatures": st.lists(st.sampled_from(["A", "B"]), unique=True),
        "images": st.lists(
            st.fixed_dictionaries(
                {"names": st.just([IMAGES[0]]) | st.just([IMAGES[1]]), "sizeBytes": st.just(5)}
            ),
            max_size=2,
        ),
    }
)
containers = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.just("c"),
            "ports": st.lists(ports, max_size=2),
            "resources": st.fixed_dictionaries(
                {
                    "requests": st.dictionaries(
                        st.sampled_from(["cpu", "memory", *RESOURCES[3:]]),
                        st.sampled_from(["1", "250m", "-2", "9223372036854775807"]),
                        max_size=3,
                    )
                }
            ),
        }
    ),
    max_size=2,
)


volumes = st.lists(st.sampled_from([CLAIM_C, CLAIM_D, DISK, {"name": "tmp", "emptyDir": {}}]), max_size=2)


class Table(RuleBasedStateMachine):
    """Random changes; after each change the columns equal the model, and the changed rows are logged."""

    @initialize(labels_read_early=st.booleans())
    def start(self, labels_read_early: bool):
        self.table = ClusterTable()
        self.model = Model()
        self.changed: set[str | None] = set()  # None: the row that no longer exists
        self.changed_nodes: set[str | None] = set()
        self.changed_storage: set[str] = set()
        self.seen = self.seen_nodes = self.seen_storage = 0
        self.count = 0
        if labels_read_early:
            self.table.label("zone")
            self.table.images(["a:1"])

    @rule(name=names, fields=node_fields)
    def put_node(self, name: str, fields: dict[str, Any]):
        each = node(name, **fields)
        if name in self.model.nodes:
            is_new = each.raw != self.model.nodes[name].raw
            assert self.table.update_node(each) is is_new
        else:
            is_new = True
            self.table.add_node(each)
            self.model.pods[name] = {}
        self.model.nodes[name] = each
        if is_new:
            self.changed.add(name)
            self.changed_nodes.add(name)

    @precondition(lambda self: self.model.nodes)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject):
        name = data.draw(st.sampled_from(sorted(self.model.nodes)))
        last = self.table.nodes[-1].name
        self.table.remove_node(name)
        del self.model.nodes[name], self.model.pods[name]
        moved = None if last == name else last
        self.changed.add(moved)
        self.changed_nodes.add(moved)

    @precondition(lambda self: self.model.nodes)
    @rule(data=st.data(), containers=containers, volumes=volumes)
    def add_pod(self, data: st.DataObject, containers: list[dict[str, Any]], volumes: list[dict[str, Any]]):
        name = data.draw(st.sampled_from(sorted(self.model.nodes)))
        self.count += 1
        each = pod(f"p{self.count}", node=name, containers=containers, volumes=volumes)
        self.table.add_pod(self.table.row_of(name), each)
        self.model.pods[name][each.uid] = each
        self.changed.add(name)
        self.changed_storage |= {name} if each.storage_volumes else set()

    @precondition(lambda self: any(self.model.pods.values()))
    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject):
        name = data.draw(st.sampled_from(sorted(name for name, pods in self.model.pods.items() if pods)))
        uid = data.draw(st.sampled_from(sorted(self.model.pods[name])))
        removed = self.table.remove_pod(self.table.row_of(name), uid)
        assert removed is self.model.pods[name].pop(uid)
        self.changed.add(name)
        self.changed_storage |= {name} if removed.storage_volumes else set()

    @precondition(lambda self: any(self.model.pods.values()))
    @rule(data=st.data())
    def replace_pod(self, data: st.DataObject):
        name = data.draw(st.sampled_from(sorted(name for name, pods in self.model.pods.items() if pods)))
        uid = data.draw(st.sampled_from(sorted(self.model.pods[name])))
        another = self.model.pods[name][uid] = self.model.pods[name][uid].placed_on(name)
        self.table.replace_pod(self.table.row_of(name), another, invalidates=False)

    @invariant()
    def columns_are_the_models(self):
        compare(self.model, self.table.snapshot())

    @invariant()
    def the_rows_that_changed_are_noted_and_no_others(self):
        changes, node_changes = self.table.changes, self.table.node_changes
        assert self.names_at(changes.since(self.seen)) == self.changed
        assert self.names_at(node_changes.since(self.seen_nodes)) == self.changed_nodes
        storage_changes = self.table.storage().changes
        noted = storage_changes.since(self.seen_storage)
        assert noted is not None
        there = {self.table.nodes[row].name for row in noted if row < self.table.n_nodes}
        assert self.changed_storage & set(self.model.nodes) <= there
        self.seen_storage, self.changed_storage = storage_changes.end, set()
        self.seen, self.seen_nodes = changes.end, node_changes.end
        self.changed, self.changed_nodes = set(), set()

    def names_at(self, rows: Sequence[int] | None) -> set[str | None]:
        assert rows is not None
        return {self.table.nodes[row].name if row < self.table.n_nodes else None for row in rows}

    @invariant()
    def tables_of_values_stay_as_small_as_the_cluster_is_diverse(self):
        limit = self.peak = max(getattr(self, "peak", 0), len(self.model.nodes))
        for interned in self.table._interned():
            assert len(interned.values) <= limit + 2


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_thousand_successive_values_need_no_thousand_places():
    table = ClusterTable()
    for number in range(1000):
        change = node("n", labels={"zone": f"zone-{number}"}, taints=[f"k=v{number}:NoSchedule"])
        table.update_node(change) if number else table.add_node(change)
        label = table.snapshot().label("zone")
        assert label.values[label.codes[0]] == f"zone-{number}"

    assert len(table.snapshot().label("zone").values) <= 3
    assert len(table.snapshot().taints.values) <= 3


def test_the_least_recently_used_label_is_dropped_and_restored_correctly():
    table = ClusterTable()
    keys = [f"key-{number}" for number in range(1200)]
    table.add_node(node("n", labels={"zone": "a", **dict.fromkeys(keys, "b")}))

    for key in ("zone", *keys):
        table.label(key)

    assert len(table._labels) == 1024
    label = table.label("zone")
    assert label.values[label.codes[0]] == "a"


def test_names_used_only_by_pods_have_no_column():
    table = ClusterTable()
    table.add_node(node("n", labels={"zone": "a"}, images=[{"names": ["a:1"], "sizeBytes": 5}]))
    before = len(table._columns())
    requests = {f"example.com/{number}": "1" for number in range(1000)}
    evil = pod("evil", node="n", containers=[{"name": "c", "resources": {"requests": requests}}])

    table.add_pod(0, evil)
    for number in range(1000):
        assert table.label(f"key-{number}").values == [None]
        assert not table.images([f"image:{number}"])
        assert table.requested(f"example.com/{number}").tolist() == [1]

    assert len(table._columns()) <= before + 64
    assert not table.overdrawn()


def test_columns_of_a_node_are_removed_with_it():
    table = ClusterTable()
    table.add_node(node("a", labels={"zone": "x"}))
    names = len(table._columns())
    fields = {"labels": {"disk": "y"}, "allocatable": {"example.com/foo": "3"}}
    for _ in range(3):
        table.add_node(node("b", **fields, images=[{"names": ["a:1"], "sizeBytes": 5}]))
        assert table.label("disk").judge(lambda value: value == "y").tolist() == [False, True]
        assert table.images(["a:1"])["a:1"].num_nodes == 1
        assert len(table._columns()) > names
        table.remove_node("b")
        assert len(table._columns()) == names
        assert set(table.resources()) == set(table.nodes[0].allocatable)


def test_most_old_values_are_dropped():
    table = ClusterTable()
    table.add_node(node("n", labels={"zone": "z"}))
    shown = [node(f"n{number}", labels={"zone": f"z{number}"}) for number in range(300)]
    table.label("zone")
    for each in shown:
        table.add_node(each)
    for each in shown[:250]:
        table.remove_node(each.name)
        label = table.label("zone")
        for row, there in enumerate(table.nodes):
            assert label.values[label.codes[row]] == there.labels["zone"]

    assert len(table.label("zone").values) <= 2 * table.n_nodes + 64


def test_a_snapshot_is_read_only():
    table = ClusterTable()
    table.add_node(node("n"))
    snapshot = table.snapshot()

    for column in (
        snapshot.allocatable["cpu"],
        snapshot.requested["nobody has it"],
        snapshot.pod_count,
        snapshot.unschedulable,
        snapshot.taints.codes,
        snapshot.declared_features.codes,
        snapshot.label("zone").codes,
        snapshot.image("a:1").present,
        snapshot.all_rows,
    ):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_the_same_snapshot_is_returned_until_the_layout_changes():
    table = ClusterTable()
    table.add_node(node("a"))
    before = table.snapshot()
    table.add_node(node("b"))
    grown = table.snapshot()

    assert grown is not before
    table.add_pod(0, pod("p", cpu="1", node="a"))
    table.add_pod(0, pod("q", cpu="1", node="a"))
    assert table.snapshot() is grown
    assert grown.requested["cpu"].tolist() == [2000, 0]


def test_a_port_of_two_pods_is_used_until_both_are_gone():
    table = ClusterTable()
    table.add_node(node("a"))
    first, second = (
        pod(name, node="a", containers=[{"name": "c", "ports": [{"hostPort": 80}]}]) for name in "pq"
    )
    table.add_pod(0, first)
    table.add_pod(0, second)

    table.remove_pod(0, first.uid)
    assert table.port_conflicts(first.host_ports).tolist() == [True]
    table.remove_pod(0, second.uid)
    assert table.port_conflicts(first.host_ports).tolist() == [False]


def test_an_image_has_the_size_of_the_first_node_until_no_node_has_it():
    def with_image(name: str, size: int | None) -> NodeObject:
        images = [] if size is None else [{"names": ["i:1"], "sizeBytes": size}]
        return node(name, images=images)

    table = ClusterTable()
    table.add_node(with_image("a", 10))
    table.add_node(with_image("b", 20))
    assert table.images(["i:1"])["i:1"].size_bytes == 10

    table.update_node(with_image("a", None))
    assert table.images(["i:1"])["i:1"].size_bytes == 10
    table.remove_node("b")
    assert not table.images(["i:1"])
    table.update_node(with_image("a", 30))
    assert table.images(["i:1"])["i:1"].size_bytes == 30


def test_objects_of_a_kind_without_watch_are_an_error_that_names_it():
    table = ClusterTable()

    with pytest.raises(LookupError, match=r"v1/services is not watched; .* `needs`"):
        table.snapshot().objects("v1/services")

    table.watch_kind("v1/services")["shop/web"] = {"kind": "Service"}
    assert table.snapshot().objects("v1/services") == {"shop/web": {"kind": "Service"}}


def test_a_kind_without_watch_has_no_watched_objects():
    table = ClusterTable()

    assert table.snapshot().watched_objects("v1/services") == {}

    table.watch_kind("v1/services")["shop/web"] = {"kind": "Service"}
    assert table.snapshot().watched_objects("v1/services") == {"shop/web": {"kind": "Service"}}


def test_an_unknown_resource_reads_as_zeros():
    table = ClusterTable()
    for name in "abc":
        table.add_node(node(name))

    assert np.array_equal(table.snapshot().requested["example.com/new"], [0, 0, 0])


def test_the_names_of_images_are_counted_before_a_pod_asks_for_one():
    images = ImageColumns()
    there, gone = (node(name, images=[{"names": [f"{name}:1"], "sizeBytes": 10}]) for name in ("a", "b"))
    for each in (there, gone):
        images.note_names(None, each)
    images.note_names(gone, None)

    assert images.states(["b:1", "c:1"], _Untouched(), 16) == {}
    assert images.states(["a:1"], [there], 16)["a:1"].size_bytes == 10


class _Untouched(list[Any]):
    def __iter__(self) -> Any:
        raise AssertionError("all nodes are read, which takes a second for 100,000 of them")
