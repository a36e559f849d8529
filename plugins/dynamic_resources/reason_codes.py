"""The reason codes of DynamicResources."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from plugins.insufficient import INSUFFICIENT_CODES

CLAIM_NOT_FOUND: Final = "ResourceClaimNotFound"
CLAIM_TERMINATING: Final = "ResourceClaimTerminating"
CLAIM_OF_OTHER_POD: Final = "ResourceClaimOfOtherPod"
CLAIM_CHANGING: Final = "ResourceClaimChanging"
CLAIM_IN_USE: Final = "ResourceClaimInUse"
INVALID_CLAIM: Final = "InvalidResourceClaim"
CLASS_NOT_FOUND: Final = "DeviceClassNotFound"
GROUP_NOT_FOUND: Final = "GroupNotFound"
DEVICES_UNAVAILABLE: Final = "DevicesUnavailable"
DEVICES_ELSEWHERE: Final = "DevicesElsewhere"
INVALID_POOLS: Final = "InvalidResourcePools"
NODE_OPERATIONS_MISSING: Final = "NodeOperationsMissing"
POD_LEVEL_TOO_SMALL: Final = "PodLevelResourcesTooSmall"
DEVICES_RELEASED: Final = "DevicesReleased"
DEVICES_NOT_RELEASED: Final = "DevicesNotReleased"

REASON_CODES: Final = MappingProxyType(
    {
        CLAIM_NOT_FOUND: "a ResourceClaim of the pod does not exist, or is not created yet",
        CLAIM_TERMINATING: "a claim of the pod is being deleted",
        CLAIM_OF_OTHER_POD: "a claim has the name of one for the pod, and was not created for it",
        CLAIM_CHANGING: "a claim of the pod is being allocated or given back",
        CLAIM_IN_USE: "another pod on the node uses a claim of the pod, and its devices cannot be shared",
        INVALID_CLAIM: "a claim, or how the pod names it, is invalid",
        CLASS_NOT_FOUND: "a DeviceClass that a claim names does not exist",
        GROUP_NOT_FOUND: "the PodGroup of the pod does not exist",
        DEVICES_UNAVAILABLE: "the free devices of the node do not satisfy all claims of the pod",
        DEVICES_ELSEWHERE: "the allocated devices of a claim cannot be used on the node",
        INVALID_POOLS: "a pool of devices of the node is invalid",
        NODE_OPERATIONS_MISSING: "the node does not declare a feature that the devices of a claim require",
        POD_LEVEL_TOO_SMALL: "the pod-level requests or limits do not cover what the devices take of the node",
        DEVICES_RELEASED: "allocated devices of a claim were released, so that the pod can get others",
        DEVICES_NOT_RELEASED: "no release of allocated devices would help the pod",
        **INSUFFICIENT_CODES,
    }
)
"""Reason code -> meaning."""
