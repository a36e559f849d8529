"""Calls plugins, and converts exceptions and invalid return values into statuses."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from scheduler.engine.runtime.budget import (
    LoopBudget,
    OverBudgetError,
    PluginEndError,
    is_being_cancelled,
    may_pause,
)
from scheduler.framework.diagnosis import Outcomes
from scheduler.framework.interface import (
    MAX_NODE_SCORE,
    ExtensionCall,
    ExtensionPoint,
    PostFilterResult,
    PreFilterResult,
    Wait,
)
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.loop_work import loop_work
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from types import TracebackType
    from typing import Self

    from scheduler.framework.diagnosis import Outcome
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s

logger = logging.getLogger(__name__)


class Instruments(Protocol):
    """Receives counts, and durations in seconds."""

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code) -> Callable[[float], None]:
        """Return the function that receives the duration of each run of an extension point that ends with a code.

        A run has all plugins of the point, for one pod.
        """
        ...

    def plugin(self, plugin: str, point: ExtensionPoint | ExtensionCall, code: Code, seconds: float) -> None:
        """Report one plugin call; reported in one cycle out of ten."""
        ...

    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None:
        """Report a call of a plugin at Filter or Score, because not all of its results were cached."""
        ...

    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None:
        """Report a loop over `nodes` nodes, of a plugin that reads one node at a time."""
        ...

    def permit_wait(self, code: Code, seconds: float) -> None:
        """Report the end of a wait at Permit, with the resulting code."""
        ...


class NoInstruments:
    """Discards all measurements, for `explain`, what-if and tests."""

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code) -> Callable[[float], None]:
        return _ignore

    def plugin(
        self, plugin: str, point: ExtensionPoint | ExtensionCall, code: Code, seconds: float
    ) -> None: ...
    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None: ...
    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None: ...
    def permit_wait(self, code: Code, seconds: float) -> None: ...


def _ignore(_seconds: float) -> None: ...


if TYPE_CHECKING:
    Point = ExtensionPoint | ExtensionCall


def is_anything(_answer: object) -> bool:
    """Accept every value: the called function checks it, or no code reads it."""
    return True


def is_none(answer: object) -> bool:
    """Accept only None, at points where a status carries every other result."""
    return answer is None


def is_pre_filter(answer: object) -> bool:
    """Accept the values that PreFilter may return besides a status."""
    return answer is None or (
        isinstance(answer, PreFilterResult)
        and isinstance(answer.node_names, frozenset)
        and all(isinstance(name, str) for name in answer.node_names)
    )


def is_post_filter(answer: object) -> bool:
    """Accept the values that PostFilter may return."""
    return (
        isinstance(answer, PostFilterResult)
        and isinstance(answer.status, Status)
        and isinstance(answer.nominated_node_name, str | None)
    )


def is_sort_key(answer: object) -> bool:
    """Accept the values that QueueSort may return: keys that can be compared with each other."""
    return isinstance(answer, tuple) and all(_is_number(part) for part in answer)


def is_permit(answer: object) -> bool:
    """Accept the values that Permit may return besides a status."""
    return answer is None or (isinstance(answer, Wait) and _is_number(answer.timeout_seconds))


def checked_outcomes(answer: object, n_nodes: int) -> Outcomes:
    """Return the validated result of a Filter plugin.

    Raises:
        TypeError: the value is no `Outcomes`.
        ValueError: the index has another length or dtype, or points beyond the table.
    """
    if not isinstance(answer, Outcomes):
        fix = "; write Outcomes.reject(refused, reason)" if isinstance(answer, np.ndarray) else ""
        raise TypeError(f"filter returns Outcomes, was {type(answer).__name__}{fix}")
    index: object = answer.index
    if not isinstance(index, np.ndarray) or index.shape != (n_nodes,) or index.dtype != np.uint16:
        raise ValueError(f"Outcomes.index is uint16 ({n_nodes},), was {_shape(index)}")
    highest = int(index.max(initial=0))
    if highest >= len(answer.table):
        raise ValueError(f"Outcomes.index points to {highest}, the table has {len(answer.table)} entries")
    return answer


def checked_scores(answer: object, n_nodes: int, method: str) -> Int64s:
    """Return the validated scores of a plugin's `method`, int64 (n_nodes,).

    Raises:
        ValueError: the array has another length or dtype, or the value is neither an array nor an integer.
    """
    if type(answer) is int:
        return np.full(n_nodes, answer, dtype=np.int64)
    if not isinstance(answer, np.ndarray) or answer.shape != (n_nodes,) or answer.dtype != np.int64:
        raise ValueError(f"{method} returns int64 ({n_nodes},), was {_shape(answer)}")
    return answer


def signature_of(plugin: Plugin, pod: PodInfo) -> Hashable | None:
    """Return a plugin's signature of a pod.

    Raises:
        TypeError: the signature is not hashable.
    """
    signature = plugin.signature(pod)
    try:
        hash(signature)
    except TypeError:
        raise TypeError(
            f"signature returns a hashable value, such as a tuple, was {signature!r:.200}"
        ) from None
    return signature


EXPECTED: Mapping[Point, str] = {
    ExtensionPoint.PRE_FILTER: "PreFilterResult(frozenset of node names), a Status or None",
    ExtensionPoint.POST_FILTER: "PostFilterResult(status, node name or None)",
    ExtensionPoint.QUEUE_SORT: "a tuple of numbers",
    ExtensionPoint.PERMIT: "Wait(seconds), a Status or None",
}
"""Extension point -> the expected return value of its method; absent points return a Status or None."""


def _is_number(found: object) -> bool:
    """Return whether a value is a number that can be compared, so not NaN."""
    return isinstance(found, int | float) and not math.isnan(found)


def _shape(found: object) -> str:
    return f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__


T = TypeVar("T")

REJECTIONS: AbstractSet[Code] = frozenset(code for code in Code if code.is_rejection)
SKIPS: AbstractSet[Code] = frozenset({Code.SKIP})
NO_OTHER: AbstractSet[Code] = frozenset()

_OF_THE_QUEUE = frozenset({ExtensionPoint.PRE_ENQUEUE, ExtensionPoint.QUEUE_SORT})
"""Points where one event can cause thousands of calls."""


_OF_DECISIONS = frozenset(
    {
        ExtensionPoint.PRE_FILTER,
        ExtensionPoint.FILTER,
        ExtensionPoint.POST_FILTER,
        ExtensionPoint.PRE_SCORE,
        ExtensionPoint.SCORE,
        ExtensionPoint.RESERVE,
        ExtensionCall.ADD_POD,
        ExtensionCall.REMOVE_POD,
    }
)
"""Points where a plugin may raise NeedsTime: the attempt can be undone up to here and repeated."""


class PluginError(Exception):
    """A plugin failed at a point where the attempt cannot continue; `status` is the resulting ERROR status."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


