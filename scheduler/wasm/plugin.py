"""A guest as a plugin: the common code of its extension points."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scheduler.framework.slow_plugins import SlowPlugin
from scheduler.wasm.args import GuestArgs
from scheduler.wasm.events import DEFAULT_EVENTS, cluster_events
from scheduler.wasm.flights import Flight, Pool
from scheduler.wasm.handle import Handle
from scheduler.wasm.host import Host
from scheduler.wasm.instance import Instance
from scheduler.wasm.klog import GuestLog
from scheduler.wasm.scene import Scene
from scheduler.wasm.statuses import status_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework.capabilities import PodEvents, TurnLimit, WaitingPods
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.wasm.guest import Guest


class GuestPlugin(SlowPlugin):
    """The base of every guest's class; `guest_class` adds the extension points that the guest exports.

    Short calls run on the event loop: a guest cannot wait, and a call costs less than passing it to a thread. Longer calls run
    in a thread; see `scheduler.wasm.flights`.

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
        turn_limit: TurnLimit,
    ) -> None:
        self.sample = args.sample
        log = GuestLog(self.name, args.log_severity)
        host = Host(self.guest, args.guest_config, log, Handle(self.name, pod_events, waiting_pods))
        self._pool = Pool(
            lambda seconds: Instance(self.guest, host, args, seconds),
            self.guest.exports,
            args.time_limit.seconds,
            turn_limit,
        )
        self._events: Sequence[EventWithHint] = DEFAULT_EVENTS
        if "enqueue" in self.guest.exports:
            scene = Scene()
            self._pool.call_once("enqueue", scene)
            self._events = cluster_events(scene.cluster_events)

    def events(self) -> Sequence[EventWithHint]:
        return self._events

    def _flight(self, state: CycleState, pod: PodInfo) -> Flight:
        """Return the attempt that a state belongs to; it ends with the state and its clones."""
        key = f"wasm/{self.name}"
        if key not in state:
            state.write(key, self._pool.begin(pod, state.attempt))
        return state.read(key, Flight)

    def _asked(self, flight: Flight, export: str, about: object = None) -> Status:
        """Call a function that returns a status, as `Flight.call`; a missing export is a success."""
        if export not in self.guest.exports:
            return status_of(0, "", self.name)
        return self._status(flight, flight.call(export, about))

    def _status(self, flight: Flight, number: int) -> Status:
        return status_of(number, flight.scene.reason, self.name)
