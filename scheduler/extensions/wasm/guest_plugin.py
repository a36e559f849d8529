"""A guest as a plugin: its extension points, its events, and its statuses.

Source:
    kube-scheduler-wasm-extension, scheduler/plugin/clusterevent.go, and its SDK's api/clusterevent.go.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from scheduler.extensions.wasm.call_context import CallContext
from scheduler.extensions.wasm.guest import GuestError
from scheduler.extensions.wasm.guest_pool import GuestAttempt, GuestPool
from scheduler.extensions.wasm.guest_source import GuestArgs
from scheduler.extensions.wasm.host import GuestLog, Handle, Host
from scheduler.extensions.wasm.instance import Instance
from scheduler.framework.events import ActionType, ClusterEvent, EventResource, EventWithHint
from scheduler.framework.interface import (
    BindPlugin,
    FilterPlugin,
    Needs,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    SlowPlugin,
    Wait,
)
from scheduler.framework.status import SKIP, SUCCESS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.extensions.wasm.call_context import SeenNodes
    from scheduler.extensions.wasm.guest import Guest
    from scheduler.framework.capabilities import PodEvents, TimeSlice, WaitingPods
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

logger = logging.getLogger(__name__)

_CODES = (
    Code.SUCCESS,
    Code.ERROR,
    Code.UNSCHEDULABLE,
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    Code.WAIT,
    Code.SKIP,
    Code.PENDING,
)
"""By number. Source: kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/interface.go, Code."""
NUMBERS = {code: number for number, code in enumerate(_CODES)}


def status_of(number: int, reason: str, plugin: str) -> Status:
    """Return a guest's status; an unknown number is an error."""
    if not 0 <= number < len(_CODES):
        description = f": {reason}" if reason else ""
        return Status.failed(f"wasm: unknown status code {number}{description}")
    code = _CODES[number]
    if code is Code.SUCCESS:
        return SUCCESS
    # Upstream leaves the message of the pod's event empty, which does not help users.
    return Status(code, (reason or f"rejected by the guest {plugin} without a reason",))


def high_and_low(result: int) -> tuple[int, int]:
    """Split the two signed halves of an i64."""
    low = result & 0xFFFFFFFF
    return result >> 32, low - (1 << 32) if low >> 31 else low


_RESOURCES = {
    0: EventResource.POD,
    1: EventResource.NODE,
    2: EventResource.PERSISTENT_VOLUME,
    3: EventResource.PERSISTENT_VOLUME_CLAIM,
    5: EventResource.RESOURCE_CLAIM,
    6: EventResource.STORAGE_CLASS,
    7: EventResource.CSI_NODE,
    8: EventResource.CSI_DRIVER,
    9: EventResource.CSI_STORAGE_CAPACITY,
    10: EventResource.WILDCARD,
}  # the SDK's number -> kind; 4 is PodSchedulingContext, which Kubernetes no longer has
_ACTIONS = {
    1: ActionType.ADD,
    2: ActionType.DELETE,
    4: ActionType.UPDATE_NODE_ALLOCATABLE,
    8: ActionType.UPDATE_NODE_LABEL,
    16: ActionType.UPDATE_NODE_TAINT,
    32: ActionType.UPDATE_NODE_CONDITION,
}
_ANY_UPDATE = 4 | 8 | 16 | 32
"""The SDK's Update, of any kind."""
_RECORD = struct.Struct("<II")

DEFAULT_EVENTS = tuple(
    EventWithHint(ClusterEvent(resource, ActionType.ALL))
    for resource in (
        EventResource.POD,
        EventResource.NODE,
        EventResource.CSI_NODE,
        EventResource.PERSISTENT_VOLUME,
        EventResource.PERSISTENT_VOLUME_CLAIM,
        EventResource.STORAGE_CLASS,
    )
)
"""The events of a guest that registers none, as upstream."""


def cluster_events(content: bytes) -> tuple[EventWithHint, ...]:
    """Decode the output of `enqueue`: pairs of numbers, kind and action; an incomplete pair is ignored.

    Returns:
        The events; DEFAULT_EVENTS if none of them exists any more. The ABI has no hints.
    """
    whole = len(content) // _RECORD.size * _RECORD.size
    return tuple(_events(content[:whole])) or DEFAULT_EVENTS


def _events(content: bytes) -> Iterator[EventWithHint]:
    for resource, bits in _RECORD.iter_unpack(content):
        action = _action(bits)
        if resource in _RESOURCES and action:
            yield EventWithHint(ClusterEvent(_RESOURCES[resource], action))


def _action(bits: int) -> ActionType:
    """Decode the SDK's bits; all update bits together, or an unknown bit, mean any update, to requeue too often if in doubt."""
    action = ActionType(0)
    for bit, meaning in _ACTIONS.items():
        if bits & bit:
            action |= meaning
    if bits & _ANY_UPDATE == _ANY_UPDATE or bits >> 6:
        action |= ActionType.UPDATE
    return action


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


_OVERRIDE = 1  # the nominating mode that sets or removes the nomination; 0 leaves it unchanged


