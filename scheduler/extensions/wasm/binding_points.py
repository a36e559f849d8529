"""The extension points of a guest after the choice of a node."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.extensions.wasm.guest import GuestError
from scheduler.extensions.wasm.guest_plugin import GuestPlugin
from scheduler.extensions.wasm.statuses import high_and_low, status_of
from scheduler.framework.interface import (
    BindPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    Wait,
)
from scheduler.framework.status import SKIP, Code, Status

if TYPE_CHECKING:
    from scheduler.extensions.wasm.guest_pool import GuestAttempt
    from scheduler.framework.cycle_state import CycleState
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_LOW_32_BITS = 2**32 - 1


class _Chosen(GuestPlugin):
    """Common code of the extension points in this file."""

    def _on(self, state: CycleState, pod: PodInfo, node_name: str) -> GuestAttempt:
        flight = self._flight(state, pod)
        flight.scene.node_name = node_name
        flight.chosen()
        return flight

    def _binding(self, state: CycleState, pod: PodInfo, node_name: str) -> GuestAttempt:
        flight = self._on(state, pod, node_name)
        flight.binds()
        return flight

    def _asked_last(self, flight: GuestAttempt, export: str) -> Status:
        """Call a function that returns a status, as `GuestAttempt.call_last`; a missing export is a success."""
        if export not in self.guest.exports:
            return status_of(0, "", self.name)
        return self._status(flight, flight.call_last(export))

    def _end(self, export: str, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Notify the guest of the end of the attempt, and release the instance; a failure is only logged."""
        flight = self._binding(state, pod, node_name)
        try:
            if export in self.guest.exports and flight.is_open:
                flight.call_last(export)
        except GuestError as error:
            logger.warning(
                "Guest failed after the end of the attempt",
                extra={"plugin": self.name, "pod": pod.key, "node": node_name, "error": str(error)},
            )
        finally:
            flight.end()


class GuestReserve(_Chosen, ReservePlugin):
    """`reserve` and `unreserve`; every guest implements this point, to be notified of the end of an attempt."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._asked_last(self._on(state, pod, node_name), "reserve")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._end("unreserve", state, pod, node_name)


class GuestPermit(_Chosen, PermitPlugin):
    """`permit`."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait:
        flight = self._on(state, pod, node_name)
        number, milliseconds = high_and_low(flight.call_last("permit"))
        status = self._status(flight, number)
        return Wait((milliseconds & _LOW_32_BITS) / 1000) if status.code is Code.WAIT else status


class GuestPreBind(_Chosen, PreBindPlugin):
    """`prebind`."""

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._asked_last(self._binding(state, pod, node_name), "prebind")


class GuestBind(_Chosen, BindPlugin):
    """`bind`: called, but its success is ignored.

    The ABI has no function to bind a pod, and guests built with the SDK return success nevertheless. After a success the
    next Bind plugin is therefore called.
    """

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        status = self._asked_last(self._binding(state, pod, node_name), "bind")
        return SKIP if status.is_success else status


class GuestPostBind(_Chosen, PostBindPlugin):
    """`postbind`; every guest implements this point, to be notified of the end of an attempt."""

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._end("postbind", state, pod, node_name)
