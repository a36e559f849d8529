"""What is written about claims: an allocation, a reservation, that they are given back; with every answer there can be.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, bindClaim and Unreserve, and
    extendeddynamicresources.go, createExtendedResourceClaimInAPI, deleteClaim and patchPodExtendedResourceClaimStatus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from plugins.dynamic_resources.pod_claims import CLAIMS, HeldClaim, is_reserved_for
from scheduler.clock import rfc3339
from scheduler.errors import ApiError, SchedulerError
from scheduler.objects.decode import decode_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from scheduler.framework import ApiGet, ApiWrite, Clock, ClusterObjects, Sleep
    from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import ContainerExtendedResourceRequest

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
CLAIM_RIGHTS: Final = frozenset(
    {
        *(f"{verb} {CLAIMS}" for verb in ("get", "create", "update", "delete")),
        # The API server asks for the second as well where devices are given out.
        *(f"{verb} {CLAIMS}/{part}" for verb in ("update", "patch") for part in ("status", "binding")),
        "patch v1/pods/status",
    }
)
"""What all of that takes, in the words of `Needs.rights`."""

_STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_UNCLEAR = frozenset({0, 500, 502, 503, 504})
"""Answers after which a write may have taken effect all the same."""
_NO_ANSWER = frozenset({0, 429, 500, 502, 503, 504})
_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.01
_ASK_AGAIN_SECONDS = 1.0


class ClaimError(SchedulerError):
    """A write about a claim that did not come about."""


class ClaimWrites:
    """Writes claims, and shows what the API server answered to everybody at once."""

    def __init__(
        self, *, api: ApiWrite, reads: ApiGet, objects: ClusterObjects, sleep: Sleep, clock: Clock
    ) -> None:
        self._api = api
        self._reads = reads
        self._objects = objects
        self._sleep = sleep
        self._clock = clock

    async def reserve(self, held: HeldClaim, pod: PodInfo, allocation: AllocationResult | None) -> HeldClaim:
        """Write that a pod uses a claim and, where it was given something, what; return the claim as it is then.

        A claim that changed meanwhile is read again, some times. Where there is no answer, the API server is asked what
        became of the write until it says.

        Raises:
            ClaimError: refused, or somebody else allocated, deallocated or deleted the claim.
        """

        async def write(claim: HeldClaim) -> HeldClaim:
            return await self._reserve(claim, pod, allocation)

        try:
            written = await self._retried(held, write)
        except _UnansweredError as error:
            found = await self._newest(held.claim)
            if found is None or not _has_come_about(found.claim, pod, allocation):
                raise ClaimError(str(error)) from error
            written = found
        return written

    async def _reserve(self, held: HeldClaim, pod: PodInfo, allocation: AllocationResult | None) -> HeldClaim:
        claim = held.claim
        status = {**(held.obj.get("status") or {})}
        if claim.metadata.deletion_timestamp:
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
        if _has_come_about(claim, pod, allocation):
            return held  # a conflict may be with our own write, sent again when its answer was lost
        if allocation is not None:
            if claim.status.allocation is not None:
                raise ClaimError(f"claim {claim.key} got allocated elsewhere in the meantime")
            finalizers = held.obj["metadata"].get("finalizers") or []
            if FINALIZER not in finalizers:
                protected = _changed(held.obj, finalizers=[*finalizers, FINALIZER])
                held = await self._put(protected, claim, "", f"add finalizer to claim {claim.key}")
                status = {**(held.obj.get("status") or {})}
            # Only now: what is allocated may not be changed any more, not even by a time that it lacks.
            timestamp = rfc3339(self._clock.utc_now())
            status["allocation"] = {**msgspec.to_builtins(allocation), "allocationTimestamp": timestamp}
        elif claim.status.allocation is None:
            raise ClaimError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        status["reservedFor"] = [*(status.get("reservedFor") or ()), consumer]
        what = "reservation" if allocation is None else "allocation and reservation"
        return await self._put(
            {**_changed(held.obj), "status": status}, claim, "/status", f"add {what} to claim {claim.key}"
        )

    async def create(self, claim: ResourceClaim, pod: PodInfo) -> HeldClaim:
        """Create the claim for a pod's extended resources.

        Raises:
            ClaimError: refused, or without an answer.
        """
        metadata = claim.metadata
        obj = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{pod.name}-extended-resources-",
                "namespace": pod.namespace,
                "annotations": metadata.annotations,
                "ownerReferences": msgspec.to_builtins(metadata.owner_references),
            },
            "spec": msgspec.to_builtins(claim.spec),
        }
        path = f"/apis/resource.k8s.io/v1/namespaces/{pod.namespace}/resourceclaims"
        try:
            return HeldClaim.of(await self._api.api_write("POST", path, obj))
        except ApiError as error:
            raise ClaimError(f"create claim for extended resources {pod.namespace}/: {error}") from error

    async def tell_pod(
        self, pod: PodInfo, claim: ResourceClaim, mappings: Sequence[ContainerExtendedResourceRequest]
    ) -> None:
        """Write into a pod's status which claim its extended resources come from.

        Raises:
            ClaimError: refused, or without an answer several times.
        """
        told = {"resourceClaimName": claim.metadata.name, "requestMappings": msgspec.to_builtins(mappings)}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        patch = {"status": {"extendedResourceClaimStatus": told}}
        seconds = _BETWEEN_TRIES_SECONDS
        while True:
            try:
                await self._api.api_write("PATCH", path, patch, content_type=_STRATEGIC_MERGE_PATCH)
            except ApiError as error:
                if error.status not in _UNCLEAR or seconds > 1:
                    told_of = f"update pod {pod.key} ExtendedResourceClaimStatus"
                    raise ClaimError(f"{told_of}: {error}") from error
                await self._sleep.sleep(seconds)
                seconds *= 5
            else:
                return

    async def unreserve(self, claim: ResourceClaim, pod: PodInfo) -> None:
        """Take a pod from those that use a claim.

        Raises:
            ApiError: refused, or without an answer.
        """
        gone = {"$patch": "delete", "uid": pod.uid}
        patch = {"metadata": {"uid": claim.metadata.uid}, "status": {"reservedFor": [gone]}}
        path = f"{_path(claim)}/status"
        answer = await self._api.api_write("PATCH", path, patch, content_type=_STRATEGIC_MERGE_PATCH)
        self.show(HeldClaim.of(answer))

    async def deallocate(self, held: HeldClaim) -> None:
        """Give all devices of a claim back.

        Raises:
            ApiError: refused, or without an answer.
        """
        left = {"allocation", "reservedFor", "devices"}
        status = {name: value for name, value in held.obj["status"].items() if name not in left}
        body = {**_changed(held.obj), "status": status}
        self.show(HeldClaim.of(await self._api.api_write("PUT", f"{_path(held.claim)}/status", body)))

    async def delete(self, held: HeldClaim) -> None:
        """Delete a claim, which nothing protects any more.

        Raises:
            SchedulerError: refused, or without an answer.
        """

        async def unprotect(claim: HeldClaim) -> HeldClaim:
            finalizers = [each for each in claim.obj["metadata"].get("finalizers") or () if each != FINALIZER]
            body = _changed(claim.obj, finalizers=finalizers)
            return await self._put(body, claim.claim, "", f"update resourceclaim {claim.claim.key}")

        await self._retried(held, unprotect)
        await self._api.api_write("DELETE", _path(held.claim))

    async def read(self, claim: ResourceClaim) -> HeldClaim | None:
        """Return a claim as the API server has it, None if it is gone or may not be read; ask until it answers."""
        while True:
            try:
                return await self._read(claim)
            except OSError as error:
                if isinstance(error.__cause__, ApiError) and error.__cause__.status not in _NO_ANSWER:
                    return None
                await self._sleep.sleep(_ASK_AGAIN_SECONDS)

    def show(self, held: HeldClaim) -> None:
        """Let everybody see a claim as the API server answered it, unless it is gone by now."""
        known = self._objects.objects(CLAIMS).get(held.claim.key)
        if known is not None and known["metadata"].get("uid") == held.claim.metadata.uid:
            self._objects.assume(CLAIMS, held.obj)

    async def _retried(
        self, held: HeldClaim, write: Callable[[HeldClaim], Awaitable[HeldClaim]]
    ) -> HeldClaim:
        """Write; a claim that changed meanwhile is read anew, as often as client-go does."""
        for _ in range(_TRIES - 1):
            try:
                return await write(held)
            except _ConflictError:
                await self._sleep.sleep(_BETWEEN_TRIES_SECONDS)
            newest = await self._newest(held.claim)
            if newest is None:
                raise ClaimError(
                    f"get updated claim {held.claim.key} after conflict: it is gone, or may not be read"
                )
            held = newest
        return await write(held)

    async def _newest(self, claim: ResourceClaim) -> HeldClaim | None:
        """Read a claim of which the watch may not have told the last: the devices it has by now are nobody else's."""
        found = await self.read(claim)
        if found is not None:
            self.show(found)
        return found

    async def _read(self, claim: ResourceClaim) -> HeldClaim:
        return HeldClaim.of(decode_object(await self._reads.api_get(_path(claim))))

    async def _put(
        self, obj: Mapping[str, Any], claim: ResourceClaim, subresource: str, doing: str
    ) -> HeldClaim:
        try:
            return HeldClaim.of(await self._api.api_write("PUT", f"{_path(claim)}{subresource}", obj))
        except ApiError as error:
            kind = (
                _ConflictError
                if error.status == 409
                else _UnansweredError
                if error.status in _UNCLEAR
                else ClaimError
            )
            raise kind(f"{doing}: {error}") from error


class _ConflictError(ClaimError):
    """Somebody else changed the claim."""


class _UnansweredError(ClaimError):
    """Nobody knows whether it was written."""


def _path(claim: ResourceClaim) -> str:
    metadata = claim.metadata
    return f"/apis/resource.k8s.io/v1/namespaces/{metadata.namespace}/resourceclaims/{metadata.name}"


def _changed(obj: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a claim as it is sent, with other metadata."""
    return {
        **obj,
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {**obj["metadata"], **metadata},
    }


def _has_come_about(claim: ResourceClaim, pod: PodInfo, allocation: AllocationResult | None) -> bool:
    """Say whether a reservation that was not answered was written."""
    found = claim.status.allocation
    is_ours = allocation is None or (
        found is not None and found.devices.results == allocation.devices.results
    )
    return found is not None and is_ours and is_reserved_for(claim, pod)
