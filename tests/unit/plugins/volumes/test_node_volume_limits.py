from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from plugins.volumes import attached
from plugins.volumes.attached import AttachedVolumes
from plugins.volumes.node_volume_limits import NodeVolumeLimits
from scheduler.framework import SKIP, ActionType, CycleState, EventResource, NeedsTime
from scheduler.testing.fakes import FakeFeatures, FakeTimeSlice
from scheduler.testing.samples import (
    DRIVER,
    claim,
    csi_driver,
    csi_node,
    mounted,
    storage_class,
    volume,
    volume_attachment,
    watch_storage,
)
from tests.support.builders import node, pod
from tests.unit.plugins.plugin_calls import made, requeues
from tests.unit.plugins.volumes.clusters import cluster_of, judged

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.snapshot import ClusterTable

FULL = "Unschedulable: node(s) exceed max volume count"
EBS, GCE = "ebs.csi.aws.com", "pd.csi.storage.gke.io"


def bound(*names: str) -> list[Any]:
    """Claims, each bound to a volume with its name."""
    return [each for name in names for each in (claim(name, name), volume(name))]


def on_a(name: str, *claims: str, **fields: Any) -> Any:
    return pod(name, node="a", volumes=mounted(*claims), **fields)


@pytest.mark.parametrize("source", ["emptyDir", "iscsi", "rbd", "csi", "nfs", "image"])
def test_pods_without_counted_volumes_are_skipped_and_identical(source: str):
    each = pod("p", volumes=[{"name": "v", source: {}}])

    assert judged(made(NodeVolumeLimits), each, cluster_of()) is SKIP
    assert made(NodeVolumeLimits).signature(each) == ()


@pytest.mark.parametrize(
    "source", ["persistentVolumeClaim", "ephemeral", "azureFile", "vsphereVolume", "cinder"]
)
def test_pods_with_counted_volumes_are_not_identical(source: str):
    each = pod("p", volumes=[{"name": "v", source: {}}])

    assert made(NodeVolumeLimits).signature(each) is None


@pytest.mark.parametrize(
    ("limit", "there", "wanted", "refused"),
    [
        pytest.param(2, ["x"], ["y"], False, id="one more fits"),
        pytest.param(1, ["x"], ["y"], True, id="one more does not"),
        pytest.param(2, ["x"], ["y", "z"], True, id="two more do not"),
        pytest.param(0, [], ["y"], True, id="none at all"),
        pytest.param(0, [], [], False, id="none is needed"),
        pytest.param(None, ["x"], ["y"], False, id="no limit"),
        pytest.param(1, ["x"], ["x"], False, id="the volume is there already"),
        pytest.param(1, ["x", "y"], ["x"], False, id="also where the limit is passed"),
        pytest.param(2, ["x"], ["x", "y"], False, id="one of the two is there"),
        pytest.param(1, [], ["y", "y"], False, id="one volume mounted twice"),
    ],
)
def test_a_node_that_cannot_attach_all_volumes_is_rejected(
    limit: int | None, there: list[str], wanted: list[str], refused: bool
):
    table = cluster_of(*bound("x", "y", "z"), csi_node("a", {DRIVER: limit}), pods=(on_a("u", *there),))

    found = judged(made(NodeVolumeLimits), pod("p", volumes=mounted(*wanted)), table)

    assert found == (SKIP if not wanted else {"a": FULL} if refused else {})


def test_pods_that_share_a_volume_attach_it_once():
    users = on_a("one", "x"), on_a("two", "x")
    table = cluster_of(*bound("x", "y"), csi_node("a", {DRIVER: 2}), pods=users)

    assert judged(made(NodeVolumeLimits), pod("p", volumes=mounted("y")), table) == {}


def test_each_driver_has_its_own_limit():
    objects = [claim("x", "x"), volume("x", driver="one"), claim("y", "y"), volume("y", driver="two")]
    table = cluster_of(*objects, csi_node("a", {"one": 1, "two": 1}), pods=(on_a("u", "x"),))

    assert judged(made(NodeVolumeLimits), pod("p", volumes=mounted("y")), table) == {}


