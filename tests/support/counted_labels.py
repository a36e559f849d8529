"""The cost of an operation: reads of objects, and executed lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class CountedLabels(dict[str, str]):
    """Labels that count how often they are read."""

    reads = 0

    def get(self, *args: Any) -> Any:
        self.reads += 1
        return super().get(*args)


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
