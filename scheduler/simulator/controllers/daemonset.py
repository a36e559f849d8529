"""Stands in for the DaemonSet controller: one pod on every node that may have one.

As upstream, a pod is pinned to its node by a required node affinity on metadata.name and left to the scheduler.

Source:
    kube-controller-manager v1.36, pkg/controller/daemon/daemon_controller.go and util/daemonset_util.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from scheduler.objects.decode import decode_node, decode_pod
from scheduler.objects.selectors import required_node_affinity
from scheduler.objects.taints import NO_EXECUTE, NO_SCHEDULE, tolerated
from scheduler.simulator.apimachinery.objects import key_of, owned_by, owner_uid
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.controllers.deployment import template_hash
from scheduler.simulator.kinds.disruption_budgets import scaled
from scheduler.simulator.kinds.pods import is_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_DAEMON_SETS: Final = "daemonsets.apps"
_HASH_LABEL: Final = "controller-revision-hash"
_GENERATION_LABEL: Final = "pod-template-generation"
_GENERATION: Final = "deprecated.daemonset.template.generation"
_RETRY_SECONDS: Final = 1.0
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
_TOLERATED_ON_HOST_NETWORK: Final = (("node.kubernetes.io/network-unavailable", NO_SCHEDULE),)


class DaemonSetController(Controller):
    """Makes and deletes the pods of DaemonSets, node by node, and counts them."""

    resources: ClassVar[Sequence[str]] = (_DAEMON_SETS, "pods", "nodes")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._sets: dict[str, Object] = {}  # uid -> DaemonSet
        self._pods: dict[str, dict[tuple[str, str], Object]] = {}  # uid of the DaemonSet -> key -> pod
        self._nodes: dict[str, NodeObject] = {}  # name -> node
        self._changed: dict[str, None] = {}  # uids of DaemonSets

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        gone = type_ == "DELETED"
        if resource == "nodes":
            name = obj["metadata"]["name"]
            known = self._nodes.pop(name, None)
            if not gone:
                node = self._nodes[name] = decode_node(msgspec.json.encode(obj))
                if known is not None and (known.labels, known.taints) == (node.labels, node.taints):
                    return
            self._changed |= dict.fromkeys(self._sets)
            return
        uid = obj["metadata"]["uid"] if resource == _DAEMON_SETS else owner_uid(obj)
        if resource == _DAEMON_SETS:
            if gone:
                self._sets.pop(uid, None)
            else:
                self._sets[uid] = obj
        elif not uid:
            return
        elif gone:
            self._pods.get(uid, {}).pop(key_of(obj), None)
        else:
            self._pods.setdefault(uid, {})[key_of(obj)] = obj
        self._changed[uid] = None

    def act(self) -> None:
        changed, self._changed = self._changed, {}
        for uid in changed:
            daemon_set = self._sets.get(uid)
            if daemon_set is not None and "deletionTimestamp" not in daemon_set["metadata"]:
                self._reconcile(daemon_set)
            elif daemon_set is None and not self._pods.get(uid):
                self._pods.pop(uid, None)

    def _reconcile(self, daemon_set: Object) -> None:
        uid = daemon_set["metadata"]["uid"]
        revision = template_hash(daemon_set["spec"]["template"])
        by_node: dict[str, list[Object]] = {}
        for pod in self._pods.get(uid, {}).values():
            by_node.setdefault(_node_of(pod), []).append(pod)
        may_be, may_stay = self._eligible(daemon_set)
        for name in self._nodes:
            pods = by_node.get(name, [])
            live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            for pod in live:
                if pod["status"].get("phase") in {"Failed", "Succeeded"} or name not in may_stay:
                    self._delete(pod)
            if name in may_be and not pods:
                self._create(daemon_set, name, revision)
            kept = [pod for pod in live if pod["status"].get("phase") not in {"Failed", "Succeeded"}]
            for extra in sorted(kept, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))[1:]:
                self._delete(extra)
        for name, pods in by_node.items():
            if name not in self._nodes:
                for pod in pods:
                    self._delete(pod)
        current = {name: pods for name, pods in by_node.items() if name in self._nodes}
        self._roll(daemon_set, current, may_be, revision)
        self._report(daemon_set, current, may_be, revision)

    def _eligible(self, daemon_set: Object) -> tuple[set[str], set[str]]:
        """Return the nodes that should have a pod, and those whose pod may stay.

        Source:
            NodeShouldRunDaemonPod: taints of NoSchedule keep new pods away, only those of NoExecute remove one.
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
            against = {taint.effect for taint in node.taints if not tolerated(taint, pod.tolerations)}
            if NO_EXECUTE not in against:
                stay.add(name)
                if NO_SCHEDULE not in against:
                    should.add(name)
        return should, stay

    def _roll(
        self, daemon_set: Object, by_node: dict[str, list[Object]], may_be: set[str], revision: str
    ) -> None:
        """Delete pods of old templates, as many at once as may be unavailable."""
        strategy = daemon_set["spec"].get("updateStrategy", {})
        if strategy.get("type") != "RollingUpdate":
            return
        limit = scaled(strategy.get("rollingUpdate", {}).get("maxUnavailable", 1), len(may_be))
        live = {
            name: pod
            for name, pods in by_node.items()
            for pod in pods
            if name in may_be and "deletionTimestamp" not in pod["metadata"]
        }
        old = [pod for pod in live.values() if pod["metadata"].get("labels", {}).get(_HASH_LABEL) != revision]
        unavailable = sum(name not in live or not is_ready(live[name]) for name in may_be)
        for pod in [one for one in old if not is_ready(one)]:
            self._delete(pod)
        for pod in [one for one in old if is_ready(one)][: max(0, limit - unavailable)]:
            self._delete(pod)

    def _create(self, daemon_set: Object, node: str, revision: str) -> None:
        template = daemon_set["spec"]["template"]
        metadata = template.get("metadata", {})
        generation = daemon_set["metadata"].get("annotations", {}).get(_GENERATION, "1")
        labels = metadata.get("labels", {}) | {_HASH_LABEL: revision, _GENERATION_LABEL: generation}
        pod = {
            "metadata": metadata
            | {
                "labels": labels,
                "generateName": f"{daemon_set['metadata']['name']}-",
                "ownerReferences": owned_by(daemon_set),
            },
            "spec": template["spec"]
            | {
                "affinity": _pinned(template["spec"].get("affinity", {}), node),
                "tolerations": _tolerations(template["spec"]),
            },
        }
        try:
            self.store.create("pods", pod, namespace=daemon_set["metadata"]["namespace"])
        except StatusError:
            # As upstream: try again later, for the reason may pass.
            self.later(_RETRY_SECONDS, self._look_again, daemon_set["metadata"]["uid"])

    def _delete(self, pod: Object) -> None:
        namespace, name = key_of(pod)
        found = self.store.find("pods", name, namespace)
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            self.store.delete("pods", name, namespace)

    def _report(
        self, daemon_set: Object, by_node: dict[str, list[Object]], may_be: set[str], revision: str
    ) -> None:
        wanted = {name: by_node[name][0] for name in by_node if name in may_be}
        ready = sum(map(is_ready, wanted.values()))
        updated = sum(
            pod["metadata"].get("labels", {}).get(_HASH_LABEL) == revision for pod in wanted.values()
        )
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
        namespace, name = key_of(daemon_set)
        self.store.patch(_DAEMON_SETS, name, {"status": status}, namespace, subresource="status")

    def _look_again(self, uid: str) -> None:
        self._changed[uid] = None
        self.wake()


def _node_of(pod: Object) -> str:
    """Return the node a pod is on, or is to be on."""
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
    """Return an affinity that leads to one node only, whatever it asked of nodes before.

    Source:
        util/daemonset_util.go, ReplaceDaemonSetPodNodeNameNodeAffinity.
    """
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return affinity | {"nodeAffinity": affinity.get("nodeAffinity", {}) | required}


def _tolerations(spec: Object) -> list[Object]:
    """Return the tolerations of a template with those every daemon has."""
    wanted = _TOLERATED + (_TOLERATED_ON_HOST_NETWORK if spec.get("hostNetwork") else ())
    own = list(spec.get("tolerations", ()))
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return own + [one for one in added if one not in own]
