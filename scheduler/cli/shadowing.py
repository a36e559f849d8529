"""`custom-scheduler run --shadow`: runs beside another scheduler, and reports decisions that differ."""

from __future__ import annotations

import logging
import random
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from scheduler.cli.process import stop_on_signals
from scheduler.clock import SystemClock
from scheduler.daemon.app.loop_watch import watching_loop
from scheduler.daemon.app.plugin_dry_run import dry_run_plugins
from scheduler.daemon.app.shadow.findings import lines
from scheduler.daemon.app.shadow.pages import serving_shadow
from scheduler.daemon.app.shadow.service import ShadowService, default_of
from scheduler.kube.client.connect import connect
from scheduler.kube.client.requests import StartupRequests

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.server_version import ServerVersions
    from scheduler.daemon.server import Serving

logger = logging.getLogger(__name__)


async def run_shadow(
    scheduler_name: str,
    candidate: Configuration | None,
    versions: ServerVersions,
    *,
    sampling: int,
    kubeconfig: str | None,
    serving: Serving,
) -> None:
    """Shadow a scheduler until a signal arrives; then print the summary.

    Raises:
        ConfigurationError: the configuration is invalid, or an address cannot be listened on.
    """
    stop, clock = stop_on_signals(), SystemClock()
    named = "" if candidate is None else candidate.settings.client_connection.kubeconfig
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connect(kubeconfig or named or None))
        requests = StartupRequests(connection, stop)
        if candidate is not None:
            candidate = await versions.settled(candidate, requests)
            await dry_run_plugins(candidate)
        service = ShadowService(
            connection,
            scheduler_name,
            default=await versions.settled(default_of(scheduler_name), requests),
            candidate=candidate,
            sampling=sampling,
            clock=clock,
            random=random.Random(),
        )
        service.parts.budget.take_clock()
        stack.callback(service.parts.budget.give_clock_back)
        await stack.enter_async_context(watching_loop(service.metrics.loop))
        if serving.secure_port or serving.http_port:
            await stack.enter_async_context(
                serving_shadow(service, serving, connection=connection, stop=stop, clock=clock)
            )
        versions.show(service.metrics, lambda: service.configuration)
        await service.run(stop)
    sys.stdout.write("".join(f"{line}\n" for line in lines(service.summary())))
    logger.info("Stopped")
