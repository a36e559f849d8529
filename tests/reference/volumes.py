"""VolumeRestrictions, NodeVolumeLimits and VolumeZone as loops over one node, from reading their Go sources.

Everything is looked up in the JSON of objects, each time anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.reference.one_node import PASSES, OneNode, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo

Json = dict[str, Any]
Refusal = str

DISK: Verdict = ("Unschedulable", ("node(s) had no available disk",))
ONE_POD: Verdict = (
    "Unschedulable",
    (
        (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by"
            " another pod"
        ),
    ),
)
ZONE: Verdict = ("UnschedulableAndUnresolvable", ("node(s) had no available volume zone",))
LIMIT: Verdict = ("Unschedulable", ("node(s) exceed max volume count",))

BETA_ZONE, BETA_REGION = (f"failure-domain.beta.kubernetes.io/{what}" for what in ("zone", "region"))
GA_ZONE, GA_REGION = (f"topology.kubernetes.io/{what}" for what in ("zone", "region"))


@dataclass
class Objects:
    """All that the cluster has of storage."""

    claims: dict[str, Json] = field(default_factory=dict)  # namespace/name
    volumes: dict[str, Json] = field(default_factory=dict)
    classes: dict[str, Json] = field(default_factory=dict)
    csi_nodes: dict[str, Json] = field(default_factory=dict)
    attachments: dict[str, Json] = field(default_factory=dict)
    drivers: dict[str, Json] = field(default_factory=dict)


def volumes_of(pod: PodInfo) -> list[Json]:
    return pod.object["spec"].get("volumes", [])  # type: ignore[no-any-return]


def claim_names(pod: PodInfo) -> list[str]:
    found = (volume.get("persistentVolumeClaim") for volume in volumes_of(pod))
    return [source["claimName"] for source in found if source is not None]


# VolumeRestrictions.


def disks_conflict(one: Json, other: Json) -> bool:
    """volume_restrictions.go, isVolumeConflict, of two volumes."""
    for kind, same in (
        ("gcePersistentDisk", lambda a, b: a["pdName"] == b["pdName"]),
        ("iscsi", lambda a, b: a["iqn"] == b["iqn"]),
        ("rbd", _same_image),
    ):
        if kind in one and kind in other and same(one[kind], other[kind]):
            return not (one[kind].get("readOnly") and other[kind].get("readOnly"))
    ebs = "awsElasticBlockStore"
    return ebs in one and ebs in other and one[ebs]["volumeID"] == other[ebs]["volumeID"]


def _same_image(one: Json, other: Json) -> bool:
    return (
        bool(set(one["monitors"]) & set(other["monitors"]))
        and one["pool"] == other["pool"]
        and one["image"] == other["image"]
    )


def restrictions(pod: PodInfo, nodes: list[OneNode], objects: Objects) -> list[Verdict] | str:
    one_pod = set()
    for name in claim_names(pod):
        claim = objects.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if "ReadWriteOncePod" in claim["spec"]["accessModes"]:
            one_pod.add(name)
    others = [other for node in nodes for other in node.pods]
    in_use = [
        name
        for name in one_pod
        if any(other.namespace == pod.namespace and name in claim_names(other) for other in others)
    ]
    disks = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
    if not in_use and not any(kind in volume for volume in volumes_of(pod) for kind in disks):
        return "Skip"
    found = []
    for node in nodes:
        there = [volume for other in node.pods for volume in volumes_of(other)]
        if any(disks_conflict(mine, theirs) for mine in volumes_of(pod) for theirs in there):
            found.append(DISK)
        else:
            found.append(ONE_POD if in_use else PASSES)
    return found


def restrictions_without(
    pod: PodInfo, nodes: list[OneNode], objects: Objects, row: int, gone: list[PodInfo]
) -> Verdict:
    """What is said of one node once some of its pods are gone: RemovePod, then Filter."""
    names = {
        name
        for name in claim_names(pod)
        if "ReadWriteOncePod" in objects.claims[f"{pod.namespace}/{name}"]["spec"]["accessModes"]
    }
    others = [other for node in nodes for other in node.pods]
    count = sum(
        any(other.namespace == pod.namespace and name in claim_names(other) for other in others)
        for name in names
    )
    count -= sum(name in names for other in gone for name in claim_names(other))
    there = [volume for other in nodes[row].pods if other not in gone for volume in volumes_of(other)]
    if any(disks_conflict(mine, theirs) for mine in volumes_of(pod) for theirs in there):
        return DISK
    return ONE_POD if count > 0 else PASSES


# VolumeZone.


def zones(  # noqa: C901, PLR0911 - it reads as upstream's
    pod: PodInfo, nodes: list[OneNode], objects: Objects
) -> list[Verdict] | str:
    wanted: list[tuple[str, set[str]]] = []
    for name in claim_names(pod):
        claim = objects.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        volume_name = claim["spec"].get("volumeName", "")
        if not volume_name:
            class_name = class_of(claim)
            if not class_name:
                return "PersistentVolumeClaim had no pv name and storageClass name"
            if class_name not in objects.classes:
                return f'storageclass.storage.k8s.io "{class_name}" not found'
            mode = objects.classes[class_name].get("volumeBindingMode")
            if mode is None:
                return f'VolumeBindingMode not set for StorageClass "{class_name}"'
            if mode != "WaitForFirstConsumer":
                return "PersistentVolume had no name"
            continue
        if volume_name not in objects.volumes:
            return f'persistentvolume "{volume_name}" not found'
        labels = objects.volumes[volume_name]["metadata"].get("labels", {})
        for key in (BETA_ZONE, BETA_REGION, GA_ZONE, GA_REGION):
            places = [each.strip() for each in labels.get(key, "").split("__")]
            if key in labels and "" not in places:
                wanted.append((key, set(places)))
    if not wanted:
        return "Skip"
    return [_in_zones(node.node.labels, wanted) for node in nodes]


def _in_zones(labels: Mapping[str, str], wanted: list[tuple[str, set[str]]]) -> Verdict:
    if not any(key in labels for key in (BETA_ZONE, BETA_REGION, GA_ZONE, GA_REGION)):
        return PASSES
    newer = {BETA_ZONE: GA_ZONE, BETA_REGION: GA_REGION}
    for key, places in wanted:
        value = labels.get(key)
        if value is None:
            value = labels.get(newer.get(key, key))
        if value is None or value not in places:
            return ZONE
    return PASSES


def class_of(claim: Json) -> str:
    annotations = claim["metadata"].get("annotations", {})
    beta = annotations.get("volume.beta.kubernetes.io/storage-class")
    return str(claim["spec"].get("storageClassName", "") if beta is None else beta)


# NodeVolumeLimits. Of in-tree volumes: GCE, EBS and Azure disks in pods, GCE and EBS ones in PersistentVolumes.


class NotCountedError(Exception):
    def __init__(self, code: str, reason: str) -> None:
        self.verdict: Verdict = (code, (reason,))
        super().__init__(reason)


def limits(pod: PodInfo, nodes: list[OneNode], objects: Objects) -> list[Verdict] | str:
    if not any(_may_count(volume) for volume in volumes_of(pod)):
        return "Skip"
    return [_limit(pod, node, objects, needs_drivers=False) for node in nodes]


def limits_and_drivers(pod: PodInfo, nodes: list[OneNode], objects: Objects) -> list[Verdict] | str:
    """The same with VolumeLimitScaling."""
    if not any(_may_count(volume) for volume in volumes_of(pod)):
        return "Skip"
    return [_limit(pod, node, objects, needs_drivers=True) for node in nodes]


def _may_count(volume: Json) -> bool:
    in_tree = ("gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "azureFile")
    return any(kind in volume for kind in ("persistentVolumeClaim", "ephemeral", *in_tree))


def _limit(pod: PodInfo, node: OneNode, objects: Objects, *, needs_drivers: bool) -> Verdict:
    csi_node = objects.csi_nodes.get(node.node.name)
    try:
        new = _attachable(pod, csi_node, objects, is_new=True)
        drivers = csi_node["spec"]["drivers"] if csi_node else []
        allowed = {
            driver["name"]: driver["allocatable"]["count"] for driver in drivers if "allocatable" in driver
        }
        for driver in new.values() if needs_drivers else ():
            registered = objects.drivers.get(driver)
            is_there = any(each["name"] == driver for each in drivers)
            if registered and registered["spec"].get("preventPodSchedulingIfMissing") and not is_there:
                return ("Unschedulable", (f"{driver} CSI driver is not installed on the node",))
        if not new or not allowed:
            return PASSES
        attached: dict[str, str] = {}
        for other in node.pods:
            attached.update(_attachable(other, csi_node, objects, is_new=False))
    except NotCountedError as error:
        return error.verdict
    elsewhere = {}
    for attachment in objects.attachments.values():
        spec = attachment["spec"]
        volume = objects.volumes.get(spec["source"].get("persistentVolumeName"))
        if spec["nodeName"] == node.node.name and spec["attacher"] and volume and "csi" in volume["spec"]:
            elsewhere[f"{spec['attacher']}/{volume['spec']['csi']['volumeHandle']}"] = spec["attacher"]
    there = {**elsewhere, **attached}
    for driver in set(new.values()) & set(allowed):
        more = [name for name, its in new.items() if its == driver and name not in attached]
        if more and len(more) + sum(its == driver for its in there.values()) > allowed[driver]:
            return LIMIT
    return PASSES


def _attachable(pod: PodInfo, csi_node: Json | None, objects: Objects, *, is_new: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for volume in volumes_of(pod):
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            name = f"{pod.name}-{volume['name']}"
        else:
            if csi_node is not None:
                found.update(_inline(volume))
            continue
        claim = objects.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            if is_new:
                words = f'looking up PVC {pod.namespace}/{name}: persistentvolumeclaim "{name}" not found'
                raise NotCountedError("UnschedulableAndUnresolvable", words)
            continue
        if "persistentVolumeClaim" not in volume:
            owners = claim["metadata"].get("ownerReferences", [])
            if not any(owner["controller"] and owner["uid"] == pod.uid for owner in owners):
                words = f"PVC {pod.namespace}/{name} was not created for pod {pod.key} (pod is not owner)"
                raise NotCountedError("Error", words)
        driver, handle = _of_claim(claim, csi_node, objects)
        if driver and handle:
            found[f"{driver}/{handle}"] = driver
    return found


def _inline(volume: Json) -> dict[str, str]:
    if "gcePersistentDisk" in volume:
        disk = volume["gcePersistentDisk"]["pdName"]
        handle = f"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{disk}"
        return {f"pd.csi.storage.gke.io/{handle}": "pd.csi.storage.gke.io"}
    if "awsElasticBlockStore" in volume:
        return {f"ebs.csi.aws.com/{volume['awsElasticBlockStore']['volumeID']}": "ebs.csi.aws.com"}
    if "azureDisk" in volume:
        if volume["azureDisk"].get("kind", "Managed") != "Managed":
            words = f"kind({volume['azureDisk']['kind']}) is not supported in csi migration"
            raise NotCountedError("Error", f"converting volume({volume['name']}) from inline to csi: {words}")
        return {f"disk.csi.azure.com/{volume['azureDisk']['diskURI']}": "disk.csi.azure.com"}
    return {}


def _of_claim(  # noqa: PLR0911 - likewise
    claim: Json, csi_node: Json | None, objects: Objects
) -> tuple[str, str]:
    volume = objects.volumes.get(claim["spec"].get("volumeName", ""))
    if volume is not None:
        spec = volume["spec"]
        if "csi" in spec:
            return spec["csi"]["driver"], spec["csi"]["volumeHandle"]
        if csi_node is not None and "gcePersistentDisk" in spec:
            labels = volume["metadata"].get("labels", {})
            zone = labels.get(BETA_ZONE) or labels.get(GA_ZONE) or "UNSPECIFIED"
            disk = spec["gcePersistentDisk"]["pdName"]
            return "pd.csi.storage.gke.io", f"projects/UNSPECIFIED/zones/{zone}/disks/{disk}"
        if csi_node is not None and "awsElasticBlockStore" in spec:
            return "ebs.csi.aws.com", spec["awsElasticBlockStore"]["volumeID"]
        return "", ""
    class_name = class_of(claim)
    if class_name not in objects.classes:
        return "", ""
    provisioner = objects.classes[class_name]["provisioner"]
    handle = f"some-prefix-{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    if provisioner == "kubernetes.io/gce-pd":
        return ("pd.csi.storage.gke.io" if csi_node is not None else ""), handle
    if provisioner == "kubernetes.io/azure-file":
        return "", ""
    return provisioner, handle
