"""What a volume is made of, in pods and in PersistentVolumes: the sources that some rule of scheduling reads."""

from __future__ import annotations

import msgspec

from scheduler.objects.meta import ApiStruct


class PersistentVolumeClaimVolumeSource(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaimVolumeSource: a claim in the pod's namespace."""

    claim_name: str = ""


class EphemeralVolumeSource(ApiStruct, frozen=True):
    """v1.EphemeralVolumeSource: a claim that is made for the pod; what it will ask for is read from the claim."""


class CSIVolumeSource(ApiStruct, frozen=True):
    """v1.CSIVolumeSource: a volume that a driver makes for the pod, without a claim."""

    driver: str = ""


class CSIPersistentVolumeSource(ApiStruct, frozen=True):
    """v1.CSIPersistentVolumeSource: the volume as its driver knows it."""

    driver: str = ""
    volume_handle: str = ""


class ImageVolumeSource(ApiStruct, frozen=True):
    """v1.ImageVolumeSource: an image mounted as a volume."""

    reference: str = ""


# Sources of single machines, stores and clouds, most of which a CSI driver serves by now.


class GCEPersistentDiskVolumeSource(ApiStruct, frozen=True):
    """v1.GCEPersistentDiskVolumeSource."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(ApiStruct, frozen=True):
    """v1.AWSElasticBlockStoreVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class ISCSIVolumeSource(ApiStruct, frozen=True):
    """v1.ISCSIVolumeSource."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(ApiStruct, frozen=True):
    """v1.RBDVolumeSource."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(ApiStruct, frozen=True):
    """v1.AzureDiskVolumeSource."""

    data_disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class AzureFileVolumeSource(ApiStruct, frozen=True):
    """v1.AzureFileVolumeSource and v1.AzureFilePersistentVolumeSource; only that it is one is read."""


class CinderVolumeSource(ApiStruct, frozen=True):
    """v1.CinderVolumeSource and v1.CinderPersistentVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolumeSource(ApiStruct, frozen=True):
    """v1.PortworxVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereVirtualDiskVolumeSource(ApiStruct, frozen=True):
    """v1.VsphereVirtualDiskVolumeSource; only that it is one is read."""
