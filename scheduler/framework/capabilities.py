"""What a plugin may ask of the daemon: one small Protocol per wish.

A plugin names what it wants as keyword-only arguments of its constructor, by these types; the runtime hands in
exactly that. So a plugin needs no client and no event loop, and its tests hand in a fake of three lines:

    class DefaultBinder(BindPlugin):
        def __init__(self, *, binder: PodBinder) -> None: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from scheduler.framework.events import ClusterEvent, EventResource
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects, Snapshot

T = TypeVar("T")


@runtime_checkable
class PodBinder(Protocol):
    """Binds pods to nodes in the API server."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """POST a Binding that carries the pod's uid.

        Raises:
            ApiError: refused, or without an answer (status 0), in which case it may have taken effect.
        """
        ...


@runtime_checkable
class Sleep(Protocol):
    """Waits; of PreBind and background refreshes only, where awaiting is allowed."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of the daemon's clock."""
        ...


@runtime_checkable
class TakeTurns(Protocol):
    """Keeps two from being at the same thing at a time; of PreBind and background refreshes only, as `Sleep`."""

    def turn_at(self, what: str) -> AbstractAsyncContextManager[object]:
        """Return what to be in meanwhile, as in `async with`: it is waited for until whoever came before is out."""
        ...


@runtime_checkable
class TurnLimit(Protocol):
    """Tells a plugin how long one call may hold the event loop; a plugin that needs longer raises `NeedsTime`.

    Attributes:
        slice_seconds: how long; infinite where nobody else waits for a turn.
    """

    @property
    def slice_seconds(self) -> float: ...

    def seconds(self) -> float:
        """Return the seconds of a clock that runs on within a turn, unlike `Clock`.

        Decisions may depend on it only by way of `observed`: a recorded run is played again at another speed.
        """
        ...

    def observed(self, is_so: bool, what: str = "") -> bool:
        """Return what was measured, as whether a slice is over, or what was measured when the run was recorded.

        How often it is called must follow from the decision alone, not from how long something took. `what` names
        observations that are counted by themselves, as they are as many as there are steps.
        """
        ...


@runtime_checkable
class WaitForEvent(Protocol):
    """Waits for the cluster to say something."""

    async def wait_for_event(
        self, wanted: Callable[[ClusterEvent, object, object], bool], *, timeout_seconds: float
    ) -> bool:
        """Return True once `wanted(event, old, new)` holds for an event, False when the time is over."""
        ...

    async def wait_for_change_of(
        self, objects: Collection[tuple[EventResource, str]], *, timeout_seconds: float
    ) -> bool:
        """Return True once something happened to one of some objects, False when the time is over.

        However many wait, each is told of its own objects only. An object is its kind, POD for all pods, and its
        `namespace/name`, or `name`. What was true before may hold again when this returns, so look again.
        """
        ...


@runtime_checkable
class HttpGet(Protocol):
    """Asks web servers: for background refreshes, never for a cycle."""

    async def http_get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 5.0,
        ca_file: str = "",
        insecure: bool = False,
        bearer_token_file: str = "",
    ) -> bytes:
        """Return the body of a 2xx answer.

        Args:
            url: what to ask for.
            headers: sent beside the usual ones.
            timeout_seconds: for the whole answer.
            ca_file: PEM of the authorities to trust; "" trusts those of the machine.
            insecure: take whatever certificate the server shows.
            bearer_token_file: its content is sent as a bearer token; read anew each time, since tokens expire.

        Raises:
            OSError: no answer in time, another status, or a file that cannot be read; the text names the URL or
                the file and what came.
        """
        ...


@runtime_checkable
class ApiGet(Protocol):
    """Reads from the API server what is not watched: for background refreshes, never for a cycle."""

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        """Return the body of a 2xx answer.

        Args:
            path: with its query, as in `/apis/metrics.k8s.io/v1beta1/nodes`.
            timeout_seconds: for the whole answer.

        Raises:
            OSError: no API server, no answer in time, or another status; the text names the path and what came.
        """
        ...


