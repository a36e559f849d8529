"""Writes to claims: allocation, reservation and their release, with the handling of every possible response.

Source:
    kube-scheduler v1.36, metrics/metrics.go, InitMetrics.
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, bindClaim and Unreserve, and
    extendeddynamicresources.go, createExtendedResourceClaimInAPI, deleteClaim and patchPodExtendedResourceClaimStatus.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plugins.dynamic_resources.pod_claims import CLAIMS, HeldClaim, is_reserved_for
from scheduler.clock import rfc3339
from scheduler.errors import ApiError, SchedulerError
from scheduler.objects.decode import decode_object
from scheduler.retries import ALSO_REFUSED, TOKEN_SECONDS, Refusals, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from plugins.dynamic_resources.pod_node_use import Statuses
    from scheduler.framework import (
        ApiGet,
        ApiWrite,
        Clock,
        ClusterObjects,
        Features,
        PluginMetrics,
        Sleep,
    )
    from scheduler.objects.dynamic_resources import (
        AllocationResult,
        ResourceClaim,
        ResourceClaimConsumerReference,
    )
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import ContainerExtendedResourceRequest


class ClaimMetrics:
    """Counts allocations of devices to pods."""

    def __init__(self, metrics: PluginMetrics, features: Features) -> None:
        renamed = features.enabled("ClaimMetricName")
        prefix = "dynamic_resource_allocation" if renamed else "scheduler"
        self._created = metrics.counter(
            f"{prefix}_resourceclaim_creates_total",
            "Number of ResourceClaims that were to be created for extended resources of pods.",
            "status admin_access owner_api_group owner_api_kind" if renamed else "status",
        )
        self._owner = ("false", "", "Pod") if renamed else ()  # such a claim has no admin access
        self._allocated = metrics.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Number of devices with binding conditions that attempts used.",
            "profile driver status",
        )
        self._awaited_seconds = metrics.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time in seconds that PreBind waited for devices to be ready.",
            "profile driver status",
            bounds=[0.1 * 2**place for place in range(14)],
        )

    def claim_created(self, status: str) -> None:
        """Count a ResourceClaim that was to be created: "success" or "failure"."""
        self._created.add(status, *self._owner)

    def devices_awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """Count a pod's wait for a device: until it was ready ("success"), "failed", "timeout" or "error"."""
        self._awaited_seconds.observe(seconds, profile, driver, status)

    def devices_allocated(self, profile: str, driver: str, status: str) -> None:
        """Count a device with binding conditions that an attempt used; statuses as in `devices_awaited`."""
        self._allocated.add(profile, driver, status)


FINALIZER: Final = "resource.kubernetes.io/delete-protection"
CLAIM_RIGHTS: Final = frozenset(
    {
        *(f"{verb} {CLAIMS}" for verb in ("get", "create", "update", "delete")),
        # For allocations the API server requires the second right as well.
        *(f"{verb} {CLAIMS}/{part}" for verb in ("update", "patch") for part in ("status", "binding")),
        "patch v1/pods/status",
    }
)
"""The rights that these writes need, in the form of `Needs.rights`."""

_STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.01
_ASK_AGAIN_SECONDS = 1.0
_OF_POD: Final = RetryPolicy(4)


class ClaimError(SchedulerError):
    """A write to a claim failed."""


