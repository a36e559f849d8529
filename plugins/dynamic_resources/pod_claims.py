"""The ResourceClaims of a pod, and the reasons why the pod has to wait for them.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go, and
    plugins/dynamicresources/dynamicresources.go, foreachPodResourceClaim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import ResourceClaim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodResourceClaim
    from scheduler.snapshot import Objects

CLAIMS: Final = "resource.k8s.io/v1/resourceclaims"


class HeldClaim(NamedTuple):
    """A claim in the version that was read.

    Attributes:
        claim: the fields that decisions use.
        obj: the whole object, the base of a write.
    """

    claim: ResourceClaim
    obj: Mapping[str, Any]

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> HeldClaim:
        """Return a claim from a response of the API server.

        Raises:
            ObjectError: the object is not a valid claim.
        """
        return cls(typed_object(obj, ResourceClaim), obj)


def find_claims(pod: PodInfo, claims: Objects) -> list[HeldClaim] | str:
    """Return the claims of a pod in the order of its spec, or upstream's message why the pod has to wait.

    A claim that the controller found unnecessary is left out.
    """
    found = []
    generated: Mapping[str, str | None] | None = None
    for wanted in pod.pod.spec.resource_claims:
        if generated is None and wanted.resource_claim_name is None:
            generated = _generated_names(pod)
        name = _claim_name(pod, wanted, generated or {})
        if name is None:
            continue
        if isinstance(name, _Missing):
            return name.words
        key = f"{pod.namespace}/{name}"
        claim = claims.typed(ResourceClaim, key)
        if claim is None:
            return f'could not find ResourceClaim "{key}"'
        if claim.metadata.deletion_timestamp:
            return f'resourceclaim "{name}" is being deleted'
        if wanted.resource_claim_name is None and not is_controlled_by(claim, pod):
            return f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)"
        found.append(HeldClaim(claim, claims[key]))
    return found


def is_controlled_by(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Return whether a claim was created for a pod."""
    owner = next((each for each in claim.metadata.owner_references if each.controller), None)
    return owner is not None and owner.uid == pod.uid


def is_reserved_for(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Return whether a claim's `reservedFor` lists a pod."""
    return any(consumer.uid == pod.uid for consumer in claim.status.reserved_for)


class _Missing(NamedTuple):
    words: str


def _generated_names(pod: PodInfo) -> Mapping[str, str | None]:
    """Return the names of the claims that the controller created, by their names in the pod; the first of a name counts."""
    return {each.name: each.resource_claim_name for each in reversed(pod.pod.status.resource_claim_statuses)}


def _claim_name(
    pod: PodInfo, wanted: PodResourceClaim, generated: Mapping[str, str | None]
) -> str | _Missing | None:
    if wanted.resource_claim_name is not None:
        return wanted.resource_claim_name
    if wanted.resource_claim_template_name is None:
        return _Missing(
            f'pod "{pod.key}", spec.resourceClaim "{wanted.name}": none of the supported fields are set'
        )
    if wanted.name in generated:
        return generated[wanted.name]
    return _Missing(f'pod "{pod.key}": ResourceClaim not created yet')
