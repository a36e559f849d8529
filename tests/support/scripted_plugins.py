"""Plugins with scripted results, and profiles made of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.engine.runtime.framework import EnabledPlugins, Framework
from scheduler.engine.runtime.plugin_classes import CLASS_OF_POINT
from scheduler.framework import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.engine.runtime.budget import LoopBudget
    from scheduler.engine.runtime.calls import Instruments
    from scheduler.framework import Plugin


class Puppet:
    """Answers what it was made with: a value, the result of a function, or an exception that is raised.

    Attributes:
        calls: method and arguments of each call, oldest first.
    """

    def __init__(self, name: str = "", answer: Any = None, **answers: Any) -> None:
        """Prepare the answers.

        Args:
            name: the plugin's; its class's by default.
            answer: of every method that is not named in `answers`.
            answers: method -> answer.
        """
        self.name = name or type(self).__name__
        self.answer = answer
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def say(self, method: str, *args: Any) -> Any:
        self.calls.append((method, args))
        answer = self.answers.get(method, self.answer)
        if isinstance(answer, BaseException):
            raise answer
        return answer(*args) if callable(answer) else answer

    def called(self) -> list[str]:
        """The methods called, oldest first."""
        return [method for method, _ in self.calls]


class Gate(Puppet, PreEnqueuePlugin):
    def pre_enqueue(self, *args: Any) -> Any:
        return self.say("pre_enqueue", *args)


class Sort(Puppet, QueueSortPlugin):
    def sort_key(self, *args: Any) -> Any:
        return self.say("sort_key", *args)


class PreFilter(Puppet, PreFilterPlugin):
    def pre_filter(self, *args: Any) -> Any:
        return self.say("pre_filter", *args)

    def add_pods(self, *args: Any) -> Any:
        return self.say("add_pods", *args)

    def remove_pods(self, *args: Any) -> Any:
        return self.say("remove_pods", *args)


class Filter(Puppet, FilterPlugin):
    """Judges all nodes at once."""

    def filter(self, *args: Any) -> Any:
        return self.say("filter", *args)


class NodeFilter(Puppet, FilterPlugin):
    """Judges node by node."""

    def filter_node(self, *args: Any) -> Any:
        return self.say("filter_node", *args)


class PostFilter(Puppet, PostFilterPlugin):
    def post_filter(self, *args: Any) -> Any:
        return self.say("post_filter", *args)


class PreScore(Puppet, PreScorePlugin):
    def pre_score(self, *args: Any) -> Any:
        return self.say("pre_score", *args)


class Score(Puppet, ScorePlugin):
    """Ranks all nodes at once."""

    def score(self, *args: Any) -> Any:
        return self.say("score", *args)


class NodeScore(Puppet, ScorePlugin):
    """Ranks node by node."""

    def score_node(self, *args: Any) -> Any:
        return self.say("score_node", *args)


class Reserve(Puppet, ReservePlugin):
    def reserve(self, *args: Any) -> Any:
        return self.say("reserve", *args)

    def unreserve(self, *args: Any) -> Any:
        return self.say("unreserve", *args)


class Permit(Puppet, PermitPlugin):
    def permit(self, *args: Any) -> Any:
        return self.say("permit", *args)


class _Awaited(Puppet):
    async def await_(self, method: str, *args: Any) -> Any:
        answer = self.say(method, *args)
        return await answer if hasattr(answer, "__await__") else answer


class PreBind(_Awaited, PreBindPlugin):
    def pre_bind_pre_flight(self, *args: Any) -> Any:
        return self.say("pre_bind_pre_flight", *args)

    async def pre_bind(self, *args: Any) -> Any:
        return await self.await_("pre_bind", *args)


class Bind(_Awaited, BindPlugin):
    async def bind(self, *args: Any) -> Any:
        return await self.await_("bind", *args)


class PostBind(_Awaited, PostBindPlugin):
    async def post_bind(self, *args: Any) -> Any:
        return await self.await_("post_bind", *args)


def framework_of(
    *plugins: Plugin,
    weights: Mapping[str, int] | None = None,
    profile: str = "custom-scheduler",
    instruments: Instruments | None = None,
    budget: LoopBudget | None = None,
) -> Framework:
    """Return a profile in which each plugin is at all the points it takes part in, in the given order."""
    at = {
        point: [plugin for plugin in plugins if isinstance(plugin, kind)]
        for point, kind in CLASS_OF_POINT.items()
    }
    return Framework(profile, EnabledPlugins(at, weights or {}), instruments, budget=budget)
