"""Volumes of in-tree plugins as the CSI drivers see them that have replaced these plugins.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/csi-translation-lib, translate.go and plugins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from scheduler.objects.selectors import NodeSelector, NodeSelectorTerm, Operator, SelectorRequirement
from scheduler.objects.storage import PersistentVolumeSpec, VolumeNodeAffinity
from scheduler.objects.v1 import CSIPersistentVolumeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.objects.storage import PersistentVolume
    from scheduler.objects.v1 import Volume

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONES_DELIMITER: Final = "__"

_UNSPECIFIED = "UNSPECIFIED"
_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2}).{0,2}")
_EBS_VOLUME = re.compile("vol-[^/]*")


class InTreePlugin(NamedTuple):
    """One in-tree plugin and the driver that replaces it.

    Attributes:
        name: the plugin's name, also in StorageClasses.
        driver: the name of the CSI driver.
        source: the field of its volumes in pods and PersistentVolumes.
        is_migrated: whether schedulers treat its volumes as the driver's.
        zone_key: the driver's own label for zones; "" for none.

    Source:
        kube-scheduler v1.36, plugins/nodevolumelimits/utils.go, isCSIMigrationOn; plugins/volumebinding/binder.go,
        isCSIMigrationOnForPlugin.
    """

    name: str
    driver: str
    source: str
    is_migrated: bool = True
    zone_key: str = ""


_GCE_PD = InTreePlugin(
    "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", zone_key="topology.gke.io/zone"
)
_AWS_EBS = InTreePlugin(
    "kubernetes.io/aws-ebs",
    "ebs.csi.aws.com",
    "aws_elastic_block_store",
    zone_key="topology.ebs.csi.aws.com/zone",
)
_CINDER = InTreePlugin(
    "kubernetes.io/cinder",
    "cinder.csi.openstack.org",
    "cinder",
    zone_key="topology.cinder.csi.openstack.org/zone",
)
_AZURE_DISK = InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk")
_AZURE_FILE = InTreePlugin("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file", is_migrated=False)
_VSPHERE = InTreePlugin(
    "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "vsphere_volume", is_migrated=False
)
_PORTWORX = InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume")

_PLUGINS = (_GCE_PD, _AWS_EBS, _CINDER, _AZURE_DISK, _AZURE_FILE, _VSPHERE, _PORTWORX)
_BY_NAME = {plugin.name: plugin for plugin in _PLUGINS}


def in_tree_plugin(source: Volume | PersistentVolumeSpec) -> InTreePlugin | None:
    """Return the in-tree plugin of a volume; None if no driver replaces it."""
    return next((plugin for plugin in _PLUGINS if getattr(source, plugin.source) is not None), None)


def in_tree_plugin_named(name: str) -> InTreePlugin | None:
    """Return an in-tree plugin by its name in StorageClasses; None if no driver replaces it."""
    return _BY_NAME.get(name)


def inline_handle(volume: Volume) -> str:
    """Return the driver's handle of a pod's inline volume of a migrated plugin.

    Raises:
        ValueError: there is none; the text is upstream's message.

    Source:
        csi-translation-lib v1.36, TranslateInTreeInlineVolumeToCSI.
    """
    if volume.gce_persistent_disk is not None:
        return _gce_handle("zones", _UNSPECIFIED, volume.gce_persistent_disk.pd_name)
    return _handle(volume)


def translated(volume: PersistentVolume, plugin: InTreePlugin) -> PersistentVolume:
    """Return a volume of a migrated plugin as its driver sees it: the handle, and the zones that reach it.

    Raises:
        ValueError: there is none; the text is upstream's message.

    Source:
        csi-translation-lib v1.36, TranslateInTreePVToCSI.
    """
    source = CSIPersistentVolumeSource(driver=plugin.driver, volume_handle=volume_handle(volume))
    affinity = _topology(volume, plugin.zone_key) if plugin.zone_key else volume.spec.node_affinity
    return replace(
        volume, spec=replace(volume.spec, csi=source, node_affinity=affinity, **{plugin.source: None})
    )


def volume_handle(volume: PersistentVolume) -> str:
    """Return the driver's handle of a volume of a migrated plugin.

    Raises:
        ValueError: there is none; the text is upstream's message.
    """
    disk = volume.spec.gce_persistent_disk
    if disk is None:
        return _handle(volume.spec)
    labels = volume.metadata.labels
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE, "")).split(ZONES_DELIMITER)
    if len(zones) > 1:
        return _gce_handle("regions", _gce_region(zones), disk.pd_name)
    return _gce_handle("zones", zones[0] or _UNSPECIFIED, disk.pd_name)


def _handle(source: Volume | PersistentVolumeSpec) -> str:
    """Return the handle if it does not depend on labels."""
    if source.aws_elastic_block_store is not None:
        return _ebs_volume_id(source.aws_elastic_block_store.volume_id)
    if source.azure_disk is not None:
        kind = source.azure_disk.kind
        if kind is not None and kind.lower() != "managed":
            raise ValueError(f"kind({kind}) is not supported in csi migration")
        return source.azure_disk.data_disk_uri
    if source.cinder is not None:
        return source.cinder.volume_id
    assert source.portworx_volume is not None, "a volume of a plugin that is not migrated"
    return source.portworx_volume.volume_id


def _gce_handle(kind: str, place: str, disk: str) -> str:
    return f"projects/{_UNSPECIFIED}/{kind}/{place}/disks/{disk}"


def _gce_region(zones: Iterable[str]) -> str:
    """Return the region that zones are in, named as `us-central1-a` is."""
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            problem = f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            raise ValueError(f"failed to get region from zones: {problem}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        got = " ".join(f"{region}:{{}}" for region in sorted(regions))
        problem = f"multiple or no regions gotten from zones, got: map[{got}]"
        raise ValueError(f"failed to get region from zones: {problem}")
    return regions.pop()


def _ebs_volume_id(written: str) -> str:
    """Return the id of `aws://zone/vol-1`, or of a plain `vol-1`."""
    if not written.startswith("aws://"):
        return written
    path = re.split("[?#]", written.removeprefix("aws://"), maxsplit=1)[0].partition("/")[2]
    problem = f"Invalid format for AWS volume ({written})"
    if escape := _BAD_ESCAPE.search(path):
        problem = f'Invalid disk name ({written}): parse "{written}": invalid URL escape "{escape[0]}"'
    else:
        found = unquote(path).strip("/")
        if _EBS_VOLUME.fullmatch(found):
            return found
    raise ValueError(f"failed to translate Kubernetes ID to EBS Volume ID {problem}")


def _topology(volume: PersistentVolume, zone_key: str) -> VolumeNodeAffinity | None:
    """Return the nodes that reach a volume, in terms of the driver's own label for zones.

    Source:
        csi-translation-lib v1.36, plugins/in_tree_volume.go, translateTopologyFromInTreeToCSI.
    """
    affinity, labels = volume.spec.node_affinity, volume.metadata.labels
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    keys = {each.key for term in terms for each in term.match_expressions}
    is_beta = next(
        (key == BETA_ZONE for known in (keys, labels) for key in (ZONE, BETA_ZONE) if key in known), False
    )
    zone_label = BETA_ZONE if is_beta else ZONE
    if _has_values(terms, zone_label):
        terms = _renamed(terms, zone_label, zone_key)
    elif zones := sorted({zone.strip() for zone in labels.get(zone_label, "").split(ZONES_DELIMITER)} - {""}):
        rule = SelectorRequirement(key=zone_key, operator=Operator.IN.value, values=tuple(zones))
        terms = _each(terms or (NodeSelectorTerm(),), lambda rules: (*rules, rule))
    if is_beta and _has_values(terms, BETA_REGION):
        terms = _renamed(terms, BETA_REGION, REGION)
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms)) if terms else affinity


_Terms = tuple[NodeSelectorTerm, ...]
_Rules = tuple[SelectorRequirement, ...]


def _has_values(terms: _Terms, key: str) -> bool:
    return any(each.values for term in terms for each in term.match_expressions if each.key == key)


def _renamed(terms: _Terms, old: str, new: str) -> _Terms:
    return _each(
        terms, lambda rules: tuple(replace(rule, key=new) if rule.key == old else rule for rule in rules)
    )


def _each(terms: _Terms, change: Callable[[_Rules], _Rules]) -> _Terms:
    return tuple(replace(term, match_expressions=change(term.match_expressions)) for term in terms)
