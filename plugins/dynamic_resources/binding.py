"""PreBind: writes what Reserve allocated to a pod and waits until its devices are ready.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, PreBind and bindClaim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from plugins.dynamic_resources.claim_writes import ClaimError
from plugins.dynamic_resources.pod_claims import (
    DeviceBindingError,
    HeldClaim,
    consumer_of,
    deadline_of,
    devices_of,
    drivers_with_conditions,
    is_ready,
    waits_for_conditions,
)
from scheduler.errors import SchedulerError
from scheduler.framework import EventResource
from scheduler.objects.dynamic_resources import ResourceClaim

if TYPE_CHECKING:
    from plugins.dynamic_resources.claim_writes import ClaimMetrics, ClaimWrites
    from plugins.dynamic_resources.devices import Devices
    from plugins.dynamic_resources.pod_devices import PodDevices
    from plugins.dynamic_resources.pod_node_use import Statuses
    from scheduler.framework import (
        Background,
        Clock,
        KeyedLock,
        PodActivator,
        PodEvents,
        WaitForEvent,
    )
    from scheduler.objects.dynamic_resources import AllocationResult
    from scheduler.objects.pod import PodInfo

_UNTIL_SHOWN_SECONDS = 120.0
"""How long to wait until the watch shows a claim that was created."""


class DeviceTimeoutError(SchedulerError):
    """The devices were not ready in time."""


class ClaimBinding:
    """Writes and awaits, for each pod, what Reserve decided.

    Args:
        timeout_seconds: how long a pod waits for its devices to be ready.
        waits: whether devices may have binding conditions.
    """

    def __init__(
        self,
        devices: Devices,
        writes: ClaimWrites,
        *,
        background: Background,
        activator: PodActivator,
        events: PodEvents,
        happenings: WaitForEvent,
        locks: KeyedLock,
        metrics: ClaimMetrics,
        clock: Clock,
        timeout_seconds: float,
        waits: bool,
    ) -> None:
        self._devices = devices
        self._writes = writes
        self._background = background
        self._activator = activator
        self._events = events
        self._happenings = happenings
        self._locks = locks
        self._metrics = metrics
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._waits = waits

    async def bind(self, its: PodDevices, pod: PodInfo, node_name: str) -> None:
        """Write all claims of a pod, and wait until its devices are ready.

        Raises:
            SchedulerError: something could not be written, or a device failed or was not ready in time.
        """
        for place, held in enumerate(its.held):
            if not its.is_reserved(held.claim, pod):
                its.held[place] = await self._written(its, place, pod)
        if its.statuses:
            its.is_told = True
            async with self._locks.lock(pod.uid):
                await self._writes.tell_node_use(pod, _with_written_names(its))
        if self._waits and any(waits_for_conditions(held.claim) for held in its.held):
            await self._await_devices(its, pod, node_name)

    async def forget_node_use(self, pod: PodInfo) -> None:
        """Remove from a pod's status what an attempt wrote there, before a later attempt writes.

        Raises:
            ClaimError: the write was rejected, or there was no response after several attempts.
        """
        async with self._locks.lock(pod.uid):
            await self._writes.tell_node_use(pod, ())

    # The claims.

    async def _written(self, its: PodDevices, place: int, pod: PodInfo) -> HeldClaim:
        held, allocation = its.held[place], its.given.get(place)
        in_flight = held.claim
        is_special = in_flight is its.special
        if is_special and allocation is None:
            return held  # the node's device plugin provides all of them
        is_settled = False
        try:
            if is_special:
                held = its.held[place] = await self._created(its, pod)
            # Without the lock, all pods of a group but one would find that the shared claim has changed.
            async with self._locks.lock(held.claim.metadata.uid):
                latest, missing = self._as_written(held, allocation)
                consumer = its.consumers.get(place) or consumer_of(pod)
                written = await self._writes.reserve(latest, consumer, missing)
                if not is_special:
                    self._writes.show(written)
            if is_special:
                await self._until_shown(written.claim)
                self._writes.show(written)
            is_settled = True
        except SchedulerError:
            is_settled = True
            raise
        finally:
            if is_settled:
                self._devices.end(in_flight, pod)
            elif allocation is not None:
                self._settle_later(in_flight, held.claim, pod)
        if is_special:
            assert its.node_claim is not None, "Reserve notes what it gives"
            await self._writes.tell_pod(pod, written.claim, its.node_claim.mappings)
        return written

    def _as_written(
        self, held: HeldClaim, allocation: AllocationResult | None
    ) -> tuple[HeldClaim, AllocationResult | None]:
        """Return the claim, and the allocation unless another pod of the group has written it already."""
        claim = held.claim
        newest = self._devices.claims.typed(ResourceClaim, claim.key)
        is_written = (
            allocation is not None
            and claim.metadata.uid not in self._devices.in_flight
            and newest is not None
            and newest.metadata.uid == claim.metadata.uid
            and newest.status.allocation is not None
            and newest.status.allocation.devices.results == allocation.devices.results
        )
        if newest is None or not is_written:
            return held, allocation
        return HeldClaim(newest, self._devices.claims[claim.key]), None

    async def _created(self, its: PodDevices, pod: PodInfo) -> HeldClaim:
        assert its.node_claim is not None, "Reserve notes what it gives"
        try:
            created = await self._writes.create(its.node_claim.claim, pod)
        except ClaimError:
            self._metrics.claim_created("failure")
            raise
        self._metrics.claim_created("success")
        return created

    async def _until_shown(self, claim: ResourceClaim) -> None:
        """Wait until the watch shows a new claim, so that its latest version can be shown."""
        if claim.key not in self._devices.claims:
            await self._happenings.wait_for_change_of(
                [(EventResource.RESOURCE_CLAIM, claim.key)], timeout_seconds=_UNTIL_SHOWN_SECONDS
            )

    def _settle_later(self, in_flight: ResourceClaim, claim: ResourceClaim, pod: PodInfo) -> None:
        """Find out the result of a write whose caller was cancelled; the devices stay allocated until then."""
        both = (in_flight.metadata.uid, pod.uid)

        async def settle() -> None:
            try:
                found = await self._writes.read(claim)
                if found is not None:
                    self._writes.show(found)
            finally:
                self._devices.end(in_flight, pod)
                if self._devices.given_up.pop(both):
                    self._activator.activate([pod.uid])

        self._devices.given_up[both] = False
        self._background.start(settle(), f"settle {claim.key}")

    # The devices.

    async def _await_devices(self, its: PodDevices, pod: PodInfo, node_name: str) -> None:
        self._events.record(
            pod,
            type_="Normal",
            reason="BindingConditionsPending",
            action="Scheduling",
            note=f"waiting for binding conditions for device on node {node_name}",
        )
        began = self._clock.monotonic()
        status = "error"
        try:
            await self._until_ready(its, deadline=began + self._timeout_seconds)
            status = "success"
        except DeviceBindingError:
            status = "failed"
            raise
        except DeviceTimeoutError:
            status = "timeout"
            raise
        finally:
            self._count(its, pod.scheduler_name, status, self._clock.monotonic() - began)

    async def _until_ready(self, its: PodDevices, *, deadline: float) -> None:
        while True:
            waiting = self._first_not_ready(its)
            if waiting is None:
                return
            seconds = deadline - self._clock.monotonic()
            end = deadline_of(waiting, self._timeout_seconds)
            if end is not None:
                left = (end - self._clock.utc_now()).total_seconds()
                if left <= 0:
                    raise DeviceTimeoutError(f"device binding timeout: claim={waiting.metadata.name}")
                seconds = min(seconds, left)
            if deadline <= self._clock.monotonic():
                raise DeviceTimeoutError("device binding timeout: context deadline exceeded")
            claims = [(EventResource.RESOURCE_CLAIM, held.claim.key) for held in its.held]
            await self._happenings.wait_for_change_of(claims, timeout_seconds=max(0.0, seconds))

    def _first_not_ready(self, its: PodDevices) -> ResourceClaim | None:
        """Look at the claims as they are now.

        Raises:
            DeviceBindingError: a driver reports that a device failed.
            ClaimError: a claim was deleted.
        """
        claims = self._devices.claims
        for place, held in enumerate(its.held):
            key = held.claim.key
            claim = claims.typed(ResourceClaim, key)
            if claim is None:
                raise ClaimError(f'could not find ResourceClaim "{key}"')
            its.held[place] = HeldClaim(claim, claims[key])
            if not is_ready(claim):
                return claim
        return None

    def _count(self, its: PodDevices, profile: str, status: str, seconds: float) -> None:
        for held in its.held:
            for device in devices_of(held.claim):
                self._metrics.devices_awaited(profile, device.driver, status, seconds)
            for driver in drivers_with_conditions(held.claim):
                self._metrics.devices_allocated(profile, driver, status)


def _with_written_names(its: PodDevices) -> Statuses:
    """Return the statuses with the name of the claim for extended resources that was created meanwhile."""
    if its.special is None:
        return its.statuses
    before, now = its.special.metadata.name, its.held[-1].claim.metadata.name
    return tuple(
        replace(each, resource_claim_name=now) if each.resource_claim_name == before else each
        for each in its.statuses
    )
