"""The connections of an engine with the world around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from scheduler.daemon.metrics import Metrics
from scheduler.engine.ports import Time
from scheduler.extensions.extenders import HttpExtender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.api_access import ApiAccess
    from scheduler.engine.ports import CacheGate
    from scheduler.framework import HttpGet

    ChangeBuckets = Callable[[Iterable[int], Iterable[int]], None]

H = TypeVar("H")


class Ports:
    """The connections of an engine: each method returns the object that the engine uses in place of the given one.

    Subclasses record what passes through these objects, or repeat it. This class connects the engine directly.

    Args:
        clock: the time.

    Attributes:
        time: the time of the engine.
        extender: builds an extender; see `Extenders`.
    """

    extender: Callable[..., HttpExtender] = HttpExtender

    def __init__(self, clock: Clock) -> None:
        self.time = Time(clock)

    def metrics(self) -> Metrics:
        """Return the observer of the engine."""
        return Metrics()

    def api_access(self, access: ApiAccess) -> ApiAccess:
        """Return the access to the API server."""
        return access

    def http_get(self, web: HttpGet) -> HttpGet:
        """Return the plugins' access to web servers."""
        return web

    def cache_gate(self, cache_gate: CacheGate) -> CacheGate:
        """Return the gate that scheduling waits at."""
        return cache_gate

    def is_leading(self, is_leading: Callable[[], bool]) -> Callable[[], bool]:
        """Return the function that tells the engine whether this process leads."""
        return is_leading

    def event_handler(self, kind: str, handler: H) -> H:
        """Return the handler of a kind's watch events."""
        return handler

    def buckets(self, change: ChangeBuckets) -> ChangeBuckets:
        """Return the function that tells the engine which buckets this replica uses, and which ones it is releasing."""
        return change

    def configured(self, stage: str, configuration: Configuration) -> None:
        """Take note of a configuration: it is `built`, `active` from now on, or `dropped`."""

    def repaired(self, what: str) -> None:
        """Take note of a coming repair of the cache, `put right`, or of the API server's state, `restored`."""

    def stopped(self) -> None:
        """Take note that an attempt, or another plugin call, was stopped at its time limit."""

    def end(self) -> None:
        """Take note of the end of the scheduler."""
