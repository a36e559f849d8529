"""Simulates the kubelet of every node: admits bound pods, runs and resizes them, ends them, and sends heartbeats.

Source:
    kubelet v1.36, pkg/kubelet/lifecycle/predicate.go, and pkg/scheduler/eventhandlers.go, AdmissionCheck.
    kubelet v1.36, pkg/kubelet/allocation/allocation_manager.go, and pkg/kubelet/events/resize.go.
    kubelet v1.36, pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go and
    pkg/kubelet/cm/dra/manager.go, PrepareResources.
    kubelet v1.36, pkg/kubelet/kubelet.go and pkg/kubelet/lifecycle/predicate.go.
    kubelet v1.36, staging/src/k8s.io/component-helpers/apimachinery/lease/controller.go, and pkg/kubelet/kubelet_node_status.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from scheduler.kube.http.request import STRATEGIC_MERGE_PATCH
from scheduler.objects.decode import decode_node, decode_pod
from scheduler.objects.resource_names import PODS, is_extended_resource_name
from scheduler.objects.selectors import NodeAffinity, NodeSelector, required_node_affinity
from scheduler.objects.v1 import conflicts_with
from scheduler.tools.simulator.apimachinery.objects import (
    condition_of,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
)
from scheduler.tools.simulator.controllers.controller import Controller, ObjectAccess, QueueController
from scheduler.tools.simulator.controllers.resource_claims import CLAIMS, claims_of_pod, is_reserved_for
from scheduler.tools.simulator.kinds.persistent_volumes import CLAIM_PROTECTION
from scheduler.tools.simulator.kinds.pods import has_ended
from scheduler.tools.simulator.node_agents.pod_status import (
    DEFERRED,
    INFEASIBLE,
    RESIZE_PENDING,
    PendingResize,
    backoff_status,
    ended_status,
    hook_seconds,
    resized_status,
    restarted_status,
    running_status,
    runs_of,
    stopped_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object

_FIRST_CHECKED: Final = (PODS, "cpu", "memory", "ephemeral-storage")


class AdmissionRejection(NamedTuple):
    """Why a pod is not admitted.

    Attributes:
        reason: for example `OutOfcpu`.
        message: text for users.
    """

    reason: str
    message: str


def refusal(
    pod: PodInfo,
    requests: Mapping[str, int],
    node: NodeObject,
    others: Iterable[PodInfo],
    used: Mapping[str, int],
) -> AdmissionRejection | None:
    """Return why a node's kubelet rejects a pod; None if it admits it.

    Args:
        pod: the pod.
        requests: its requests: resource name -> milliCPU, bytes or a count.
        node: the node.
        others: the admitted pods of the node.
        used: the sum of their requests.
    """
    lacking = _lacking(requests, node.allocatable, used)
    if lacking:
        return AdmissionRejection(f"OutOf{lacking}", _shortage(lacking, requests, node, used))
    affinity = required_node_affinity(pod.pod.spec.node_selector, pod.node_affinity)
    if not affinity.matches(node.name, node.labels):
        return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if pod.host_ports and conflicts_with(pod.host_ports)(port for one in others for port in one.host_ports):
        return _failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    return None


def _lacking(requests: Mapping[str, int], capacity: Mapping[str, int], used: Mapping[str, int]) -> str:
    """Return the first resource of which a node has too little; "" if the pod fits.

    Extended resources that the node does not know are ignored.
    """
    for name in [*_FIRST_CHECKED, *sorted(set(requests) - set(_FIRST_CHECKED))]:
        amount = requests.get(name, 0)
        if not amount or (name not in capacity and is_extended_resource_name(name)):
            continue
        if used.get(name, 0) + amount > capacity.get(name, 0):
            return name
    return ""


def _shortage(lacking: str, requests: Mapping[str, int], node: NodeObject, used: Mapping[str, int]) -> str:
    return (
        f"Node didn't have enough resource: {lacking}, requested: {requests[lacking]}, "
        f"used: {used.get(lacking, 0)}, capacity: {node.allocatable.get(lacking, 0)}"
    )


def pending_resize(
    requests: Mapping[str, int], node: NodeObject, used: Mapping[str, int]
) -> PendingResize | None:
    """Return why a node's kubelet does not carry out a resize; None if it does.

    Args:
        requests: the requests of the pod after the resize: resource name -> milliCPU, bytes or a count.
        node: the node.
        used: the sum of what is allocated to the other pods of the node.
    """
    lacking = _lacking(requests, node.allocatable, {})
    if lacking:
        capacity = node.allocatable.get(lacking, 0)
        problem = f"Node didn't have enough capacity: {lacking}, requested: {requests[lacking]}, capacity: {capacity}"
        return PendingResize(INFEASIBLE, problem)
    lacking = _lacking(requests, node.allocatable, used)
    return PendingResize(DEFERRED, _shortage(lacking, requests, node, used)) if lacking else None


def _failed(predicate: str, problem: str) -> AdmissionRejection:
    return AdmissionRejection(predicate, f"Predicate {predicate} failed: {problem}")


def missing(store: ObjectAccess, pod: Object, node: NodeObject) -> AdmissionRejection | None:
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


def _volume_problem(store: ObjectAccess, pod: Object, volume: Object) -> str:
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
    elif is_terminating(claim) and CLAIM_PROTECTION not in claim["metadata"].get("finalizers", ()):
        problem = "PVC is being deleted"
    elif "ephemeral" in volume and controller_of(claim).get("uid") != pod["metadata"]["uid"]:
        problem = f"PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
    elif claim["status"].get("phase") != "Bound" or not claim["spec"].get("volumeName"):
        problem = "PVC is not bound"
    else:
        return ""
    return f"error processing PVC {namespace}/{name}: {problem}"


def _claim_problem(store: ObjectAccess, pod: Object, name: str, node: NodeObject) -> str:
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


_FIRST_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """Delays of kubelets.

    Attributes:
        admit_seconds: from a pod's binding to its admission or rejection.
        start_seconds: from admission until it runs.
        stop_seconds: until a deleted pod has ended, after its preStop hooks; its grace period, if shorter.
        job_seconds: run time of a Job's container without other information; see `pod_status`.
        heartbeat_seconds: interval of lease renewals; 0 for none, which suffices unless a real node lifecycle
            controller reads them.
        resizes: whether kubelets resize pods, and report what becomes of a resize; otherwise another client does.
        recover: whether kubelets report their nodes as ready after a node lifecycle controller has set the
            condition Ready to Unknown; otherwise that condition means that the kubelet is dead.
        metrics: whether the usage of nodes and pods is served as `metrics.k8s.io`.
    """

    admit_seconds: float = 0.05
    start_seconds: float = 1.0
    stop_seconds: float = 1.0
    job_seconds: float = 5.0
    heartbeat_seconds: float = 0.0
    resizes: bool = True
    recover: bool = False
    metrics: bool = False


class _Admitted(NamedTuple):
    """An admitted pod.

    Attributes:
        pod: the pod, with the resources that its node has allocated to it.
        requests: its requests: resource name -> milliCPU, bytes or a count.
        resources: as of `_resources_of`.
    """

    pod: PodInfo
    requests: Mapping[str, int]
    resources: Mapping[str, Object]


class Kubelet(QueueController[ObjectAccess]):
    """The kubelets of all nodes."""

    resources = ("nodes", "pods", "persistentvolumeclaims", CLAIMS)

    def __init__(self, store: ObjectAccess, options: KubeletOptions) -> None:
        super().__init__(store)
        self._options = options
        self._nodes: dict[str, NodeObject] = {}  # node name -> node
        self._used: dict[str, dict[str, int]] = {}  # node name -> resource name -> amount
        self._admitted: dict[str, _Admitted] = {}  # pod uid -> admitted pod
        # node name -> uids of pods whose resize is deferred, the oldest first
        self._deferred: dict[str, dict[str, None]] = {}
        self._handled: dict[str, str] = {}  # pod uid -> phase that was handled last
        self._addresses: dict[str, str] = {}  # node name -> its internal IP address
        # node name -> extended resources of its capacity
        self._extended: dict[str, dict[str, str | None]] = {}
        self._ending: set[str] = set()  # pod uids
        self._pods: dict[str, Object] = {}  # pod uid -> bound pod
        # namespace -> uids of pods that lack a volume or a claim
        self._waiting: dict[str, dict[str, None]] = {}
        self._told: dict[str, str] = {}  # pod uid -> last reported problem
        self._pod_addresses = 0

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == "nodes":
            self._observe_node(type_, obj)
            return
        if resource != "pods":
            for uid in self._waiting.pop(key_of(obj)[0], ()):
                self.later(0, self._run, uid)
            return
        uid = obj["metadata"]["uid"]
        is_on_node = bool(obj["spec"].get("nodeName"))
        if type_ == "DELETED" or (not is_on_node and uid in self._pods):
            # It is gone, or a backup from before its binding is restored.
            self._release(uid)
            self._pods.pop(uid, None)
            self._handled.pop(uid, None)
            self._ending.discard(uid)
            self._told.pop(uid, None)
        elif is_on_node:
            self._pods[uid] = obj
            self.enqueue(uid)

    def reconcile(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["spec"]["nodeName"] not in self._nodes:
            return
        if has_ended(pod):
            self._release(key)
        if is_terminating(pod):
            self._end(pod)
            return
        before, phase = self._handled.get(key), pod["status"].get("phase")
        self._handled[key] = phase
        if phase == "Running" != before:
            if key not in self._admitted:
                self._take_in(key, _allocated(pod))
            self._plan_end(key, pod)
        elif before is None:
            self.later(self._options.admit_seconds, self._admit, key)
        if self._options.resizes and key in self._admitted:
            self._resize(key, pod)

    def _observe_node(self, type_: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if type_ == "DELETED" or _is_silent(node):
            self._nodes.pop(name, None)
            self._extended.pop(name, None)
            return
        self._addresses[name] = _address_of(node)
        self._offer_extended(name, node)
        if name not in self._nodes:
            # Pods may have been bound before their node existed.
            self.enqueue(*(uid for uid, pod in self._pods.items() if pod["spec"]["nodeName"] == name))
        known, found = self._nodes.get(name), decode_node(msgspec.json.encode(node))
        self._nodes[name] = found
        if known is None or known.allocatable != found.allocatable:
            self._retry_resizes(name)

    def _offer_extended(self, name: str, node: Object) -> None:
        """Make extended resources allocatable that an administrator adds to the capacity, changes or removes.

        Source:
            kubelet v1.36, pkg/kubelet/nodestatus/setters.go, MachineInfo.
        """
        status = node.get("status", {})
        amounts = status.get("capacity", {})
        extended: dict[str, str | None] = {
            key: amount for key, amount in amounts.items() if is_extended_resource_name(key)
        }
        before = self._extended.get(name)
        self._extended[name] = extended
        if before is None:
            before = {key: extended.get(key) for key in status.get("allocatable", {})}
        changed = {
            key: extended.get(key)
            for key in before.keys() | extended.keys()
            if is_extended_resource_name(key) and before.get(key) != extended.get(key)
        }
        if changed:
            self.store.change(node, {"status": {"allocatable": changed}}, "status")

    def _admit(self, uid: str) -> None:
        """Admit or reject a pod."""
        pod = self._bound(uid)
        if pod is None or uid in self._ending or pod["status"].get("phase") != "Pending":
            return
        if pod["spec"]["nodeName"] not in self._nodes:
            self._handled.pop(uid, None)  # in case the node comes back
            return
        info = decode_pod(msgspec.json.encode(pod))
        node = info.node_name
        others = [one.pod for one in self._admitted.values() if one.pod.node_name == node]
        why = refusal(info, _requests(info), self._nodes[node], others, self._used.get(node, {}))
        if why is not None:
            self._reject(pod, why)
            return
        self._take_in(uid, pod)
        self.later(self._options.start_seconds, self._run, uid)

    def _take_in(self, uid: str, pod: Object) -> None:
        """Allocate the resources of its spec to a pod."""
        info = decode_pod(msgspec.json.encode(pod))
        self._admitted[uid] = admitted = _Admitted(info, _requests(info), _resources_of(pod))
        self._count(admitted, 1)

    def _count(self, admitted: _Admitted, sign: int) -> None:
        used = self._used.setdefault(admitted.pod.node_name, {})
        for name, amount in admitted.requests.items():
            used[name] = used.get(name, 0) + sign * amount

    def _resize(self, uid: str, pod: Object) -> None:
        """Carry out the resize of a pod, or report why it is pending; a deferred one is tried again later."""
        held, node_name, wanted = self._admitted[uid], pod["spec"]["nodeName"], _resources_of(pod)
        pending = None
        if wanted != held.resources:
            requests = _requests(decode_pod(msgspec.json.encode(pod)))
            used = self._used[node_name]
            others = {name: amount - held.requests.get(name, 0) for name, amount in used.items()}
            pending = pending_resize(requests, self._nodes[node_name], others)
            if pending is None:
                self._count(held, -1)
                self._take_in(uid, pod)
                self._record_resize(pod, "ResizeStarted", "Pod resize started")
                self._record_resize(pod, "ResizeCompleted", "Pod resize completed")
        if pending is not None and pending.reason == DEFERRED:
            self._deferred.setdefault(node_name, {})[uid] = None
        else:
            self._deferred.get(node_name, {}).pop(uid, None)
        self._report_resize(pod, held, pending)
        if self._admitted[uid] is not held:
            self._retry_resizes(node_name)

    def _report_resize(self, pod: Object, held: _Admitted, pending: PendingResize | None) -> None:
        """Report the allocated resources of a pod after a resize, and why one is pending; nothing without a change."""
        known, admitted = condition_of(pod, RESIZE_PENDING), self._admitted[pod["metadata"]["uid"]]
        generation = pod["metadata"].get("generation", 0)
        if pending is None:
            is_new = bool(known) or admitted is not held
        else:
            is_new = known.get("reason") != pending.reason or known.get("observedGeneration") != generation
            if is_new:
                summary = f"Pod resize {pending.reason}"
                self._record_resize(pod, f"Resize{pending.reason}", summary, pending.message)
        if is_new:
            self._report(pod, resized_status(pod, admitted.resources, pending, self.store.timestamp()))

    def _record_resize(self, pod: Object, reason: str, summary: str, error: str = "") -> None:
        spec = pod["spec"]
        about = {
            field: [{"name": each["name"], "resources": each.get("resources", {})} for each in spec[field]]
            for field in ("initContainers", "containers")
            if spec.get(field)
        }
        about |= {"generation": pod["metadata"].get("generation", 0)} | ({"error": error} if error else {})
        message = f"{summary}: {msgspec.json.encode(about).decode()}"
        self._record(pod, reason, message, warning=bool(error))

    def _retry_resizes(self, node_name: str) -> None:
        """Try the deferred resizes of a node soon, those of the highest priority first, then the oldest."""
        deferred = self._deferred.get(node_name)
        if deferred:
            self.enqueue(*sorted(deferred, key=lambda uid: -self._admitted[uid].pod.priority))
            self.wake()

    def _reject(self, pod: Object, why: AdmissionRejection) -> None:
        status = {"phase": "Failed", "reason": why.reason, "message": f"Pod was rejected: {why.message}"}
        self._report(pod, status)
        self._record(pod, why.reason, why.message, warning=True)

    def _run(self, uid: str) -> None:
        pod = self._running(uid, "Pending")
        if pod is None or self._lacks(uid, pod):
            return
        host = self._addresses.get(pod["spec"]["nodeName"], "")
        address = host if host and pod["spec"].get("hostNetwork") else self._next_address()
        self._report(pod, running_status(pod, address, host, self.store.timestamp()))
        self._record_started(pod, pod["spec"].get("containers", ()))

    def _lacks(self, uid: str, pod: Object) -> bool:
        """Return whether a pod must wait for a volume or a claim; changes of those trigger another check."""
        node = self._nodes.get(pod["spec"]["nodeName"])
        lack = None if node is None else missing(self.store, pod, node)
        if lack is None:
            return False
        self._waiting.setdefault(key_of(pod)[0], {})[uid] = None
        if self._told.get(uid) != lack.message:
            self._told[uid] = lack.message
            self._record(pod, lack.reason, lack.message, warning=True)
        return True

    def _record_started(self, pod: Object, containers: Iterable[Object]) -> None:
        """Record the events of containers that start; every image is on the node already, because nothing is pulled.

        Source:
            kubelet v1.36, pkg/kubelet/images/image_manager.go and pkg/kubelet/kuberuntime/kuberuntime_container.go.
        """
        for container in containers:
            name, image = container["name"], container.get("image", "")
            present = f'Container image "{image}" already present on machine and can be accessed by the pod'
            self._record(pod, "Pulled", present, name)
            self._record(pod, "Created", "Container created", name)
            self._record(pod, "Started", "Container started", name)

    def _record_stopping(self, pod: Object) -> None:
        for status in pod["status"].get("containerStatuses", ()):
            if "running" in status.get("state", {}):
                name = status["name"]
                self._record(pod, "Killing", f"Stopping container {name}", name)

    def _record(
        self, pod: Object, reason: str, message: str, container: str = "", *, warning: bool = False
    ) -> None:
        self.store.events.record(
            pod,
            reason,
            message,
            component="kubelet",
            host=pod["spec"]["nodeName"],
            field_path=f"spec.containers{{{container}}}" if container else "",
            warning=warning,
        )

    def _bound(self, uid: str) -> Object | None:
        """Return a bound pod, or None if it was deleted in the meantime."""
        pod = self._pods.get(uid)
        return pod if pod is not None and self.store.has(pod) else None

    def _running(self, uid: str, phase: str) -> Object | None:
        """Return an admitted pod, if it is in a phase and not terminating."""
        pod = self._bound(uid)
        if pod is None or uid not in self._admitted or uid in self._ending:
            return None
        return pod if pod["status"].get("phase") == phase else None

    def _plan_end(self, uid: str, pod: Object) -> None:
        """End a pod when its last container ends, if all of them end."""
        runs = runs_of(pod, self._options.job_seconds)
        if len(runs) != len(pod["status"].get("containerStatuses", ())):
            return  # another client reported that it runs
        seconds = max((run.seconds for run in runs), default=math.inf)
        if seconds < math.inf:
            self.later(seconds, self._finish, uid, [run.exit_code for run in runs])

    def _finish(self, uid: str, exit_codes: Sequence[int]) -> None:
        """End a pod whose containers have ended; failed containers restart if the pod's policy says so."""
        pod = self._running(uid, "Running")
        if pod is None:
            return
        restarts = any(exit_codes) and pod["spec"].get("restartPolicy") == "OnFailure"
        now = self.store.timestamp()
        status = backoff_status(pod, exit_codes, now) if restarts else ended_status(pod, exit_codes, now)
        self._report(pod, status)
        if restarts:
            self._record_back_off(pod, exit_codes)
            failures = max(one["restartCount"] for one in pod["status"]["containerStatuses"])
            wait = min(_FIRST_BACKOFF_SECONDS * 2**failures, _LONGEST_BACKOFF_SECONDS)
            self.later(wait, self._restart, uid)

    def _record_back_off(self, pod: Object, exit_codes: Sequence[int]) -> None:
        namespace, pod_name = key_of(pod)
        for status, code in zip(pod["status"]["containerStatuses"], exit_codes, strict=True):
            if code:
                name = status["name"]
                where = f"{name} in pod {pod_name}_{namespace}({pod['metadata']['uid']})"
                self._record(
                    pod, "BackOff", f"Back-off restarting failed container {where}", name, warning=True
                )

    def _restart(self, uid: str) -> None:
        pod = self._running(uid, "Running")
        if pod is not None:
            self._report(pod, restarted_status(pod, self.store.timestamp()))
            containers = pod["status"]["containerStatuses"]
            self._record_started(pod, [one for one in containers if "waiting" in one["state"]])
            self._plan_end(uid, pod)

    def _report(self, pod: Object, status: Object) -> None:
        """Change fields of a pod's status, and conditions by their type: others write conditions too.

        Source:
            kubelet v1.36, pkg/util/pod/pod.go, PatchPodStatus.
        """
        self.store.change(pod, {"status": status}, "status", STRATEGIC_MERGE_PATCH)

    def _next_address(self) -> str:
        self._pod_addresses += 1
        place = self._pod_addresses
        return f"10.{64 + (place >> 16 & 0x3F)}.{place >> 8 & 0xFF}.{place & 0xFF}"

    def _end(self, pod: Object) -> None:
        """End a terminating pod; a grace period that was shortened meanwhile counts from now."""
        uid = pod["metadata"]["uid"]
        if uid in self._ending:
            return
        self._ending.add(uid)
        self._record_stopping(pod)
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        seconds = self._options.stop_seconds + (hook_seconds(pod) if uid in self._admitted else 0.0)
        self.later(min(grace, seconds), self._remove, uid)

    def _remove(self, uid: str) -> None:
        pod = self._bound(uid)
        if pod is None:
            return
        # For other pods this state would only be visible for a moment before the deletion.
        if pod["metadata"].get("finalizers") and not has_ended(pod):
            self._report(pod, stopped_status(pod, self.store.timestamp()))
        self.store.remove(pod, grace_period_seconds=0)

    def _release(self, uid: str) -> None:
        """Release the resources of a pod."""
        held = self._admitted.pop(uid, None)
        if held is not None:
            self._count(held, -1)
            self._deferred.get(held.pod.node_name, {}).pop(uid, None)
            self._retry_resizes(held.pod.node_name)


