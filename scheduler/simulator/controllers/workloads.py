"""Base class of workload controllers: each handles a workload together with its dependents."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.simulator.apimachinery.objects import controller_of, is_terminating, key_of, owned_by
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import QueueController

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

REVISION_LABEL: Final = "controller-revision-hash"

RETRY_SECONDS: Final = 1.0
_HASH_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH: Final = 10


class WorkloadController(QueueController):
    """Handles the workloads of one kind after changes of them or their dependents.

    The first of its `resources` are the workloads, the second their dependents.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.workloads: dict[str, Object] = {}  # uid -> workload
        self._owned: dict[str, dict[str, Object]] = {}  # uid of the workload -> name -> dependent

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == self.resources[0]:
            uid, place, key = obj["metadata"]["uid"], self.workloads, obj["metadata"]["uid"]
        else:
            uid = controller_of(obj).get("uid", "")
            if not uid:
                return
            place, key = self._owned.setdefault(uid, {}), obj["metadata"]["name"]
        if type_ == "DELETED":
            place.pop(key, None)
        else:
            place[key] = obj
        self.enqueue(uid)

    def reconcile(self, key: str) -> None:
        workload = self.workloads.get(key)
        if workload is not None:
            self.sync(workload, self.owned_by(workload))
        elif not self._owned.get(key):
            self._owned.pop(key, None)

    @abstractmethod
    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        """Do one step for a workload and its dependents, by name; the effects are seen in the next run."""

    def owned_by(self, workload: Object) -> dict[str, Object]:
        """Return the dependents of a workload: name -> object."""
        return self._owned.get(workload["metadata"]["uid"], {})

    def create_pod(self, workload: Object, metadata: Object, spec: Object | None = None) -> bool:
        """Create a pod from a workload's template; return whether it was created.

        Args:
            workload: its owner.
            metadata: metadata that overrides the template's.
            spec: fields that override the template's spec.
        """
        template, own = workload["spec"]["template"], workload["metadata"]
        pod = {
            "metadata": template.get("metadata", {}) | {"ownerReferences": owned_by(workload)} | metadata,
            "spec": template["spec"] | (spec or {}),
        }
        try:
            self.store.create("pods", pod, namespace=own["namespace"])
        except StatusError:
            # As upstream: retry later, because the cause may pass (a terminating namespace, or a terminating pod of that name).
            self.later(RETRY_SECONDS, self.look_again, own["uid"])
            return False
        return True

    def delete_pod(self, pod: Object) -> None:
        """Delete a pod unless it is deleted or terminating already."""
        namespace, name = key_of(pod)
        present = self.store.find("pods", name, namespace)
        if present is not None and not is_terminating(present):
            self.store.delete("pods", name, namespace)


def template_hash(template: Object) -> str:
    """Return a hash of a template; equal templates have the same hash."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(_HASH_ALPHABET[byte % len(_HASH_ALPHABET)] for byte in digest[:_HASH_LENGTH])
