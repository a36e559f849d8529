"""Classifies resource names, such as `nvidia.com/gpu`, by the rules of scheduling."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from scheduler.objects.selectors import is_label_key

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

_HUGEPAGES = "hugepages-"
_ATTACHABLE_VOLUMES = "attachable-volumes-"
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
_NATIVE_DOMAIN = "kubernetes.io/"
_QUOTA = "requests."


def is_hugepage_resource_name(name: str) -> bool:
    """Return whether it is a resource of huge pages of one size, as in `hugepages-2Mi`."""
    return name.startswith(_HUGEPAGES)


def is_attachable_volume_resource_name(name: str) -> bool:
    """Return whether it counts volumes attached by one in-tree driver."""
    return name.startswith(_ATTACHABLE_VOLUMES)


def is_prefixed_native_resource(name: str) -> bool:
    """Return whether it is in Kubernetes' own domain."""
    return _NATIVE_DOMAIN in name


def is_native_resource(name: str) -> bool:
    """Return whether it is Kubernetes' own: in its domain or without one."""
    return "/" not in name or is_prefixed_native_resource(name)


@lru_cache(maxsize=4096)
def is_extended_resource_name(name: str) -> bool:
    """Return whether it is a vendor's resource with a name that a quota can use.

    Source:
        kube-scheduler v1.36, pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.
    """
    # The quota's name for it has the syntax of a label key.
    return not (is_native_resource(name) or name.startswith(_QUOTA)) and is_label_key(f"{_QUOTA}{name}")


def is_dra_extended_resource_name(name: str) -> bool:
    """Return whether devices can provide it: an extended resource, or one named after a device class.

    Source:
        kube-scheduler v1.36, pkg/scheduler/util/utils.go, IsDRAExtendedResourceName.
    """
    return is_extended_resource_name(name) or name.startswith(_DEVICE_CLASS)


@lru_cache(maxsize=4096)
def is_scalar_resource_name(name: str) -> bool:
    """Return whether it is counted by name, beside cpu, memory, ephemeral-storage and pods.

    Source:
        kube-scheduler v1.36, pkg/scheduler/util/utils.go, IsScalarResourceName.
    """
    return (
        is_extended_resource_name(name)
        or is_hugepage_resource_name(name)
        or is_prefixed_native_resource(name)
        or is_attachable_volume_resource_name(name)
    )


def is_pod_level_resource(name: str) -> bool:
    """Return whether a pod may request it as a whole.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/resource/helpers.go,
        IsSupportedPodLevelResource.
    """
    return name in {CPU, MEMORY} or is_hugepage_resource_name(name)