@pytest.mark.parametrize(
    ("attachment", "refused"),
    [
        pytest.param(volume_attachment("v", node="a", volume="x"), True, id="it takes a place"),
        pytest.param(volume_attachment("v", node="b", volume="x"), False, id="on another node"),
        pytest.param(volume_attachment("v", node="a", volume="x", attacher="other"), False, id="by another"),
        pytest.param(
            volume_attachment("v", node="a", volume="x", attacher=""), False, id="without an attacher"
        ),
        pytest.param(volume_attachment("v", node="a", volume=None), False, id="an inline volume"),
        pytest.param(volume_attachment("v", node="a", volume="gone"), False, id="a deleted volume"),
        pytest.param(volume_attachment("v", node="a", volume="nfs"), False, id="a volume without a driver"),
    ],
)
def test_volumes_attached_without_a_pod_count(attachment: Any, refused: bool):
    others = volume("nfs", csi=None, nfs={"server": "s"})
    table = cluster_of(*bound("x", "y"), others, csi_node("a", {DRIVER: 1}), attachment)

    found = judged(made(NodeVolumeLimits), pod("p", volumes=mounted("y")), table)

    assert found == ({"a": FULL} if refused else {})


def test_a_volume_attached_for_a_pod_counts_once():
    attachment = volume_attachment("v", node="a", volume="x")
    objects = [*bound("x", "y"), csi_node("a", {DRIVER: 2}), attachment]

    assert (
        judged(
            made(NodeVolumeLimits),
            pod("p", volumes=mounted("y")),
            cluster_of(*objects, pods=(on_a("u", "x"),)),
        )
        == {}
    )


def test_the_attachment_of_a_volume_of_the_pod_counts_again():
    """As upstream: only volumes of pods are subtracted from what the new pod needs."""
    objects = [*bound("x"), csi_node("a", {DRIVER: 1}), volume_attachment("v", node="a", volume="x")]

    assert judged(made(NodeVolumeLimits), pod("p", volumes=mounted("x")), cluster_of(*objects)) == {"a": FULL}


@pytest.mark.parametrize(
    ("provisioner", "driver", "counts"),
    [
        pytest.param(DRIVER, DRIVER, True, id="a driver"),
        pytest.param("kubernetes.io/aws-ebs", EBS, True, id="an in-tree plugin whose driver does its work"),
        pytest.param("kubernetes.io/azure-file", "file.csi.azure.com", False, id="one that is not migrated"),
        pytest.param("kubernetes.io/no-provisioner", DRIVER, False, id="no provisioner"),
    ],
)
def test_an_unprovisioned_volume_counts_for_its_driver(provisioner: str, driver: str, counts: bool):
    objects = [
        storage_class("c", provisioner=provisioner), claim("x", class_name="c"), csi_node("a", {driver: 0})
    ]  # fmt: skip

    found = judged(made(NodeVolumeLimits), pod("p", volumes=mounted("x")), cluster_of(*objects))

    assert found == ({"a": FULL} if counts else {})


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([claim("x")], id="no class"),
        pytest.param([claim("x", class_name="c")], id="a class that is not there"),
        pytest.param([claim("x", "x"), volume("x", csi=None, nfs={})], id="a volume without a driver"),
        pytest.param([claim("x", "x"), volume("x", csi={"driver": DRIVER})], id="a volume without a handle"),
        pytest.param(
            [claim("x", "x"), volume("x", csi=None, azureDisk={"diskURI": "u", "kind": "Dedicated"})],
            id="a volume that cannot be translated",
        ),
        pytest.param([claim("x", "x"), volume("x", csi=None, vsphereVolume={})], id="not migrated"),
    ],
)
def test_volumes_without_a_driver_do_not_count(objects: list[Any]):
    limits = csi_node("a", {DRIVER: 0, "disk.csi.azure.com": 0, "csi.vsphere.vmware.com": 0})

    assert judged(made(NodeVolumeLimits), pod("p", volumes=mounted("x")), cluster_of(*objects, limits)) == {}


def test_a_claim_with_a_deleted_volume_counts_for_its_class():
    objects = [claim("x", "gone", class_name="c"), storage_class("c"), csi_node("a", {DRIVER: 0})]

    assert judged(made(NodeVolumeLimits), pod("p", volumes=mounted("x")), cluster_of(*objects)) == {"a": FULL}


