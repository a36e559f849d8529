"""Several daemons that elect a leader, each of which can be killed or stopped like a process; run in `freezing.run`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from plugins.registry import IN_TREE
from scheduler.configuration.load import default, parse
from scheduler.configuration.overrides import with_leader_election
from scheduler.kube.client.connection import ApiConnection
from tests.support.daemon_accounts import GrantedDaemon
from tests.support.frozen_processes import Freezer
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.framework import Plugin
    from scheduler.tools.simulator.server import LoggedRequest
    from tests.support.daemon_accounts import Account
    from tests.support.daemon_harness import Cluster

LEASES = "leases.coordination.k8s.io"


class Replica:
    """A daemon at work.

    Attributes:
        name: its user agent.
        freezer: stops it as SIGSTOP does, and lets it go on.
        ended: its task.
    """

    def __init__(self, cluster: Cluster, connection: ApiConnection, daemon: Daemon, account: Account) -> None:
        self.name = connection.user_agent
        self.daemon = daemon
        self.freezer = Freezer()
        self._server = cluster.server
        self._connection = connection
        self._account = account
        self._stop = asyncio.Event()
        with self.freezer.inside():
            self.ended = asyncio.create_task(daemon.run(self._stop))

    @property
    def is_leading(self) -> bool:
        return self.daemon.leadership.is_leading()

    async def stop(self) -> None:
        """End it as SIGTERM does.

        Raises:
            LeadershipLostError: as `Daemon.run`.
        """
        self._stop.set()
        await self.ended

    async def kill(self) -> None:
        """End it as SIGKILL does: no goodbyes."""
        self.freezer.thaw()
        self.ended.cancel()
        await asyncio.wait({self.ended})
        await self._connection.close()
        self._account.settle()

    def writes(self, *, since: float = 0.0) -> list[LoggedRequest]:
        """What it wrote, or tried to, its lease apart."""
        return [
            each
            for each in self._server.requests
            if each.user_agent == self.name
            and each.method != "GET"
            and "/leases" not in each.path
            and each.at_seconds >= since
        ]

    def binds(self, *, since: float = 0.0) -> list[LoggedRequest]:
        """The bindings it sent."""
        return [each for each in self.writes(since=since) if each.path.endswith("/binding")]


@asynccontextmanager
async def replica(
    cluster: Cluster,
    name: str,
    *,
    plugins: Mapping[str, type[Plugin]] | None = None,
    configuration: str = "",
    **election: Any,
) -> AsyncIterator[Replica]:
    """Run a daemon with leader election; what is left of it at the end is killed.

    Args:
        cluster: where.
        name: of this replica.
        plugins: in-tree plugins beside the real ones.
        configuration: YAML; the defaults if empty.
        election: fields of `LeaderElection` that differ from the defaults.
    """
    account = cluster.account()
    async with ApiConnection(cluster.endpoint, authorization=account) as connection:
        connection.user_agent = name
        daemon = GrantedDaemon(
            connection,
            with_leader_election(
                parse(configuration) if configuration else default(), leader_elect=True, **election
            ),
            clock=LoopClock(),
            random=Random(name),
            in_tree={**IN_TREE, **(plugins or {})},
            account=account,
        )
        it = Replica(cluster, connection, daemon, account)
        try:
            yield it
        finally:
            await it.kill()
