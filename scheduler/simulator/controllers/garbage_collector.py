"""Simulates the garbage collector: deletes objects whose owners are deleted.

Only owners whose deletion was observed count: an owner that never existed has no effect.

Source:
    kube-controller-manager v1.36, pkg/controller/garbagecollector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.registry.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store


class GarbageCollector(Controller):
    """Deletes or orphans the dependents of deleted objects."""

    resources = (
        "deployments.apps",
        "statefulsets.apps",
        "daemonsets.apps",
        "jobs.batch",
        "replicasets.apps",
        "pods",
        "persistentvolumeclaims",
        "resourceclaims.resource.k8s.io",
    )

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._dependents: dict[str, dict[str, Object]] = {}  # uid of the owner -> uid -> dependent
        self._terminating: dict[str, Object] = {}  # uid -> object with a finalizer of ours
        self._gone: dict[str, None] = {}  # uids

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        metadata = obj["metadata"]
        uid = metadata["uid"]
        for owner in metadata.get("ownerReferences", ()):
            dependents = self._dependents.setdefault(owner.get("uid", ""), {})
            if type_ == "DELETED":
                dependents.pop(uid, None)
            else:
                dependents[uid] = obj
        if type_ == "DELETED":
            self._terminating.pop(uid, None)
            self._gone[uid] = None
        elif is_terminating(obj) and _finalizer(obj):
            self._terminating[uid] = obj

    def act(self) -> None:
        gone, self._gone = self._gone, {}
        for uid in gone:
            for dependent in self._dependents.pop(uid, {}).values():
                self._lose_owner(dependent, uid)
        for uid, owner in list(self._terminating.items()):
            self._finish(uid, owner)

    def _finish(self, uid: str, owner: Object) -> None:
        """Do the work that a finalizer of the garbage collector waits for, then remove the finalizer."""
        dependents = self._dependents.get(uid, {})
        if _finalizer(owner) == ORPHAN_FINALIZER:
            for dependent in dependents.values():
                self._strip_owner(dependent, uid)
            self._dependents.pop(uid, None)
        elif dependents:
            for dependent in dependents.values():
                if not is_terminating(dependent):
                    self.store.remove(dependent, propagation_policy="Foreground")
            return
        del self._terminating[uid]
        finalizers = [name for name in owner["metadata"]["finalizers"] if name != _finalizer(owner)]
        self.store.change(owner, {"metadata": {"finalizers": finalizers or None}})

    def _lose_owner(self, dependent: Object, uid: str) -> None:
        if any(one.get("uid") != uid for one in dependent["metadata"]["ownerReferences"]):
            self._strip_owner(dependent, uid)
        elif not is_terminating(dependent):
            self.store.remove(dependent, propagation_policy="Background")

    def _strip_owner(self, dependent: Object, uid: str) -> None:
        others = [one for one in dependent["metadata"]["ownerReferences"] if one.get("uid") != uid]
        if self.store.has(dependent):
            self.store.change(dependent, {"metadata": {"ownerReferences": others or None}})


_OURS: Final = (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)


def _finalizer(obj: Object) -> str:
    """Return the finalizer that waits for the garbage collector; "" for none."""
    finalizers = obj["metadata"].get("finalizers", ())
    return next((name for name in _OURS if name in finalizers), "")