@pytest.mark.parametrize(
    ("source", "limits", "refused"),
    [
        pytest.param({"awsElasticBlockStore": {"volumeID": "d"}}, {EBS: 0}, True, id="ebs"),
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, {GCE: 0}, True, id="gce"),
        pytest.param({"azureDisk": {"diskURI": "d"}}, {"disk.csi.azure.com": 0}, True, id="azure"),
        pytest.param({"cinder": {"volumeID": "d"}}, {"cinder.csi.openstack.org": 0}, True, id="cinder"),
        pytest.param({"portworxVolume": {"volumeID": "d"}}, {"pxd.portworx.com": 0}, True, id="portworx"),
        pytest.param({"azureFile": {}}, {"file.csi.azure.com": 0}, False, id="azure file is not migrated"),
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, {EBS: 0}, False, id="another driver"),
    ],
)
def test_disks_of_in_tree_plugins_count_for_their_drivers(source: Any, limits: Any, refused: bool):
    inline = pod("p", volumes=[{"name": "v", **source}])
    claimed = pod("q", volumes=mounted("x"))
    table = cluster_of(claim("x", "x"), volume("x", csi=None, **source), csi_node("a", limits))

    assert judged(made(NodeVolumeLimits), inline, table) == ({"a": FULL} if refused else {})
    assert judged(made(NodeVolumeLimits), claimed, table) == ({"a": FULL} if refused else {})


def test_an_ephemeral_volume_counts_through_the_claim_owned_by_the_pod():
    wants = pod("p", volumes=[{"name": "v", "ephemeral": {}}])
    objects = [claim("p-v", "x", owner=wants), volume("x"), csi_node("a", {DRIVER: 0})]

    assert judged(made(NodeVolumeLimits), wants, cluster_of(*objects)) == {"a": FULL}


ALL_NODES = ("a", "b")


@pytest.mark.parametrize(
    ("volumes", "objects", "where", "answer"),
    [
        pytest.param(
            mounted("x"),
            [],
            ALL_NODES,
            'UnschedulableAndUnresolvable: looking up PVC default/x: persistentvolumeclaim "x" not found',
            id="no claim",
        ),
        pytest.param(mounted(""), [], ALL_NODES, "Error: PersistentVolumeClaim had no name", id="no name"),
        pytest.param(
            [{"name": "v", "ephemeral": {}}],
            [claim("p-v")],
            ALL_NODES,
            "Error: PVC default/p-v was not created for pod default/p (pod is not owner)",
            id="a claim of another owner",
        ),
        pytest.param(
            [{"name": "v", "azureDisk": {"kind": "Dedicated"}}],
            [],
            ("a",),
            "Error: converting volume(v) from inline to csi: kind(Dedicated) is not supported in csi migration",
            id="an untranslatable disk, on the node of its driver",
        ),
        pytest.param(
            [{"name": "v", "azureDisk": {"kind": "Dedicated"}}, *mounted("x")],
            [],
            ("b",),
            'UnschedulableAndUnresolvable: looking up PVC default/x: persistentvolumeclaim "x" not found',
            id="the first of several faults, by node",
        ),
    ],
)
def test_a_pod_with_invalid_volumes_is_rejected_on_every_node_with_the_reason(
    volumes: Any, objects: list[Any], where: tuple[str, ...], answer: str
):
    found = judged(made(NodeVolumeLimits), pod("p", volumes=volumes), cluster_of(*objects, csi_node("a", {})))

    assert {name: reported for name, reported in found.items() if reported == answer} == dict.fromkeys(
        where, answer
    )


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({"other": 5}, True, id="a node with a limit of any driver"),
        pytest.param({DRIVER: None}, False, id="a node without limits"),
    ],
)
def test_a_node_with_pods_of_invalid_volumes_cannot_be_evaluated(limits: Any, expected: bool):
    astray = pod("u", node="a", volumes=[{"name": "v", "ephemeral": {}}])
    table = cluster_of(*bound("x"), claim("u-v"), csi_node("a", limits), pods=(astray,))

    found = judged(made(NodeVolumeLimits), pod("p", volumes=mounted("x")), table)

    words = "Error: PVC default/u-v was not created for pod default/u (pod is not owner)"
    assert found == ({"a": words} if expected else {})


