"""Beside another scheduler: here our own daemon under the name default-scheduler, and others that decide oddly."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.app.rights import rights_of_shadow
from scheduler.app.shadow.service import ShadowService
from scheduler.client.connection import ApiConnection
from tests.builders import node_object, pod_object
from tests.daemon_harness import cluster
from tests.virtual_time import LoopClock
from tests.virtually import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.daemon_harness import Cluster

THEIRS = "default-scheduler"
THEIR_PROFILE = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
percentageOfNodesToScore: 100
profiles: [{{schedulerName: {THEIRS}}}]
"""


@asynccontextmanager
async def shadow(at: Cluster, **options: Any) -> AsyncIterator[ShadowService]:
    """Run a shadow beside whatever places pods in the block; at its end all is judged."""
    account = at.account()
    async with ApiConnection(at.endpoint, authorization=account) as connection:
        service = ShadowService(connection, THEIRS, clock=LoopClock(), random=Random(1), **options)
        account.grant(rights_of_shadow(service.frameworks.values()))
        stop = asyncio.Event()
        running = asyncio.create_task(service.run(stop))
        await at.until(lambda: service.has_synced)
        try:
            yield service
        finally:
            stop.set()
            await running
            account.settle()


@virtually
async def test_try(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        at.add_nodes(*(node_object(f"n{i}") for i in range(20)))
        async with shadow(at) as service, at.daemon(THEIR_PROFILE):
            at.add_pods(*(pod_object(f"p{i}", scheduler_name=THEIRS) for i in range(50)))
            await at.until(lambda: all(at.node_of(f"p{i}") for i in range(50)))
        assert service.summary() == {}
