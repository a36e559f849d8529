"""The statuses that a plugin gives to the objects it reads; the daemon writes them while a profile has the plugin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from scheduler.objects.quantity import amount_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping

    from scheduler.clock import Clock
    from scheduler.framework.capabilities import ClusterObjects, PluginMetrics, WantedStatus
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects

    StatusOf = Callable[[str, Mapping[str, Any]], "WantedStatus | None"]
    """Returns the status of an object by its key; None if the status stays as it is."""

T = TypeVar("T")

ACCEPTED: Final = "Accepted"
"""The condition for a valid object in use; a warning event repeats it when it is False."""


class Acceptance(NamedTuple):
    """The reason and the message of the condition Accepted; the message names the field that is wrong."""

    reason: str
    message: str = ""

    def condition(self) -> dict[str, str]:
        """Return the condition, without times."""
        status = str(self.reason == "Valid")
        return {"type": ACCEPTED, "status": status, "reason": self.reason, "message": self.message}


class StatusAccess(Protocol):
    """The capabilities of a status source; it works beside the decisions, which do not depend on it.

    Attributes:
        pods: `namespace/name` -> pod that has not ended, as watched last.
        cluster: the objects of the kinds in the plugin's `needs`, and the cluster.
        clock: the time.
        metrics: declares metrics, such as gauges of what was computed.
    """

    @property
    def pods(self) -> Mapping[str, PodInfo]: ...
    @property
    def cluster(self) -> ClusterObjects: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def metrics(self) -> PluginMetrics: ...

    def listed(self, path: str, selectors: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the objects of a list of the API server, for objects that are not watched.

        Raises:
            ApiError: refused or cut off.
        """
        ...

    async def in_slices(self, steps: Generator[None, None, T]) -> T:
        """Run work in short steps to its result; other tasks run after every few steps."""
        ...

    async def aside(self, work: Callable[[], T], what: str) -> T:
        """Run work in another thread, on copies of data; `what` describes it.

        Raises:
            TookTooLongError: it took too long.
        """
        ...


class StatusSource(ABC):
    """Computes the status of each object of one kind.

    Attributes:
        kind: the kind as in `Needs.kinds`. The plugin's rights need `patch KIND/status`.
        object_kind: the `kind` of its objects, as in `ElasticQuota`.
        condition_types: the types of the conditions that are written; conditions of other types are left alone.
    """

    kind: str
    object_kind: ClassVar[str]
    condition_types: frozenset[str] = frozenset()

    @abstractmethod
    async def status_of(self, objects: Objects) -> StatusOf:
        """Return a function that computes the status of one object; it stays the same until the next call.

        Called by the leader once a second, or less often if it takes more than 10 ms.
        """

    def ended(self) -> None:
        """Clear what the source shows elsewhere, such as gauges: its statuses are not written any more."""
        return


def written(amounts: Mapping[str, int], also: Iterable[str] = ()) -> dict[str, str]:
    """Return amounts as quantities; the resources in `also` are included with 0."""
    return {name: amount_text(name, amounts.get(name, 0)) for name in sorted({*amounts, *also})}


def named_in(spec: Mapping[str, Any]) -> set[str]:
    """Return the resources in an object's min and max."""
    return {name for amounts in (spec.get("min"), spec.get("max")) for name in amounts or ()}