class NodeError(Exception):
    """A plugin that reads one node at a time failed for one node; `cause` is its exception."""

    def __init__(self, node_name: str, cause: Exception) -> None:
        self.node_name = node_name
        self.cause = cause
        super().__init__(f"node {node_name}: {cause}")


class NormalizeError(Exception):
    """A plugin failed at `normalize`; `cause` is its exception."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(f"normalize: {cause}")


class ScoreError(Exception):
    """A plugin's score for a node is not from 0 to 100."""

    def __init__(self, node_name: str, score: int) -> None:
        self.node_name = node_name
        super().__init__(invalid_score(score, MAX_NODE_SCORE))


def invalid_score(score: object, most: int) -> str:
    """Return the reason for the rejection of a score that is not from 0 to `most`."""
    return f"returns an invalid score {score}, it should in the range of [0, {most}] after normalizing"


_RUNNING: Mapping[Point, str] = {
    ExtensionPoint.FILTER: 'running "{}" filter plugin: ',
    ExtensionPoint.SCORE: 'running Score plugins: plugin "{}" failed with: ',
    ExtensionPoint.PLACEMENT_SCORE: 'running PlacementScore plugins: plugin "{}" failed with: ',
    ExtensionCall.ADD_POD: 'running AddPod on PreFilter plugin "{}": ',
    ExtensionCall.REMOVE_POD: 'running RemovePod on PreFilter plugin "{}": ',
    ExtensionCall.NORMALIZE: 'running Normalize on Score plugins: plugin "{}" failed with: ',
    ExtensionCall.NORMALIZE_PLACEMENT: (
        'running NormalizePlacementScore on PlacementScore plugins: plugin "{}" failed with: '
    ),
    ExtensionCall.PRE_BIND_PRE_FLIGHT: 'running PreBindPreFlight "{}": ',
}


_OWN_WORDS = frozenset({ExtensionPoint.POST_FILTER, ExtensionPoint.PLACEMENT_GENERATE})
"""Points where the message of a plugin's ERROR stays as it is. An exception is still reported with the plugin's name."""


def running(plugin: str, point: Point) -> str:
    """Return the beginning of the message about a failed plugin.

    Source:
        kube-scheduler v1.36, framework/runtime/framework.go, RunFilterPlugins and the functions of the other points.
    """
    return _RUNNING.get(point, f'running {point.metric_name} plugin "{{}}": ').format(plugin)


