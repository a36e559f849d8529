"""Simulates the ResourceClaim controller: creates claims from templates, and releases them when pods are done.

Source:
    kube-controller-manager v1.36, pkg/controller/resourceclaim/controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import controller_of, is_terminating, key_of
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import QueueController, record_event
from scheduler.simulator.kinds.pods import has_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

CLAIMS: Final = "resourceclaims.resource.k8s.io"
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"

_TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
_RETRY_SECONDS: Final = 1.0
_LONGEST_BASE: Final = 57


class ResourceClaims(QueueController):
    """Keeps the claims of pods, and the reservations of claims."""

    resources = ("pods", CLAIMS, _TEMPLATES)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._waiting: dict[str, dict[str, None]] = {}  # key of a template -> keys of pods that lack it

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        namespace, name = key_of(obj)
        key = f"{namespace}/{name}"
        if resource == _TEMPLATES:
            self.enqueue(*self._waiting.pop(key, ()))
        elif resource == CLAIMS:
            self.enqueue(f"claims {key}")
            owner = controller_of(obj)
            if type_ == "DELETED" and owner.get("kind") == "Pod":
                self.enqueue(f"pods {namespace}/{owner['name']}")
        else:
            used = claims_of_pod(obj)
            self.enqueue(*(f"claims {namespace}/{claim}" for claim in used.values() if claim))
            if used and type_ != "DELETED":
                self.enqueue(f"pods {key}")

    def reconcile(self, key: str) -> None:
        resource, _, place = key.partition(" ")
        namespace, _, name = place.partition("/")
        obj = self.store.find("pods" if resource == "pods" else CLAIMS, name, namespace)
        if obj is None:
            return
        if resource == "claims":
            self._sync_claim(obj)
        elif not is_terminating(obj) and not has_ended(obj):
            self._sync_pod(obj)

    def _sync_pod(self, pod: Object) -> None:
        """Create the claims of a pod's templates, and set their names in its status."""
        namespace, pod_name = key_of(pod)
        made = {}
        for asked in pod["spec"].get("resourceClaims", ()):
            if "resourceClaimTemplateName" in asked and not self._has_claim(pod, asked["name"]):
                try:
                    made[asked["name"]] = self._make(pod, asked)
                except StatusError as error:
                    problem = f"PodResourceClaim {asked['name']}: {error.message}"
                    self._tell(pod, problem)
                    self.later(_RETRY_SECONDS, self.look_again, f"pods {namespace}/{pod_name}")
                    return
                except LookupError:
                    template = asked["resourceClaimTemplateName"]
                    self._waiting.setdefault(f"{namespace}/{template}", {})[
                        f"pods {namespace}/{pod_name}"
                    ] = None
                    problem = f'resourceclaimtemplate.resource.k8s.io "{template}" not found'
                    self._tell(
                        pod,
                        f'PodResourceClaim {asked["name"]}: resource claim template "{template}": {problem}',
                    )
                    return
        if made:
            known = {one["name"]: one for one in pod["status"].get("resourceClaimStatuses", ())}
            known |= {name: {"name": name, "resourceClaimName": claim} for name, claim in made.items()}
            status = {"resourceClaimStatuses": list(known.values())}
            self.store.change(pod, {"status": status}, "status")
        if pod["spec"].get("nodeName"):
            self._reserve(pod)

    def _has_claim(self, pod: Object, name: str) -> bool:
        """Return whether the claim that was created for a pod exists."""
        namespace = key_of(pod)[0]
        for status in pod["status"].get("resourceClaimStatuses", ()):
            if status["name"] == name:
                if "resourceClaimName" not in status:
                    return True  # no claim is needed
                claim = self.store.find(CLAIMS, status["resourceClaimName"], namespace)
                return claim is not None and controller_of(claim).get("uid") == pod["metadata"]["uid"]
        return False

    def _make(self, pod: Object, asked: Object) -> str:
        """Create a claim from a template, or find the one that was created before; return its name.

        Raises:
            LookupError: there is no such template.
            StatusError: the claim is rejected.
        """
        namespace, pod_name = key_of(pod)
        uid, name = pod["metadata"]["uid"], asked["name"]
        for claim in self.store.list(CLAIMS, namespace=namespace):
            annotations = claim["metadata"].get("annotations", {})
            if controller_of(claim).get("uid") == uid and annotations.get(POD_CLAIM_NAME) == name:
                return key_of(claim)[1]
        template = self.store.find(_TEMPLATES, asked["resourceClaimTemplateName"], namespace)
        if template is None:
            raise LookupError(asked["resourceClaimTemplateName"])
        base, metadata = f"{pod_name}-{name}-", template["spec"].get("metadata", {})
        if len(base) > _LONGEST_BASE:
            share = _LONGEST_BASE / len(base)
            base = f"{pod_name[: int(len(pod_name) * share)]}-{name[: int(len(name) * share)]}"
        claim = {
            "metadata": {
                "generateName": base,
                "labels": metadata.get("labels", {}),
                "annotations": metadata.get("annotations", {}) | {POD_CLAIM_NAME: name},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": uid, "controller": True}
                ],
            },
            "spec": template["spec"]["spec"],
        }
        return key_of(self.store.create(CLAIMS, claim, namespace=namespace))[1]

    def _reserve(self, pod: Object) -> None:
        """Reserve allocated claims for a pod that was not placed by the scheduler."""
        namespace, pod_name = key_of(pod)
        uid = pod["metadata"]["uid"]
        for name in claims_of_pod(pod).values():
            claim = self.store.find(CLAIMS, name, namespace) if name else None
            if claim is None or "allocation" not in claim["status"] or is_reserved_for(claim, pod):
                continue
            if "deletionTimestamp" in claim["metadata"] or claim["status"].get("deallocationRequested"):
                continue  # it accepts no new consumers
            consumer = {"resource": "pods", "name": pod_name, "uid": uid}
            consumers = [*claim["status"].get("reservedFor", ()), consumer]
            _write_status(self.store, claim, {"reservedFor": consumers})

    def _sync_claim(self, claim: Object) -> None:
        """Release a claim, and delete it if nothing needs it."""
        namespace = key_of(claim)[0]
        if not release_claim(self.store, claim, lambda consumer: self._is_needed(consumer, namespace)):
            self._delete_if_unused(claim)

    def _is_needed(self, consumer: Object, namespace: str) -> bool:
        """Return whether a consumer still needs its claim."""
        if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
            return True
        pod = self.store.find("pods", consumer.get("name", ""), namespace)
        return pod is not None and pod["metadata"]["uid"] == consumer.get("uid") and not _is_done(pod)

    def _delete_if_unused(self, claim: Object) -> None:
        """Delete a claim that was created for a pod that is done or was replaced."""
        namespace, name = key_of(claim)
        owner = controller_of(claim)
        pod = self.store.find("pods", owner["name"], namespace) if owner.get("kind") == "Pod" else None
        present = self.store.find(CLAIMS, name, namespace)
        if pod is None or present is None or is_terminating(present):
            return
        if pod["metadata"]["uid"] != owner["uid"] or _is_done(pod):
            self.store.delete(CLAIMS, name, namespace)

    def _tell(self, pod: Object, problem: str) -> None:
        reason = "FailedResourceClaimCreation"
        record_event(self.store, pod, reason, problem, component="resource_claim", warning=True)


