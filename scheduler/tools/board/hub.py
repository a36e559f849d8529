"""Sends changes to connected clients as server-sent events; without clients nothing runs.

All clients receive the same messages, which are computed once. A new client receives the whole state first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from scheduler.daemon.metrics.families import Counters, Histograms
from scheduler.engine.queue.pod_places import Place
from scheduler.tools.board.pending_pods import PendingPods
from scheduler.tools.board.tiles import Tiles
from scheduler.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence

    from scheduler.daemon.metrics import Metrics
    from scheduler.daemon.metrics.families import Family
    from scheduler.engine.runtime.framework import Framework
    from scheduler.extensions.extenders import HttpExtender
    from scheduler.tools.board.subject import Subject

T = TypeVar("T")

logger = logging.getLogger(__name__)

_RELOADS = "custom_scheduler_config_reloads_total"
_SUCCEEDED_AT = "custom_scheduler_config_last_reload_success_timestamp_seconds"
_SUCCESSFUL = "custom_scheduler_config_last_reload_successful"


def active_configuration(subject: Subject) -> dict[str, Any]:
    """Return the active configuration as JSON values."""
    profiles = subject.parts.profiles
    return {
        "apiVersion": subject.configuration().api_version,
        "profiles": [_profile(name, framework) for name, framework in profiles.frameworks.items()],
        "extenders": [_extender(each) for each in profiles.extenders or ()],
        "reload": None if subject.metrics is None else _reload(subject.metrics),
    }


def _profile(name: str, framework: Framework) -> dict[str, Any]:
    points: dict[str, list[str]] = {}
    for point, plugins in framework.plugins.at.items():
        for plugin in plugins:
            points.setdefault(plugin.name, []).append(point.metric_name)
    weights = framework.plugins.weights
    enabled = [
        {"name": plugin, "weight": weights.get(plugin, 1) if "Score" in at else None, "points": at}
        for plugin, at in points.items()
    ]
    return {"name": name, "plugins": enabled}


def _extender(extender: HttpExtender) -> dict[str, Any]:
    settings, health = extender.settings, extender.health
    verbs = {
        "filter": settings.filter_verb,
        "prioritize": settings.prioritize_verb,
        "preempt": settings.preempt_verb,
        "bind": settings.bind_verb,
    }
    return {
        "url": extender.name,
        "verbs": [verb for verb, path in verbs.items() if path],
        "ignorable": extender.ignorable,
        "asked": health.asked,
        "failed": health.failed,
        "seconds": health.seconds,
        "answeredAt": health.answered_at,
        "failedAt": health.failed_at,
        "error": health.error,
    }


def _reload(metrics: Metrics) -> dict[str, Any]:
    families = {family.name: family for family in metrics.families}
    watch = metrics.configuration
    return {
        "results": {labels[0]: int(number) for labels, number in families[_RELOADS].series()},
        "since": _only(families[_SUCCEEDED_AT]),
        "successful": _only(families[_SUCCESSFUL]),
        "restartNeeded": list(watch.restart_needed),
        "followed": dict(watch.watch_up),
    }


def _only(family: Family) -> float | None:
    return next((number for _, number in family.series()), None)


_ATTEMPTS = "scheduler_schedule_attempts_total"
_ALGORITHM = "scheduler_scheduling_algorithm_duration_seconds"
_BIND = "custom_scheduler_bind_duration_seconds"
_WAITING = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)


class Rates:
    """Current numbers, and rates since the last sample."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._at: float | None = None
        self._attempts: Mapping[str, float] = {}
        self._buckets: dict[str, list[int]] = {}

    def sample(self) -> dict[str, Any]:
        """Return a sample.

        Returns:
            `at` in Unix seconds, `pending` by place, `nodes` and `pods`, and whether this process is `leading`; if there are
            metrics, from the second sample on: `attempts` per second by result, and for `algorithm` and `bind` the 50th and
            99th percentile in seconds, null if there was none.
        """
        parts, clock = self._subject.parts, self._subject.clock
        counts = parts.cache.counts()
        sample: dict[str, Any] = {
            "at": clock.utc_now().timestamp(),
            "pending": {place.value: parts.queue.count(place) for place in _WAITING},
            "nodes": counts["nodes"],
            "pods": counts["pods"],
            "leading": self._subject.is_leading(),
        }
        if self._subject.metrics is not None:
            sample |= self._since(self._subject.metrics, clock.monotonic())
        return sample

    def _since(self, metrics: Metrics, now: float) -> dict[str, Any]:
        families = {family.name: family for family in metrics.families}
        rates: dict[str, Any] = {}
        attempts = _by_first_label(families.get(_ATTEMPTS))
        if self._at is not None and now > self._at:
            seconds = now - self._at
            rates["attempts"] = {
                result: (number - self._attempts.get(result, 0.0)) / seconds
                for result, number in attempts.items()
            }
        for name, family in (("algorithm", _ALGORITHM), ("bind", _BIND)):
            found = families.get(family)
            if isinstance(found, Histograms):
                bounds, counts = found.bounds, _together(found)
                before = self._buckets.get(name, [0] * len(counts))
                fresh = [count - earlier for count, earlier in zip(counts, before, strict=True)]
                if self._at is not None:
                    rates[name] = {
                        "half": quantile(0.5, bounds, fresh),
                        "most": quantile(0.99, bounds, fresh),
                    }
                self._buckets[name] = counts
        self._at, self._attempts = now, attempts
        return rates