def failed_filter(plugin: str, outcome: Outcome) -> Status:
    """Return the status of a node at which a Filter plugin failed."""
    reason = running(plugin, ExtensionPoint.FILTER) + ", ".join(outcome.reasons)
    return Status(Code.ERROR, (reason,), plugin)


class PointTiming:
    """Measures the duration of a block that runs an extension point, and reports it with the resulting code.

    The block sets `code`. A PluginError sets the code of its status. A point that ends with NeedsTime is not reported, because it has no
    result and is repeated.

    Attributes:
        code: the resulting code.
    """

    __slots__ = ("_begin", "_calls", "_point", "code")

    def __init__(self, calls: PluginCalls, point: ExtensionPoint) -> None:
        self._calls = calls
        self._point = point
        self._begin = 0.0
        self.code = Code.SUCCESS

    def __enter__(self) -> Self:
        self._begin = self._calls.clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            if isinstance(error, NeedsTime):
                return
            self.code = error.status.code if isinstance(error, PluginError) else Code.ERROR
        calls = self._calls
        seconds = calls.clock() - self._begin
        ended = self._point, self.code
        observe = calls.observed_points.get(ended)
        if observe is None:
            observe = calls.instruments.extension_point(calls.profile, *ended)
            calls.observed_points[ended] = observe
        observe(seconds)


def _plugin_at_point(plugin: Plugin, point: Point) -> str:
    return f"plugin {plugin.name} at {point.metric_name}"