def _is_silent(node: Object) -> bool:
    """Return whether a node's kubelet is dead, and so does nothing visible."""
    return bool(condition_of(node, "Ready").get("status") == "Unknown")


def _address_of(node: Object) -> str:
    """Return the internal IP address of a node; "" if it has none."""
    addresses = node.get("status", {}).get("addresses", ())
    return next((one["address"] for one in addresses if one["type"] == "InternalIP"), "")


def _requests(pod: PodInfo) -> Mapping[str, int]:
    """Return the requests of a pod: resource name -> milliCPU, bytes or a count."""
    return {**pod.resources.requests, PODS: 1}


def _resources_of(pod: Object) -> dict[str, Object]:
    """Return name of a container -> the resources in its spec; "" -> those of the pod as a whole, if it has any."""
    spec = pod["spec"]
    found = {
        each["name"]: each.get("resources", {})
        for field in ("initContainers", "containers")
        for each in spec.get(field, ())
    }
    return {**found, "": spec["resources"]} if "resources" in spec else found


def _allocated(pod: Object) -> Object:
    """Return a pod with the resources that its status reports as allocated to it, for kubelets that restart."""
    spec, status = pod["spec"], pod["status"]
    reported = {
        each["name"]: each["resources"]
        for field in ("initContainerStatuses", "containerStatuses")
        for each in status.get(field, ())
        if "resources" in each
    }
    if not reported:
        return pod
    changed: Object = {
        field: [
            {**each, "resources": reported.get(each["name"], each.get("resources", {}))}
            for each in spec[field]
        ]
        for field in ("initContainers", "containers")
        if field in spec
    }
    if "resources" in spec and "resources" in status:
        changed["resources"] = status["resources"]
    return {**pod, "spec": {**spec, **changed}}


