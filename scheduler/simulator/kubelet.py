"""Stands in for every node's kubelet: admits pods that are bound, runs them, and ends them.

Source:
    kubelet v1.36, pkg/kubelet/kubelet.go and pkg/kubelet/lifecycle/predicate.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from scheduler.objects.decode import decode_node, decode_pod
from scheduler.objects.resource_names import PODS, is_extended_resource_name
from scheduler.simulator.controller import Controller, key_of
from scheduler.simulator.status import StatusError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.simulator.storage import Object
    from scheduler.simulator.store import Store

_Key = tuple[str, str]  # namespace, name

_FIRST_CHECKED: Final = (PODS, "cpu", "memory", "ephemeral-storage")
_RUNNING_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How quick kubelets are.

    Attributes:
        admit_seconds: from a pod's binding until its kubelet takes it in or refuses it.
        start_seconds: from then until it runs.
        stop_seconds: until a pod that is to go has ended; its grace period, if that is shorter.
    """

    admit_seconds: float = 0.05
    start_seconds: float = 1.0
    stop_seconds: float = 1.0


class Kubelet(Controller):
    """The kubelets of all nodes there are."""

    resources: ClassVar[Sequence[str]] = ("nodes", "pods")

    def __init__(self, store: Store, options: KubeletOptions) -> None:
        super().__init__(store)
        self._options = options
        self._capacity: dict[str, Mapping[str, int]] = {}  # node name -> resource name -> amount
        self._used: dict[str, dict[str, int]] = {}  # node name -> resource name -> amount
        self._admitted: dict[str, tuple[str, Mapping[str, int]]] = {}  # pod uid -> node name, requests
        self._seen: set[str] = set()  # pod uids
        self._ending: set[str] = set()  # pod uids
        self._pods: dict[str, Object] = {}  # pod uid -> bound pod
        self._changed: dict[str, None] = {}  # pod uids
        self._addresses = 0

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == "nodes":
            self._observe_node(type_, obj)
            return
        uid = obj["metadata"]["uid"]
        if type_ == "DELETED":
            self._release(uid)
            self._pods.pop(uid, None)
            self._seen.discard(uid)
            self._ending.discard(uid)
            self._changed.pop(uid, None)
        elif obj["spec"].get("nodeName"):
            self._pods[uid] = obj
            self._changed[uid] = None

    def act(self) -> None:
        changed, self._changed = self._changed, {}
        for uid in changed:
            pod = self._pods[uid]
            if pod["spec"]["nodeName"] not in self._capacity:
                continue
            if pod["status"].get("phase") in _ENDED:
                self._release(uid)
            if "deletionTimestamp" in pod["metadata"]:
                self._end(pod)
            elif uid not in self._seen:
                self._seen.add(uid)
                if pod["status"].get("phase") == "Running":
                    self._take_in(uid, pod)
                else:
                    self.later(self._options.admit_seconds, self._admit, uid)

    def _observe_node(self, type_: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if type_ == "DELETED":
            self._capacity.pop(name, None)
            return
        if name not in self._capacity:
            # Pods may have been bound before their node was there.
            self._changed |= {uid: None for uid, pod in self._pods.items() if pod["spec"]["nodeName"] == name}
        self._capacity[name] = decode_node(msgspec.json.encode(node)).allocatable

    def _admit(self, uid: str) -> None:
        """Take a pod in, or refuse it for lack of room."""
        pod = self._pods.get(uid)
        if pod is None or uid in self._ending or pod["status"].get("phase") != "Pending":
            return
        if pod["spec"]["nodeName"] not in self._capacity:
            self._seen.discard(uid)  # should the node come back
            return
        requests = _requests(pod)
        lacking = self._lacking(pod["spec"]["nodeName"], requests)
        if lacking:
            self._reject(pod, lacking, requests[lacking])
            return
        self._take_in(uid, pod)
        self.later(self._options.start_seconds, self._run, uid)

    def _take_in(self, uid: str, pod: Object) -> None:
        requests = _requests(pod)
        used = self._used.setdefault(pod["spec"]["nodeName"], {})
        for name, amount in requests.items():
            used[name] = used.get(name, 0) + amount
        self._admitted[uid] = (pod["spec"]["nodeName"], requests)

    def _lacking(self, node: str, requests: Mapping[str, int]) -> str:
        """Return the first resource a node lacks; "" if there is room.

        Vendors' resources that the node does not know are not its business.
        """
        capacity, used = self._capacity[node], self._used.get(node, {})
        names = [*_FIRST_CHECKED, *sorted(set(requests) - set(_FIRST_CHECKED))]
        for name in names:
            amount = requests.get(name, 0)
            if not amount or (name not in capacity and is_extended_resource_name(name)):
                continue
            if used.get(name, 0) + amount > capacity.get(name, 0):
                return name
        return ""

    def _reject(self, pod: Object, resource: str, requested: int) -> None:
        namespace, name = key_of(pod)
        node = pod["spec"]["nodeName"]
        problem = (
            f"Node didn't have enough resource: {resource}, requested: {requested}, "
            f"used: {self._used.get(node, {}).get(resource, 0)}, capacity: {self._capacity[node].get(resource, 0)}"
        )
        reason = f"OutOf{resource}"
        status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {problem}"}
        self.store.patch("pods", name, {"status": status}, namespace, subresource="status")
        now = self.store.timestamp()
        event = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": namespace,
                "name": name,
                "uid": pod["metadata"]["uid"],
            },
            "reason": reason,
            "message": problem,
            "type": "Warning",
            "source": {"component": "kubelet", "host": node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self.store.create("events", event, namespace=namespace)
        except StatusError as error:
            if error.reason != "Forbidden":  # a namespace on its way out takes no events
                raise

    def _run(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or uid not in self._admitted or uid in self._ending:
            return
        if pod["status"].get("phase") != "Pending":
            return
        namespace, name = key_of(pod)
        status = self._running_status(pod)
        self.store.patch("pods", name, {"status": status}, namespace, subresource="status")

    def _running_status(self, pod: Object) -> Object:
        now = self.store.timestamp()
        generation = pod["metadata"].get("generation", 0)
        conditions = [
            {
                "type": type_,
                "observedGeneration": generation,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
            for type_ in _RUNNING_CONDITIONS
        ]
        others = [
            one for one in pod["status"].get("conditions", ()) if one["type"] not in _RUNNING_CONDITIONS
        ]
        self._addresses += 1
        address = (
            f"10.{64 + (self._addresses >> 16 & 0x3F)}.{self._addresses >> 8 & 0xFF}.{self._addresses & 0xFF}"
        )
        return {
            "observedGeneration": generation,
            "phase": "Running",
            "conditions": [*conditions, *others],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "containerStatuses": [
                {
                    "name": container["name"],
                    "state": {"running": {"startedAt": now}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": container.get("image", ""),
                    "imageID": "",
                    "started": True,
                }
                for container in pod["spec"].get("containers", ())
            ],
        }

    def _end(self, pod: Object) -> None:
        """Let a terminating pod end; a grace period that was shortened meanwhile counts from now."""
        uid = pod["metadata"]["uid"]
        if uid in self._ending:
            return
        self._ending.add(uid)
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        self.later(min(grace, self._options.stop_seconds), self._remove, uid)

    def _remove(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            namespace, name = key_of(pod)
            self.store.delete("pods", name, namespace, grace_period_seconds=0, uid=uid)

    def _release(self, uid: str) -> None:
        """Give back what a pod held."""
        node, requests = self._admitted.pop(uid, ("", {}))
        for name, amount in requests.items():
            self._used[node][name] -= amount


def _requests(pod: Object) -> Mapping[str, int]:
    """Return what a pod takes of its node: resource name -> milliCPU, bytes or a count."""
    return {**decode_pod(msgspec.json.encode(pod)).resources.requests, PODS: 1}
