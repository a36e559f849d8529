"""Who else lives in the cluster: what stands in for controllers and kubelets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.daemonset_controller import DaemonSetController
from scheduler.simulator.definition_controller import DefinitionController
from scheduler.simulator.deployment_controller import DeploymentController
from scheduler.simulator.disruption_controller import DisruptionController
from scheduler.simulator.event_expiry import EventExpiry
from scheduler.simulator.garbage_collector import GarbageCollector
from scheduler.simulator.job_controller import JobController
from scheduler.simulator.kubelet import Kubelet, KubeletOptions
from scheduler.simulator.namespace_controller import NamespaceController
from scheduler.simulator.node_lifecycle import NodeLifecycle
from scheduler.simulator.replicaset_controller import ReplicaSetController
from scheduler.simulator.statefulset_controller import StatefulSetController

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.controller import Controller
    from scheduler.simulator.store import Store

__all__ = ["KubeletOptions", "stand_ins"]


def stand_ins(store: Store, *, kubelet: bool | KubeletOptions, controllers: bool) -> Sequence[Controller]:
    """Return who is wanted, not started yet."""
    found: list[Controller] = [DefinitionController(store), EventExpiry(store)]
    if controllers:
        found += [
            NodeLifecycle(store),
            DeploymentController(store),
            ReplicaSetController(store),
            StatefulSetController(store),
            DaemonSetController(store),
            JobController(store),
            DisruptionController(store),
            NamespaceController(store),
            GarbageCollector(store),
        ]
    if kubelet:
        found.append(Kubelet(store, kubelet if isinstance(kubelet, KubeletOptions) else KubeletOptions()))
    return found
