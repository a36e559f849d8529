"""The capabilities that the daemon offers to plugins: one small Protocol each.

A plugin declares the capabilities it needs as keyword-only arguments of its constructor, by these types; the
runtime passes exactly those. So a plugin needs no client and no event loop, and a test passes a small fake:

    class DefaultBinder(BindPlugin):
        def __init__(self, *, binder: PodBinder) -> None: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from scheduler.framework.events import ClusterEvent, EventResource
    from scheduler.framework.metrics import Counter, Gauge, Histogram
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects, Snapshot


T = TypeVar("T")


@runtime_checkable
class PodBinder(Protocol):
    """Binds pods to nodes in the API server."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """POST a Binding with the pod's uid.

        Raises:
            ApiError: refused, or no answer (status 0), in which case the Binding may have taken effect.
        """
        ...


@runtime_checkable
class Sleep(Protocol):
    """Waits; only for PreBind and background refreshes, which may await."""

    async def sleep(self, seconds: float) -> None:
        """Return after some seconds of the daemon's clock."""
        ...


@runtime_checkable
class KeyedLock(Protocol):
    """Serializes work by key; only for PreBind and background refreshes, as `Sleep`."""

    def lock(self, what: str) -> AbstractAsyncContextManager[object]:
        """Return a context for `async with`: it is entered once no other task is inside a context of the same key."""
        ...


@runtime_checkable
class TimeSlice(Protocol):
    """Limits how long one call of a plugin may hold the event loop; a plugin that needs longer raises `NeedsTime`.

    Attributes:
        slice_seconds: the limit; infinite if no other task waits for the loop.
    """

    @property
    def slice_seconds(self) -> float: ...

    def seconds(self) -> float:
        """Return the seconds of a clock that advances within a call, unlike `Clock`.

        Decisions may depend on it only through `measured`.
        """
        ...

    def measured(self, is_so: bool, what: str = "") -> bool:
        """Return a condition that follows from measured time, such as the end of a time slice.

        The number of calls must follow from the decision alone, not from elapsed time. `what` names
        conditions that are counted separately, because there is one in each step.
        """
        ...


@runtime_checkable
class WaitForEvent(Protocol):
    """Waits for cluster events."""

    async def wait_for_event(
        self, wanted: Callable[[ClusterEvent, object, object], bool], *, timeout_seconds: float
    ) -> bool:
        """Return True once `wanted(event, old, new)` holds for an event, False after the timeout."""
        ...

    async def wait_for_change_of(
        self, objects: Collection[tuple[EventResource, str]], *, timeout_seconds: float
    ) -> bool:
        """Return True once one of some objects changed, False after the timeout.

        However many callers wait, each is notified of its own objects only. An object is its kind, POD for
        all pods, and its `namespace/name`, or `name`. Check the condition again afterwards: the change may
        not have fulfilled it.
        """
        ...


