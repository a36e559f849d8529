"""Async tests in virtual time, as a decorator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tests.support.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a virtual-time loop of its own; fixtures and parameters work as usual."""

    @functools.wraps(test)
    def run_it(*args: Any, **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    return run_it
