"""NodeResourcesFit and NodeResourcesBalancedAllocation if devices provide an extended resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pytest

from plugins.dynamic_resources.devices import ClassTotals, Counted, Devices
from plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from plugins.node_resources.fit import NodeResourcesFit
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.framework import CycleState, EventResource, Placement
from scheduler.framework.sliced_work import NeedsTime
from scheduler.objects.dynamic_resources import AllocationResult
from scheduler.snapshot import object_key
from scheduler.testing.devices import (
    DRIVER,
    allocation,
    device_class,
    resource_claim,
    resource_slice,
    watch_devices,
)
from scheduler.testing.fakes import FakeFeatures, FakeTimeSlice
from tests.support.builders import node, pod
from tests.support.clusters import Cluster
from tests.unit.plugins.plugin_calls import made, reasons, requeues, scores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.node import NodeObject
    from scheduler.snapshot import Snapshot

GPU = "nvidia.com/gpu"


class WithDevices(Cluster):
    """Nodes, and objects of resource.k8s.io."""

    def __init__(self, *nodes: NodeObject, objects: Any) -> None:
        super().__init__(list(nodes))
        self.kept = self.table()
        watch_devices(self.kept, *objects)
        self.devices = Devices.of(TableObjects(self.kept))

    def snapshot(self) -> Snapshot:
        return self.kept.snapshot()


def with_devices(*nodes: NodeObject, devices: Mapping[str, int], taken: int = 0) -> WithDevices:
    """A cluster where each node has a number of devices of a class for GPU; `taken` of the first node's are allocated."""
    held = [
        resource_claim(f"held-{number}", allocated=allocation(f"gpu-{number}", node=next(iter(devices))))
        for number in range(taken)
    ]
    slices = [resource_slice(name, number) for name, number in devices.items()]
    return WithDevices(*nodes, objects=[device_class("any", extended_resource=GPU), *slices, *held])


def test_devices_provide_an_extended_resource_that_the_node_lacks():
    nodes = with_devices(
        node("none"), node("one", allocatable={GPU: 1}), node("zero", allocatable={GPU: 0}), devices={}
    )
    plugin = made(NodeResourcesFit, table=nodes.kept)

    assert reasons(plugin, pod("p", requests={GPU: 2}), nodes) == {"one": (f"Insufficient {GPU}",)}
    implicit = pod("p", requests={"deviceclass.resource.kubernetes.io/any": 2})
    assert reasons(plugin, implicit, nodes) == {}
    unknown = pod("p", requests={"deviceclass.resource.kubernetes.io/other": 2})
    assert set(reasons(plugin, unknown, nodes)) == {"none", "one", "zero"}


def test_a_single_node_is_evaluated_as_all_are():
    nodes = with_devices(node("none"), node("one", allocatable={GPU: 1}), devices={})
    plugin, state, snapshot = made(NodeResourcesFit, table=nodes.kept), CycleState(), nodes.snapshot()
    wants = pod("p", requests={GPU: 2})
    plugin.pre_filter(state, wants, snapshot)

    assert plugin.filter_node(state, wants, snapshot.node_info(0)) is None
    assert plugin.filter_node(state, wants, snapshot.node_info(1)) is not None


def test_devices_provide_no_extended_resource_without_the_gate():
    nodes = with_devices(node("none"), devices={})
    off = made(NodeResourcesFit, table=nodes.kept, features=FakeFeatures(DRAExtendedResource=False))
    wants = pod("p", requests={GPU: 2})

    assert reasons(made(NodeResourcesFit, table=nodes.kept), wants, nodes) == {}
    assert reasons(off, wants, nodes) == {"none": (f"Insufficient {GPU}",)}


def test_the_signature_of_pods_with_devices_changes_with_the_device_classes():
    nodes = with_devices(node("n"), devices={})
    plugin, wants = made(NodeResourcesFit, table=nodes.kept), pod("p", requests={GPU: 2})
    before = plugin.signature(wants)
    assert before == plugin.signature(pod("q", requests={GPU: 2}))

    del nodes.kept.watch_kind("resource.k8s.io/v1/deviceclasses")["any"]

    assert plugin.signature(wants) != before
    assert plugin.signature(wants) == made(NodeResourcesFit).signature(wants)


