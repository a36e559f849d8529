"""When a request to the API server is sent again after an error, and the pauses before it."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from random import Random

T = TypeVar("T")

REFUSALS: Final = frozenset({401, 403})
"""A server that has just started refuses everything until it has read its roles."""


class RetryPolicy(NamedTuple):
    """The requests that are sent again after an error.

    Attributes:
        tries: the most tries.
        also: statuses after which a request is sent again, beside those of transient errors.
        deferred_only: only requests that the server did not begin are sent again; of transient errors no others.
    """

    tries: float = inf
    also: frozenset[int] = frozenset()
    deferred_only: bool = False

    def allows(self, error: ApiError, tries: int) -> bool:
        """Return whether to send a request again that has failed for the given number of times."""
        may_pass = error.is_deferred if self.deferred_only else error.is_transient
        return tries < self.tries and (may_pass or error.status in self.also)

    async def send(
        self,
        request: Callable[[], Awaitable[T]],
        pauses: Iterator[float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> T:
        """Send a request until it succeeds.

        Args:
            request: sends it once.
            pauses: the least seconds of each pause, without end.
            sleep: waits.

        Raises:
            ApiError: an error after which the policy does not send the request again.
        """
        for tries in count(1):
            try:
                return await request()
            except ApiError as error:
                if not self.allows(error, tries):
                    raise
                await sleep(error.pause_seconds(next(pauses)))
        raise AssertionError("counting ends nowhere")


class Refusals:
    """Decides when a refusal is final: after refusals for some seconds, without another error in between."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def accepts(self, error: ApiError, now: float) -> bool:
        """Return whether the last error is a final refusal; `now` is the time of a monotonic clock, in seconds."""
        if error.status not in REFUSALS:
            self._since = None
        elif self._since is None:
            self._since = now
        return self._since is not None and now - self._since >= self._seconds


ALSO_REFUSED: Final = RetryPolicy(also=REFUSALS)
"""For requests that are sent again until `Refusals` accepts the refusal."""
TOKEN_SECONDS: Final = 60.0
"""How long refusals are retried where only the answer shows what is in use: an expired token is replaced in this time."""
DEFERRED: Final = RetryPolicy(10, deferred_only=True)
"""For requests that may be carried out once only, as client-go."""
DEFERRED_SECONDS: Final = 1.0
"""The pause if the server defers a request without a Retry-After."""


class Backoff:
    """Exponential waits with jitter.

    The n-th wait since the last `reset` lies between half of and all of `initial * 2**n`, capped, so that
    clients that lost the same server do not all reconnect at once.
    """

    def __init__(self, random: Random, *, initial_seconds: float, maximum_seconds: float) -> None:
        self._random = random
        self._initial = initial_seconds
        self.maximum_seconds = maximum_seconds
        self._ceiling = initial_seconds

    def next_seconds(self) -> float:
        """Return how long to wait this time; the next wait is longer."""
        ceiling = self._ceiling
        self._ceiling = min(ceiling * 2, self.maximum_seconds)
        return ceiling * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again from the shortest wait, after a success."""
        self._ceiling = self._initial
