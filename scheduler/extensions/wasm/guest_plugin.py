"""A guest as a plugin: the common code of its extension points."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scheduler.extensions.wasm.call_context import CallContext
from scheduler.extensions.wasm.guest_args import GuestArgs
from scheduler.extensions.wasm.guest_events import DEFAULT_EVENTS, cluster_events
from scheduler.extensions.wasm.guest_pool import GuestAttempt, GuestPool
from scheduler.extensions.wasm.handle import Handle
from scheduler.extensions.wasm.host import Host
from scheduler.extensions.wasm.instance import Instance
from scheduler.extensions.wasm.klog import GuestLog
from scheduler.extensions.wasm.statuses import status_of
from scheduler.framework.slow_plugins import SlowPlugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.extensions.wasm.guest import Guest
    from scheduler.framework.capabilities import PodEvents, TimeSlice, WaitingPods
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo


class GuestPlugin(SlowPlugin):
    """The base of every guest's class; `guest_class` adds the extension points that the guest exports.

    Short calls run on the event loop: a guest cannot wait, and a call costs less than passing it to a thread. Longer calls run
    in a thread; see `scheduler.extensions.wasm.guest_pool`.

    Attributes:
        guest: the code.
    """

    guest: ClassVar[Guest]
    api_version = 1
    Args = GuestArgs

    def __init__(
        self,
        *,
        args: GuestArgs,
        pod_events: PodEvents,
        waiting_pods: WaitingPods,
        time_slice: TimeSlice,
    ) -> None:
        self.sample = args.sample
        log = GuestLog(self.name, args.log_severity)
        host = Host(self.guest, args.guest_config, log, Handle(self.name, pod_events, waiting_pods))
        self._pool = GuestPool(
            lambda seconds: Instance(self.guest, host, args, seconds),
            self.guest.exports,
            args.time_limit.seconds,
            time_slice,
        )
        self._events: Sequence[EventWithHint] = DEFAULT_EVENTS
        if "enqueue" in self.guest.exports:
            scene = CallContext()
            self._pool.call_once("enqueue", scene)
            self._events = cluster_events(scene.cluster_events)

    def events(self) -> Sequence[EventWithHint]:
        return self._events

    def _flight(self, state: CycleState, pod: PodInfo) -> GuestAttempt:
        """Return the attempt that a state belongs to; it ends with the state and its clones."""
        key = f"wasm/{self.name}"
        if key not in state:
            state.write(key, self._pool.begin(pod, state.attempt))
        return state.read(key, GuestAttempt)

    def _asked(self, flight: GuestAttempt, export: str, about: object = None) -> Status:
        """Call a function that returns a status, as `GuestAttempt.call`; a missing export is a success."""
        if export not in self.guest.exports:
            return status_of(0, "", self.name)
        return self._status(flight, flight.call(export, about))

    def _status(self, flight: GuestAttempt, number: int) -> Status:
        return status_of(number, flight.scene.reason, self.name)
