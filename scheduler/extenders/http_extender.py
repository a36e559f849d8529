"""One extender: which pods it cares for, and the four things it can be asked.

Source:
    kube-scheduler v1.36, pkg/scheduler/extender.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from scheduler.extenders import wire
from scheduler.extenders.transport import Transport
from scheduler.extenders.wire import ExtenderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.configuration.types import Extender
    from scheduler.extenders.wire import FilterAnswer, MetaVictims
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

T = TypeVar("T")


class HttpExtender:
    """A web service that takes part in scheduling.

    Whatever it is asked raises ExtenderError if it could not be, or if its answer makes no sense.

    Args:
        settings: what the configuration says of it.
        path: where that stands, for messages.

    Attributes:
        name: its URL prefix, as in kube-scheduler's messages.
        ignorable: whether scheduling goes on without it when it fails.

    Raises:
        ConfigurationError: its certificates cannot be read.
    """

    def __init__(self, settings: Extender, path: str) -> None:
        self.settings = settings
        self.name = settings.url_prefix
        self.ignorable = settings.ignorable
        self._transport = Transport(settings, path)
        self._managed = frozenset(resource.name for resource in settings.managed_resources)

    def is_interested(self, pod: PodInfo) -> bool:
        """Whether it is to be asked about a pod: one that names a resource it manages, or any if it manages none."""
        if not self._managed:
            return True
        spec = pod.pod.spec
        return any(
            name in self._managed
            for container in (*spec.containers, *spec.init_containers)
            for written in (container.resources.requests, container.resources.limits)
            for name in written
        )

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeObject]) -> FilterAnswer:
        """Ask which of the nodes can run a pod."""
        names_only = self.settings.node_cache_capable
        names = [node.name for node in nodes]
        return await self._ask(
            self.settings.filter_verb,
            wire.arguments(pod, nodes, names_only=names_only),
            lambda answer: wire.filter_answer(answer, names, names_only=names_only),
        )

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeObject]) -> Sequence[tuple[str, int]]:
        """Ask how good the nodes are: (name, 0 to 10), without the extender's weight."""
        body = wire.arguments(pod, nodes, names_only=self.settings.node_cache_capable)
        return await self._ask(self.settings.prioritize_verb, body, wire.priorities_answer)

    async def preempt(
        self, pod: PodInfo, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, MetaVictims]:
        """Ask what is left of node name -> victims, and how many disruption budgets that breaks."""
        body = wire.preemption_arguments(pod, victims, names_only=self.settings.node_cache_capable)
        return await self._ask(self.settings.preempt_verb, body, wire.preemption_answer)

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Have it bind a pod."""
        body = wire.binding_arguments(pod, node_name)
        await self._ask(self.settings.bind_verb, body, wire.binding_answer)

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.close()

    async def _ask(self, verb: str, body: bytes, read: Callable[[bytes], T]) -> T:
        try:
            return read(await self._transport.post(verb, body))
        except ExtenderError as error:
            raise ExtenderError(f'extender "{self.name}": {error}') from error
