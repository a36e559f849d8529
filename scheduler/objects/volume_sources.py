"""Sources of volumes in pods and PersistentVolumes, as far as scheduling reads them."""

from __future__ import annotations

import msgspec

from scheduler.objects.meta import ApiStruct


class PersistentVolumeClaimVolumeSource(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaimVolumeSource: a claim in the pod's namespace."""

    claim_name: str = ""


class EphemeralVolumeSource(ApiStruct, frozen=True):
    """v1.EphemeralVolumeSource: a claim that is created for the pod; its requests are read from the claim."""


class CSIVolumeSource(ApiStruct, frozen=True):
    """v1.CSIVolumeSource: a volume that a driver creates for the pod, without a claim."""

    driver: str = ""


class CSIPersistentVolumeSource(ApiStruct, frozen=True):
    """v1.CSIPersistentVolumeSource: the driver's name of the volume."""

    driver: str = ""
    volume_handle: str = ""


class ImageVolumeSource(ApiStruct, frozen=True):
    """v1.ImageVolumeSource: an image mounted as a volume."""

    reference: str = ""


# Sources of single machines, stores and clouds; CSI drivers serve most of them now.


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
    """v1.AzureFileVolumeSource and v1.AzureFilePersistentVolumeSource; only the type is read."""


class CinderVolumeSource(ApiStruct, frozen=True):
    """v1.CinderVolumeSource and v1.CinderPersistentVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolumeSource(ApiStruct, frozen=True):
    """v1.PortworxVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereVirtualDiskVolumeSource(ApiStruct, frozen=True):
    """v1.VsphereVirtualDiskVolumeSource; only the type is read."""