@pytest.mark.parametrize(
    ("plugin", "args"),
    [
        pytest.param(NodeResourcesFit, {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": GPU}]}}, id="fit"),
        pytest.param(NodeResourcesBalancedAllocation, {"resources": [{"name": GPU}]}, id="balance"),
    ],
)  # fmt: skip
def test_pods_with_scored_devices_have_no_signature(plugin: Any, args: dict[str, Any]):
    nodes = with_devices(node("n"), devices={})
    usual, scoring = made(plugin, table=nodes.kept), made(plugin, table=nodes.kept, **args)

    assert usual.signature(pod("p", requests={GPU: 1})) is not None
    assert scoring.signature(pod("p", requests={GPU: 1})) is None
    assert scoring.signature(pod("p", requests={GPU: 0})) is not None
    assert "resource.k8s.io/v1/resourceslices" in scoring.needs.kinds - usual.needs.kinds


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, node("n"), True, id="a new node"),
        pytest.param(node("n"), node("n"), True, id="a node that did not change but may have devices"),
        pytest.param(node("n", allocatable={GPU: 3}), node("n", allocatable={GPU: 2}), False, id="one with a device plugin that has less"),
        pytest.param(None, node("n", allocatable={GPU: 1}), False, id="one whose device plugin has too little"),
        pytest.param(None, node("n", pods=0), False, id="one without capacity for pods"),
    ],
)  # fmt: skip
def test_a_node_with_devices_may_help(old: Any, new: Any, helps: bool):
    plugin = made(NodeResourcesFit, table=with_devices(node("n"), devices={}).kept)

    assert requeues(plugin, EventResource.NODE, pod("p", requests={GPU: 2}), old, new) is helps


STRATEGY = {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 1}]}


def test_devices_count_in_scores_if_the_node_has_none_of_the_resource():
    nodes = with_devices(
        node("four"), node("eight"), node("bare"), node("plugin", allocatable={GPU: 2}),
        devices={"four": 4, "eight": 8, "plugin": 8}, taken=2,
    )  # fmt: skip
    plugin = made(NodeResourcesFit, table=nodes.kept, scoringStrategy=STRATEGY)

    found = scores(plugin, pod("p", requests={GPU: 1}), nodes)

    assert found == {"four": 75, "eight": 12, "bare": 0, "plugin": 50}


def test_devices_in_flight_count_as_allocated():
    nodes = with_devices(node("n"), devices={"n": 4})
    plugin = made(NodeResourcesFit, table=nodes.kept, scoringStrategy=STRATEGY)
    given = msgspec.convert(allocation("gpu-0", node="n"), AllocationResult)

    nodes.devices.begin("somebody", given, pod("other"))

    assert scores(plugin, pod("p", requests={GPU: 1}), nodes) == {"n": 50}


