"""The volume plugins with incremental state against loops without state."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plugins.volumes.node_volume_limits import NodeVolumeLimits
from plugins.volumes.volume_restrictions import VolumeRestrictions
from plugins.volumes.volume_zone import VolumeZone
from scheduler.framework import CycleState
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import FakeFeatures, FakeTimeSlice
from scheduler.testing.samples import (
    claim,
    csi_driver,
    csi_node,
    storage_class,
    volume,
    volume_attachment,
    watch_storage,
)
from tests.reference import volumes as loops
from tests.reference.one_node import PASSES, OneNode, filtered, verdicts
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo


def impatient() -> FakeTimeSlice:
    """Return a limit by which each call and each step is over at once."""
    limit = FakeTimeSlice()
    limit.slice_seconds, limit.each_reading = 1.0, 1.0
    return limit


LOOPS = (
    (lambda: VolumeRestrictions(time_slice=FakeTimeSlice()), loops.restrictions),
    (lambda: NodeVolumeLimits(time_slice=FakeTimeSlice(), features=FakeFeatures()), loops.limits),
    (lambda: NodeVolumeLimits(time_slice=impatient(), features=FakeFeatures()), loops.limits),
    (
        lambda: NodeVolumeLimits(time_slice=impatient(), features=FakeFeatures("1.37")),
        loops.limits_and_drivers,
    ),
    (VolumeZone, loops.zones),
)
STEPS = 200

DRIVERS = ("disk.example.com", "pd.csi.storage.gke.io", "ebs.csi.aws.com", "disk.csi.azure.com")
NODES = ("n0", "n1", "n2", "n3")
CLAIMS = ("c0", "c1", "c2", "p0-v1", "p1-v0", "waiting-v0")
VOLUMES = ("pv0", "pv1", "pv2")
CLASSES = {
    "late": (DRIVERS[0], "WaitForFirstConsumer"),
    "early": (DRIVERS[0], "Immediate"),
    "undecided": (DRIVERS[0], None),
    "in-tree": ("kubernetes.io/gce-pd", "WaitForFirstConsumer"),
    "file": ("kubernetes.io/azure-file", "WaitForFirstConsumer"),
}  # name -> provisioner, binding mode
SOURCES: tuple[Any, ...] = (
    *({"persistentVolumeClaim": {"claimName": name}} for name in (*CLAIMS, *CLAIMS)),
    {"ephemeral": {}},
    {"ephemeral": {}},
    {"gcePersistentDisk": {"pdName": "d1"}},
    {"gcePersistentDisk": {"pdName": "d1", "readOnly": True}},
    {"gcePersistentDisk": {"pdName": "d2"}},
    {"awsElasticBlockStore": {"volumeID": "d1"}},
    {"iscsi": {"iqn": "d1"}},
    {"iscsi": {"iqn": "d1", "readOnly": True}},
    {"rbd": {"monitors": ["m1", "m2"], "pool": "rbd", "image": "d1"}},
    {"rbd": {"monitors": ["m2"], "pool": "rbd", "image": "d1"}},
    {"rbd": {"monitors": [], "pool": "rbd", "image": "d1"}},
    {"azureDisk": {"diskURI": "d1"}},
    {"azureDisk": {"diskURI": "d1", "kind": "Dedicated"}},
    {"azureFile": {"shareName": "d1"}},
    {"emptyDir": {}},
)
ZONE_LABELS = (loops.BETA_ZONE, loops.BETA_REGION, loops.GA_ZONE, loops.GA_REGION)


class Story:
    """A cluster to which random things happen, known twice: as the table has it, and as plain lists."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.table = ClusterTable()
        watch_storage(self.table)
        self.objects = loops.Objects()
        self.nodes: dict[str, NodeObject] = {}
        self.pods: dict[str, dict[str, PodInfo]] = {}  # node name -> uid -> pod
        self.plugins = [plugin() for plugin, _ in LOOPS]
        self.count = 0
        for name in NODES[:3]:
            self.put_node(name)
            self.put_csi_node(name)
        for name in CLASSES:
            self.put_class(name)
        for name in VOLUMES:
            self.put_volume(name)
        for name in CLAIMS:
            self.put_claim(name)

    def go_on(self) -> None:
        """Let one more thing happen."""
        self.random.choice(
            [
                *[self.add_pod] * 6,
                *[self.remove_pod] * 4,
                *[self.put_claim] * 3,
                *[self.put_volume] * 2,
                *[self.put_csi_node] * 2,
                *[self.attach] * 2,
                self.put_driver,
                *[self.remove_object] * 3,
                self.put_node,
                self.remove_node,
                self.put_class,
            ]
        )()

    def mounts(self) -> list[Any]:
        found = self.random.sample(SOURCES, self.random.choice([0, 1, 1, 1, 2, 3]))
        return [{"name": f"v{number}", **source} for number, source in enumerate(found)]

    def labels(self, *values: str) -> dict[str, str]:
        return {
            label: self.random.choice(values)
            for label in self.random.sample(ZONE_LABELS, self.random.randint(0, 2))
        }

    # Nodes and pods.

    def put_node(self, name: str | None = None) -> None:
        name = name or self.random.choice(NODES)
        each = node(name, labels=self.labels("a", "b"))
        if name in self.nodes:
            self.table.update_node(each)
        else:
            self.table.add_node(each)
            self.pods[name] = {}
        self.nodes[name] = each

    def remove_node(self) -> None:
        if self.nodes:
            name = self.random.choice(sorted(self.nodes))
            self.table.remove_node(name)
            del self.nodes[name], self.pods[name]

    def add_pod(self) -> None:
        if self.nodes:
            where = self.random.choice(sorted(self.nodes))
            namespace = self.random.choice(["default", "default", "default", "other"])
            each = pod(f"p{self.count}", node=where, namespace=namespace, volumes=self.mounts())
            self.count += 1
            self.table.add_pod(self.row_of(where), each)
            self.pods[where][each.uid] = each

    def remove_pod(self) -> None:
        there = [(where, uid) for where, pods in self.pods.items() for uid in pods]
        if there:
            where, uid = self.random.choice(there)
            self.table.remove_pod(self.row_of(where), uid)
            del self.pods[where][uid]

    def row_of(self, name: str) -> int:
        row = self.table.row_of(name)
        assert row is not None
        return row

    # Objects.

    def put_claim(self, name: str | None = None) -> None:
        there = [each for pods in self.pods.values() for each in pods.values()]
        made_for = [used.name for each in there for used in each.claims if used.is_ephemeral]
        name = name or self.random.choice([*CLAIMS, *made_for])
        owners = [None, pod("waiting"), *there, *(each for each in there if name.startswith(f"{each.name}-"))]
        each = claim(
            name,
            self.random.choice(["", *VOLUMES]),
            class_name=self.random.choice([None, *CLASSES]),
            modes=self.random.choice([["ReadWriteOnce"], ["ReadWriteOncePod"]]),
            owner=self.random.choice(owners),
            annotations=self.random.choice([{}, {}, {"volume.beta.kubernetes.io/storage-class": "late"}]),
        )
        watch_storage(self.table, each)
        self.objects.claims[f"default/{name}"] = each

    def put_volume(self, name: str | None = None) -> None:
        name = name or self.random.choice(VOLUMES)
        source: Any = self.random.choice(
            [
                {},
                {},
                {"csi": None, "gcePersistentDisk": {"pdName": "d1"}},
                {"csi": None, "awsElasticBlockStore": {"volumeID": "d1"}},
                {"csi": None, "hostPath": {"path": "/"}},
            ]
        )
        labels = self.labels("a", "b", "a__b" if not source else "a", "", " a")
        each = volume(name, labels=labels, **source)
        watch_storage(self.table, each)
        self.objects.volumes[name] = each

    def put_class(self, name: str | None = None) -> None:
        name = name or self.random.choice(list(CLASSES))
        provisioner, mode = CLASSES[name]
        self.objects.classes[name] = storage_class(name, mode=mode, provisioner=provisioner)
        watch_storage(self.table, self.objects.classes[name])

    def put_csi_node(self, name: str | None = None) -> None:
        name = name or self.random.choice(NODES)
        drivers = self.random.sample(DRIVERS, self.random.randint(0, 3))
        limits = {driver: self.random.choice([None, 0, 1, 2]) for driver in drivers}
        self.objects.csi_nodes[name] = csi_node(name, limits)
        watch_storage(self.table, self.objects.csi_nodes[name])

    def put_driver(self) -> None:
        name, opted = self.random.choice(DRIVERS), self.random.choice([None, False, True, True])
        self.objects.drivers[name] = csi_driver(name, preventPodSchedulingIfMissing=opted)
        watch_storage(self.table, self.objects.drivers[name])

    def attach(self) -> None:
        name, where = self.random.choice(["a0", "a1", "a2"]), self.random.choice(NODES)
        attached = self.random.choice([None, *VOLUMES])
        attacher = self.random.choice(["", DRIVERS[0], DRIVERS[0]])
        each = volume_attachment(name, node=where, volume=attached, attacher=attacher)
        watch_storage(self.table, each)
        self.objects.attachments[name] = each

    def remove_object(self) -> None:
        kinds = {
            "v1/persistentvolumeclaims": self.objects.claims,
            "v1/persistentvolumes": self.objects.volumes,
            "storage.k8s.io/v1/storageclasses": self.objects.classes,
            "storage.k8s.io/v1/csinodes": self.objects.csi_nodes,
            "storage.k8s.io/v1/volumeattachments": self.objects.attachments,
            "storage.k8s.io/v1/csidrivers": self.objects.drivers,
        }
        there = [(kind, key) for kind, known in kinds.items() for key in sorted(known)]
        kind, key = self.random.choice(there)
        del kinds[kind][key]
        del self.table.watch_kind(kind)[key]

    # Judging.

    def one_by_one(self) -> list[OneNode]:
        return [OneNode(each, list(self.pods[each.name].values())) for each in self.table.nodes]

    def compare(self, waiting: PodInfo) -> list[Any]:
        """Judge a pod by plugins and loops; return what the loops say."""
        snapshot, nodes = self.table.snapshot(), self.one_by_one()
        backwards = snapshot.take(np.arange(snapshot.n_nodes, dtype=np.intp)[::-1])
        said: list[Any] = []
        for plugin, (_, loop) in zip(self.plugins, LOOPS, strict=True):
            expected = loop(waiting, nodes, self.objects)
            assert filtered(plugin, waiting, snapshot) == expected
            turned = expected if isinstance(expected, str) else expected[::-1]
            assert filtered(plugin, waiting, backwards) == turned
            said += [expected] if isinstance(expected, str) else expected
        return said

    def compare_without_some(self, waiting: PodInfo) -> None:
        """Judge each node as if its own pods alone had gone, as the dry run of preemption does."""
        snapshot, nodes = self.table.snapshot(), self.one_by_one()
        gone = [[other for other in each.pods if self.random.random() < 0.5] for each in nodes]
        pairs = [(row, each) for row, pods in enumerate(gone) for each in pods]
        left = [
            OneNode(each.node, [other for other in each.pods if other not in gone[row]])
            for row, each in enumerate(nodes)
        ]
        without = snapshot.overlay(remove=pairs)
        restrictions, limits, *_ = self.plugins

        assert filtered(limits, waiting, without) == loops.limits(waiting, left, self.objects)

        state = CycleState()
        if restrictions.pre_filter(state, waiting, snapshot) is None:
            twin = state.clone()
            restrictions.remove_pods(twin, waiting, pairs, without)
            found = verdicts(restrictions.filter(twin, waiting, without, snapshot.all_rows))
            assert found == [
                loops.restrictions_without(waiting, nodes, self.objects, row, gone[row])
                for row in range(len(nodes))
            ]
            restrictions.add_pods(twin, waiting, pairs, snapshot)
            for each in (twin, state):
                again = verdicts(restrictions.filter(each, waiting, snapshot, snapshot.all_rows))
                assert again == loops.restrictions(waiting, nodes, self.objects)


