"""The board of a cluster with another scheduler: it watches as a scheduler does, and writes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339_micro
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.tasks import Tasks
from scheduler.daemon.app.watches import Watches
from scheduler.daemon.metrics import Metrics
from scheduler.engine.cycle.attempt_log import AttemptLog
from scheduler.engine.cycle.event_handlers import PodHandler
from scheduler.errors import SchedulerError
from scheduler.kube.client.connect import connect
from scheduler.tools.board.current_decision import current_attempt
from scheduler.tools.board.pages import Board
from scheduler.tools.board.pod_events import events_about
from scheduler.tools.board.subject import Subject, SubjectKind
from scheduler.tools.whatif.live_cluster import read_pod_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from random import Random

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.server_version import ServerVersions
    from scheduler.engine.cycle.event_handlers import Events
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_KEPT: Final = 500
_SYNC_SECONDS: Final = 20.0


class ObservedDecisions:
    """Results of pods, as their objects show them.

    Attributes:
        noted: number of results.
    """

    def __init__(self, clock: Clock) -> None:
        self.noted = 0
        self._clock = clock
        self._kept: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def note(self, pod: PodInfo, message: str) -> None:
        """Note that a pod was placed or, with a message, rejected."""
        self.noted += 1
        self._kept.append(
            {
                "serial": self.noted,
                "at": rfc3339_micro(self._clock.utc_now()),
                "pod": pod.key,
                "node": pod.node_name or None,
                "number": None,
                "seconds": None,
                "message": message,
            }
        )

    def since(self, serial: int, most: int) -> Sequence[dict[str, Any]]:
        fresh = list(islice(reversed(self._kept), min(most, self.noted - serial)))
        return fresh[::-1]


class _SeenPods(PodHandler):
    """Handles pods, and notes the results of pending pods."""

    def __init__(self, parts: Parts, decisions: ObservedDecisions) -> None:
        super().__init__(parts)
        self._decisions = decisions

    def _updated(self, old: PodInfo, new: PodInfo) -> Events:
        if not old.node_name:
            message = _refusal(new)
            if new.node_name:
                self._decisions.note(new, "")
            elif message and message != _refusal(old):
                self._decisions.note(new, message)
        return super()._updated(old, new)


def _refusal(pod: PodInfo) -> str:
    conditions = (each for each in pod.pod.status.conditions if each.type == "PodScheduled")
    return next((each.message for each in conditions if each.status == "False"), "")


class Observer:
    """Watches a cluster for a board.

    Args:
        connection: connection to the API server; nothing is written.
        configuration: the configuration for evaluations.

    Attributes:
        subject: the subject of the board.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """

    def __init__(
        self, connection: ApiConnection, configuration: Configuration, *, clock: Clock, random: Random
    ) -> None:
        metrics = Metrics()
        parts = Parts(clock, metrics, IN_TREE)
        generation = parts.build(configuration)
        parts.activate(generation)
        decisions = ObservedDecisions(clock)
        self.subject = Subject(
            SubjectKind.CLUSTER,
            parts,
            clock,
            lambda: configuration,
            AttemptLog(),
            decisions,
            events=partial(events_about, connection),
            judge=partial(current_attempt, parts),
            read_pod=partial(read_pod_json, connection),
        )
        self._watches = Watches(
            connection,
            parts,
            _SeenPods(parts, decisions),
            metrics=metrics,
            random=random,
            needs=generation.needs,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the block runs; it begins after the first lists, or after 20 seconds without them."""
        async with Tasks() as tasks:
            self._watches.start(tasks.spawn)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS):
                    await self._watches.wait_synced()
            yield


class WatchOnDemand:
    """The board of a cluster; the watches start with the first request.

    Args:
        kubeconfig: path of the kubeconfig.
        read: the configuration for evaluations, before it is settled.
        versions: settles it with the version of the cluster.
    """

    def __init__(
        self,
        kubeconfig: str | None,
        read: Configuration,
        versions: ServerVersions,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._read, self._versions = read, versions
        self._clock = clock
        self._random = random
        self._asked = asyncio.Event()
        self._board: asyncio.Future[Board] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> Board:
        """Return the board, after the first lists of the cluster."""
        self._asked.set()
        return await asyncio.shield(self._board)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the block runs, after the first request."""
        watching = asyncio.create_task(self._watch(), name="watching for the board")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self) -> None:
        await self._asked.wait()
        try:
            await self._watch_until_cancelled()
        except SchedulerError as error:
            logger.exception("The board failed")
            self._board.set_exception(error)

    async def _watch_until_cancelled(self) -> None:
        async with connect(self._kubeconfig) as connection:
            configuration = await self._versions.settled(self._read, connection)
            observer = Observer(connection, configuration, clock=self._clock, random=self._random)
            async with observer.running():
                self._board.set_result(Board(observer.subject))
                await asyncio.Event().wait()
