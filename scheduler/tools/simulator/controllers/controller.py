"""Base classes of simulated controllers: they watch the store, and act after changes.

Each run is one callback of the event loop: it reads all events, then acts. It does not wait, so nothing can change while it
decides.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from scheduler.kube.http.request import MERGE_PATCH
from scheduler.tools.simulator.apimachinery.objects import controller_of, is_terminating, key_of
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.event_recorder import EventRecorder
    from scheduler.tools.simulator.storage import Watch


class ObjectAccess(Protocol):
    """What controllers read and write: a `Store`, or the objects of an API server (`remote.objects`).

    A store carries out a write at once. An API server gets the writes of an object in their order, later than the
    call, and a watch shows the effect.

    Attributes:
        events: records events about objects.
    """

    events: EventRecorder

    def has_kind(self, resource: str) -> bool:
        """Return whether a kind is served."""
        ...

    def find(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        """Return one object, or None if it does not exist."""
        ...

    def has(self, obj: Object) -> bool:
        """Return whether an object still exists (with the same uid)."""
        ...

    def watch(self, resource: str, on_ready: Callable[[], None]) -> Watch:
        """Watch a kind from now on."""
        ...

    def unwatch(self, resource: str, watch: Watch) -> None:
        """End a watch."""
        ...

    def apply(self, obj: Object) -> object:
        """Create an object, or change the existing one to have its fields."""
        ...

    def change(
        self, obj: Object, patch: Object, subresource: str = "", patch_type: str = MERGE_PATCH
    ) -> object:
        """Patch an object, or its status."""
        ...

    def remove(self, obj: Object, *, grace_period_seconds: int | None = None) -> None:
        """Delete an object, unless it is already deleted or replaced by a new one."""
        ...

    def timestamp(self) -> str:
        """Return the time as metav1.Time."""
        ...

    def list(self, resource: str) -> Sequence[Object]:
        """Return all objects of a kind."""
        ...


S = TypeVar("S", bound=ObjectAccess)


class Controller(ABC, Generic[S]):
    """A simulated controller.

    Attributes:
        resources: resources that it watches, if they are served.
        store: the objects.
    """

    resources: ClassVar[Sequence[str]]

    def __init__(self, store: S) -> None:
        self.store = store
        self._watches: dict[str, Watch] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._turn: asyncio.Handle | None = None

    def start(self) -> None:
        """Watch, beginning with the existing objects; there must be a running loop."""
        for resource in filter(self.store.has_kind, self.resources):
            self._watches[resource] = self.store.watch(resource, self.wake)
        for resource in self._watches:
            for obj in self.store.list(resource):
                self.observe(resource, "ADDED", obj)
        self.wake()

    def stop(self) -> None:
        """Stop the watches, and cancel planned work."""
        for resource, watch in self._watches.items():
            self.store.unwatch(resource, watch)
        self._watches.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def wake(self) -> None:
        """Schedule a run."""
        if self._turn is None and self._watches:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def later(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a delay, unless stopped before."""
        loop = asyncio.get_running_loop()

        def fire() -> None:
            self._timers.discard(timer)
            act(*arguments)

        timer = loop.call_later(seconds, fire)
        self._timers.add(timer)

    @abstractmethod
    def observe(self, resource: str, type_: str, obj: Object) -> None:
        """Note a change: ADDED, MODIFIED or DELETED."""

    def act(self) -> None:
        """Act on the changes; called after all of them were observed."""

    def _take_turn(self) -> None:
        self._turn = None
        for resource, watch in self._watches.items():
            for type_, entry in watch.take():
                self.observe(resource, type_, entry.object)
        self.act()


class QueueController(Controller[S]):
    """A controller with a queue of keys; each key is handled once per run."""

    def __init__(self, store: S) -> None:
        super().__init__(store)
        self._queue: dict[str, None] = {}

    @abstractmethod
    def reconcile(self, key: str) -> None:
        """Reconcile one key."""

    def enqueue(self, *keys: str) -> None:
        """Add keys to the queue of the next run."""
        self._queue |= dict.fromkeys(keys)

    def look_again(self, key: str) -> None:
        """Reconcile a key soon, without a change."""
        self.enqueue(key)
        self.wake()

    def act(self) -> None:
        queue, self._queue = self._queue, {}
        for key in queue:
            self.reconcile(key)


RETRY_SECONDS: Final = 1.0


class WorkloadController(QueueController[Store]):
    """Handles the workloads of one kind after changes of them or their dependents.

    The first of its `resources` are the workloads, the second their dependents.

    Attributes:
        component: its name in events.
        messages: reason -> message of the events about its pods.

    Source:
        kube-controller-manager v1.36, pkg/controller/controller_utils.go, RealPodControl.
    """

    component: ClassVar[str]
    messages: ClassVar[Mapping[str, str]] = {
        "SuccessfulCreate": "Created pod: {pod}",
        "FailedCreate": "Error creating: {error}",
        "SuccessfulDelete": "Deleted pod: {pod}",
    }

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.workloads: dict[str, Object] = {}  # uid -> workload
        self._owned: dict[str, dict[str, Object]] = {}  # uid of the workload -> name -> dependent

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == self.resources[0]:
            uid, place, key = obj["metadata"]["uid"], self.workloads, obj["metadata"]["uid"]
        else:
            uid = controller_of(obj).get("uid", "")
            if not uid:
                return
            place, key = self._owned.setdefault(uid, {}), obj["metadata"]["name"]
        if type_ == "DELETED":
            place.pop(key, None)
        else:
            place[key] = obj
        self.enqueue(uid)

    def reconcile(self, key: str) -> None:
        workload = self.workloads.get(key)
        if workload is not None:
            self.sync(workload, self.owned_by(workload))
        elif not self._owned.get(key):
            self._owned.pop(key, None)

    @abstractmethod
    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        """Do one step for a workload and its dependents, by name; the effects are seen in the next run."""

    def owned_by(self, workload: Object) -> dict[str, Object]:
        """Return the dependents of a workload: name -> object."""
        return self._owned.get(workload["metadata"]["uid"], {})

    def create_pod(self, workload: Object, pod: Object) -> bool:
        """Create a pod of a workload; return whether it was created."""
        own = workload["metadata"]
        try:
            name = key_of(self.store.create("pods", pod, namespace=own["namespace"]))[1]
        except StatusError as error:
            # As upstream: retry later, because the cause may pass (a terminating namespace, or a terminating pod of that name).
            self.later(RETRY_SECONDS, self.look_again, own["uid"])
            if error.reason != "AlreadyExists":
                self._record_pod(workload, "FailedCreate", pod["metadata"].get("name", ""), error.message)
            return False
        self._record_pod(workload, "SuccessfulCreate", name)
        return True

    def delete_pod(self, pod: Object) -> None:
        """Delete a pod unless it is deleted or terminating already."""
        namespace, name = key_of(pod)
        present = self.store.find("pods", name, namespace)
        if present is not None and not is_terminating(present):
            self.store.delete("pods", name, namespace)
            workload = self.workloads.get(controller_of(pod)["uid"])
            if workload is not None:
                self._record_pod(workload, "SuccessfulDelete", name)

    def record(self, workload: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about a workload."""
        self.store.events.record(workload, reason, message, component=self.component, warning=warning)

    def _record_pod(self, workload: Object, reason: str, pod: str, error: str = "") -> None:
        owner = key_of(workload)[1]
        message = self.messages[reason].format(pod=pod, error=error, owner=owner)
        self.record(workload, reason, message, warning=bool(error))
