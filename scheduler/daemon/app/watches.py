"""The watches: nodes and pods always, and any other kind as long as a plugin needs it."""

from __future__ import annotations

import asyncio
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from scheduler.daemon.app.needs import PodDecoder, resource_of
from scheduler.engine.cycle.event_handlers import NodeHandler
from scheduler.errors import ConfigurationError, FieldError, UnreadError
from scheduler.kube.client.outages import Outages, StaleCacheGate
from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import NODES, PODS
from scheduler.objects.decode import STRUCTS, decode_node, decode_object
from scheduler.objects.node import NodeObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.generation import Spawn
    from scheduler.daemon.metrics import Metrics
    from scheduler.engine.cycle.event_handlers import EventHandler, PodHandler
    from scheduler.framework.interface import Needs
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.store import Handler
    from scheduler.objects.pod import PodInfo

_TERMINAL_PODS_LEFT_OUT = "status.phase!=Succeeded,status.phase!=Failed"
POD_KIND, NODE_KIND = "v1/pods", "v1/nodes"
GROWTH_SECONDS = 60.0
"""How long a new configuration waits for the first list of a kind that it needs, before it is rejected."""
_NAME: Final = "custom-scheduler"
_DIGITS: Final = 15


class Watches:
    """The reflectors and their tasks.

    Args:
        pod_handler: handles pods; `parts.pods` contains all known pods of any scheduler that have not ended.
        needs: the initial needs of the plugins.
        wrap_handler: handler -> handler to notify in its place.

    Attributes:
        pods: reflector of pods.
        nodes: reflector of nodes.
        outages: detects outages of the API server.
        cache_gate: whether the cache is known to be stale.
    """

    def __init__(
        self,
        connection: ApiConnection,
        parts: Parts,
        pod_handler: PodHandler,
        *,
        metrics: Metrics,
        random: Random,
        needs: Needs,
        wrap_handler: Callable[[EventHandler[Any]], Handler[Any]] = lambda handler: handler,
    ) -> None:
        self._connection = connection
        self._parts = parts
        self._wrap_handler = wrap_handler
        self.outages = Outages(connection)
        self.cache_gate = StaleCacheGate(self.outages)
        self._spawn: Spawn | None = None
        self._tasks: dict[Reflector[Any], asyncio.Task[None]] = {}
        self._restarting = asyncio.Lock()
        self._decode_pod = PodDecoder(needs)
        self._reflector: Callable[..., Reflector[Any]] = partial(
            Reflector,
            connection,
            random=random,
            observer=metrics,
            pause=self.outages.pause,
            state_listener=self.cache_gate,
        )
        self.pods: Reflector[PodInfo] = self._reflector(
            PODS,
            decode=self._decode_pod,
            handler=wrap_handler(parts.ports.event_handler(POD_KIND, pod_handler)),
            objects=parts.pods,
            version_of=attrgetter("uid", "resource_version"),
            field_selector=_TERMINAL_PODS_LEFT_OUT,
        )
        self.nodes: Reflector[NodeObject] = self._reflector(
            NODES,
            decode=decode_node,
            handler=wrap_handler(parts.ports.event_handler(NODE_KIND, NodeHandler(parts))),
            next_version=NodeObject.heartbeat,
        )
        self._others = {kind: self._reflector_of(kind) for kind in sorted(needs.kinds)}
        metrics.families.read_gauges(
            "informer_store_resource_version",
            "The 15 least significant digits of the resource version up to which the objects of a kind are read.",
            ("name", "group", "version", "resource"),
            self._versions_read,
        )

    def _versions_read(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for reflector in self:
            kind, version = reflector.resource, reflector.resource_version[-_DIGITS:]
            if version.isdecimal():
                yield (_NAME, kind.group, kind.version, kind.plural), float(version)

    def __iter__(self) -> Iterator[Reflector[Any]]:
        yield self.nodes
        yield self.pods
        yield from self._others.values()

    @property
    def has_synced(self) -> bool:
        """Whether all objects that decisions depend on have been read once."""
        return all(reflector.has_synced for reflector in self)

    def start(self, spawn: Spawn) -> None:
        """Start the watches, in tasks that end with the daemon."""
        self._spawn = spawn
        self.outages.when_away(self._doubt)
        self.outages.when_over(self._connection.versions.forget)
        spawn(self.outages.run(), "outages")
        for reflector in self:
            self._start(reflector)

    async def wait_synced(self) -> None:
        """Wait until `has_synced`."""
        for reflector in list(self):
            await reflector.wait_synced()

    def kinds(self) -> Iterator[tuple[str, Reflector[dict[str, Any]]]]:
        """Yield the kinds that plugins need, as they name them, and the reflector of each."""
        yield from self._others.items()

    async def read_again(self, reflector: Reflector[Any]) -> None:
        """List and decode one kind again; the known objects stay meanwhile."""
        async with self._restarting:
            if reflector in self._tasks:
                await self._stop(reflector)
                reflector.relist()
                self._start(reflector)

    async def grow(self, needs: Needs) -> None:
        """Watch and keep what is needed in addition; returns when all of it was read.

        Raises:
            UnreadError: a kind could not be read in time, and is not watched.
            ConfigurationError: a plugin needs an invalid kind.
        """
        try:
            fresh = {kind: self._reflector_of(kind) for kind in sorted(needs.kinds - self._others.keys())}
        except ValueError as error:
            raise ConfigurationError([FieldError("profiles", f"needs of a plugin: {error}")]) from error
        try:
            for reflector in fresh.values():
                self._start(reflector)
            keeps_more = self._decode_pod.keep_also(needs)
            if keeps_more:
                await self.read_again(self.pods)
            async with asyncio.timeout(GROWTH_SECONDS):
                for reflector in fresh.values():
                    await reflector.wait_synced()
                if keeps_more:
                    await self.pods.wait_listed()
        except BaseException as error:
            unread = [kind for kind, reflector in fresh.items() if not reflector.has_synced] or ["v1/pods"]
            for kind, reflector in fresh.items():
                await self._stop(reflector)
                self._parts.cache.table.watch_kind(kind).clear()
            if isinstance(error, TimeoutError):
                problem = f"plugins need {', '.join(unread)}, not read within {GROWTH_SECONDS:.0f} seconds"
                raise UnreadError([FieldError("profiles", problem)]) from error
            raise
        self._others |= fresh

    async def shrink(self, needs: Needs) -> None:
        """Stop watches that are not needed; known pods keep their fields until they change."""
        for kind in sorted(self._others.keys() - needs.kinds):
            await self._stop(self._others.pop(kind))
            self._parts.cache.table.watch_kind(kind).clear()
        self._decode_pod.needs = needs

    def _doubt(self) -> None:
        for reflector in self:
            reflector.suspect_restore()

    def _start(self, reflector: Reflector[Any]) -> None:
        assert self._spawn is not None, "reload before run"
        self._tasks[reflector] = self._spawn(reflector.run(), f"watch {reflector.resource}")

    async def _stop(self, reflector: Reflector[Any]) -> None:
        task = self._tasks.pop(reflector, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self.cache_gate.complete(str(reflector.resource))

    def _reflector_of(self, kind: str) -> Reflector[dict[str, Any]]:
        resource = resource_of(kind)
        handler = self._wrap_handler(self._parts.ports.event_handler(kind, self._parts.object_handler(kind)))
        decode = partial(decode_object, struct=STRUCTS.get(kind))
        return self._reflector(resource, decode=decode, handler=handler, optional=True)
