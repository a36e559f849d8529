"""Stands in for the StatefulSet controller: numbered pods, one after the other. Claims are not made.

Source:
    kube-controller-manager v1.36, pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.simulator.apimachinery.objects import key_of, owned_by, owner_uid
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.controllers.deployment import template_hash
from scheduler.simulator.kinds.pods import is_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_STATEFUL_SETS: Final = "statefulsets.apps"
_HASH_LABEL: Final = "controller-revision-hash"
_POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_RETRY_SECONDS: Final = 1.0


class StatefulSetController(Controller):
    """Makes, replaces and deletes the pods of StatefulSets in their order."""

    resources: ClassVar[Sequence[str]] = (_STATEFUL_SETS, "pods")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._sets: dict[str, Object] = {}  # uid -> StatefulSet
        self._pods: dict[str, dict[str, Object]] = {}  # uid of the StatefulSet -> name -> pod
        self._changed: dict[str, None] = {}  # uids of StatefulSets

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        gone = type_ == "DELETED"
        uid = obj["metadata"]["uid"] if resource == _STATEFUL_SETS else owner_uid(obj)
        if resource == _STATEFUL_SETS:
            if gone:
                self._sets.pop(uid, None)
            else:
                self._sets[uid] = obj
        elif not uid:
            return
        elif gone:
            self._pods.get(uid, {}).pop(obj["metadata"]["name"], None)
        else:
            self._pods.setdefault(uid, {})[obj["metadata"]["name"]] = obj
        self._changed[uid] = None

    def act(self) -> None:
        changed, self._changed = self._changed, {}
        for uid in changed:
            stateful_set = self._sets.get(uid)
            if stateful_set is not None and "deletionTimestamp" not in stateful_set["metadata"]:
                self._reconcile(stateful_set)
            elif stateful_set is None and not self._pods.get(uid):
                self._pods.pop(uid, None)

    def _reconcile(self, stateful_set: Object) -> None:
        """Take one step; its effects are seen in the next turn, which takes the next."""
        spec, pods = stateful_set["spec"], self._pods.get(stateful_set["metadata"]["uid"], {})
        revision = f"{stateful_set['metadata']['name']}-{template_hash(spec['template'])}"
        self._step(stateful_set, pods, revision)
        self._report(stateful_set, pods, revision)

    def _step(self, stateful_set: Object, pods: dict[str, Object], revision: str) -> None:
        spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
        wanted = [f"{name}-{index}" for index in range(spec.get("replicas", 0))]
        at_once = spec.get("podManagementPolicy") == "Parallel"
        for index, pod_name in enumerate(wanted):
            pod = pods.get(pod_name)
            if pod is None:
                self._create(stateful_set, index, revision)
            elif pod["status"].get("phase") in {"Failed", "Succeeded"}:
                self._delete(pod)
            if (pod is None or not _is_healthy(pod)) and not at_once:
                return
        for extra in sorted((one for one in pods if one not in wanted), key=_ordinal, reverse=True):
            self._delete(pods[extra])
            if not at_once:
                return
        self._roll(spec, pods, wanted, revision)

    def _roll(self, spec: Object, pods: dict[str, Object], wanted: Sequence[str], revision: str) -> None:
        """Replace the last pod of an old template once all after it are well."""
        strategy = spec.get("updateStrategy", {})
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        partition = strategy.get("rollingUpdate", {}).get("partition", 0)
        for pod_name in reversed(wanted[partition:]):
            pod = pods.get(pod_name)
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                return
            if pod["metadata"].get("labels", {}).get(_HASH_LABEL) != revision:
                self._delete(pod)
                return
            if not _is_healthy(pod):
                return

    def _create(self, stateful_set: Object, index: int, revision: str) -> None:
        template = stateful_set["spec"]["template"]
        name = f"{stateful_set['metadata']['name']}-{index}"
        metadata = template.get("metadata", {})
        labels = metadata.get("labels", {}) | {
            _HASH_LABEL: revision,
            _POD_NAME_LABEL: name,
            _INDEX_LABEL: str(index),
        }
        pod = {
            "metadata": metadata
            | {"name": name, "labels": labels, "ownerReferences": owned_by(stateful_set)},
            "spec": template["spec"]
            | {"hostname": name, "subdomain": stateful_set["spec"].get("serviceName", "")},
        }
        try:
            self.store.create("pods", pod, namespace=stateful_set["metadata"]["namespace"])
        except StatusError:
            # As upstream: try again later, for the reason may pass (a pod of that name on its way out).
            self.later(_RETRY_SECONDS, self._look_again, stateful_set["metadata"]["uid"])

    def _delete(self, pod: Object) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            namespace, name = key_of(pod)
            self.store.delete("pods", name, namespace)

    def _report(self, stateful_set: Object, pods: dict[str, Object], revision: str) -> None:
        wanted = stateful_set["spec"].get("replicas", 0)
        live = [pod for pod in pods.values() if "deletionTimestamp" not in pod["metadata"]]
        updated = sum(pod["metadata"].get("labels", {}).get(_HASH_LABEL) == revision for pod in live)
        ready = sum(map(is_ready, live))
        before = stateful_set.get("status", {}).get("currentRevision", revision)
        done = updated == wanted == ready
        status = {
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
            "replicas": len(live),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "updatedReplicas": updated,
            "currentReplicas": updated if done or before == revision else len(live) - updated,
            "currentRevision": revision if done else before,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        namespace, name = key_of(stateful_set)
        self.store.patch(_STATEFUL_SETS, name, {"status": status}, namespace, subresource="status")

    def _look_again(self, uid: str) -> None:
        self._changed[uid] = None
        self.wake()


def _is_healthy(pod: Object) -> bool:
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])
