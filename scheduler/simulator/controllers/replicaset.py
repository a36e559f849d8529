"""Stands in for the ReplicaSet controller: as many pods as asked for.

Source:
    kube-controller-manager v1.36, pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.simulator.apimachinery.objects import key_of, owned_by, owner_uid
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.kinds.pods import is_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_REPLICA_SETS: Final = "replicasets.apps"
_BURST: Final = 100
"""How many pods one turn makes; the loop has other work between turns."""

_RETRY_SECONDS: Final = 1.0


class ReplicaSetController(Controller):
    """Makes and deletes the pods of ReplicaSets, and counts them."""

    resources: ClassVar[Sequence[str]] = (_REPLICA_SETS, "pods")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._sets: dict[str, Object] = {}  # uid -> ReplicaSet
        self._pods: dict[str, dict[tuple[str, str], Object]] = {}  # uid of the ReplicaSet -> key -> pod
        self._changed: dict[str, None] = {}  # uids of ReplicaSets

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == _REPLICA_SETS:
            uid = obj["metadata"]["uid"]
            if type_ == "DELETED":
                self._sets.pop(uid, None)
            else:
                self._sets[uid] = obj
        else:
            uid = owner_uid(obj)
            if not uid:
                return
            pods = self._pods.setdefault(uid, {})
            if type_ == "DELETED":
                pods.pop(key_of(obj), None)
            else:
                pods[key_of(obj)] = obj
        self._changed[uid] = None

    def act(self) -> None:
        changed, self._changed = self._changed, {}
        for uid in changed:
            replica_set = self._sets.get(uid)
            if replica_set is not None:
                self._reconcile(replica_set)
            elif not self._pods.get(uid):
                self._pods.pop(uid, None)

    def _reconcile(self, replica_set: Object) -> None:
        uid = replica_set["metadata"]["uid"]
        pods = [pod for pod in self._pods.get(uid, {}).values() if _is_active(pod)]
        if "deletionTimestamp" not in replica_set["metadata"]:
            missing = replica_set["spec"].get("replicas", 0) - len(pods)
            if missing > 0:
                self._create(replica_set, min(missing, _BURST))
            elif missing < 0:
                for pod in sorted(pods, key=_least_missed)[:-missing]:
                    namespace, name = key_of(pod)
                    self.store.delete("pods", name, namespace)
        self._report(replica_set, pods)

    def _create(self, replica_set: Object, count: int) -> None:
        """Make pods; they are seen in the next turn, which makes more if need be."""
        template = replica_set["spec"]["template"]
        metadata = {
            **template.get("metadata", {}),
            "generateName": f"{replica_set['metadata']['name']}-",
            "ownerReferences": owned_by(replica_set),
        }
        namespace = replica_set["metadata"]["namespace"]
        try:
            for _ in range(count):
                self.store.create(
                    "pods", {"metadata": metadata, "spec": template["spec"]}, namespace=namespace
                )
        except StatusError:
            # As upstream: try again later, for the reason may pass (a namespace on its way out, a class to come).
            self.later(_RETRY_SECONDS, self._retry, replica_set["metadata"]["uid"])

    def _retry(self, uid: str) -> None:
        self._changed[uid] = None
        self.wake()

    def _report(self, replica_set: Object, pods: list[Object]) -> None:
        ready = sum(map(is_ready, pods))
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": replica_set["metadata"].get("generation", 0),
        }
        namespace, name = key_of(replica_set)
        self.store.patch(_REPLICA_SETS, name, {"status": status}, namespace, subresource="status")


def _is_active(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in {
        "Succeeded",
        "Failed",
    }


def _least_missed(pod: Object) -> tuple[bool, bool, bool, str]:
    """Order pods by how little is lost with them: on no node, not running, not ready; then by name."""
    return (
        bool(pod["spec"].get("nodeName")),
        pod["status"].get("phase") == "Running",
        is_ready(pod),
        pod["metadata"]["name"],
    )