def test_a_deleted_claim_of_a_pod_on_a_node_does_not_count():
    table = cluster_of(*bound("x"), csi_node("a", {DRIVER: 1}), pods=(on_a("u", "lost"),))

    assert judged(made(NodeVolumeLimits), pod("p", volumes=mounted("x")), table) == {}


# Nodes are recounted only where something changed.


OWNER = pod("w", node="c", volumes=[{"name": "s", "ephemeral": {}}])


def put(*objects: Any) -> Callable[[ClusterTable], None]:
    return lambda table: watch_storage(table, *objects)


def remove(kind: str, key: str) -> Callable[[ClusterTable], None]:
    return lambda table: table.watch_kind(kind).__delitem__(key)


def add(each: Any) -> Callable[[ClusterTable], None]:
    return lambda table: table.add_pod(0, each)


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        pytest.param(add(pod("plain", node="a")), [], id="a pod without volumes"),
        pytest.param(add(pod("tmp", node="a", volumes=[{"name": "t", "emptyDir": {}}])), [], id="with files"),
        pytest.param(add(on_a("new", "y")), [0], id="a pod with a volume"),
        pytest.param(lambda table: table.remove_pod(1, "uid-of-default-u"), [1], id="a deleted pod"),
        pytest.param(put(claim("x", "x", storage="2Gi")), [1], id="a claim in use"),
        pytest.param(put(claim("w-s", "y", owner=OWNER)), [2], id="a claim created for a pod"),
        pytest.param(put(claim("y", "y", storage="2Gi")), [], id="an unused claim"),
        pytest.param(put(volume("x")), [1, 2], id="a volume in use, and attached elsewhere"),
        pytest.param(remove("v1/persistentvolumes", "x"), [1, 2], id="a deleted volume"),
        pytest.param(put(volume("y")), [], id="an unused volume"),
        pytest.param(put(storage_class("c")), [1], id="a class of a claim in use"),
        pytest.param(put(storage_class("d")), [], id="another class"),
        pytest.param(put(csi_node("a", {})), [0], id="a CSINode"),
        pytest.param(put(csi_node("gone", {})), [], id="a CSINode without a node"),
        pytest.param(put(volume_attachment("v", node="a", volume="y")), [0, 2], id="a volume that moves"),
        pytest.param(remove("storage.k8s.io/v1/volumeattachments", "v"), [2], id="a volume that is detached"),
        pytest.param(lambda table: table.update_node(node("b", cpu="7")), [1], id="a node"),
        pytest.param(
            lambda table: table.remove_node("a"), [0], id="a deleted node, whose row is used by another"
        ),
    ],
)
def test_only_changed_nodes_are_counted_again(
    change: Callable[[ClusterTable], None], rows: list[int], monkeypatch: pytest.MonkeyPatch
):
    user = pod("u", node="b", volumes=mounted("x"))
    table = cluster_of(
        claim("x", "x", class_name="c"), volume("x"), *bound("y"),
        csi_node("b", {DRIVER: 1}), volume_attachment("v", node="c", volume="x"),
        pods=(user, OWNER), nodes=(node("a"), node("b"), node("c")),
    )  # fmt: skip
    plugin, wants = (made(NodeVolumeLimits), pod("p", volumes=mounted("y")))
    judged(plugin, wants, table)
    counted = set[int]()
    look_again = AttachedVolumes._look_again

    def noting(each: AttachedVolumes, *rest: Any) -> None:
        counted.update(row for row in each._left if row < table.n_nodes)
        look_again(each, *rest)

    monkeypatch.setattr(AttachedVolumes, "_look_again", noting)

    change(table)
    found = judged(plugin, wants, table)

    assert sorted(counted) == rows
    assert found == judged(made(NodeVolumeLimits), wants, table)


def test_another_cluster_is_counted_from_the_start():
    plugin, wants = (made(NodeVolumeLimits), pod("p", volumes=mounted("x")))

    for limit, expected in ((0, {"a": FULL}), (1, {}), (0, {"a": FULL})):
        table = cluster_of(*bound("x"), csi_node("a", {DRIVER: limit}))
        assert judged(plugin, wants, table) == expected


