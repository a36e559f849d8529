"""Simulates the DaemonSet controller: one pod on every eligible node.

As upstream, a required node affinity on metadata.name pins a pod to its node, and the scheduler places it.

Source:
    kube-controller-manager v1.36, pkg/controller/daemon/daemon_controller.go and util/daemonset_util.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.objects.decode import decode_node, decode_pod
from scheduler.objects.selectors import required_node_affinity
from scheduler.objects.v1 import NO_EXECUTE, NO_SCHEDULE
from scheduler.simulator.apimachinery.objects import is_terminating, key_of, labels_of
from scheduler.simulator.controllers.controller import REVISION_LABEL, WorkloadController, template_hash
from scheduler.simulator.kinds.pods import has_ended, is_active, is_ready
from scheduler.simulator.kinds.workloads import TEMPLATE_GENERATION, scaled

if TYPE_CHECKING:
    from scheduler.objects.node import NodeObject
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_GENERATION_LABEL: Final = "pod-template-generation"
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
_TOLERATED_ON_HOST_NETWORK: Final = (("node.kubernetes.io/network-unavailable", NO_SCHEDULE),)


class DaemonSetController(WorkloadController):
    """Creates and deletes the pods of DaemonSets for each node, and counts them."""

    resources = ("daemonsets.apps", "pods", "nodes")
    component = "daemonset-controller"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._nodes: dict[str, NodeObject] = {}  # name -> node

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource != "nodes":
            super().observe(resource, type_, obj)
            return
        name = obj["metadata"]["name"]
        known = self._nodes.pop(name, None)
        if type_ != "DELETED":
            node = self._nodes[name] = decode_node(msgspec.json.encode(obj))
            if known is not None and (known.labels, known.taints) == (node.labels, node.taints):
                return
        self.enqueue(*self.workloads)

    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        if is_terminating(workload):
            return
        revision = template_hash(workload["spec"]["template"])
        by_node: dict[str, list[Object]] = {}
        for pod in owned.values():
            by_node.setdefault(_node_of(pod), []).append(pod)
        may_be, may_stay = self._eligible(workload)
        for name in self._nodes:
            pods = by_node.get(name, [])
            if name in may_stay:
                self._record_ended(workload, name, pods)
            self._keep_one(pods, may_stay=name in may_stay)
            if name in may_be and not pods:
                self._create(workload, name, revision)
        for name, pods in by_node.items():
            if name not in self._nodes:
                for pod in pods:
                    self.delete_pod(pod)
        current = {name: pods for name, pods in by_node.items() if name in self._nodes}
        self._roll(workload, current, may_be, revision)
        self._report(workload, current, may_be, revision)

    def _keep_one(self, pods: list[Object], *, may_stay: bool) -> None:
        """Delete a node's pods that have ended or may not stay, and all others except the oldest."""
        running = [pod for pod in pods if is_active(pod)]
        running.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        for pod in pods:
            if not may_stay or has_ended(pod) or pod in running[1:]:
                self.delete_pod(pod)

    def _record_ended(self, daemon_set: Object, node: str, pods: list[Object]) -> None:
        for pod in pods:
            if has_ended(pod) and not is_terminating(pod):
                key, failed = "/".join(key_of(pod)), pod["status"]["phase"] == "Failed"
                state, verb = ("failed", "kill") if failed else ("succeeded", "delete")
                message = f"Found {state} daemon pod {key} on node {node}, will try to {verb} it"
                self.record(daemon_set, f"{state.title()}DaemonPod", message, warning=failed)

    def _eligible(self, daemon_set: Object) -> tuple[set[str], set[str]]:
        """Return the nodes that should have a pod, and the nodes whose pod may stay.

        Source:
            NodeShouldRunDaemonPod: NoSchedule taints prevent new pods, only NoExecute taints remove one.
        """
        template = daemon_set["spec"]["template"]
        spec = template["spec"] | {"tolerations": _tolerations(template["spec"])}
        metadata = {"name": "any", "uid": "any", "namespace": daemon_set["metadata"]["namespace"]}
        pod = decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))
        affinity = required_node_affinity(pod.pod.spec.node_selector, pod.node_affinity)
        should, stay = set(), set()
        for name, node in self._nodes.items():
            if not affinity.matches(name, node.labels):
                continue
            against = {
                taint.effect for taint in node.taints if not pod.tolerated.cover(taint, compares=False)
            }
            if NO_EXECUTE not in against:
                stay.add(name)
                if NO_SCHEDULE not in against:
                    should.add(name)
        return should, stay

    def _roll(
        self, daemon_set: Object, by_node: dict[str, list[Object]], may_be: set[str], revision: str
    ) -> None:
        """Delete pods of old templates, within the allowed number of unavailable pods."""
        strategy = daemon_set["spec"].get("updateStrategy", {})
        if strategy.get("type") != "RollingUpdate":
            return
        limit = scaled(strategy.get("rollingUpdate", {}).get("maxUnavailable", 1), len(may_be))
        live = {
            name: pod
            for name, pods in by_node.items()
            for pod in pods
            if name in may_be and not is_terminating(pod)
        }
        old = [pod for pod in live.values() if labels_of(pod).get(REVISION_LABEL) != revision]
        unavailable = sum(name not in live or not is_ready(live[name]) for name in may_be)
        for pod in [one for one in old if not is_ready(one)]:
            self.delete_pod(pod)
        for pod in [one for one in old if is_ready(one)][: max(0, limit - unavailable)]:
            self.delete_pod(pod)

    def _create(self, daemon_set: Object, node: str, revision: str) -> None:
        own, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        generation = own.get("annotations", {}).get(TEMPLATE_GENERATION, "1")
        labels = template.get("metadata", {}).get("labels", {})
        labels = labels | {REVISION_LABEL: revision, _GENERATION_LABEL: generation}
        placed = {
            "affinity": _pinned(template["spec"].get("affinity", {}), node),
            "tolerations": _tolerations(template["spec"]),
        }
        self.create_pod(daemon_set, {"labels": labels, "generateName": f"{own['name']}-"}, placed)

    def _report(
        self, daemon_set: Object, by_node: dict[str, list[Object]], may_be: set[str], revision: str
    ) -> None:
        wanted = {name: by_node[name][0] for name in by_node if name in may_be}
        ready = sum(map(is_ready, wanted.values()))
        updated = sum(labels_of(pod).get(REVISION_LABEL) == revision for pod in wanted.values())
        status = {
            "currentNumberScheduled": len(wanted),
            "numberMisscheduled": len(by_node) - len(wanted),
            "desiredNumberScheduled": len(may_be),
            "numberReady": ready,
            "observedGeneration": daemon_set["metadata"].get("generation", 0),
            "updatedNumberScheduled": updated,
            "numberAvailable": ready,
            "numberUnavailable": len(may_be) - ready,
        }
        self.store.change(daemon_set, {"status": status}, "status")


def _node_of(pod: Object) -> str:
    """Return the node of a pod, or the node that it is pinned to."""
    node = pod["spec"].get("nodeName", "")
    if node:
        return str(node)
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def _pinned(affinity: Object, node: str) -> Object:
    """Return an affinity for one node only, which replaces its required node affinity.

    Source:
        util/daemonset_util.go, ReplaceDaemonSetPodNodeNameNodeAffinity.
    """
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return affinity | {"nodeAffinity": affinity.get("nodeAffinity", {}) | required}


def _tolerations(spec: Object) -> list[Object]:
    """Return the tolerations of a template with those of every daemon."""
    wanted = _TOLERATED + (_TOLERATED_ON_HOST_NETWORK if spec.get("hostNetwork") else ())
    own = list(spec.get("tolerations", ()))
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return own + [one for one in added if one not in own]