_LEASE_VERSION: Final = "coordination.k8s.io/v1"
LEASE_NAMESPACE: Final = "kube-node-lease"
_ATTACHED_BY_CONTROLLER: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
_DURATION_SECONDS: Final = 40
_RENEWALS_PER_STATUS: Final = 30


class Heartbeats(Controller[ObjectAccess]):
    """Renews the leases of nodes, and from time to time the times in their status; leases of dead nodes expire."""

    resources = ("nodes",)

    def __init__(self, store: ObjectAccess, options: KubeletOptions) -> None:
        super().__init__(store)
        self._options = options
        self._nodes: dict[str, Object] = {}  # name -> node with heartbeats
        self._beats = 0
        self._registered = 0

    def start(self) -> None:
        """Start watching and renewing."""
        super().start()
        self._beat()

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        name = key_of(obj)[1]
        if type_ == "DELETED" or (_is_silent(obj) and not self._options.recover):
            self._nodes.pop(name, None)
        elif name in self._nodes:
            self._nodes[name] = obj
        else:
            self._nodes[name] = obj
            self._register(obj)
            self._renew(obj)

    def _beat(self) -> None:
        self.later(self._options.heartbeat_seconds, self._beat)
        self._beats += 1
        for node in list(self._nodes.values()):
            self._renew(node)
            if self._beats % _RENEWALS_PER_STATUS == 0 or _is_silent(node):
                self._report(node)

    def _register(self, node: Object) -> None:
        """Leave attaching to the controller, and report the address and the system of the node, as kubelets do."""
        if _ATTACHED_BY_CONTROLLER not in node["metadata"].get("annotations", {}):
            self.store.change(node, {"metadata": {"annotations": {_ATTACHED_BY_CONTROLLER: "true"}}})
        self._registered += 1
        status, machine = node.get("status", {}), machine_status(node, self._registered)
        info = {name: value for name, value in status.get("nodeInfo", {}).items() if value}
        now = self.store.timestamp()
        reported = {
            "addresses": status.get("addresses") or machine["addresses"],
            "nodeInfo": machine["nodeInfo"] | info,
            "conditions": [
                each | {name: each.get(name) or now for name in ("lastHeartbeatTime", "lastTransitionTime")}
                for each in status.get("conditions", ())
            ],
        }
        if any(status.get(name) != value for name, value in reported.items() if value):
            self.store.change(node, {"status": reported}, "status", STRATEGIC_MERGE_PATCH)

    def _renew(self, node: Object) -> None:
        metadata = node["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {
            "holderIdentity": metadata["name"],
            "leaseDurationSeconds": _DURATION_SECONDS,
            "renewTime": f"{self.store.timestamp()[:-1]}.000000Z",  # a metav1.MicroTime
        }
        lease_metadata = {"name": metadata["name"], "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        self.store.apply(
            {"apiVersion": _LEASE_VERSION, "kind": "Lease", "metadata": lease_metadata, "spec": spec}
        )

    def _report(self, node: Object) -> None:
        now = self.store.timestamp()
        if _is_silent(node):
            conditions = healthy_conditions(now)
        else:
            conditions = [one | {"lastHeartbeatTime": now} for one in node["status"].get("conditions", ())]
        if conditions:
            self.store.change(node, {"status": {"conditions": conditions}}, "status", STRATEGIC_MERGE_PATCH)


_VERSION: Final = "v1.36.2"


def machine_status(node: Object, place: int) -> Object:
    """Return the part of a node's status that describes its machine.

    Args:
        node: the node.
        place: its number, from which its address is made.
    """
    metadata, labels = node["metadata"], labels_of(node)
    return {
        "addresses": [
            {
                "type": "InternalIP",
                "address": f"172.{16 + (place >> 16 & 0xF)}.{place >> 8 & 0xFF}.{place & 0xFF}",
            },
            {"type": "Hostname", "address": metadata["name"]},
        ],
        "nodeInfo": {
            "architecture": labels.get("kubernetes.io/arch", "amd64"),
            "bootID": "",
            "containerRuntimeVersion": "simulated://1",
            "kernelVersion": "simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": _VERSION,
            "machineID": "",
            "operatingSystem": labels.get("kubernetes.io/os", "linux"),
            "osImage": "simulated",
            "systemUUID": "",
        },
    }


_HEALTHY: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def healthy_conditions(now: str) -> list[Object]:
    """Return the conditions of a healthy node.

    Source:
        kubelet v1.36, pkg/kubelet/nodestatus/setters.go.
    """
    return [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for type_, status, reason, message in _HEALTHY
    ]