def quantile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """Estimate a quantile from buckets, like Prometheus' histogram_quantile.

    Args:
        share: 0 to 1.
        bounds: upper bounds of the buckets, ascending.
        counts: number of values in each bucket; the last one is above all bounds.
    """
    below = list(accumulate(counts))
    if not below[-1]:
        return None
    rank = share * below[-1]
    place = next(place for place, number in enumerate(below) if number >= rank)
    if place == len(bounds):
        return bounds[-1]
    start = bounds[place - 1] if place else 0.0
    before = below[place - 1] if place else 0
    return start + (bounds[place] - start) * (rank - before) / counts[place]


def _by_first_label(counters: object) -> dict[str, float]:
    sums: dict[str, float] = {}
    if isinstance(counters, Counters):
        for labels, number in counters.series():
            sums[labels[0]] = sums.get(labels[0], 0.0) + number
    return sums


def _together(histograms: Histograms) -> list[int]:
    """Return the sums of the counts of all series."""
    columns = [distribution.counts for distribution in histograms.values()]
    return [sum(column) for column in zip(*columns, strict=True)] or [0] * (len(histograms.bounds) + 1)


_TICK_SECONDS: Final = 1.0
_WAITING_SECONDS: Final = 2.0
_LEAST_REST: Final = 20
"""Grouping pending pods may take one part in this number of the time."""
_CONFIGURATION_SECONDS: Final = 5.0
_MOST_DECISIONS: Final = 200
_SAMPLES: Final = 300
_NODES_A_MESSAGE: Final = 500
_BEHIND: Final = 120
"""Number of queued messages after which a client is disconnected; it reconnects and receives the whole state again."""
_SECONDS_OF_A_STREAM: Final = 300.0
"""Duration of a stream; then the client reconnects and is authorized again."""
_RETRY: Final = b"retry: 1000\n\n"


