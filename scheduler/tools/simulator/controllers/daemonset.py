"""Simulates the DaemonSet controller: one pod on every eligible node.

As upstream, a required node affinity on metadata.name pins a pod to its node, and the scheduler places it.

Source:
    kube-controller-manager v1.36, pkg/controller/daemon/daemon_controller.go and util/daemonset_util.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scheduler.objects.created_pods import REVISION_LABEL, daemon_nodes, daemon_pod, template_hash
from scheduler.objects.decode import decode_node
from scheduler.tools.simulator.apimachinery.objects import is_terminating, key_of, labels_of
from scheduler.tools.simulator.controllers.controller import WorkloadController
from scheduler.tools.simulator.kinds.pods import has_ended, is_active, is_ready
from scheduler.tools.simulator.kinds.workloads import scaled

if TYPE_CHECKING:
    from scheduler.objects.node import NodeObject
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.store import Store


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
        should, may_stay = daemon_nodes(workload, self._nodes.values())
        may_be = set(should)
        for name in self._nodes:
            pods = by_node.get(name, [])
            if name in may_stay:
                self._record_ended(workload, name, pods)
            self._keep_one(pods, may_stay=name in may_stay)
            if name in may_be and not pods:
                self.create_pod(workload, daemon_pod(workload, name))
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
