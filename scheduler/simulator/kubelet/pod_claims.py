"""Reasons why an admitted pod cannot start yet: an unbound volume, or devices that are not reserved for it.

Source:
    kubelet v1.36, pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go and
    pkg/kubelet/cm/dra/manager.go, PrepareResources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scheduler.objects.selectors import NodeAffinity, NodeSelector, required_node_affinity
from scheduler.simulator.apimachinery.objects import controller_of, is_terminating, key_of
from scheduler.simulator.controllers.resource_claims import CLAIMS, claims_of_pod, is_reserved_for
from scheduler.simulator.kinds.persistent_volume_claims import PROTECTION
from scheduler.simulator.kubelet.admission import AdmissionRejection

if TYPE_CHECKING:
    from scheduler.objects.node import NodeObject
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store


def missing(store: Store, pod: Object, node: NodeObject) -> AdmissionRejection | None:
    """Return what a pod still waits for; None if it can start."""
    for volume in pod["spec"].get("volumes", ()):
        problem = _volume_problem(store, pod, volume)
        if problem:
            name = volume["name"]
            message = (
                f"Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[], failed to "
                f"process volumes=[{name}]: {problem}"
            )
            return AdmissionRejection("FailedMount", message)
    for name in claims_of_pod(pod).values():
        problem = _claim_problem(store, pod, name, node)
        if problem:
            message = f"Failed to prepare dynamic resources: prepare dynamic resources: {problem}"
            return AdmissionRejection("FailedPrepareDynamicResources", message)
    return None


def _volume_problem(store: Store, pod: Object, volume: Object) -> str:
    namespace, pod_name = key_of(pod)
    if "persistentVolumeClaim" in volume:
        name = volume["persistentVolumeClaim"]["claimName"]
    elif "ephemeral" in volume:
        name = f"{pod_name}-{volume['name']}"
    else:
        return ""
    claim = store.find("persistentvolumeclaims", name, namespace)
    if claim is None:
        problem = f'failed to fetch PVC from API server: persistentvolumeclaims "{name}" not found'
    elif is_terminating(claim) and PROTECTION not in claim["metadata"].get("finalizers", ()):
        problem = "PVC is being deleted"
    elif "ephemeral" in volume and controller_of(claim).get("uid") != pod["metadata"]["uid"]:
        problem = f"PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
    elif claim["status"].get("phase") != "Bound" or not claim["spec"].get("volumeName"):
        problem = "PVC is not bound"
    else:
        return ""
    return f"error processing PVC {namespace}/{name}: {problem}"


def _claim_problem(store: Store, pod: Object, name: str, node: NodeObject) -> str:
    namespace, pod_name = key_of(pod)
    if not name:
        return f'pod "{namespace}/{pod_name}": ResourceClaim not created yet'
    claim = store.find(CLAIMS, name, namespace)
    if claim is None:
        return f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found'
    uid, claim_uid = pod["metadata"]["uid"], claim["metadata"]["uid"]
    allocation = claim["status"].get("allocation")
    if allocation is None:
        return f"ResourceClaim {name}: not allocated"
    if not is_reserved_for(claim, pod):
        return f"pod {pod_name} ({uid}) is not allowed to use ResourceClaim {name} ({claim_uid})"
    selector = allocation.get("nodeSelector")
    if selector is not None:
        affinity = NodeAffinity(msgspec.convert(selector, NodeSelector))
        if not required_node_affinity({}, affinity).matches(node.name, node.labels):
            return f"ResourceClaim {name}: its devices are not on node {node.name}"
    return ""
