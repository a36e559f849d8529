"""Releases claims in the background, since neither a cycle nor Unreserve can wait for the API server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scheduler.errors import SchedulerError
from scheduler.framework import EventResource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugins.dynamic_resources.claim_writes import ClaimWrites
    from plugins.dynamic_resources.devices import Devices
    from plugins.dynamic_resources.pod_claims import HeldClaim
    from scheduler.framework import Background, PodActivator, Sleep, WaitForEvent
    from scheduler.objects.dynamic_resources import ResourceClaim
    from scheduler.objects.pod import PodInfo

_UNTIL_GONE_SECONDS = 30.0
"""How long to wait, in seconds, until the watch shows that a claim was deleted."""
_AFTER_FAILURE_SECONDS = 10.0
"""How long a pod waits, in seconds, after an attempt to help it failed: as the longest backoff."""


class ClaimRelease:
    """Releases claims. While a release is in flight, the pod does not use the claim."""

    def __init__(
        self,
        devices: Devices,
        writes: ClaimWrites,
        *,
        background: Background,
        activator: PodActivator,
        happenings: WaitForEvent,
        sleep: Sleep,
    ) -> None:
        self._devices = devices
        self._writes = writes
        self._background = background
        self._activator = activator
        self._happenings = happenings
        self._sleep = sleep

    def unreserve(self, claim: ResourceClaim, pod: PodInfo) -> None:
        """Remove a pod from a claim's `reservedFor`; the pod has its own backoff."""
        self._start("unreserve", claim, pod, partial(self._writes.unreserve, claim, pod))

    def deallocate(self, held: HeldClaim, pod: PodInfo) -> None:
        """Release all devices of a claim; its watch event requeues the pod, which can then get other devices."""
        work = partial(self._writes.deallocate, held)
        self._start("deallocate", held.claim, pod, work, wake_after_failure=True)

    def delete(self, held: HeldClaim, pod: PodInfo, *, is_waiting: bool) -> None:
        """Delete the claim for a pod's extended resources; no event requeues a pod that waits for the deletion."""
        work = partial(self._delete, held)
        self._start(
            "delete", held.claim, pod, work, wake_after_success=is_waiting, wake_after_failure=is_waiting
        )

    async def _delete(self, held: HeldClaim) -> None:
        await self._writes.delete(held)
        # An attempt that still saw the claim would delete it again.
        key, is_told = held.claim.key, True
        while is_told and key in self._devices.claims:
            is_told = await self._happenings.wait_for_change_of(
                [(EventResource.RESOURCE_CLAIM, key)], timeout_seconds=_UNTIL_GONE_SECONDS
            )

    def _start(
        self,
        doing: str,
        claim: ResourceClaim,
        pod: PodInfo,
        work: Callable[[], Awaitable[None]],
        *,
        wake_after_success: bool = False,
        wake_after_failure: bool = False,
    ) -> None:
        both = (claim.metadata.uid, pod.uid)
        if both in self._devices.given_up:
            return

        async def carry_out() -> None:
            wake = False
            try:
                await work()
                wake = wake_after_success
            except SchedulerError:
                if wake_after_failure:
                    await self._sleep.sleep(_AFTER_FAILURE_SECONDS)
                    wake = True
                raise
            finally:
                if self._devices.given_up.pop(both) or wake:
                    self._activator.activate([pod.uid])

        self._devices.given_up[both] = False
        self._background.start(carry_out(), f"{doing} {claim.key}")