class PluginCalls:
    """Calls the plugins of one profile.

    Attributes:
        profile: the schedulerName of the profile.
        instruments: receives the measurements.
        clock: seconds, for durations only.
        measuring: whether each call is measured and reported; kube-scheduler measures one cycle out of ten.
        budget: how long calls may hold the event loop.
        stopped: called after a plugin was interrupted; the cached results of plugins must be dropped then.
        observed_points: extension point and code -> the function that receives the durations.

    Args:
        plugins: the plugins of the profile.
    """

    def __init__(
        self,
        profile: str,
        instruments: Instruments,
        clock: Callable[[], float],
        budget: LoopBudget | None = None,
        plugins: Iterable[Plugin] = (),
    ) -> None:
        self.profile = profile
        self.instruments = instruments
        self.clock = clock
        self.measuring = False
        self.budget = budget or LoopBudget()
        self.stopped: Callable[[], None] = lambda: None
        self.observed_points: dict[tuple[ExtensionPoint, Code], Callable[[float], None]] = {}
        self._foreign = frozenset(id(plugin) for plugin in plugins if may_pause(plugin))

    def looped(self, plugin: Plugin, point: ExtensionPoint, nodes: int, began: float) -> None:
        """Report a loop over nodes, of a plugin that implements only the method for one node."""
        self.instruments.node_loop(plugin.name, point, nodes, self.clock() - began)

    @loop_work("attempt", _plugin_at_point)
    def guarded(
        self,
        plugin: Plugin,
        point: Point,
        call: Callable[..., T],
        *args: object,
        expects: Callable[[object], bool],
        allows: AbstractSet[Code] = REJECTIONS,
    ) -> T | Status:
        """Call a plugin.

        Args:
            plugin: the plugin.
            point: the extension point.
            call: a method of the plugin, or a function that calls it.
            args: arguments of the call.
            expects: returns whether the contract allows a return value that is no Status.
            allows: the codes that a Status may have besides SUCCESS and ERROR.

        Returns:
            The return value; a Status gets the plugin's name. An exception or an invalid return value becomes an
            ERROR status that names plugin and point.

        Raises:
            NeedsTime: the plugin needs more time than one turn of the event loop.
        """
        begin = self.clock() if self.measuring else 0.0
        answer: T | Status
        try:
            if (self._foreign and id(plugin) in self._foreign) or self.budget.checks:
                often = point.metric_name if point in _OF_THE_QUEUE else ""
                answer = self.budget.call(plugin, call, *args, often=often, at=point.metric_name)
            else:
                self.budget.running = plugin
                answer = call(*args)
        except Exception as error:  # noqa: BLE001 - a plugin may raise any exception
            _let_pass(plugin, point, error)
            answer = self.failure(plugin, point, error)
        else:
            if answer is not None or expects is not is_none:
                answer = self._checked(plugin, point, answer, expects, allows)
        if self.measuring:
            code = answer.code if isinstance(answer, Status) else Code.SUCCESS
            self.instruments.plugin(plugin.name, point, code, self.clock() - begin)
        return answer

    def status(
        self,
        plugin: Plugin,
        point: Point,
        call: Callable[..., Status | None],
        *args: object,
        allows: AbstractSet[Code] = REJECTIONS,
    ) -> Status:
        """Call a plugin that returns a status, or None for success."""
        answer = self.guarded(plugin, point, call, *args, expects=is_none, allows=allows)
        return SUCCESS if answer is None else answer

    def raising(self, plugin: Plugin, point: Point, call: Callable[..., T], *args: object) -> T:
        """Call a function that calls a plugin and validates the result; it never returns a status.

        Raises:
            PluginError: the function raised.
        """
        answer = self.guarded(plugin, point, call, *args, expects=is_anything)
        if isinstance(answer, Status):
            raise PluginError(answer)
        return answer

    @loop_work("attempt", lambda plugin: f"plugin {plugin.name} at signature")
    def signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """Return a plugin's signature of a pod; raises the plugin's exceptions and OverBudgetError."""
        if id(plugin) in self._foreign:
            return self.budget.call(plugin, plugin.signature, pod, at="signature")
        return plugin.signature(pod)

    @loop_work("attempt", lambda plugin: f"plugin {plugin.name} at version")
    def version(self, plugin: Plugin) -> Hashable:
        """Return the version of a plugin's data; raises the plugin's exceptions and OverBudgetError."""
        if id(plugin) in self._foreign:
            return self.budget.call(plugin, plugin.version, at="version")
        return plugin.version()

    @loop_work("attempt", _plugin_at_point)
    async def awaited(
        self,
        plugin: Plugin,
        point: ExtensionPoint,
        call: Callable[..., Awaitable[object]],
        *args: object,
        allows: AbstractSet[Code] = REJECTIONS,
    ) -> Status:
        """Call and await a plugin that returns a status, or None for success."""
        begin = self.clock()
        try:
            if self._foreign and id(plugin) in self._foreign:
                answer = await self.budget.awaited(plugin, call, *args, at=point.metric_name)
            else:
                answer = await call(*args)
        except Exception as error:  # noqa: BLE001 - a plugin may raise any exception
            answer = self.failure(plugin, point, error)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            # This task is not cancelled; something that the plugin awaited was: that is a failure of the plugin.
            answer = self.failure(plugin, point, error)
        else:
            answer = self._checked(plugin, point, answer, is_none, allows)
        status = answer if isinstance(answer, Status) else SUCCESS
        if self.measuring:
            self.instruments.plugin(plugin.name, point, status.code, self.clock() - begin)
        return status

    @loop_work("attempt", _plugin_at_point)
    async def perhaps_awaited(
        self,
        plugin: Plugin,
        point: ExtensionPoint,
        call: Callable[..., T | Awaitable[T]],
        *args: object,
        expects: Callable[[object], bool],
        allows: AbstractSet[Code] = REJECTIONS,
    ) -> T | Status:
        """Call a plugin as `guarded`; the return value is awaited if the method is an `async def`."""
        begin = self.clock() if self.measuring else 0.0
        answer: T | Status
        try:
            if (self._foreign and id(plugin) in self._foreign) or self.budget.checks:
                returned = await self.budget.awaited(plugin, call, *args, at=point.metric_name)
            else:
                self.budget.running = plugin
                returned = call(*args)
                returned = await returned if isinstance(returned, Awaitable) else returned
            answer = self._checked(plugin, point, returned, expects, allows)
        except Exception as error:  # noqa: BLE001 - a plugin may raise any exception
            _let_pass(plugin, point, error)
            answer = self.failure(plugin, point, error)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            answer = self.failure(plugin, point, error)  # as in `awaited`
        if self.measuring:
            code = answer.code if isinstance(answer, Status) else Code.SUCCESS
            self.instruments.plugin(plugin.name, point, code, self.clock() - begin)
        return answer

    def completed(
        self, plugin: Plugin, point: Point, status: Status, allows: AbstractSet[Code] = REJECTIONS
    ) -> Status:
        """Return a plugin's status with the plugin's name, or an ERROR if the contract does not allow the status."""
        if status.code is Code.SUCCESS or (
            status.code is Code.SKIP and allows >= SKIPS and not status.reasons
        ):
            return status
        if not is_worded(status):
            return self._malformed(plugin, point, status)
        if status.code is Code.ERROR and point not in _OWN_WORDS:
            return self._failed(plugin, point, status.message, status.error)
        if status.code is not Code.ERROR and status.code not in allows:
            return self._malformed(plugin, point, status)
        return Status(status.code, status.reasons, plugin.name, status.error, status.origins)

    def _checked(
        self,
        plugin: Plugin,
        point: Point,
        answer: T,
        expects: Callable[[object], bool],
        allows: AbstractSet[Code],
    ) -> T | Status:
        if isinstance(answer, Status):
            return self.completed(plugin, point, answer, allows)
        return answer if expects(answer) else self._malformed(plugin, point, answer)

    def failure(self, plugin: Plugin, point: Point, error: BaseException) -> Status:
        """Log a plugin's exception, and return an ERROR status that names plugin and point."""
        at = error.__cause__ if isinstance(error, OverBudgetError) else error
        if isinstance(at, NormalizeError):
            point = ExtensionCall.NORMALIZE
        fields = self._fields(plugin, point)
        if isinstance(at, NodeError | ScoreError):
            fields["node"] = at.node_name
        if isinstance(error, NodeError | NormalizeError):
            error = error.cause
        if isinstance(error, PluginEndError):
            error = error.__cause__ or error
        if isinstance(error, OverBudgetError):
            was_stopped = error.__cause__ is not None
            logger.error(
                "Over budget",
                exc_info=error.__cause__ if was_stopped else None,
                extra={**fields, "why": str(error)},
            )
            if was_stopped:
                self.stopped()
            if error.used_by is not None:  # the plugin that was to be called next used no time
                return Status(Code.ERROR, (f"over budget: {error}",), error.used_by.name, error)
            return self._failed(plugin, point, f"over budget: {error}", error)
        logger.error("Plugin failed", exc_info=error, extra=fields)
        if isinstance(error, ScoreError):
            reason = f'applying score defaultWeights on Score plugins: plugin "{plugin.name}" {error}'
            return Status(Code.ERROR, (reason,), plugin.name, error)
        return self._failed(plugin, point, f"{type(error).__name__}: {error}", error)

    def failed_at(self, node_name: str, plugin: str, outcome: Outcome) -> Status:
        """Log that a Filter plugin failed at a node, and return the status of the attempt."""
        fields = {
            "plugin": plugin,
            "extension_point": ExtensionPoint.FILTER.metric_name,
            "profile": self.profile,
            "node": node_name,
            "error": ", ".join(outcome.reasons),
        }
        logger.error("Plugin failed", extra=fields)
        return failed_filter(plugin, outcome)

    def _malformed(self, plugin: Plugin, point: Point, answer: object) -> Status:
        fields = {**self._fields(plugin, point), "answer": f"{answer!r:.200}"}
        logger.error("Plugin returned an invalid value", extra=fields)
        return self._failed(
            plugin, point, f"unexpected return value {answer!r:.200}, expected {_expected(point, answer)}"
        )

    def _failed(
        self,
        plugin: Plugin,
        point: Point,
        what: str,
        error: BaseException | None = None,
    ) -> Status:
        message = _sendable(running(plugin.name, point) + shown_text(what))
        return Status(Code.ERROR, (message,), plugin.name, error)

    def _fields(self, plugin: Plugin, point: Point) -> dict[str, str]:
        return {"plugin": plugin.name, "extension_point": point.metric_name, "profile": self.profile}


