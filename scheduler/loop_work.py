"""Names the functions that may hold the event loop, so that a report of a late loop says what it does, and work in steps.

A decorator registers the code of a function and costs nothing at calls: only a report inspects the stack.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from types import CodeType, FrameType

T = TypeVar("T")
_Function = TypeVar("_Function", bound="Callable[..., Any]")


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Run all steps of a generator, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class LoopWork(NamedTuple):
    """A named function.

    Attributes:
        kind: for the metric: `attempt`, `binding`, `event`, `queue`, `refresh`, `reload`, `request` or `watch`.
        describe: returns the description of a call; its parameters are parameters of the function.
    """

    kind: str
    describe: Callable[..., str]

    def description(self, values: Mapping[str, object]) -> str:
        """Return the description of a call with the given values of the function's variables."""
        return self.describe(*(values[name] for name in inspect.signature(self.describe).parameters))


_WORK: Final[dict[CodeType, LoopWork]] = {}
_PLUGIN_CALLS: Final[set[CodeType]] = set()


def loop_work(kind: str, describe: Callable[..., str]) -> Callable[[_Function], _Function]:
    """Name a function's work; the arguments are those of `LoopWork`.

    Raises:
        TypeError: `describe` has a parameter that the function does not have.
    """

    def register(function: _Function) -> _Function:
        code = function.__code__
        missing = (
            inspect.signature(describe).parameters.keys() - inspect.signature(function).parameters.keys()
        )
        if missing:
            raise TypeError(f"{code.co_qualname} has no parameter {', '.join(sorted(missing))}")
        _WORK[code] = LoopWork(kind, describe)
        return function

    return register


def calls_plugin_code(function: _Function) -> _Function:
    """Mark a function that calls the code of plugins of third parties."""
    _PLUGIN_CALLS.add(function.__code__)
    return function


def work_in(frame: FrameType) -> LoopWork | None:
    """Return the named work of a stack frame."""
    return _WORK.get(frame.f_code)


def is_plugin_call(frame: FrameType) -> bool:
    """Return whether a stack frame is of a marked function."""
    return frame.f_code in _PLUGIN_CALLS