@runtime_checkable
class HttpGet(Protocol):
    """Sends requests to web servers: for background refreshes, never in a scheduling cycle."""

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
            url: the URL.
            headers: additional headers.
            timeout_seconds: time limit of the whole answer.
            ca_file: PEM file of the authorities to trust; "" trusts those of the machine.
            insecure: do not verify the server's certificate.
            bearer_token_file: file of a bearer token; it is read for each request, because tokens expire.

        Raises:
            OSError: no answer in time, another status, or an unreadable file; the message has the URL or the
                file, and the cause.
        """
        ...


@runtime_checkable
class ApiGet(Protocol):
    """Reads unwatched objects from the API server: for background refreshes, never in a scheduling cycle."""

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        """Return the body of a 2xx answer; a request that the server defers (429) is sent again when it asks.

        Args:
            path: path with its query, as in `/apis/metrics.k8s.io/v1beta1/nodes`.
            timeout_seconds: time limit of the whole answer.

        Raises:
            OSError: no API server, no answer in time, or another status; the message has the path and the
                cause.
        """
        ...


@runtime_checkable
class ApiWrite(Protocol):
    """Writes objects to the API server while this scheduler leads: for PreBind, PostFilter and background work."""

    async def api_write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        timeout_seconds: float = 30.0,
    ) -> Mapping[str, Any]:
        """Return the object of a 2xx answer: usually the new version of the written object.

        A request that the server defers (429, or 503 with Retry-After) is sent again when it asks, as client-go does.

        Args:
            method: POST, PUT, PATCH or DELETE.
            path: as in `/api/v1/persistentvolumes/pv-1`.
            body: the object, the patch, or the options of a deletion.
            content_type: media type of the body; each kind of patch has its own.
            timeout_seconds: time limit of the whole answer.

        Raises:
            ApiError: refused (409 is a conflict: read the object again), or no answer (status 0), in which
                case the write may have taken effect.
        """
        ...


class WantedStatus(NamedTuple):
    """The status that an object should have.

    Attributes:
        fields: the fields, without conditions.
        conditions: the conditions, without times; the object loses other conditions of the source's types.
    """

    fields: Mapping[str, Any]
    conditions: Sequence[Mapping[str, Any]] = ()

    def status(self) -> dict[str, Any]:
        """Return the status, without times."""
        return {**self.fields, "conditions": [dict(each) for each in self.conditions]}


@runtime_checkable
class StatusWrite(Protocol):
    """Writes statuses of objects while this scheduler leads: for background work.

    If the server is busy or does not answer, or another client has changed the object, the write is retried.
    """

    async def write_status(
        self,
        kind: str,
        key: str,
        uid: str,
        wanted: WantedStatus,
        *,
        condition_types: Collection[str] = (),
    ) -> Mapping[str, Any] | None:
        """Write fields and conditions of an object's status; all others stay.

        If several statuses of one object wait, only the newest is written.

        Args:
            kind: a kind in the plugin's `needs`, whose rights have `patch KIND/status`.
            key: `namespace/name`, or `name`.
            uid: uid of the object; another object of that name is not written.
            wanted: the fields and the conditions, which get their lastTransitionTime.
            condition_types: the types of conditions that the plugin owns; those that are not wanted are removed.

        Returns:
            The object as written; None if it does not exist any more.

        Raises:
            ApiError: refused, or given up after several tries.
        """
        ...


@runtime_checkable
class ClusterObjects(Protocol):
    """The objects of the kinds that a plugin needs, outside of a snapshot, including assumed versions.

    All profiles share them. All snapshots show an assumed version at once.
    """

    def objects(self, kind: str) -> Objects:
        """Return all objects of a kind in the plugin's `needs`, as `snapshot.objects`."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the current cluster; valid until the caller awaits."""
        ...

    def assume(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Show an object as it will be after a write of this scheduler, until the API server shows a newer version.

        `obj` has the resourceVersion it was made from, so that an event from before the write does not undo
        it. After the write, assume the object of the answer.
        """
        ...

    def restore(self, kind: str, key: str) -> None:
        """Show the API server's version again, because the write was given up. `key` is `namespace/name`, or `name`."""
        ...


@runtime_checkable
class Background(Protocol):
    """Runs work after the end of the plugin's call, such as a write that reverts another one."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start the work; its exceptions are logged under that name. It has some seconds at the daemon's end."""
        ...


@runtime_checkable
class SlicedWork(Protocol):
    """Runs long work in time slices, so that the rest of the daemon runs in between; only for PostFilter."""

    async def done(self, work: Generator[None, None, T]) -> T:
        """Run a generator whose every step takes a few milliseconds at most, and return its result.

        The snapshot is constant for the whole attempt; no other pod is tried meanwhile.
        """
        ...

    def has_time(self) -> bool:
        """Return whether the work may continue within this attempt, after some of it is done.

        If not, the plugin keeps its intermediate result and raises `NeedsTime`: other pods are tried before
        this one again.
        """
        ...


@runtime_checkable
class PodEvents(Protocol):
    """Records events about pods, as `kubectl describe pod` shows them."""

    def record(self, regarding: PodInfo, *, type_: str, reason: str, action: str, note: str) -> None:
        """Queue an event of type "Normal" or "Warning"; it is sent in the background."""
        ...


@runtime_checkable
class PluginMetrics(Protocol):
    """Declares metrics of a plugin, which /metrics shows; for the constructor.

    All instances of a plugin share what is declared with the same name. The names of labels are separated by
    spaces. Names begin with a prefix of the plugin's author, because all plugins share them.

    Raises:
        ValueError: the name belongs to another metric, or was declared otherwise.
    """

    def counter(self, name: str, text: str, labels: str = "") -> Counter:
        """Declare numbers that only grow; the name ends in `_total`, and the text describes them."""
        ...

    def gauge(self, name: str, text: str, labels: str = "") -> Gauge:
        """Declare numbers that change."""
        ...

    def histogram(self, name: str, text: str, labels: str = "", *, bounds: Sequence[float]) -> Histogram:
        """Declare counts of numbers in buckets; `bounds` are the upper bounds of the buckets, ascending."""
        ...


@runtime_checkable
class PodActivator(Protocol):
    """Requeues pending pods."""

    def activate(self, uids: Iterable[str]) -> None:
        """Move pods to activeQ from any other place in the queue, without further backoff."""
        ...


@runtime_checkable
class AssumedPods(Protocol):
    """The pods that are assumed on the nodes chosen for them; for Reserve."""

    def replace(self, pod: PodInfo) -> None:
        """Count another version of an assumed pod on its node, until the API server shows the pod there.

        The version has other `resources` or another status; it names the same node.
        """
        ...


@runtime_checkable
class QueuedPods(Protocol):
    """The pending pods of this scheduler's profiles, as in the scheduling queue."""

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return a pod that is in the queue, gated ones included, or in flight; None for any other."""
        ...

    def try_at(self, uid: str, at: float) -> None:
        """Try a pod in flight again at a time of the monotonic clock, if its attempt fails and no event requeues it before.

        For PostFilter. The pod then waits for the end of its backoff. Does nothing for a pod that is not in flight.
        """
        ...


@runtime_checkable
class WaitingPods(Protocol):
    """The pods that a Permit plugin holds."""

    def waiting(self) -> Iterable[PodInfo]:
        """Return the pods that any plugin holds at Permit."""
        ...

    def allow(self, uid: str, plugin: str) -> None:
        """Release a pod for a plugin; it continues when no plugin holds it."""
        ...

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        """Reject a held pod as unschedulable."""
        ...
