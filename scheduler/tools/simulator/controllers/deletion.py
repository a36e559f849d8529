"""Simulates the controllers that delete objects or delay it: namespaces, garbage, old events, used PodGroups.

Only owners whose deletion was observed count: an owner that never existed has no effect.

Source:
    kube-controller-manager v1.36, pkg/controller/namespace/deletion.
    kube-controller-manager v1.36, pkg/controller/garbagecollector.
    kube-apiserver v1.36, the flag --event-ttl.
    kube-controller-manager v1.36, pkg/controller/scheduling/podgroupprotection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.apimachinery.objects import is_terminating, key_of
from scheduler.tools.simulator.controllers.controller import Controller, QueueController
from scheduler.tools.simulator.kinds.pod_groups import GROUP, PROTECTION
from scheduler.tools.simulator.kinds.pods import has_ended
from scheduler.tools.simulator.registry.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object

_RETRY_SECONDS: Final = 1.0
_PODGROUPS: Final = f"podgroups.{GROUP}"


class NamespaceController(Controller[Store]):
    """Deletes the content of terminating namespaces."""

    resources = ("namespaces",)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._terminating: dict[str, Object] = {}  # name -> namespace

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if type_ == "DELETED":
            self._terminating.pop(name, None)
        elif is_terminating(obj):
            self._terminating[name] = obj

    def act(self) -> None:
        for name, namespace in list(self._terminating.items()):
            if self._empty(name):
                self._finalize(namespace)
                self._terminating.pop(name, None)
            else:
                self.later(_RETRY_SECONDS, self.wake)

    def _empty(self, name: str) -> bool:
        """Delete the objects of a namespace; return whether none is left."""
        left = 0
        for resource in self.store.namespaced_resources():
            for obj in self.store.list(resource, namespace=name):
                if not is_terminating(obj):
                    self.store.remove(obj, propagation_policy="Background")
            left += len(self.store.list(resource, namespace=name))
        return not left

    def _finalize(self, namespace: Object) -> None:
        spec = {key: value for key, value in namespace["spec"].items() if key != "finalizers"}
        kept = [one for one in namespace["spec"].get("finalizers", ()) if one != "kubernetes"]
        metadata = {key: value for key, value in namespace["metadata"].items() if key != "resourceVersion"}
        self.store.update(
            "namespaces",
            namespace | {"metadata": metadata, "spec": spec | ({"finalizers": kept} if kept else {})},
            subresource="finalize",
        )


class GarbageCollector(Controller[Store]):
    """Deletes or orphans the dependents of deleted objects."""

    resources = (
        "deployments.apps",
        "statefulsets.apps",
        "daemonsets.apps",
        "jobs.batch",
        "replicasets.apps",
        "replicationcontrollers",
        "pods",
        "persistentvolumeclaims",
        "resourceclaims.resource.k8s.io",
        _PODGROUPS,
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


EVENT_TTL_SECONDS = 3600.0


class EventExpiry(Controller[Store]):
    """Deletes events that were not written for the TTL."""

    resources = ("events",)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._due: deque[tuple[float, str, str, str]] = deque()  # due time, namespace, name, resourceVersion
        self._is_waiting = False

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if type_ != "DELETED":
            due = asyncio.get_running_loop().time() + EVENT_TTL_SECONDS
            self._due.append((due, *key_of(obj), obj["metadata"]["resourceVersion"]))

    def act(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            _, namespace, name, version = self._due.popleft()
            event = self.store.find("events", name, namespace)
            if event is not None and event["metadata"]["resourceVersion"] == version:
                self.store.remove(event)
        if self._due and not self._is_waiting:
            self._is_waiting = True
            self.later(self._due[0][0] - now, self._look)

    def _look(self) -> None:
        self._is_waiting = False
        self.wake()


class PodGroupProtection(QueueController[Store]):
    """Removes the finalizer of terminating groups when all their pods have ended."""

    resources = ("pods", _PODGROUPS)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._members: dict[str, set[str]] = {}  # key of a group -> uids of pods that have not ended

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == "pods":
            self._observe_pod(obj, is_there=type_ != "DELETED")
        elif type_ != "DELETED" and is_terminating(obj):
            self.enqueue("/".join(key_of(obj)))

    def reconcile(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        group = self.store.find(_PODGROUPS, name, namespace) if self.store.has_kind(_PODGROUPS) else None
        if group is None or not is_terminating(group) or key in self._members:
            return
        finalizers = group["metadata"].get("finalizers", ())
        if PROTECTION in finalizers:
            kept = [one for one in finalizers if one != PROTECTION]
            self.store.change(group, {"metadata": {"finalizers": kept or None}})

    def _observe_pod(self, pod: Object, *, is_there: bool) -> None:
        name = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        if name is None:
            return
        key, uid = f"{pod['metadata']['namespace']}/{name}", pod["metadata"]["uid"]
        if is_there and not has_ended(pod):
            self._members.setdefault(key, set()).add(uid)
            return
        members = self._members.get(key, set())
        members.discard(uid)
        if not members:
            self._members.pop(key, None)
            self.enqueue(key)
