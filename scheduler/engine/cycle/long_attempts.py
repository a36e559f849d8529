"""Attempts that need more time than one turn of the event loop.

A plugin that raises NeedsTime interrupts the attempt. The pod stays in flight, the plugin's work runs in slices between
attempts at other pods, and then the attempt starts again on the current cluster. While other pods wait, long attempts
get at most half of the time.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from scheduler.engine.cycle.time_slices import SLICE_SECONDS
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.queue.quarantine import is_changed_pod
from scheduler.engine.runtime.budget import LONG_SECONDS, AttemptUsage, OverBudgetError, is_ours
from scheduler.engine.runtime.calls import running
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import Code, Status
from scheduler.loop_work import loop_work

if TYPE_CHECKING:
    from collections.abc import Generator

    from scheduler.engine.cycle.attempt import Attempt
    from scheduler.engine.cycle.failure import FailureHandler
    from scheduler.engine.cycle.shared import Shared
    from scheduler.framework.interface import ExtensionCall, ExtensionPoint, Plugin
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

DECIDED: Final = "decided"
DROPPED: Final = "dropped"
FAILED: Final = "failed"
OVER_BUDGET: Final = "over_budget"

_AT_ONCE: Final = 4
"""Number of attempts that are advanced in turn; others wait, so that the first attempts end soon."""


@dataclass(eq=False, slots=True)
class LongAttempt:
    """One attempt, from its first NeedsTime until its end.

    Attributes:
        attempt: the attempt, with the time of its first start.
        usage: the total CPU time that it used.
        plugin: the plugin that needs time, and its extension point.
        steps: that plugin's work.
        began: the last start of the attempt, in seconds of the monotonic clock.
        is_under_way: whether the pod is being tried now.
    """

    attempt: Attempt
    usage: AttemptUsage
    plugin: tuple[Plugin, ExtensionPoint | ExtensionCall]
    steps: Generator[None, None, None]
    began: float
    is_under_way: bool = False

    @property
    def queued(self) -> QueuedPodInfo:
        return self.attempt.queued

    @property
    def pod(self) -> PodInfo:
        """The version of the pod that was tried."""
        return self.attempt.queued.pod


class LongAttempts:
    """Stores the attempts that need time, and runs their work.

    Args:
        failures: requeues pods whose attempt exceeded its budget, or whose plugin failed.

    Attributes:
        ready: attempts whose work is done: their pods are tried again before other pods.
    """

    def __init__(self, shared: Shared, failures: FailureHandler) -> None:
        self._queue, self._profiles, self._budget = shared.queue, shared.profiles, shared.budget
        self._time, self._observer = shared.time, shared.observer
        self._now = shared.time.stopwatch
        self._failures = failures
        self.ready: deque[LongAttempt] = deque()
        self._advanced: deque[LongAttempt] = deque()  # at most `_AT_ONCE`; the first is advanced next
        self._line: deque[LongAttempt] = deque()
        self._looked_at = 0  # position in the line
        self._known: dict[str, LongAttempt] = {}  # pod uid -> unfinished attempt
        self._due = 0.0

    def __contains__(self, uid: object) -> bool:
        return uid in self._known

    def __len__(self) -> int:
        return len(self._known)

    @property
    def has_work(self) -> bool:
        """Whether any attempt has work left."""
        return bool(self._advanced or self._line)

    @property
    def is_due(self) -> bool:
        """Whether other pods have had as much time as the last slice of long attempts."""
        return self._time.is_over(self._due)

    def take_up(self, attempt: Attempt, needs: NeedsTime) -> None:
        """Store an attempt that needs time; a new attempt goes to the end of the line."""
        assert needs.plugin is not None, "the runtime sets the plugin of NeedsTime"
        uid, now = attempt.queued.pod.uid, self._now()
        long = self._known.get(uid)
        if long is None:
            usage = self._budget.usage or AttemptUsage(LONG_SECONDS)
            long = LongAttempt(attempt, usage, needs.plugin, needs.steps, attempt.began)
            self._known[uid] = long
            self._line.append(long)
        else:
            long.attempt, long.plugin, long.steps = attempt, needs.plugin, needs.steps
            long.is_under_way = False
            self._advanced.append(long)  # it continues before other attempts begin
        if needs.is_unlimited:
            long.usage.limit = inf
        self._due = max(self._due, 2 * now - long.began)
        self._queue.needs_time(uid, f"{needs.plugin[0].name} needs more time")

    def again(self) -> LongAttempt | None:
        """Return the next attempt whose pod is tried again, or None. The caller must call `settle` afterwards."""
        while self.ready:
            long = self.ready.popleft()
            if self._queue.restart_attempt(long.pod.uid) is not None:
                long.is_under_way, long.began = True, self._now()
                return long
            self._end(long, DROPPED)
        return None

    def settle(self, long: LongAttempt) -> None:
        """Record that a pod was tried again: the attempt has ended, unless it needs more time."""
        if long.is_under_way:
            is_quarantined = (
                self._queue.place_of(long.pod.uid) is Place.BACKOFF and long.queued.quarantine_seconds
            )
            self._end(long, OVER_BUDGET if is_quarantined else DECIDED)

    def first(self) -> LongAttempt:
        """Return the attempt to advance next; `has_work` must be true."""
        while self._line and len(self._advanced) < _AT_ONCE:
            self._advanced.append(self._line.popleft())
        return self._advanced[0]

    def advance(self) -> None:
        """Run a slice of work of the next attempt; `has_work` must be true."""
        long, began = self.first(), self._now()
        self._advanced.popleft()
        self._look_at_line()
        try:
            is_done = self._is_outdated(long) or self._budget.run_slice(self._work, long, usage=long.usage)
        except Exception as error:  # noqa: BLE001  # a plugin may raise any exception
            self._give_up(long, long.attempt.framework.failure(*long.plugin, error), FAILED)
        else:
            if is_done:
                self._close(long)
                self.ready.append(long)
            elif self._time.measured(long.usage.seconds > long.usage.limit):
                self._give_up(long, _over_budget(long), OVER_BUDGET)
            else:
                self._advanced.append(long)
        now = self._now()
        self._due = 2 * now - began

    def forget(self, long: LongAttempt) -> None:
        """Drop an attempt after a bug of this scheduler."""
        self._known.pop(long.pod.uid, None)
        for kept in (self.ready, self._advanced, self._line):
            with suppress(ValueError):
                kept.remove(long)

    def close(self) -> None:
        """End all work; the next leader tries the pods."""
        for long in self._known.values():
            self._close(long)

    @loop_work("attempt", lambda long: f"long attempt at pod {long.pod.key}, plugin {long.plugin[0].name}")
    def _work(self, long: LongAttempt) -> bool:
        """Run a slice of an attempt's work; return whether all work is done."""
        plugin, until = long.plugin[0], self._now() + SLICE_SECONDS
        is_foreign, was_asked = not is_ours(plugin), False
        while True:
            try:
                if is_foreign:
                    self._budget.call(plugin, next, long.steps)
                else:
                    next(long.steps)
            except StopIteration:
                return was_asked or not self._time.measured(False)
            except NeedsTime as needs:  # raised by a plugin that this one calls
                long.steps, long.plugin = needs.steps, needs.plugin or long.plugin
            # One condition for all steps, because their number depends on results of earlier calls.
            if not was_asked and self._now() >= until:
                was_asked = True
                if self._time.measured(True):
                    return False

    def _look_at_line(self) -> None:
        """Check one attempt in the line; if it is outdated, its pod is tried again at once."""
        if self._line:
            self._looked_at = (self._looked_at + 1) % len(self._line)
            long = self._line[self._looked_at]
            if self._is_outdated(long):
                del self._line[self._looked_at]
                self._close(long)
                self.ready.append(long)

    def _is_outdated(self, long: LongAttempt) -> bool:
        """Return whether the pod was deleted or changed, or its profile was replaced, so that the work is useless."""
        newest = self._queue.newest(long.pod.uid)
        return (
            newest is None
            or newest.is_terminating
            or is_changed_pod(long.pod, newest)
            or self._profiles.frameworks.get(newest.scheduler_name) is not long.attempt.framework
        )

    def _give_up(self, long: LongAttempt, status: Status, result: str) -> None:
        self._close(long)
        self._end(long, result)
        self._failures.handle(long.attempt, status)

    def _close(self, long: LongAttempt) -> None:
        """End a plugin's work; its exceptions are only logged."""
        try:
            self._budget.run_slice(long.steps.close)
        except Exception as error:  # noqa: BLE001  # a plugin may raise any exception
            long.attempt.framework.failure(*long.plugin, error)

    def _end(self, long: LongAttempt, result: str) -> None:
        del self._known[long.pod.uid]
        profile = long.attempt.framework.profile
        self._observer.long_attempt_ended(profile, long.plugin[0].name, result, long.usage.seconds)


def _over_budget(long: LongAttempt) -> Status:
    plugin, point = long.plugin
    error = OverBudgetError(f"more than {long.usage.limit:g}s had been used")
    message = f"{running(plugin.name, point)}over budget: {error}"
    return Status(Code.ERROR, (message,), plugin.name, error)
