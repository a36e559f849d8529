"""The event loop of the commands that serve: uvloop's, which costs less, where it installs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does."""
    try:
        from uvloop import new_event_loop  # it does not install everywhere
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