@pytest.mark.parametrize(
    ("published", "counts"),
    [
        pytest.param(resource_slice("a", 2), {"a": 2, "b": 0}, id="of one node"),
        pytest.param(resource_slice("gone", 2), {"a": 0, "b": 0}, id="of a deleted node"),
        pytest.param(resource_slice(devices=2, allNodes=True), {"a": 2, "b": 2}, id="of all nodes"),
        pytest.param(
            resource_slice(devices=2, nodeSelector={"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}),
            {"a": 0, "b": 2}, id="of chosen nodes",
        ),
        pytest.param(
            resource_slice(devices=[{"name": "x", "nodeName": "a"}, {"name": "y", "allNodes": True}, {"name": "z"}], perDeviceNodeSelection=True),
            {"a": 2, "b": 1}, id="device by device",
        ),
        pytest.param(resource_slice("a", [{"name": "x"}, {"name": "broken", "attributes": {"size": {"int": 1}}}]), {"a": 1, "b": 0}, id="of the class"),
    ],
)  # fmt: skip
def test_devices_are_counted_on_the_nodes_that_can_use_them(published: Any, counts: dict[str, int]):
    few = device_class("few", f'!("size" in device.attributes["{DRIVER}"])', extended_resource=GPU)
    found = WithDevices(node("a"), node("b"), objects=[few, published])

    totals = ClassTotals(found.devices).of(found.snapshot(), GPU)

    assert totals is not None
    assert dict(zip("ab", totals.capacity.tolist(), strict=True)) == counts


def test_a_node_with_an_undecidable_device_has_none():
    broken = device_class("few", f'device.attributes["{DRIVER}"].size == 1', extended_resource=GPU)
    good, bad = {"name": "x", "attributes": {"size": {"int": 1}}}, {"name": "y"}
    slices = [resource_slice("a", [good, bad]), resource_slice("b", [good])]
    found = WithDevices(node("a"), node("b"), objects=[broken, *slices])

    totals = ClassTotals(found.devices).of(found.snapshot(), GPU)

    assert totals is not None
    assert totals.capacity.tolist() == [0, 1]
    assert ClassTotals(found.devices).of(found.snapshot(), "example.com/none") is None


def test_the_balanced_score_counts_devices_as_well():
    nodes = with_devices(
        node("four", cpu="4"), node("eight", cpu="4"), devices={"four": 4, "eight": 8}, taken=2
    )
    resources = [{"name": "cpu", "weight": 1}, {"name": GPU, "weight": 1}]
    plugin = made(NodeResourcesBalancedAllocation, table=nodes.kept, resources=resources)

    # four: (1/4, 3/4) with the pod, (0, 2/4) without it; eight: (1/4, 1/8) and (0, 0).
    assert scores(plugin, pod("p", cpu="1", requests={GPU: 1}), nodes) == {"four": 75, "eight": 71}


def test_placement_scores_ignore_devices():
    nodes = with_devices(node("a", cpu="4"), devices={"a": 4}, taken=4)
    strategy = {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": GPU}]}
    plugin = made(NodeResourcesFit, table=nodes.kept, scoringStrategy=strategy)
    members, group = [pod("p", cpu="1", requests={GPU: 1})], cast("PodGroup", None)

    assert plugin.score_placement(group, Placement("rack", np.array([0])), members, nodes.snapshot()) == 25


def test_devices_are_evaluated_once_for_all_pods_and_again_in_changed_slices(monkeypatch: pytest.MonkeyPatch):
    sized = device_class("sized", f'device.attributes["{DRIVER}"].size > 0', extended_resource=GPU)
    slices = [
        resource_slice(f"n{number}", [{"name": "x", "attributes": {"size": {"int": number + 1}}}])
        for number in range(20)
    ]
    found = WithDevices(*(node(f"n{number}") for number in range(20)), objects=[sized, *slices])
    totals = ClassTotals(found.devices)

    read: list[str] = []
    read_slice = Counted._read
    monkeypatch.setattr(
        Counted,
        "_read",
        lambda self, published: read.append(published.metadata.name) or read_slice(self, published),
    )

    def judged() -> int:
        read.clear()
        totals.of(found.snapshot(), GPU)
        return len(read)

    assert judged() == 20
    assert judged() == 0
    changed = resource_slice("n3", [{"name": "x", "attributes": {"size": {"int": -3}}}])
    found.kept.watch_kind("resource.k8s.io/v1/resourceslices")[object_key(changed)] = changed
    assert judged() == 1
    counted = totals.of(found.snapshot(), GPU)
    assert counted is not None
    assert counted.capacity.tolist() == [int(number != 3) for number in range(20)]


def test_allocated_devices_and_nodes_are_counted_again_after_changes():
    nodes = with_devices(node("a"), node("b"), devices={"a": 2, "b": 2})
    totals = ClassTotals(nodes.devices)
    claims = nodes.kept.watch_kind("resource.k8s.io/v1/resourceclaims")

    def counted() -> dict[str, tuple[int, int]]:
        snapshot = nodes.snapshot()
        found = totals.of(snapshot, GPU)
        assert found is not None
        return dict(
            zip(snapshot.names, zip(found.capacity.tolist(), found.taken.tolist(), strict=True), strict=True)
        )

    assert counted() == {"a": (2, 0), "b": (2, 0)}
    held = resource_claim("held", allocated=allocation("gpu-1", node="b"))
    claims[object_key(held)] = held
    assert counted() == {"a": (2, 0), "b": (2, 1)}
    del claims[object_key(held)]
    assert counted() == {"a": (2, 0), "b": (2, 0)}
    nodes.kept.add_node(node("c"))
    nodes.kept.remove_node("a")
    assert counted() == {"b": (2, 0), "c": (0, 0)}


def test_devices_are_evaluated_in_steps():
    slices = [resource_slice(f"n{number}", 2) for number in range(20)]
    found = WithDevices(node("n0"), objects=[device_class("any", extended_resource=GPU), *slices])
    limit = FakeTimeSlice()
    limit.slice_seconds = limit.each_reading = 1.0
    totals = ClassTotals(found.devices, limit)

    with pytest.raises(NeedsTime) as needs:
        totals.of(found.snapshot(), GPU)
    assert len(list(needs.value.steps)) >= 18
    counted = totals.of(found.snapshot(), GPU)
    assert counted is not None
    assert counted.capacity.tolist() == [2]