def _let_pass(plugin: Plugin, point: Point, error: Exception) -> None:
    """Raise NeedsTime again, if the plugin raised it at a point that allows it."""
    needs = error.cause if isinstance(error, NodeError | NormalizeError) else error
    if isinstance(needs, NeedsTime) and point in _OF_DECISIONS:
        needs.plugin = needs.plugin or (plugin, point)
        try:
            raise needs from None
        finally:
            # The traceback refers to this frame and the attempt's, which would stay until the next garbage collection.
            del needs, error


def _expected(point: Point, answer: object) -> str:
    if isinstance(answer, Status) and not is_worded(answer):
        return 'a Status with strings as reasons, as in Status.unschedulable("one", "another")'
    if isinstance(answer, Status):
        return "a Status with another code"
    return EXPECTED.get(point, "a Status or None")


def is_worded(status: Status) -> bool:
    """Return whether the reasons are a tuple of strings in valid Unicode; a bare string would be split into letters."""
    reasons: object = status.reasons
    return isinstance(reasons, tuple) and all(
        isinstance(reason, str) and (reason.isascii() or reason == _sendable(reason)) for reason in reasons
    )


def _sendable(text: str) -> str:
    """Return a text without lone surrogates, which occur in names of files that are not valid UTF-8."""
    return text.encode(errors="replace").decode()