def event(name: str, content: Any) -> bytes:
    """Return a server-sent event with JSON, which has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(content))


class Hub:
    """The connected clients, and the state that they received.

    Args:
        subject: the subject of the board.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._viewers: set[asyncio.Queue[bytes | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._forget()

    def _forget(self) -> None:
        subject = self._subject
        self._tiles = Tiles(subject.parts.cache, subject.clock)
        self._rates = Rates(subject)
        self._samples: deque[dict[str, Any]] = deque(maxlen=_SAMPLES)
        self._waiting = PendingPods(subject)
        self._told_waiting = b""
        self._configuration: Any = None
        self._decided = max(0, subject.decisions.noted - _MOST_DECISIONS)
        self._decisions: deque[dict[str, Any]] = deque(maxlen=_MOST_DECISIONS)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the events for one client, for five minutes."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_BEHIND)
        self._begin()
        # The state that the other clients have; all receive the same changes from now on.
        everything = self._everything()
        self._viewers.add(queue)
        end = asyncio.get_running_loop().time() + _SECONDS_OF_A_STREAM
        try:
            yield _RETRY
            for message in everything:
                yield message
            while (fresh := await _next(queue, end)) is not None:
                yield fresh
        finally:
            self._viewers.discard(queue)
            await self._end_without_viewers()

    async def waiting(self) -> PendingPods:
        """Return the groups of pending pods: the last ones sent, or computed now if there are no clients."""
        return self._waiting if self._told_waiting else (await self._looked_through())[0]

    def _begin(self) -> None:
        if self._task is None:
            self._forget()
            self._task = asyncio.create_task(self._run(), name="board")

    async def _end_without_viewers(self) -> None:
        task = self._task
        if task is not None and not self._viewers:
            self._task = None
            task.cancel()
            await asyncio.wait({task})
            if self._task is None:  # no client connected meanwhile
                self._forget()

    def _everything(self) -> list[bytes]:
        subject = self._subject
        tiles = list(self._tiles.sent.values())
        messages = [
            event("hello", {"kind": subject.kind.value, "version": VERSION}),
            event("nodes", {"resources": self._tiles.resources, "all": True, "changed": [], "gone": []}),
            *self._messages_of(tiles),
            event("decisions", list(self._decisions)),
            event("rates", list(self._samples)),
        ]
        if self._told_waiting:
            messages.append(self._told_waiting)
        if self._configuration is not None:
            messages.append(event("configuration", self._configuration))
        return messages

    def _messages_of(self, tiles: list[Any], gone: Iterable[str] = ()) -> Iterable[bytes]:
        for start in range(0, len(tiles), _NODES_A_MESSAGE):
            yield event("nodes", {"changed": tiles[start : start + _NODES_A_MESSAGE], "gone": []})
        if gone:
            yield event("nodes", {"changed": [], "gone": gone})

    def _tell(self, message: bytes) -> None:
        for queue in list(self._viewers):
            if queue.full():
                self._viewers.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)

    async def _run(self) -> None:
        """Send changes once a second, as long as there are clients."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_at_nodes())
                tasks.create_task(self._look_at_what_waits())
                tasks.create_task(self._follow_configuration())
        except* Exception:
            logger.exception("The board failed")
            self._task = None
            for queue in self._viewers:
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)

    async def _look_at_nodes(self) -> None:
        while True:
            await self._tell_nodes()
            sample = self._rates.sample()
            self._samples.append(sample)
            self._tell(event("rates", [sample]))
            self._tell_decisions()
            await asyncio.sleep(_TICK_SECONDS)

    async def _tell_nodes(self) -> None:
        before = self._tiles.resources
        for number, changed in enumerate(self._tiles.changes()):
            if not number and self._tiles.resources != before:
                self._tell(
                    event(
                        "nodes", {"resources": self._tiles.resources, "all": True, "changed": [], "gone": []}
                    )
                )
            for message in self._messages_of(changed):
                self._tell(message)
            await asyncio.sleep(0)
        for message in self._messages_of([], self._tiles.gone()):
            self._tell(message)

    def _tell_decisions(self) -> None:
        decisions = self._subject.decisions
        fresh = decisions.since(self._decided, _MOST_DECISIONS)
        if decisions.noted != self._decided:
            self._decided = decisions.noted
            self._decisions.extend(fresh)
            self._tell(event("decisions", fresh))

    async def _look_at_what_waits(self) -> None:
        while True:
            waiting, looked = await self._looked_through()
            groups, wrote = await self._in_turns(waiting.as_json())
            self._waiting = waiting
            message = event("waiting", {"groups": groups, **waiting.totals()})
            if message != self._told_waiting:
                self._told_waiting = message
                self._tell(message)
            await asyncio.sleep(max(_WAITING_SECONDS, _LEAST_REST * (looked + wrote)))

    async def _looked_through(self) -> tuple[PendingPods, float]:
        """Return the pending pods now, and the seconds that this took."""
        waiting = PendingPods(self._subject)
        _, seconds = await self._in_turns(waiting.steps())
        return waiting, seconds

    async def _in_turns(self, steps: Generator[None, None, T]) -> tuple[T, float]:
        """Return the result of steps, and their total seconds; yields to other tasks between steps."""
        now, seconds = self._subject.clock.monotonic, 0.0
        while True:
            began = now()
            try:
                next(steps)
            except StopIteration as end:
                return end.value, seconds + now() - began
            seconds += now() - began
            await asyncio.sleep(0)

    async def _follow_configuration(self) -> None:
        while True:
            configuration = active_configuration(self._subject)
            if configuration != self._configuration:
                self._configuration = configuration
                self._tell(event("configuration", configuration))
            await asyncio.sleep(_CONFIGURATION_SECONDS)


async def _next(queue: asyncio.Queue[bytes | None], end: float) -> bytes | None:
    try:
        async with asyncio.timeout_at(end):
            return await queue.get()
    except TimeoutError:
        return None
