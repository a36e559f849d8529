"""How plugins are called: the one place where an exception or a malformed answer becomes a status."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from scheduler.framework.interface import PostFilterResult, PreFilterResult, Wait
from scheduler.framework.outcomes import Outcomes
from scheduler.framework.status import SUCCESS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from scheduler.framework.interface import Plugin
    from scheduler.framework.points import ExtensionPoint
    from scheduler.runtime.instruments import Instruments
    from scheduler.snapshot import Int64s

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PluginError(Exception):
    """A plugin failed where the caller can only stop; carries the ERROR status it becomes."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


class _Timing:
    """Times a block and tells what code it ended with; a PluginError brings its own."""

    __slots__ = ("_begin", "_clock", "_tell", "code")

    def __init__(self, clock: Callable[[], float], tell: Callable[[Code, float], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._begin = 0.0
        self.code = Code.SUCCESS

    def __enter__(self) -> Self:
        self._begin = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.code = error.status.code if isinstance(error, PluginError) else Code.ERROR
        self._tell(self.code, self._clock() - self._begin)


class PluginCalls:
    """Calls the plugins of one profile.

    Attributes:
        measuring: whether each call is timed and told; upstream does so in one cycle out of ten.
    """

    def __init__(self, profile: str, instruments: Instruments, clock: Callable[[], float]) -> None:
        self._profile = profile
        self._instruments = instruments
        self._clock = clock
        self.measuring = False

    def point(self, point: ExtensionPoint) -> _Timing:
        """Time a whole extension point; the block says in `code` how it ended."""
        return _Timing(
            self._clock,
            lambda code, seconds: self._instruments.extension_point(self._profile, point, code, seconds),
        )

    def evaluation(self, plugin: Plugin, point: ExtensionPoint, *, nodes: int | None) -> _Timing:
        """Count that a plugin really is asked; `nodes` is how many it looks at one by one, if it does."""
        self._instruments.evaluated(self._profile, plugin.name, point)

        def tell(_code: Code, seconds: float) -> None:
            if nodes is not None:
                self._instruments.node_loop(plugin.name, point, nodes, seconds)

        return _Timing(self._clock, tell)

    def guarded(
        self,
        plugin: Plugin,
        point: ExtensionPoint,
        call: Callable[..., T],
        *args: object,
        expects: Callable[[object], bool],
    ) -> T | Status:
        """Call a plugin.

        Args:
            plugin: whom.
            point: where.
            call: its method, or a function that calls it.
            args: handed on.
            expects: whether an answer that is no Status is of the kind the contract asks for.

        Returns:
            The answer, a Status completed with the plugin's name; what it raised, or an answer of the wrong kind, as
            an ERROR status.
        """
        begin = self._clock() if self.measuring else 0.0
        answer: T | Status
        try:
            answer = call(*args)
        except Exception as error:  # noqa: BLE001 - whatever an author's code raises
            answer = self._failure(plugin, point, error)
        if isinstance(answer, Status):
            answer = answer.by(plugin.name)
        elif not expects(answer):
            answer = self._malformed(plugin, point, answer)
        if self.measuring:
            code = answer.code if isinstance(answer, Status) else Code.SUCCESS
            self._instruments.plugin(plugin.name, point, code, self._clock() - begin)
        return answer

    def status(
        self, plugin: Plugin, point: ExtensionPoint, call: Callable[..., Status | None], *args: object
    ) -> Status:
        """Call a plugin whose answer is a status, None for a success."""
        answer = self.guarded(plugin, point, call, *args, expects=_is_none)
        return SUCCESS if answer is None else answer

    def raising(self, plugin: Plugin, point: ExtensionPoint, call: Callable[..., T], *args: object) -> T:
        """Call a plugin whose answer is anything but a status.

        Raises:
            PluginError: it raised.
        """
        answer = self.guarded(plugin, point, call, *args, expects=is_anything)
        if isinstance(answer, Status):
            raise PluginError(answer)
        return answer

    async def awaited(self, plugin: Plugin, point: ExtensionPoint, call: Awaitable[object]) -> Status:
        """Await a plugin whose answer is a status, None for a success."""
        begin = self._clock()
        try:
            answer = await call
        except Exception as error:  # noqa: BLE001 - whatever an author's code raises
            status = self._failure(plugin, point, error).by(plugin.name)
        else:
            if answer is None:
                status = SUCCESS
            elif isinstance(answer, Status):
                status = answer.by(plugin.name)
            else:
                status = self._malformed(plugin, point, answer)
        if self.measuring:
            self._instruments.plugin(plugin.name, point, status.code, self._clock() - begin)
        return status

    def _failure(self, plugin: Plugin, point: ExtensionPoint, error: Exception) -> Status:
        logger.error(
            "Plugin failed",
            exc_info=error,
            extra={"plugin": plugin.name, "extension_point": point.metric_name, "profile": self._profile},
        )
        told = f"running {point.metric_name} plugin {plugin.name!r}: {type(error).__name__}: {error}"
        return Status.failed(told, error)

    def _malformed(self, plugin: Plugin, point: ExtensionPoint, answer: object) -> Status:
        logger.error(
            "Plugin gave a malformed answer",
            extra={
                "plugin": plugin.name,
                "extension_point": point.metric_name,
                "profile": self._profile,
                "answer": f"{answer!r:.200}",
            },
        )
        told = f"running {point.metric_name} plugin {plugin.name!r}: unexpected answer {answer!r:.200}"
        return Status(Code.ERROR, (told,), plugin.name)


def is_anything(_answer: object) -> bool:
    """Accept every answer: it is checked by the call itself."""
    return True


def _is_none(answer: object) -> bool:
    return answer is None


def is_pre_filter(answer: object) -> bool:
    """Accept what PreFilter may answer beside a status."""
    return answer is None or isinstance(answer, PreFilterResult)


def is_post_filter(answer: object) -> bool:
    """Accept what PostFilter may answer."""
    return isinstance(answer, PostFilterResult)


def is_sort_key(answer: object) -> bool:
    """Accept what QueueSort may answer: a key that can be compared with any other."""
    return isinstance(answer, tuple) and all(isinstance(part, int | float) for part in answer)


def is_permit(answer: object) -> bool:
    """Accept what Permit may answer beside a status."""
    return answer is None or isinstance(answer, Wait)


def checked_outcomes(answer: object, n_nodes: int) -> Outcomes:
    """Return a Filter's answer.

    Raises:
        TypeError: not Outcomes.
        ValueError: of another length or dtype, or pointing past its table.
    """
    if not isinstance(answer, Outcomes):
        raise TypeError(f"filter returns Outcomes, was {type(answer).__name__}")
    index = answer.index
    if index.shape != (n_nodes,) or index.dtype != np.uint16:
        raise ValueError(f"Outcomes.index is uint16 ({n_nodes},), was {index.dtype} {index.shape}")
    if n_nodes and int(index.max()) >= len(answer.table):
        raise ValueError(
            f"Outcomes.index points to {int(index.max())}, the table has {len(answer.table)} places"
        )
    return answer


def checked_scores(answer: object, n_nodes: int, method: str) -> Int64s:
    """Return the scores a plugin's `method` gave.

    Raises:
        ValueError: of another length or dtype, or no array.
    """
    if not isinstance(answer, np.ndarray) or answer.shape != (n_nodes,) or answer.dtype != np.int64:
        found = f"{answer.dtype} {answer.shape}" if isinstance(answer, np.ndarray) else type(answer).__name__
        raise ValueError(f"{method} returns int64 ({n_nodes},), was {found}")
    return answer
