"""The budget of attempts for simulations, in which attempts take no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.engine.runtime.budget import LoopBudget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.engine.runtime.budget import AttemptUsage
    from scheduler.framework.interface import Plugin

T = TypeVar("T")


class NoBudget(LoopBudget):
    """Calls plugins without a limit: a plugin that does not return stops the simulation."""

    def begin(self) -> None:
        """Do nothing."""

    def run_slice(self, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    def run_in_slices(self, awaitable: Awaitable[T], usage: AttemptUsage | None = None) -> Awaitable[T]:
        return awaitable

    def run_slice_of(self, usage: AttemptUsage, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    def call(
        self, plugin: Plugin, function: Callable[..., T], *args: object, often: str = "", at: str = ""
    ) -> T:
        return function(*args)

    async def awaited(self, plugin: Plugin, function: Callable[..., Any], *args: object, at: str = "") -> Any:
        answer = function(*args)
        return await answer if hasattr(answer, "__await__") else answer
