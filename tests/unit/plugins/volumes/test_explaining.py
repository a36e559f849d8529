"""The explanations of rejections by VolumeRestrictions, VolumeZone and NodeVolumeLimits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugins.volumes.node_volume_limits import NodeVolumeLimits
from plugins.volumes.volume_restrictions import VolumeRestrictions
from plugins.volumes.volume_zone import VolumeZone
from scheduler.testing.samples import (
    DRIVER,
    claim,
    csi_node,
    mounted,
    storage_class,
    volume,
    volume_attachment,
)
from tests.support.builders import node, pod
from tests.unit.plugins.plugin_calls import made
from tests.unit.plugins.volumes.clusters import cluster_of

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ClusterTable

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
WANTS = pod("p", volumes=mounted("data"))


def told(plugin: Any, waiting: PodInfo, table: ClusterTable, name: str | None) -> list[str] | None:
    snapshot = table.snapshot()
    row = None if name is None else snapshot.row_of(name)
    said = plugin.why(waiting, snapshot, None if row is None else snapshot.node_info(row))
    return None if said is None else list(said)


def test_a_zone_is_reported_with_volume_and_label():
    table = cluster_of(
        claim("data", "pv"), volume("pv", labels={ZONE: "b__c", BETA_ZONE: "b"}),
        nodes=(node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"}), node("r", labels={REGION: "r"}), node("x")),
    )  # fmt: skip

    assert told(VolumeZone(), WANTS, table, "a") == [
        f"claim data is bound to volume pv, whose label {BETA_ZONE} is b; this node has {BETA_ZONE}=a",
        f"what would help: free capacity on a node with {BETA_ZONE}=b, since the volume cannot move",
        f"claim data is bound to volume pv, whose label {ZONE} is b or c; this node has {ZONE}=a",
        f"what would help: free capacity on a node with {ZONE}=b or c, since the volume cannot move",
    ]
    assert told(VolumeZone(), WANTS, table, "b") == []
    missing = told(VolumeZone(), WANTS, table, "r")
    assert missing is not None
    assert missing[2].endswith(f"; this node has no {ZONE}")
    assert told(VolumeZone(), WANTS, table, "x") == [], "a node without any zone is nobody's concern"


def test_a_claim_that_rejects_every_zone_is_named():
    table = cluster_of(
        claim("gone", "pv"), claim("early", class_name="now"), storage_class("now", mode="Immediate")
    )

    assert told(VolumeZone(), pod("p", volumes=mounted("gone", "early", "none")), table, None) == [
        'claim gone: persistentvolume "pv" not found',
        "claim early: PersistentVolume had no name",
        'claim none: persistentvolumeclaim "none" not found',
    ]


def test_a_claim_for_one_pod_is_reported_with_its_pod_and_node():
    holder = pod("holder", volumes=mounted("data"), nodeName="b")
    table = cluster_of(claim("data", "pv", modes=["ReadWriteOncePod"]), pods=(holder,))

    for name in ("a", "b"):
        assert told(made(VolumeRestrictions), WANTS, table, name) == [
            "claim data is for one pod only (ReadWriteOncePod), and in use by default/holder on node b",
            "what would help: default/holder being deleted, or the access mode ReadWriteOnce",
        ]
    assert told(made(VolumeRestrictions), WANTS, cluster_of(claim("data", "pv")), "a") == []
    assert told(made(VolumeRestrictions), WANTS, table, None) is None, "the reason names the claim"


def test_a_disk_is_reported_with_its_pods():
    def using_disk(name: str, **more: Any) -> PodInfo:
        disk = {"pdName": "pd", "readOnly": False}
        return pod(name, volumes=[{"name": "d", "gcePersistentDisk": disk}], **more)

    table = cluster_of(pods=(using_disk("holder", nodeName="b"),))

    assert told(made(VolumeRestrictions), using_disk("p"), table, "b") == [
        "disk GCEPersistentDisk pd is in use on this node by default/holder, and cannot be shared with it"
    ]
    assert told(made(VolumeRestrictions), using_disk("p"), table, "a") == []


def test_a_full_driver_is_reported_with_its_numbers():
    table = cluster_of(
        csi_node("a", {DRIVER: 3}), csi_node("b", {DRIVER: 6}),
        *(each for name in ("v1", "v2", "v3", "v4") for each in (claim(f"c{name}", name), volume(name))),
        volume_attachment("at", node="a", volume="v4"),
        pods=(pod("holder", volumes=mounted("cv1", "cv2"), nodeName="a"),),
    )  # fmt: skip
    waiting = pod("p", volumes=mounted("cv2", "cv3", "cv4"))

    assert told(made(NodeVolumeLimits), waiting, table, "a") == [
        f"driver {DRIVER} has 3 of at most 3 volumes attached on this node, and the pod needs 2 more",
        "what would help: 2 fewer volumes attached there, or a higher limit in its CSINode",
    ]
    assert told(made(NodeVolumeLimits), waiting, table, "b") == []


def test_an_uncountable_volume_on_a_node_is_reported():
    broken = claim("p-e")  # of an ephemeral volume, and not the pod's own
    ephemeral = [{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    table = cluster_of(
        csi_node("a", {DRIVER: 3}), broken, claim("data", "pv"), volume("pv"),
        pods=(pod("p", volumes=ephemeral, nodeName="a"),),
    )  # fmt: skip

    assert told(made(NodeVolumeLimits), pod("q", volumes=mounted("data")), table, "a") == [
        (
            "the attached volumes of the pods on this node cannot be counted: "
            "PVC default/p-e was not created for pod default/p (pod is not owner)"
        )
    ]
