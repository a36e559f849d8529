"""The cost of an operation: reads of objects, calls of functions, and executed lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import pytest


class CountedLabels(dict[str, str]):
    """Labels that count how often they are read."""

    reads = 0

    def get(self, *args: Any) -> Any:
        self.reads += 1
        return super().get(*args)


def calls_of(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, ...]]:
    """Note the positional arguments of each call of a module's function, or of a class's method."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(owner, name)

    def noted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return real(*args, **options)

    patch.setattr(owner, name, noted)
    return calls


def lines_run(call: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs, comprehensions and generators included."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
