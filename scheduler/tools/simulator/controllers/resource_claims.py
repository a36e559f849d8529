"""Simulates the ResourceClaim controller: creates claims from templates, and releases them when pods are done.

Source:
    kube-controller-manager v1.36, pkg/controller/resourceclaim/controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.created_pods import POD_CLAIM_NAME, claim_from_template
from scheduler.tools.simulator.apimachinery.objects import controller_of, is_terminating, key_of
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.controller import QueueController
from scheduler.tools.simulator.kinds.pod_groups import GROUP
from scheduler.tools.simulator.kinds.pods import has_ended
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object

CLAIMS: Final = "resourceclaims.resource.k8s.io"
_GROUPS: Final = f"podgroups.{GROUP}"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"

_TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
_RESOURCES: Final = {"pods": "pods", "podgroups": _GROUPS, "claims": CLAIMS}
_PLURALS: Final = {"Pod": "pods", "PodGroup": "podgroups"}
_OF_GROUPS: Final = {"apiGroup": GROUP, "resource": "podgroups"}
_RETRY_SECONDS: Final = 1.0


class ResourceClaims(QueueController[Store]):
    """Keeps the claims of pods and PodGroups, and the reservations of claims."""

    resources = ("pods", CLAIMS, _TEMPLATES, _GROUPS)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        # key of a template -> keys of pods and groups that lack it
        self._waiting: dict[str, dict[str, None]] = {}

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        namespace, name = key_of(obj)
        key = f"{namespace}/{name}"
        if resource == _TEMPLATES:
            self.enqueue(*self._waiting.pop(key, ()))
        elif resource == CLAIMS:
            self.enqueue(f"claims {key}")
            owner = controller_of(obj)
            if owner.get("kind") == "PodGroup":
                self._enqueue_members(namespace, owner["name"])
            if type_ == "DELETED" and owner.get("kind") in _PLURALS:
                self.enqueue(f"{_PLURALS[owner['kind']]} {namespace}/{owner['name']}")
        elif resource == _GROUPS:
            used = claims_of_pod(obj)
            self.enqueue(*(f"claims {namespace}/{claim}" for claim in used.values() if claim))
            if used and type_ != "DELETED":
                self.enqueue(f"podgroups {key}")
                self._enqueue_members(namespace, name)
        else:
            used = claims_of_pod(obj)
            self.enqueue(*(f"claims {namespace}/{claim}" for claim in used.values() if claim))
            if used and type_ != "DELETED":
                self.enqueue(f"pods {key}")

    def _enqueue_members(self, namespace: str, group: str) -> None:
        for pod in self.store.list("pods", namespace=namespace):
            if _group_name(pod) == group:
                self.enqueue(f"pods {namespace}/{key_of(pod)[1]}")

    def reconcile(self, key: str) -> None:
        resource, _, place = key.partition(" ")
        namespace, _, name = place.partition("/")
        obj = self.store.find(_RESOURCES[resource], name, namespace)
        if obj is None:
            return
        if resource == "claims":
            self._sync_claim(obj)
        elif is_terminating(obj):
            return
        elif resource == "podgroups":
            self._create_claims(obj, "PodGroup", None)
        elif not has_ended(obj):
            group = self._group_of(obj)
            if self._create_claims(obj, "Pod", group) and obj["spec"].get("nodeName"):
                self._reserve(obj, group)

    def _group_of(self, pod: Object) -> Object | None:
        return self._group(_group_name(pod), key_of(pod)[0])

    def _group(self, name: str, namespace: str) -> Object | None:
        is_served = name and self.store.has_kind(_GROUPS)
        return self.store.find(_GROUPS, name, namespace) if is_served else None

    def _create_claims(self, owner: Object, kind: str, group: Object | None) -> bool:
        """Create the claims of the templates of a pod or PodGroup, and set their names in its status.

        Args:
            owner: the pod or PodGroup.
            kind: its kind.
            group: the PodGroup of the pod, which has the claims that both name.

        Returns:
            False if a claim cannot be created.
        """
        namespace, owner_name = key_of(owner)
        key = f"{_PLURALS[kind]} {namespace}/{owner_name}"
        made = {}
        for asked in owner["spec"].get("resourceClaims", ()):
            if "resourceClaimTemplateName" in asked and not self._has_claim(owner, asked, group):
                if _is_of_group(asked, group):
                    assert group is not None, "it has the claim"
                    found = self._made_for(group, asked["name"])
                    if found:  # else the group's claim is created first
                        made[asked["name"]] = found
                    continue
                doing = f"{kind}ResourceClaim {asked['name']}"
                try:
                    made[asked["name"]] = self._make(owner, kind, asked)
                except StatusError as error:
                    self._tell(owner, f"{doing}: {error.message}")
                    self.later(_RETRY_SECONDS, self.look_again, key)
                    return False
                except LookupError:
                    template = asked["resourceClaimTemplateName"]
                    self._waiting.setdefault(f"{namespace}/{template}", {})[key] = None
                    problem = f'resourceclaimtemplate.resource.k8s.io "{template}" not found'
                    self._tell(owner, f'{doing}: resource claim template "{template}": {problem}')
                    return False
        if made:
            known = {one["name"]: one for one in owner["status"].get("resourceClaimStatuses", ())}
            known |= {name: {"name": name, "resourceClaimName": claim} for name, claim in made.items()}
            status = {"resourceClaimStatuses": list(known.values())}
            self.store.change(owner, {"status": status}, "status")
        return True

    def _has_claim(self, owner: Object, asked: Object, group: Object | None) -> bool:
        """Return whether the claim exists that was created for a pod or PodGroup, or for the group of the pod."""
        namespace = key_of(owner)[0]
        for status in owner["status"].get("resourceClaimStatuses", ()):
            if status["name"] == asked["name"]:
                if "resourceClaimName" not in status:
                    return True  # no claim is needed
                claim = self.store.find(CLAIMS, status["resourceClaimName"], namespace)
                owners = {one["metadata"]["uid"] for one in (owner, group) if one is not None}
                return claim is not None and controller_of(claim).get("uid") in owners
        return False

    def _made_for(self, owner: Object, name: str) -> str:
        """Return the name of the claim that was created for a pod or PodGroup; "" without one."""
        uid = owner["metadata"]["uid"]
        for claim in self.store.list(CLAIMS, namespace=key_of(owner)[0]):
            annotations = claim["metadata"].get("annotations", {})
            if controller_of(claim).get("uid") == uid and annotations.get(POD_CLAIM_NAME) == name:
                return key_of(claim)[1]
        return ""

    def _make(self, owner: Object, kind: str, asked: Object) -> str:
        """Create a claim from a template, or find the one that was created before; return its name.

        Raises:
            LookupError: there is no such template.
            StatusError: the claim is rejected.
        """
        namespace = key_of(owner)[0]
        found = self._made_for(owner, asked["name"])
        if found:
            return found
        template = self.store.find(_TEMPLATES, asked["resourceClaimTemplateName"], namespace)
        if template is None:
            raise LookupError(asked["resourceClaimTemplateName"])
        claim = claim_from_template({"kind": kind, **owner}, asked["name"], template)
        return key_of(self.store.create(CLAIMS, claim, namespace=namespace))[1]

    def _reserve(self, pod: Object, group: Object | None) -> None:
        """Reserve allocated claims for a pod that was not placed by the scheduler, or for its PodGroup."""
        namespace, pod_name = key_of(pod)
        of_group = {
            asked["name"] for asked in pod["spec"].get("resourceClaims", ()) if _is_of_group(asked, group)
        }
        for own_name, name in claims_of_pod(pod).items():
            claim = self.store.find(CLAIMS, name, namespace) if name else None
            if claim is None or "allocation" not in claim["status"] or is_reserved_for(claim, pod):
                continue
            if "deletionTimestamp" in claim["metadata"] or claim["status"].get("deallocationRequested"):
                continue  # it accepts no new consumers
            consumer = {"resource": "pods", "name": pod_name, "uid": pod["metadata"]["uid"]}
            if group is not None and own_name in of_group:
                consumer = _OF_GROUPS | {"name": key_of(group)[1], "uid": group["metadata"]["uid"]}
            consumers = [*claim["status"].get("reservedFor", ()), consumer]
            _write_status(self.store, claim, {"reservedFor": consumers})

    def _sync_claim(self, claim: Object) -> None:
        """Release a claim, and delete it if nothing needs it."""
        namespace = key_of(claim)[0]
        if not release_claim(self.store, claim, lambda consumer: self._is_needed(consumer, namespace)):
            self._delete_if_unused(claim)

    def _is_needed(self, consumer: Object, namespace: str) -> bool:
        """Return whether a consumer still needs its claim."""
        if consumer.items() >= _OF_GROUPS.items():
            group = self._group(consumer.get("name", ""), namespace)
            return group is not None and group["metadata"]["uid"] == consumer.get("uid")
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

    def _tell(self, owner: Object, problem: str) -> None:
        reason = "FailedResourceClaimCreation"
        self.store.events.record(owner, reason, problem, component="resource_claim", warning=True)


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
    """Return the claims of a pod or PodGroup: its own name of each -> the claim's name, "" if it is not created yet.

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
    """Return whether a claim is reserved for a pod, or for its PodGroup."""
    uid, group = pod["metadata"]["uid"], _group_name(pod)
    of_group = _OF_GROUPS | {"name": group}
    return any(
        one.get("uid") == uid or (group and one.items() >= of_group.items())
        for one in claim["status"].get("reservedFor", ())
    )


def _group_name(pod: Object) -> str:
    return str(pod["spec"].get("schedulingGroup", {}).get("podGroupName", ""))


def _is_of_group(asked: Object, group: Object | None) -> bool:
    """Return whether a claim of a pod equals one of its PodGroup."""
    return group is not None and asked in group["spec"].get("resourceClaims", ())


def _is_done(pod: Object) -> bool:
    """Return whether a pod will not run anymore."""
    return has_ended(pod) or (is_terminating(pod) and not pod["spec"].get("nodeName"))