@runtime_checkable
class ApiWrite(Protocol):
    """Writes objects to the API server, while this scheduler leads: of PreBind and of PostFilter, and in the background."""

    async def api_write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        timeout_seconds: float = 30.0,
    ) -> Mapping[str, Any]:
        """Return the object that a 2xx answer holds: mostly the new version of what was written.

        Args:
            method: POST, PUT, PATCH or DELETE.
            path: as in `/api/v1/persistentvolumes/pv-1`.
            body: the object, the patch, or the options of a deletion.
            content_type: of the body: a patch has one of its own.
            timeout_seconds: for the whole answer.

        Raises:
            ApiError: refused (409 is a conflict: read it again), or, with status 0, without an answer, in which case
                it may have taken effect.
        """
        ...


@runtime_checkable
class ClusterObjects(Protocol):
    """The objects of the kinds that a plugin needs, where there is no snapshot, and as our own writes will change them.

    All profiles see the same. What is assumed, every snapshot shows at once.
    """

    def objects(self, kind: str) -> Objects:
        """Return all objects of a kind that the plugin's `needs` names, as `snapshot.objects`."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now; good until the caller awaits something."""
        ...

    def assume(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Show an object as it will be when a write of ours has arrived, until the API server shows a newer version.

        `obj` carries the resourceVersion it was made from, so that an event from before the write does not undo it;
        after the write, assume what the answer holds.
        """
        ...

    def restore(self, kind: str, key: str) -> None:
        """Show what the API server shows again: the write was given up. `key` is `namespace/name`, or `name`."""
        ...


@runtime_checkable
class Background(Protocol):
    """Carries work on when the plugin's call has ended: what must be undone by a write, for example."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin to work; what it raises is logged under that name. At the end of the daemon it is given some seconds."""
        ...


@runtime_checkable
class LongWork(Protocol):
    """Does what may take long, and lets the rest of the daemon have its turn meanwhile; of PostFilter only."""

    async def done(self, steps: Generator[None, None, T]) -> T:
        """Go through steps, each of which takes a few milliseconds at most, and return what they come to.

        The snapshot stays as it is until the whole attempt is over; no other pod is tried meanwhile.
        """
        ...

    def has_time(self) -> bool:
        """Whether what is done may go on within this attempt, after some of it was done.

        If not, the plugin keeps what it has found and raises `NeedsTime`: other pods are tried, and then this one again.
        """
        ...


@runtime_checkable
class PodEvents(Protocol):
    """Writes events about pods, as `kubectl describe pod` shows them."""

    def record(self, regarding: PodInfo, *, type_: str, reason: str, action: str, note: str) -> None:
        """Queue an event of type "Normal" or "Warning"; it is sent when there is time."""
        ...


@runtime_checkable
class ClaimMetrics(Protocol):
    """Counts what it takes to give pods their devices."""

    def claim_created(self, status: str) -> None:
        """A ResourceClaim was to be created: "success" or "failure"."""
        ...

    def devices_awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """A pod waited for a device: until it was ready ("success"), "failed", "timeout" or "error"."""
        ...

    def devices_allocated(self, profile: str, driver: str, status: str) -> None:
        """An attempt used a device with binding conditions; it ended as in `devices_awaited`."""
        ...


@runtime_checkable
class PodActivator(Protocol):
    """Wakes pods that wait."""

    def activate(self, uids: Iterable[str]) -> None:
        """Move pods from wherever they wait to activeQ, without further backoff."""
        ...


@runtime_checkable
class QueuedPods(Protocol):
    """The pods that are ours to place, as the scheduling queue knows them."""

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return a pod that waits, gated ones included, or is in flight; None for any other."""
        ...


@runtime_checkable
class WaitingPods(Protocol):
    """The pods that a Permit plugin holds."""

    def waiting(self) -> Iterable[PodInfo]:
        """Return the pods held at Permit, by whichever plugin."""
        ...

    def allow(self, uid: str, plugin: str) -> None:
        """Stop holding a pod for a plugin; it goes on when no plugin holds it."""
        ...

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        """Send a held pod back as unschedulable."""
        ...