@cache
def tell(seed: int) -> set[Any]:
    """Tell a story, once, and compare after each step; return everything that was said."""
    story, said = Story(seed), set[Any]()
    for _ in range(STEPS):
        story.go_on()
        for _ in range(3):
            waiting = pod("waiting", volumes=story.mounts())
            said.update(story.compare(waiting))
            story.compare_without_some(waiting)
    return said


@pytest.mark.parametrize("seed", range(10))
def test_the_plugins_agree_with_the_reference_loops(seed: int):
    tell(seed)


def test_the_random_clusters_produce_every_verdict():
    said = set[Any]().union(*map(tell, range(10)))

    assert {PASSES, loops.DISK, loops.ONE_POD, loops.ZONE, loops.LIMIT, "Skip"} <= said
    assert {
        ("Unschedulable", (f"{driver} CSI driver is not installed on the node",)) for driver in DRIVERS
    } <= said
    assert {each[0] for each in said} >= {"Error", "UnschedulableAndUnresolvable"}
    assert said >= {
        "PersistentVolumeClaim had no pv name and storageClass name",
        "PersistentVolume had no name",
        'VolumeBindingMode not set for StorageClass "undecided"',
        'persistentvolume "pv0" not found',
        'persistentvolumeclaim "c0" not found',
        'storageclass.storage.k8s.io "late" not found',
    }
