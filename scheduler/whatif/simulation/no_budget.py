"""The budget of attempts for simulations, in which attempts take no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.runtime.budget import LoopBudget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.framework.interface import Plugin
    from scheduler.runtime.budget import Usage

T = TypeVar("T")


class NoBudget(LoopBudget):
    """Calls plugins without a limit: a plugin that does not return stops the simulation."""

    def begin(self) -> None:
        """Do nothing."""

    def stretch(self, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    def in_stretches(self, awaitable: Awaitable[T], usage: Usage | None = None) -> Awaitable[T]:
        return awaitable

    def stretch_of(self, usage: Usage, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    def call(
        self, plugin: Plugin, function: Callable[..., T], *args: object, often: str = "", at: str = ""
    ) -> T:
        return function(*args)

    async def awaited(self, plugin: Plugin, function: Callable[..., Any], *args: object, at: str = "") -> Any:
        answer = function(*args)
        return await answer if hasattr(answer, "__await__") else answer