def test_very_many_changes_cause_a_full_count():
    table = cluster_of(*bound("x"), csi_node("a", {DRIVER: 0}))
    plugin, wants = (made(NodeVolumeLimits), pod("p", volumes=mounted("x")))
    assert judged(plugin, wants, table) == {"a": FULL}

    watch_storage(table, csi_node("a", {DRIVER: 1}))
    for _ in range(5000):
        watch_storage(table, csi_node("b", {}))

    assert judged(plugin, wants, table) == {}


class Looks:
    """Counts how often a volume of a pod, or a VolumeAttachment, is read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.number = 0
        for name in ("attachable", "attachable_volumes", "_attached"):
            self._count(patch, name, getattr(attached, name))

    def _count(self, patch: pytest.MonkeyPatch, name: str, original: Any) -> None:
        def counted(*args: Any, **options: Any) -> Any:
            self.number += 1
            return original(*args, **options)

        patch.setattr(attached, name, counted)

    def begin(self) -> None:
        self.number = 0


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def crowded(attachments: int = 0) -> ClusterTable:
    """Return a cluster where a pod on node a has 300 volumes, and other pods there have one each."""
    many = [f"m{number}" for number in range(300)]
    few = [f"f{number}" for number in range(20)]
    return cluster_of(
        *bound("x", *many, *few), csi_node("a", {DRIVER: 321}),
        *(volume_attachment(f"v{number}", node="a", volume=f"m{number}") for number in range(attachments)),
        pods=(on_a("heavy", *many), *(on_a(name, name) for name in few)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "looked_at"),
    [
        pytest.param(lambda table: table.add_pod(0, on_a("new", "m1")), 1, id="a new pod"),
        pytest.param(lambda table: table.remove_pod(0, on_a("f7").uid), 0, id="a deleted pod"),
        pytest.param(put(claim("m7", "m8")), 1, id="a claim"),
        pytest.param(put(volume("m7", driver="other")), 2, id="a volume"),
        pytest.param(put(volume_attachment("v7", node="a", volume="x")), 1, id="a volume that is attached"),
        pytest.param(remove("storage.k8s.io/v1/volumeattachments", "v7"), 0, id="one that is detached"),
    ],
)
def test_only_changed_volumes_of_a_full_node_are_read(
    change: Callable[[ClusterTable], Any], looked_at: int, looks: Looks
):
    table, wants = crowded(attachments=100), pod("p", volumes=mounted("x"))
    plugin = made(NodeVolumeLimits)
    judged(plugin, wants, table)
    looks.begin()
    change(table)

    found = judged(plugin, wants, table)

    assert looks.number == looked_at
    assert found == judged(made(NodeVolumeLimits), wants, table)


def test_volumes_of_pods_are_read_in_steps(looks: Looks):
    limit = FakeTimeSlice()
    limit.slice_seconds, limit.each_reading = 1.0, 1.0
    table, wants = crowded(attachments=100), pod("p", volumes=mounted("x"))
    plugin, snapshot = NodeVolumeLimits(time_slice=limit, features=FakeFeatures()), table.snapshot()

    with pytest.raises(NeedsTime) as needs:
        plugin.filter(CycleState(), wants, snapshot, snapshot.all_rows)
    for step, _ in enumerate(needs.value.steps):
        assert looks.number <= 16
        looks.begin()
        if step % 5 == 0:  # the cluster changes meanwhile
            table.add_pod(0, on_a(f"new-{step}", "f1"))
        if step == 11:
            table.remove_pod(0, on_a("heavy").uid)
        if step == 0:
            table.remove_node("b")

    found = judged(plugin, wants, table)
    assert found == judged(made(NodeVolumeLimits), wants, table)
    assert plugin._attached._rows[0].users == {f"{DRIVER}/f{number}": ANY for number in range(20)}


def test_a_dry_run_without_a_pod_reads_no_volume(looks: Looks):
    table, wants = crowded(), pod("p", volumes=mounted("x"))
    watch_storage(table, csi_node("a", {DRIVER: 320}))
    plugin = made(NodeVolumeLimits)
    assert judged(plugin, wants, table) == {"a": FULL}
    looks.begin()
    heavy = next(each for each in table.snapshot().pods_on(0) if each.name == "heavy")

    overlay = table.snapshot().overlay([], [(0, heavy)])

    assert plugin.filter(CycleState(), wants, overlay, overlay.all_rows).passing.all()
    assert looks.number == 0


# Hints.

ADD, UPDATE, DELETE = ActionType.ADD, ActionType.UPDATE, ActionType.DELETE
WANTS = pod("p", volumes=mounted("x"))


@pytest.mark.parametrize(
    ("before", "after", "helps"),
    [
        pytest.param({DRIVER: 1}, {DRIVER: 2}, True, id="more"),
        pytest.param({DRIVER: 1}, {DRIVER: 1}, False, id="the same"),
        pytest.param({DRIVER: 2}, {DRIVER: 1}, False, id="fewer"),
        pytest.param({}, {DRIVER: 1}, True, id="a new driver"),
        pytest.param({}, {DRIVER: None}, False, id="a new driver without a limit, which upstream ignores"),
        pytest.param({DRIVER: 1}, {DRIVER: None}, False, id="the limit went, likewise"),
        pytest.param({DRIVER: None}, {DRIVER: 1}, True, id="there is a limit now"),
        pytest.param({"other": 1, DRIVER: 9}, {"other": 2, DRIVER: 1}, True, id="more of any driver"),
    ],
)
def test_a_node_that_can_attach_more_requeues_pods(before: Any, after: Any, helps: bool):
    old, new = csi_node("n", before), csi_node("n", after)

    assert requeues(made(NodeVolumeLimits), EventResource.CSI_NODE, WANTS, old, new, UPDATE) is helps


def test_any_new_csi_node_requeues_pods():
    assert requeues(made(NodeVolumeLimits), EventResource.CSI_NODE, WANTS, None, csi_node("n", {}), ADD)


@pytest.mark.parametrize(
    ("gone", "helps"),
    [
        pytest.param(pod("g", node="n", volumes=mounted("y")), True, id="a claim"),
        pytest.param(pod("g", node="n", volumes=[{"name": "v", "ephemeral": {}}]), True, id="of its own"),
        pytest.param(
            pod("g", node="n", volumes=[{"name": "v", "azureFile": {}}]), True, id="an in-tree volume"
        ),
        pytest.param(
            pod("g", node="n", volumes=[{"name": "v", "rbd": {}}]), False, id="a disk without a driver"
        ),
        pytest.param(
            pod("g", node="n", volumes=[{"name": "v", "csi": {}}]), False, id="an inline CSI volume"
        ),
        pytest.param(pod("g", node="n"), False, id="no volumes"),
        pytest.param(pod("g", volumes=mounted("y")), False, id="nowhere"),
        pytest.param(
            pod("g", volumes=mounted("y"), status={"nominatedNodeName": "n"}), True, id="expected somewhere"
        ),
    ],
)
def test_a_deleted_pod_with_attached_volumes_requeues_others(gone: Any, helps: bool):
    assert requeues(made(NodeVolumeLimits), EventResource.POD, WANTS, gone, None, DELETE) is helps


@pytest.mark.parametrize(
    ("added", "helps"),
    [
        pytest.param(claim("x"), True, id="its claim"),
        pytest.param(claim("p-v"), True, id="the claim created for it"),
        pytest.param(claim("y"), False, id="another"),
        pytest.param(claim("x", namespace="other"), False, id="of another namespace"),
    ],
)
def test_a_new_claim_requeues_its_pod(added: Any, helps: bool):
    waiting = pod("p", volumes=[*mounted("x"), {"name": "v", "ephemeral": {}}])
    plugin, kind = (made(NodeVolumeLimits), EventResource.PERSISTENT_VOLUME_CLAIM)

    assert requeues(plugin, kind, waiting, None, added, ADD) is helps


@pytest.mark.parametrize(
    ("source", "attacher", "helps"),
    [
        pytest.param({"persistentVolumeClaim": {"claimName": "x"}}, "any", True, id="a claim, of any driver"),
        pytest.param({"ephemeral": {}}, "any", False, id="a claim of its own, which upstream forgets"),
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, GCE, True, id="a disk of that driver"),
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, EBS, False, id="of another driver"),
        pytest.param({"azureFile": {}}, "file.csi.azure.com", True, id="a plugin that is not migrated"),
        pytest.param({"azureFile": {}}, EBS, False, id="which is another driver's"),
        pytest.param({"azureDisk": {"kind": "Shared"}}, EBS, True, id="a disk that cannot be translated"),
        pytest.param({"emptyDir": {}}, DRIVER, False, id="files"),
    ],
)
def test_a_detached_volume_requeues_the_pods_that_it_may_help(source: Any, attacher: str, helps: bool):
    waiting = pod("p", volumes=[{"name": "v", **source}])
    detached = volume_attachment("v", node="a", volume="x", attacher=attacher)
    plugin, kind = (made(NodeVolumeLimits), EventResource.VOLUME_ATTACHMENT)

    assert requeues(plugin, kind, waiting, detached, None, DELETE) is helps


REQUIRED = csi_driver(preventPodSchedulingIfMissing=True)
MISSING = f"Unschedulable: {DRIVER} CSI driver is not installed on the node"


@pytest.mark.parametrize(
    ("features", "driver", "refused"),
    [
        pytest.param(FakeFeatures("1.37"), REQUIRED, True, id="1.37"),
        pytest.param(FakeFeatures("1.36", VolumeLimitScaling=True), REQUIRED, True, id="1.36 with the gate"),
        pytest.param(FakeFeatures("1.36"), REQUIRED, False, id="1.36"),
        pytest.param(FakeFeatures("1.37", VolumeLimitScaling=False), REQUIRED, False, id="1.37 without it"),
        pytest.param(FakeFeatures("1.37"), csi_driver(), False, id="a driver that may be missing"),
        pytest.param(FakeFeatures("1.35", VolumeLimitScaling=True), csi_driver(), True, id="1.35 asks all"),
        pytest.param(FakeFeatures("1.37"), csi_driver("other"), False, id="a driver without a CSIDriver"),
    ],
)
def test_nodes_without_the_driver_of_a_volume_are_rejected(features: Any, driver: Any, refused: bool):
    table = cluster_of(*bound("x"), csi_node("a", {DRIVER: None}), driver)
    plugin = NodeVolumeLimits(time_slice=FakeTimeSlice(), features=features)

    assert judged(plugin, pod("p", volumes=mounted("x")), table) == ({"b": MISSING} if refused else {})


def test_a_missing_driver_is_reported_before_a_full_one():
    objects = [*bound("x"), claim("y", "y"), volume("y", driver="full"), csi_node("a", {"full": 0}), REQUIRED]
    plugin = NodeVolumeLimits(time_slice=FakeTimeSlice(), features=FakeFeatures("1.37"))

    found = judged(plugin, pod("p", volumes=mounted("y", "x")), cluster_of(*objects))

    assert found == {"a": MISSING, "b": MISSING}


def test_a_driver_counts_from_when_its_node_lists_it_until_it_does_not():
    table = cluster_of(*bound("x"), csi_node("a", {"other": 1}), REQUIRED)
    plugin = NodeVolumeLimits(time_slice=FakeTimeSlice(), features=FakeFeatures("1.37"))
    wants = pod("p", volumes=mounted("x"))
    assert judged(plugin, wants, table) == {"a": MISSING, "b": MISSING}

    watch_storage(table, csi_node("a", {DRIVER: None}))
    assert judged(plugin, wants, table) == {"b": MISSING}

    watch_storage(table, csi_node("a", {}))
    assert judged(plugin, wants, table) == {"a": MISSING, "b": MISSING}


@pytest.mark.parametrize(("version", "needed"), [("1.36", False), ("1.37", True)])
def test_drivers_are_watched_with_the_gate_only(version: str, needed: bool):
    plugin = NodeVolumeLimits(time_slice=FakeTimeSlice(), features=FakeFeatures(version))

    assert ("storage.k8s.io/v1/csidrivers" in plugin.needs.kinds) is needed
