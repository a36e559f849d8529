"""Faults between clients and the API server, on demand and reproducible.

A fault lasts until it is used up or removed. If several faults of a sort match a request, the oldest one acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.api.requests import RequestInfo
from scheduler.tools.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from scheduler.tools.simulator.api.lists_and_watches import WatchStream
    from scheduler.tools.simulator.registry.registry import Registry

Match = Callable[[RequestInfo], bool]

DELAY, REFUSE, LOSE, STALL = "delay", "refuse", "lose", "stall"

_REFUSALS: Final = {
    400: ("BadRequest", "the request was refused on purpose"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "the request was refused on purpose"),
    404: ("NotFound", "the server could not find the requested resource"),
    409: ("Conflict", "the request was refused on purpose"),
    410: ("Expired", "too old resource version"),
    429: ("TooManyRequests", "The apiserver is handling too many requests, please try again later"),
    500: ("InternalError", "an error on the server was made on purpose"),
    502: ("", "Bad Gateway"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}  # code -> reason, message


def any_request(_: RequestInfo) -> bool:
    """Match every request."""
    return True


def requests(
    *, verb: str = "", resource: str = "", subresource: str | None = None, namespace: str = "", name: str = ""
) -> Match:
    """Return a match for requests by their attributes; attributes that are not given match all."""
    wanted = {"verb": verb, "resource": resource, "namespace": namespace, "name": name}
    fields = {field: value for field, value in wanted.items() if value}
    if subresource is not None:
        fields["subresource"] = subresource
    return lambda info: all(getattr(info, field) == value for field, value in fields.items())


def binds(info: RequestInfo) -> bool:
    """Match the bindings of pods."""
    return info.verb == "create" and info.subresource == "binding"


def streamed_lists(info: RequestInfo) -> bool:
    """Match watches with initial events; rejecting them with 400 simulates a server that does not support them."""
    return info.verb == "watch" and "sendInitialEvents" in info.query


@dataclass(slots=True, eq=False)
class Fault:
    """One fault.

    Attributes:
        sort: sort of the fault: DELAY, REFUSE, LOSE or STALL.
        match: requests that it affects.
        times: remaining number of hits; None for no end.
        probability: probability of a hit.
        seconds: bounds of the delay of a request.
        code: HTTP status of a rejection.
        retry_after_seconds: Retry-After of a rejection.
        streams: the stalled watches; None for all current and future ones.
        hits: number of hits.
    """

    sort: str
    match: Match
    times: int | None = None
    probability: float = 1.0
    seconds: tuple[float, float] = (0.0, 0.0)
    code: int = 500
    retry_after_seconds: int | None = None
    streams: frozenset[WatchStream] | None = None
    hits: int = field(default=0, init=False)


class Faults:
    """The faults of one server."""

    def __init__(self, registry: Registry, streams: Iterable[WatchStream], seed: int) -> None:
        """Start without faults, for the running watches; `seed` is for probabilities and delays."""
        self._registry = registry
        self._streams = streams
        self._random = Random(seed)
        self._faults: list[Fault] = []

    def delay(
        self,
        seconds: float | tuple[float, float],
        match: Match = any_request,
        *,
        times: int | None = None,
        probability: float = 1.0,
    ) -> Fault:
        """Delay requests before they are handled: by a time, or between two bounds."""
        bounds = seconds if isinstance(seconds, tuple) else (seconds, seconds)
        return self._add(Fault(DELAY, match, times, probability, seconds=bounds))

    def refuse(
        self,
        code: int,
        match: Match = any_request,
        *,
        times: int | None = None,
        probability: float = 1.0,
        retry_after_seconds: int | None = None,
    ) -> Fault:
        """Answer requests with an error, without handling them."""
        return self._add(
            Fault(REFUSE, match, times, probability, code=code, retry_after_seconds=retry_after_seconds)
        )

    def lose_answers(
        self, match: Match = binds, *, times: int | None = None, probability: float = 1.0
    ) -> Fault:
        """Handle requests, then close the connection instead of answering."""
        return self._add(Fault(LOSE, match, times, probability))

    def drop_watches(self, match: Match = any_request) -> int:
        """Close the connections of running watches; return how many."""
        hit = [stream for stream in list(self._streams) if match(stream.info)]
        for stream in hit:
            stream.drop()
        return len(hit)

    def stall_watches(self, match: Match = any_request, *, future: bool = True) -> Fault:
        """Stall watches until the fault is removed.

        Args:
            match: watches to stall.
            future: whether watches that begin later are stalled too.
        """
        return self._add(Fault(STALL, match, streams=None if future else frozenset(self._streams)))

    def compact(self, resource: str = "") -> None:
        """Delete the history of one kind or of all: watches cannot resume from earlier versions."""
        kinds = [self._registry.kinds.named(resource)] if resource else list(self._registry.kinds)
        for kind in kinds:
            self._registry.storage(kind).compact()

    def remove(self, fault: Fault) -> None:
        """End a fault."""
        if fault in self._faults:
            self._faults.remove(fault)
        self._settle_stalls()

    def clear(self) -> None:
        """End all faults."""
        self._faults.clear()
        self._settle_stalls()

    def delay_of(self, info: RequestInfo) -> float:
        """Return how many seconds to delay a request."""
        fault = self._hit(DELAY, info)
        return self._random.uniform(*fault.seconds) if fault else 0.0

    def check(self, info: RequestInfo) -> None:
        """Reject a request, if a fault says so.

        Raises:
            StatusError: the request is rejected.
        """
        fault = self._hit(REFUSE, info)
        if fault is None:
            return
        reason, message = _REFUSALS.get(fault.code, ("", "the request was refused on purpose"))
        details = None
        if fault.retry_after_seconds is not None:
            details = {"retryAfterSeconds": fault.retry_after_seconds}
        raise StatusError(fault.code, reason, message, details)

    def loses_answer(self, info: RequestInfo) -> bool:
        """Return whether the answer to a request is lost."""
        return self._hit(LOSE, info) is not None

    def stalls(self, stream: WatchStream) -> bool:
        """Return whether a watch is stalled."""
        return any(
            fault.match(stream.info) and (fault.streams is None or stream in fault.streams)
            for fault in self._of(STALL)
        )

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        self._settle_stalls()
        return fault

    def _of(self, sort: str) -> list[Fault]:
        return [fault for fault in self._faults if fault.sort == sort]

    def _settle_stalls(self) -> None:
        for stream in list(self._streams):
            stream.is_stalled = self.stalls(stream)

    def _hit(self, sort: str, info: RequestInfo) -> Fault | None:
        for fault in self._of(sort):
            if not fault.match(info):
                continue
            if fault.probability < 1.0 and self._random.random() >= fault.probability:
                continue
            fault.hits += 1
            if fault.times is not None:
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
            return fault
        return None
