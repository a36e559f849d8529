"""Simulates the controller that protects PodGroups while they have pods.

Source:
    kube-controller-manager v1.36, pkg/controller/scheduling/podgroupprotection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, key_of
from scheduler.simulator.controllers.controller import QueueController
from scheduler.simulator.kinds.pod_groups import GROUP, PROTECTION
from scheduler.simulator.kinds.pods import has_ended

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_PODGROUPS: Final = f"podgroups.{GROUP}"


class PodGroupProtection(QueueController):
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
        group = self.store.find(_PODGROUPS, name, namespace)
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
