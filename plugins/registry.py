"""The plugins that come with the scheduler.

A plugin is a class and one line here; plugins that share code are in one folder.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from plugins.default_binder import DefaultBinder
from plugins.deferred_pod_scheduling import DeferredPodScheduling
from plugins.dynamic_resources.plugin import DynamicResources
from plugins.gpu_scores import (
    FragmentationGradientDescent,
    GpuShareBestFit,
    GpuShareClustering,
    GpuShareDotProduct,
    GpuSharePacking,
    RandomNode,
)
from plugins.gpu_sharing import GpuSharing
from plugins.image_locality import ImageLocality
from plugins.inter_pod_affinity.plugin import InterPodAffinity
from plugins.node_affinity import NodeAffinity
from plugins.node_declared_features import NodeDeclaredFeatures
from plugins.node_measurements.network_traffic import NetworkTraffic
from plugins.node_measurements.node_load import NodeLoad
from plugins.node_name import NodeName
from plugins.node_ports import NodePorts
from plugins.node_preference.plugin import NodePreference
from plugins.node_resource_topology.plugin import NodeResourceTopologyMatch
from plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from plugins.node_resources.fit import NodeResourcesFit
from plugins.node_unschedulable import NodeUnschedulable
from plugins.pod_groups.coscheduling import Coscheduling
from plugins.pod_groups.gang_scheduling import GangScheduling
from plugins.pod_groups.placements import PodGroupPodsCount, TopologyPlacementGenerator
from plugins.pod_topology_spread.plugin import PodTopologySpread
from plugins.preemption.default_preemption import DefaultPreemption
from plugins.priority_sort import PrioritySort
from plugins.quotas.capacity_scheduling import CapacityScheduling
from plugins.quotas.fair_queues import FairQueues
from plugins.scheduling_gates import SchedulingGates
from plugins.taint_toleration import TaintToleration
from plugins.volume_binding.plugin import VolumeBinding
from plugins.volumes.node_volume_limits import NodeVolumeLimits
from plugins.volumes.volume_restrictions import VolumeRestrictions
from plugins.volumes.volume_zone import VolumeZone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework import Plugin

# In the order of kube-scheduler's default profile, which is the order they run in.
_ALL: tuple[type[Plugin], ...] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    DeferredPodScheduling,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
    # Not in the default profile.
    NetworkTraffic,
    NodeLoad,
    NodePreference,
    NodeResourceTopologyMatch,
    CapacityScheduling,
    Coscheduling,
    FairQueues,
    GpuSharing,
    FragmentationGradientDescent,
    GpuShareBestFit,
    GpuShareClustering,
    GpuShareDotProduct,
    GpuSharePacking,
    RandomNode,
)

IN_TREE: Mapping[str, type[Plugin]] = MappingProxyType({plugin.name: plugin for plugin in _ALL})
"""Name in a profile -> class, in kube-scheduler's default order."""