class GuestPreFilter(GuestPlugin, PreFilterPlugin):
    """`prefilter`, `addpod`, `removepod`."""

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        flight = self._flight(state, pod)
        flight.scene.snapshot = snapshot
        status = self._asked(flight, "prefilter")
        names = flight.scene.node_names
        if names is None or not status.is_success:
            return status
        return PreFilterResult(frozenset(names))

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        self._tell("addpod", state, pod, added, snapshot)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        self._tell("removepod", state, pod, removed, snapshot)

    def _tell(
        self,
        export: str,
        state: CycleState,
        pod: PodInfo,
        pods: Sequence[tuple[int, PodInfo]],
        snapshot: Snapshot,
    ) -> None:
        if export not in self.guest.exports:
            return
        flight = self._flight(state, pod)
        flight.scene.snapshot = snapshot
        for row, target in pods:
            status = self._status(flight, flight.tell(export, snapshot.name_of(row), target))
            if not status.is_success:
                raise GuestError(
                    f"wasm: {export} of {target.key} returned {status.code.value}: {status.message}"
                )


class GuestFilter(GuestPlugin, FilterPlugin):
    """`filter`."""

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = node.snapshot, node.name
        return self._asked(flight, "filter", _content(node))


class GuestPostFilter(GuestPlugin, PostFilterPlugin):
    """`postfilter`."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = snapshot, ""
        flight.scene.statuses = lambda: _statuses(snapshot, diagnosis)
        mode, number = high_and_low(flight.call("postfilter"))
        name = flight.scene.nominated_node_name if mode == _OVERRIDE else None
        return PostFilterResult(self._status(flight, number), name)


class GuestPreScore(GuestPlugin, PreScorePlugin):
    """`prescore`."""

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = snapshot, ""
        names = msgspec.json.encode(_names(snapshot, feasible))
        flight.scene.filtered_nodes = lambda: names
        return self._asked(flight, "prescore", names)


class GuestScore(GuestPlugin, ScorePlugin):
    """`score`."""

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = node.snapshot, node.name
        score, number = high_and_low(flight.call("score", _content(node)))
        status = self._status(flight, number)
        if not status.is_success:
            raise GuestError(f"wasm: score returned {status.code.value}: {status.message}")
        return score


class GuestNormalizeScore(GuestScore):
    """`score` and `normalizescore`."""

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        flight = self._flight(state, pod)
        snapshot = flight.scene.snapshot
        assert snapshot is not None, "scores without a snapshot"
        names = _names(snapshot, feasible)
        flight.scene.node_name = ""
        shown = msgspec.json.encode(dict(zip(names, scores[feasible].tolist(), strict=True)))
        flight.scene.scores = lambda: shown
        status = self._asked(flight, "normalizescore", shown)
        if not status.is_success:
            raise GuestError(f"wasm: normalizescore returned {status.code.value}: {status.message}")
        given = _normalized(flight.scene.normalized_scores)
        if not given:
            return scores
        if given.keys() != set(names):
            raise GuestError(
                f"wasm: normalizescore must return a score for each of the {len(names)} nodes of the call, "
                f"returned {len(given)}"
            )
        normalized = scores.copy()
        normalized[feasible] = [given[name] for name in names]
        return normalized


def _names(snapshot: SeenNodes, rows: Rows) -> list[str]:
    nodes = snapshot.nodes
    return [nodes[row].name for row in rows.tolist()]


def _content(node: NodeInfo) -> bytes:
    return node.snapshot.nodes[node.row].raw


def _normalized(content: bytes | None) -> dict[str, int]:
    if not content:
        return {}
    try:
        found: Any = msgspec.json.decode(content, type=dict[str, int] | None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GuestError(f"wasm: normalizescore returned no map of scores: {error}") from error
    return found or {}


def _statuses(snapshot: Snapshot, diagnosis: Diagnosis) -> bytes:
    refused = {
        snapshot.name_of(row): NUMBERS[found[1].code]
        for row in range(snapshot.n_nodes)  # the ABI needs each node separately
        if (found := diagnosis.outcome_of(row)) is not None
    }
    return msgspec.json.encode(refused)


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


_CLASSES: dict[str, type[GuestPlugin]] = {
    "filter": GuestFilter,
    "postfilter": GuestPostFilter,
    "prescore": GuestPreScore,
    "normalizescore": GuestNormalizeScore,
    "score": GuestScore,
    "permit": GuestPermit,
    "prebind": GuestPreBind,
    "bind": GuestBind,
}
"""Export -> base class of its extension point; normalizescore comes before score, which it includes."""
_ALWAYS: tuple[type[GuestPlugin], ...] = (GuestPreFilter, GuestReserve, GuestPostBind)
"""The extension points of every guest: for the snapshot's nodes, and for notification of the end of an attempt."""


def guest_class(name: str, guest: Guest) -> type[GuestPlugin]:
    """Return the plugin class of a guest, with its name in the profile."""
    exports = guest.exports - ({"normalizescore"} if "score" not in guest.exports else set())
    bases = dict.fromkeys([kind for export, kind in _CLASSES.items() if export in exports])
    if GuestNormalizeScore in bases:
        bases.pop(GuestScore, None)
    return type(
        name,
        (*bases, *_ALWAYS),
        {
            "__module__": __name__,
            "__doc__": f"The guest {name}.",
            "name": name,
            "guest": guest,
            # These functions need added and removed pods as whole objects.
            "needs": Needs(bound_pod_objects=bool(exports & {"addpod", "removepod"})),
        },
    )
