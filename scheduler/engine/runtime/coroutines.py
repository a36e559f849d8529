"""Drives coroutines by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator


def resumed(
    work: Generator[Any, Any, Any] | Coroutine[Any, Any, Any], waits_for: object
) -> Generator[Any, Any, tuple[Callable[..., Any], Any]]:
    """Wait for the awaited object of a coroutine that is driven by hand; return the function and the value to continue with.

    Raises:
        GeneratorExit: the driver is closed, and the coroutine with it.
    """
    try:
        return work.send, (yield waits_for)
    except GeneratorExit:
        work.close()
        raise
    except BaseException as error:  # noqa: BLE001  # passed to the coroutine, including cancellation
        return work.throw, error