class ClaimWrites:
    """Writes claims and immediately adds the API server's response to the cache.

    Args:
        has_times: whether allocations have the time when they were written.
    """

    def __init__(
        self,
        *,
        api: ApiWrite,
        reads: ApiGet,
        objects: ClusterObjects,
        sleep: Sleep,
        clock: Clock,
        has_times: bool = True,
    ) -> None:
        self._api = api
        self._reads = reads
        self._objects = objects
        self._sleep = sleep
        self._clock = clock
        self._has_times = has_times

    async def reserve(
        self,
        held: HeldClaim,
        consumer: ResourceClaimConsumerReference,
        allocation: AllocationResult | None,
    ) -> HeldClaim:
        """Write that a pod or PodGroup uses a claim, with the allocation if there is one; return the claim as written.

        After a conflict the claim is read again and the write is retried, a limited number of times. If a response is
        lost, the claim is read until the API server reports the result of the write.

        Raises:
            ClaimError: the write was rejected, or another client allocated, deallocated or deleted the claim.
        """
        decided = allocation or held.claim.status.allocation

        async def write(claim: HeldClaim) -> HeldClaim:
            return await self._reserve(claim, consumer, allocation, decided)

        try:
            written = await self._retried(held, write)
        except _UnansweredError as error:
            found = await self._newest(held.claim)
            if found is None or not _has_come_about(found.claim, consumer, decided):
                raise ClaimError(str(error)) from error
            written = found
        return written

    async def _reserve(
        self,
        held: HeldClaim,
        consumer: ResourceClaimConsumerReference,
        allocation: AllocationResult | None,
        decided: AllocationResult | None,
    ) -> HeldClaim:
        claim = held.claim
        status = {**(held.obj.get("status") or {})}
        if claim.metadata.deletion_timestamp:
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
        if _has_come_about(claim, consumer, decided):
            return held  # the conflict may be with this write itself, sent again after its response was lost
        if allocation is not None:
            if claim.status.allocation is not None:
                raise ClaimError(f"claim {claim.key} got allocated elsewhere in the meantime")
            finalizers = held.obj["metadata"].get("finalizers") or []
            if FINALIZER not in finalizers:
                protected = _changed(held.obj, finalizers=[*finalizers, FINALIZER])
                held = await self._put(protected, claim, "", f"add finalizer to claim {claim.key}")
                status = {**(held.obj.get("status") or {})}
            status["allocation"] = msgspec.to_builtins(allocation)
            if self._has_times:
                # It is set only now, because an allocation is immutable once it is written.
                status["allocation"]["allocationTimestamp"] = rfc3339(self._clock.utc_now())
        elif claim.status.allocation is None:
            raise ClaimError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        elif not _has_devices_of(claim, decided):
            raise ClaimError(f"claim {claim.key} got allocated elsewhere in the meantime")
        status["reservedFor"] = [*(status.get("reservedFor") or ()), msgspec.to_builtins(consumer)]
        what = "reservation" if allocation is None else "allocation and reservation"
        return await self._put(
            {**_changed(held.obj), "status": status}, claim, "/status", f"add {what} to claim {claim.key}"
        )

    async def create(self, claim: ResourceClaim, pod: PodInfo) -> HeldClaim:
        """Create the claim for a pod's extended resources.

        Raises:
            ClaimError: the write was rejected, or there was no response.
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
        """Write into a pod's status which claim provides its extended resources.

        Raises:
            ClaimError: the write was rejected, or there was no response after several attempts.
        """
        status = {"resourceClaimName": claim.metadata.name, "requestMappings": msgspec.to_builtins(mappings)}
        await self._tell(pod, "extendedResourceClaimStatus", status, "update")

    async def tell_node_use(self, pod: PodInfo, statuses: Statuses) -> None:
        """Write into a pod's status what it takes of its node with the devices of its claims; nothing removes the field.

        Raises:
            ClaimError: as `tell_pod`.
        """
        status = msgspec.to_builtins(statuses) if statuses else None
        await self._tell(pod, "nodeAllocatableResourceClaimStatuses", status, "updating")

    async def _tell(self, pod: PodInfo, field: str, status: object, verb: str) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        patch = {"status": {field: status}}
        write = partial(self._api.api_write, "PATCH", path, patch, content_type=_STRATEGIC_MERGE_PATCH)
        try:
            await _OF_POD.send(
                write, (_BETWEEN_TRIES_SECONDS * 5**number for number in count()), self._sleep.sleep
            )
        except ApiError as error:
            raise ClaimError(f"{verb} pod {pod.key} {field[0].upper()}{field[1:]}: {error}") from error

    async def unreserve(self, claim: ResourceClaim, consumer_uid: str) -> None:
        """Remove a pod or PodGroup from a claim's `reservedFor`.

        Raises:
            ApiError: the write was rejected, or there was no response.
        """
        gone = {"$patch": "delete", "uid": consumer_uid}
        patch = {"metadata": {"uid": claim.metadata.uid}, "status": {"reservedFor": [gone]}}
        path = f"{_path(claim)}/status"
        answer = await self._api.api_write("PATCH", path, patch, content_type=_STRATEGIC_MERGE_PATCH)
        self.show(HeldClaim.of(answer))

    async def deallocate(self, held: HeldClaim) -> None:
        """Release all devices of a claim.

        Raises:
            ApiError: the write was rejected, or there was no response.
        """
        left = {"allocation", "reservedFor", "devices"}
        status = {name: value for name, value in held.obj["status"].items() if name not in left}
        body = {**_changed(held.obj), "status": status}
        self.show(HeldClaim.of(await self._api.api_write("PUT", f"{_path(held.claim)}/status", body)))

    async def delete(self, held: HeldClaim) -> None:
        """Delete a claim after its finalizer is removed.

        Raises:
            SchedulerError: the request was rejected, or there was no response.
        """

        async def unprotect(claim: HeldClaim) -> HeldClaim:
            finalizers = [each for each in claim.obj["metadata"].get("finalizers") or () if each != FINALIZER]
            body = _changed(claim.obj, finalizers=finalizers)
            return await self._put(body, claim.claim, "", f"update resourceclaim {claim.claim.key}")

        await self._retried(held, unprotect)
        await self._api.api_write("DELETE", _path(held.claim))

    async def read(self, claim: ResourceClaim) -> HeldClaim | None:
        """Return a claim from the API server, None if it does not exist; retry until there is a response.

        A refusal is retried for a minute; then the result is None too.
        """
        refusals = Refusals(TOKEN_SECONDS)
        while True:
            try:
                return await self._read(claim)
            except OSError as error:
                pause, cause = _ASK_AGAIN_SECONDS, error.__cause__
                if isinstance(cause, ApiError):
                    is_final = refusals.accepts(cause, self._clock.monotonic())
                    if is_final or not ALSO_REFUSED.allows(cause, 1):
                        return None
                    pause = cause.pause_seconds(pause)
                await self._sleep.sleep(pause)

    def show(self, held: HeldClaim) -> None:
        """Add a claim to the cache as the API server returned it, unless it has been deleted since."""
        known = self._objects.objects(CLAIMS).get(held.claim.key)
        if known is not None and known["metadata"].get("uid") == held.claim.metadata.uid:
            self._objects.assume(CLAIMS, held.obj)

    async def _retried(
        self, held: HeldClaim, write: Callable[[HeldClaim], Awaitable[HeldClaim]]
    ) -> HeldClaim:
        """Write a claim; after a conflict, read it again and retry as often as client-go does."""
        for _ in range(_TRIES - 1):
            try:
                return await write(held)
            except _ConflictError:
                await self._sleep.sleep(_BETWEEN_TRIES_SECONDS)
            newest = await self._newest(held.claim)
            if newest is None:
                raise ClaimError(
                    f"get updated claim {held.claim.key} after conflict: it was deleted, or may not be read"
                )
            held = newest
        return await write(held)

    async def _newest(self, claim: ResourceClaim) -> HeldClaim | None:
        """Read a claim whose last change the watch may not have delivered, so that its devices count as allocated."""
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
                if error.is_unclear
                else ClaimError
            )
            raise kind(f"{doing}: {error}") from error


class _ConflictError(ClaimError):
    """Another client changed the claim."""


class _UnansweredError(ClaimError):
    """It is unknown whether the write took effect."""


def _path(claim: ResourceClaim) -> str:
    metadata = claim.metadata
    return f"/apis/resource.k8s.io/v1/namespaces/{metadata.namespace}/resourceclaims/{metadata.name}"


def _changed(obj: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a claim as a request body, with other metadata."""
    return {
        **obj,
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {**obj["metadata"], **metadata},
    }


def _has_come_about(
    claim: ResourceClaim, consumer: ResourceClaimConsumerReference, decided: AllocationResult | None
) -> bool:
    """Return whether a reservation without a response was written."""
    return _has_devices_of(claim, decided) and is_reserved_for(claim, consumer.uid)


def _has_devices_of(claim: ResourceClaim, decided: AllocationResult | None) -> bool:
    """Return whether a claim has the allocation for which the node was chosen, not another one that was written since."""
    found = claim.status.allocation
    return found is not None and decided is not None and found.devices.results == decided.devices.results
