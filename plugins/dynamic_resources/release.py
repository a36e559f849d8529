"""Claims are given back, in the background: neither a cycle nor Unreserve can wait for the API server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scheduler.framework import EventResource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugins.dynamic_resources.claim_writes import ClaimWrites
    from plugins.dynamic_resources.devices import Devices
    from plugins.dynamic_resources.pod_claims import HeldClaim
    from scheduler.framework import Background, PodActivator, WaitForEvent
    from scheduler.objects.dynamic_resources import ResourceClaim
    from scheduler.objects.pod import PodInfo

_UNTIL_GONE_SECONDS = 30.0
"""How long to wait until the watch shows that a claim is gone."""


class ClaimRelease:
    """Gives claims back. While that is under way their pod is given nothing by them; then it is tried again."""

    def __init__(
        self,
        devices: Devices,
        writes: ClaimWrites,
        *,
        background: Background,
        activator: PodActivator,
        happenings: WaitForEvent,
    ) -> None:
        self._devices = devices
        self._writes = writes
        self._background = background
        self._activator = activator
        self._happenings = happenings

    def unreserve(self, claim: ResourceClaim, pod: PodInfo) -> None:
        """Take a pod from those that use a claim."""
        self._start("unreserve", claim, pod, partial(self._writes.unreserve, claim, pod))

    def deallocate(self, held: HeldClaim, pod: PodInfo) -> None:
        """Give all devices of a claim back, so that the pod can be given others."""
        self._start("deallocate", held.claim, pod, partial(self._writes.deallocate, held))

    def delete(self, held: HeldClaim, pod: PodInfo) -> None:
        """Delete the claim for a pod's extended resources."""
        self._start("delete", held.claim, pod, partial(self._delete, held))

    async def _delete(self, held: HeldClaim) -> None:
        await self._writes.delete(held)
        # An attempt that still saw it would delete it once more.
        key, is_told = held.claim.key, True
        while is_told and key in self._devices.claims:
            is_told = await self._happenings.wait_for_change_of(
                [(EventResource.RESOURCE_CLAIM, key)], timeout_seconds=_UNTIL_GONE_SECONDS
            )

    def _start(
        self, doing: str, claim: ResourceClaim, pod: PodInfo, work: Callable[[], Awaitable[None]]
    ) -> None:
        both = (claim.metadata.uid, pod.uid)
        if both in self._devices.given_up:
            return

        async def carry_out() -> None:
            try:
                await work()
            finally:
                self._devices.given_up.discard(both)
                self._activator.activate([pod.uid])

        self._devices.given_up.add(both)
        self._background.start(carry_out(), f"{doing} {claim.key}")