def release_claim(store: Store, claim: Object, is_needed: Callable[[Object], bool]) -> list[Object]:
    """Remove the consumers that do not need a claim anymore, with the last one its allocation; return the others."""
    status = claim["status"]
    consumers = status.get("reservedFor", [])
    left = [one for one in consumers if is_needed(one)]
    is_ours = FINALIZER in claim["metadata"].get("finalizers", ())
    if len(left) < len(consumers):
        ends = not left and is_ours
        claim = _write_status(
            store, claim, {"reservedFor": left or None} | ({"allocation": None} if ends else {})
        )
        if ends:
            _remove_finalizer(store, claim)
    elif is_ours and is_terminating(claim) and not left:
        if "allocation" in status:
            claim = _write_status(store, claim, {"allocation": None})
        _remove_finalizer(store, claim)
    return left


def _write_status(store: Store, claim: Object, status: Object) -> Object:
    return store.change(claim, {"status": status}, "status")


def _remove_finalizer(store: Store, claim: Object) -> None:
    kept = [one for one in claim["metadata"].get("finalizers", ()) if one != FINALIZER]
    store.change(claim, {"metadata": {"finalizers": kept or None}})


def claims_of_pod(pod: Object) -> Mapping[str, str]:
    """Return the claims of a pod: its own name of each -> the claim's name, "" if it is not created yet.

    The claim for a pod's extended resources has no name in the pod; its key is "".
    """
    status = pod["status"]
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses", ())}
    found = {}
    for asked in pod["spec"].get("resourceClaims", ()):
        name = asked.get("resourceClaimName") or made.get(asked["name"], "")
        if name is not None:
            found[asked["name"]] = name
    extended = status.get("extendedResourceClaimStatus")
    if extended is not None:
        found[""] = extended["resourceClaimName"]
    return found


def is_reserved_for(claim: Object, pod: Object) -> bool:
    """Return whether a pod may use a claim."""
    uid = pod["metadata"]["uid"]
    return any(one.get("uid") == uid for one in claim["status"].get("reservedFor", ()))


def _is_done(pod: Object) -> bool:
    """Return whether a pod will not run anymore."""
    return has_ended(pod) or (is_terminating(pod) and not pod["spec"].get("nodeName"))
