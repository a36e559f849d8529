"""The rules of in-tree plugins that autoscalers know.

Cluster Autoscaler runs the PreFilter and Filter plugins of kube-scheduler itself. Karpenter has its own simulation.

Source:
    Cluster Autoscaler of August 2026, FAQ.md (`scheduler-config-file`, `enable-csi-node-aware-scheduling`).
    Karpenter of August 2026, pkg/controllers/provisioning/scheduling and pkg/operator/options/options.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN_TO_CLUSTER_AUTOSCALER: Final[Mapping[str, str]] = {
    "NodeVolumeLimits": "the limits of CSI drivers on new nodes, unless it runs with --enable-csi-node-aware-scheduling",
}
"""Plugin of kube-scheduler -> what Cluster Autoscaler does not know of its rules."""
UNKNOWN_TO_KARPENTER: Final[Mapping[str, str]] = {
    "DynamicResources": "devices: it ignores pods with claims, unless it runs with IGNORE_DRA_REQUESTS=false",
    "NodeDeclaredFeatures": "the features that nodes declare",
    "VolumeBinding": "the free capacity of storage (CSIStorageCapacity)",
    "VolumeRestrictions": "that one pod at a time uses a volume with the access mode ReadWriteOncePod",
}
"""Plugin of kube-scheduler -> what Karpenter does not know of its rules."""
ARGUMENTS_UNKNOWN_TO_KARPENTER: Final[Mapping[str, tuple[str, ...]]] = {
    "NodeAffinity": ("addedAffinity",),
    "NodeResourcesFit": ("ignoredResources", "ignoredResourceGroups"),
}
"""Plugin of kube-scheduler -> its arguments that change which nodes fit, and that Karpenter does not know."""
SPREAD_DEFAULTS: Final = ("PodTopologySpread", "defaultConstraints")
"""The plugin and its argument with spread constraints of pods without own ones, which Karpenter knows by its settings."""
