"""The simulated controllers, kubelets and drivers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.tools.simulator.controllers.custom_resources import DefinitionController
from scheduler.tools.simulator.controllers.daemonset import DaemonSetController
from scheduler.tools.simulator.controllers.deletion import (
    EventExpiry,
    GarbageCollector,
    NamespaceController,
    PodGroupProtection,
)
from scheduler.tools.simulator.controllers.disruption import DisruptionController
from scheduler.tools.simulator.controllers.job import JobController
from scheduler.tools.simulator.controllers.node_lifecycle import NodeLifecycle
from scheduler.tools.simulator.controllers.replicas import (
    DeploymentController,
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
)
from scheduler.tools.simulator.controllers.resource_claims import ResourceClaims
from scheduler.tools.simulator.controllers.resource_quotas import ResourceQuotaController
from scheduler.tools.simulator.controllers.volumes import (
    Attachments,
    EphemeralVolumes,
    StorageProtection,
    VolumeController,
)
from scheduler.tools.simulator.node_agents.device_drivers import DeviceDrivers, DeviceOptions
from scheduler.tools.simulator.node_agents.kubelet import Heartbeats, Kubelet, KubeletOptions
from scheduler.tools.simulator.node_agents.metrics_server import MetricsServer
from scheduler.tools.simulator.node_agents.volume_drivers import (
    Attacher,
    Provisioner,
    ProvisionerOptions,
    ProvisioningFaults,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.simulator.controllers.controller import Controller
    from scheduler.tools.simulator.registry.store import Store

__all__ = ["DeviceOptions", "KubeletOptions", "ProvisionerOptions", "simulated_controllers"]


def simulated_controllers(
    store: Store,
    *,
    kubelet: bool | KubeletOptions,
    controllers: bool,
    provisioner: ProvisionerOptions | None = None,
    faults: ProvisioningFaults | None = None,
    devices: DeviceDrivers | None = None,
) -> Sequence[Controller[Any]]:
    """Return the wanted controllers, not started yet."""
    wanted: list[Controller[Any]] = [DefinitionController(store), EventExpiry(store)]
    if kubelet or controllers:
        wanted += [
            Provisioner(store, provisioner or ProvisionerOptions(), faults or ProvisioningFaults()),
            Attacher(store),
            devices or DeviceDrivers(store, DeviceOptions()),
        ]
    if controllers:
        wanted += [
            NodeLifecycle(store),
            DeploymentController(store),
            ReplicaSetController(store),
            ReplicationControllerController(store),
            StatefulSetController(store),
            DaemonSetController(store),
            JobController(store),
            DisruptionController(store),
            ResourceQuotaController(store),
            VolumeController(store),
            EphemeralVolumes(store),
            Attachments(store),
            StorageProtection(store),
            PodGroupProtection(store),
            ResourceClaims(store),
            NamespaceController(store),
            GarbageCollector(store),
        ]
    if kubelet:
        options = kubelet if isinstance(kubelet, KubeletOptions) else KubeletOptions()
        wanted.append(Kubelet(store, options))
        if options.heartbeat_seconds:
            wanted.append(Heartbeats(store, options))
        if options.metrics:
            wanted.append(MetricsServer(store))
    return wanted
