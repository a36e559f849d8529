"""Stands in for the garbage collector: what belongs to nobody any more goes as well.

Only owners that were seen to go count: an owner that was never there is left alone.

Source:
    kube-controller-manager v1.36, pkg/controller/garbagecollector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, key_of
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.registry.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_Place = tuple[str, str, str]  # resource, namespace, name


class GarbageCollector(Controller):
    """Deletes or orphans the dependents of what is deleted."""

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
        self._dependents: dict[str, dict[_Place, Object]] = {}  # uid of the owner -> place -> dependent
        self._terminating: dict[
            str, tuple[_Place, Object]
        ] = {}  # uid -> place, object with a finalizer of ours
        self._gone: dict[str, None] = {}  # uids

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        metadata = obj["metadata"]
        place = (resource, *key_of(obj))
        uid = metadata["uid"]
        for owner in metadata.get("ownerReferences", ()):
            dependents = self._dependents.setdefault(owner.get("uid", ""), {})
            if type_ == "DELETED":
                dependents.pop(place, None)
            else:
                dependents[place] = obj
        if type_ == "DELETED":
            self._terminating.pop(uid, None)
            self._gone[uid] = None
        elif is_terminating(obj) and _finalizer(obj):
            self._terminating[uid] = (place, obj)

    def act(self) -> None:
        gone, self._gone = self._gone, {}
        for uid in gone:
            for place, dependent in self._dependents.pop(uid, {}).items():
                self._lose_owner(place, dependent, uid)
        for uid, (place, owner) in list(self._terminating.items()):
            self._finish(uid, place, owner)

    def _finish(self, uid: str, place: _Place, owner: Object) -> None:
        """Do what a finalizer of ours waits for, then take it off."""
        dependents = dict(self._dependents.get(uid, {}))
        if _finalizer(owner) == ORPHAN_FINALIZER:
            for dependent_place, dependent in dependents.items():
                self._strip_owner(dependent_place, dependent, uid)
        elif dependents:
            for dependent_place, dependent in dependents.items():
                if not is_terminating(dependent):
                    self._delete(dependent_place, dependent, "Foreground")
            return
        del self._terminating[uid]
        finalizers = [name for name in owner["metadata"]["finalizers"] if name != _finalizer(owner)]
        resource, namespace, name = place
        self.store.patch(resource, name, {"metadata": {"finalizers": finalizers or None}}, namespace)

    def _lose_owner(self, place: _Place, dependent: Object, uid: str) -> None:
        others = [one for one in dependent["metadata"]["ownerReferences"] if one.get("uid") != uid]
        if others:
            self._strip_owner(place, dependent, uid)
        elif not is_terminating(dependent):
            self._delete(place, dependent, "Background")

    def _strip_owner(self, place: _Place, dependent: Object, uid: str) -> None:
        resource, namespace, name = place
        if self._is_there(place, dependent):
            others = [one for one in dependent["metadata"]["ownerReferences"] if one.get("uid") != uid]
            patch = {"metadata": {"ownerReferences": others or None}}
            self.store.patch(resource, name, patch, namespace)
        self._dependents.get(uid, {}).pop(place, None)

    def _delete(self, place: _Place, dependent: Object, policy: str) -> None:
        resource, namespace, name = place
        if self._is_there(place, dependent):
            self.store.delete(resource, name, namespace, propagation_policy=policy)

    def _is_there(self, place: _Place, dependent: Object) -> bool:
        """Whether an object is still the one that was seen."""
        resource, namespace, name = place
        found = self.store.find(resource, name, namespace)
        return found is not None and found["metadata"]["uid"] == dependent["metadata"]["uid"]


_OURS: Final = (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)


def _finalizer(obj: Object) -> str:
    """Return the finalizer that waits for the garbage collector; "" for none."""
    finalizers = obj["metadata"].get("finalizers", ())
    return next((name for name in _OURS if name in finalizers), "")
