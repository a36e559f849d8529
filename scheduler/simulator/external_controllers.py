"""The simulated controllers, kubelets and drivers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.controllers.attachments import Attachments
from scheduler.simulator.controllers.custom_resource_definition import DefinitionController
from scheduler.simulator.controllers.daemonset import DaemonSetController
from scheduler.simulator.controllers.deployment import DeploymentController
from scheduler.simulator.controllers.disruption import DisruptionController
from scheduler.simulator.controllers.ephemeral_volumes import EphemeralVolumes
from scheduler.simulator.controllers.event_expiry import EventExpiry
from scheduler.simulator.controllers.garbage_collector import GarbageCollector
from scheduler.simulator.controllers.job import JobController
from scheduler.simulator.controllers.namespace import NamespaceController
from scheduler.simulator.controllers.node_lifecycle import NodeLifecycle
from scheduler.simulator.controllers.pod_group_protection import PodGroupProtection
from scheduler.simulator.controllers.replicaset import ReplicaSetController
from scheduler.simulator.controllers.resource_claims import ResourceClaims
from scheduler.simulator.controllers.statefulset import StatefulSetController
from scheduler.simulator.controllers.storage_protection import StorageProtection
from scheduler.simulator.controllers.volumes import VolumeController
from scheduler.simulator.drivers.attacher import Attacher
from scheduler.simulator.drivers.devices import DeviceDrivers, DeviceOptions
from scheduler.simulator.drivers.provisioner import Provisioner, ProvisionerOptions
from scheduler.simulator.drivers.provisioning_faults import ProvisioningFaults
from scheduler.simulator.kubelet.heartbeats import Heartbeats
from scheduler.simulator.kubelet.kubelet import Kubelet, KubeletOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.controllers.controller import Controller
    from scheduler.simulator.registry.store import Store

__all__ = ["DeviceOptions", "KubeletOptions", "ProvisionerOptions", "stand_ins"]


def stand_ins(
    store: Store,
    *,
    kubelet: bool | KubeletOptions,
    controllers: bool,
    provisioner: ProvisionerOptions | None = None,
    faults: ProvisioningFaults | None = None,
    devices: DeviceDrivers | None = None,
) -> Sequence[Controller]:
    """Return the wanted controllers, not started yet."""
    wanted: list[Controller] = [DefinitionController(store), EventExpiry(store)]
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
            StatefulSetController(store),
            DaemonSetController(store),
            JobController(store),
            DisruptionController(store),
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
            wanted.append(Heartbeats(store, options.heartbeat_seconds))
    return wanted
