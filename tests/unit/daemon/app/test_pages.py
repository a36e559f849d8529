"""A daemon's endpoints: named health checks while it is standby, leads and stops."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from scheduler.configuration.load import default
from scheduler.daemon.app.pages import LeaderElectionWatchdog, pages
from scheduler.daemon.metrics import Metrics
from scheduler.daemon.server import Serving
from scheduler.daemon.server.http_server import serving
from scheduler.errors import ConfigurationError
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


pytestmark = pytest.mark.run(by=asyncio.run)

FLAGZ = """
custom-scheduler flagz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for \
debugging purposes only.
v=2
"""


class FakeDaemon:
    """The parts of a daemon that its endpoints read."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.configuration = default()
        self.has_synced = False
        self.leading = False
        self.leadership = SimpleNamespace(is_leading=lambda: self.leading)
        self.parts = SimpleNamespace(pods={}, budget=SimpleNamespace(paused=[]))
        self.consistency = SimpleNamespace()


@asynccontextmanager
async def answering() -> AsyncIterator[tuple[FakeDaemon, asyncio.Event, Callable[[str], Awaitable[str]]]]:
    daemon, stop = FakeDaemon(), asyncio.Event()
    app = pages(daemon, default(), stop=stop, clock=ManualClock(), flags={"v": "2"})  # type: ignore[arg-type]
    async with serving(app, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:

        async def ask(path: str) -> str:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return await response.text()

        yield daemon, stop, ask


async def test_the_checks_are_those_of_kube_scheduler() -> None:
    async with answering() as (daemon, _, ask):
        daemon.has_synced = True
        assert await ask("/healthz?verbose") == "[+]leaderElection ok\nhealthz check passed\n"
        assert await ask("/livez?verbose") == "[+]ping ok\nlivez check passed\n"
        assert (
            await ask("/readyz?verbose")
            == "[+]leaderElection ok\n[+]shutdown ok\n[+]sched-handler-sync ok\n[+]plugins ok\nreadyz check passed\n"
        )


async def test_a_daemon_is_ready_once_it_has_read_the_cluster_and_until_it_is_to_stop() -> None:
    async with answering() as (daemon, stop, ask):
        assert "[-]sched-handler-sync failed" in await ask("/readyz")
        daemon.has_synced = True
        assert await ask("/readyz") == "ok"
        stop.set()
        assert "[-]shutdown failed" in await ask("/readyz")
        assert await ask("/readyz/shutdown") == "internal server error: process is shutting down\n"
        assert await ask("/livez") == "ok"


async def test_a_daemon_with_suspended_plugins_is_not_ready() -> None:
    async with answering() as (daemon, _, ask):
        daemon.has_synced = True
        daemon.parts.budget.paused = ["One", "Two"]
        assert "[-]plugins failed" in await ask("/readyz")
        assert (
            await ask("/readyz/plugins")
            == "internal server error: stopped again and again, and at rest: One, Two\n"
        )
        assert await ask("/livez") == "ok"
        assert await ask("/healthz") == "ok"


async def test_the_status_describes_the_current_process() -> None:
    async with answering() as (_, _, ask):
        metrics = await ask("/metrics")
        (began,) = re.findall("^process_start_time_seconds (.*)$", metrics, re.MULTILINE)
        started = datetime.fromtimestamp(float(began), UTC).ctime()
        told = await ask("/statusz")
        assert f"Started: {started[:-4]}UTC {started[-4:]}\n" in told
        assert "Paths: /configz /debug /flagz /healthz /livez /metrics /readyz /version\n" in told
        assert await ask("/flagz") == FLAGZ


def test_a_leader_whose_lease_has_expired_is_not_healthy() -> None:
    daemon, clock = FakeDaemon(), ManualClock()
    problem = LeaderElectionWatchdog(daemon, "kube-system/custom-scheduler", clock).problem  # type: ignore[arg-type]
    clock.advance(1000)
    assert problem() == "", "standing by is well"

    daemon.leading = True
    assert problem() == ""
    daemon.leading = False
    clock.advance(20)
    assert problem() == ""
    clock.advance(1)

    assert problem() == "failed election to renew leadership on lease kube-system/custom-scheduler"


def test_a_certificate_and_its_key_are_given_together() -> None:
    cert, key = Path("tls.crt"), Path("tls.key")
    both = Serving("::", 1, tls_cert_file=cert, tls_private_key_file=key)

    assert Serving("::", 1).key_pair is None
    assert both.key_pair == (cert, key)
    with pytest.raises(
        ConfigurationError, match="--tls-private-key-file: must be given where --tls-cert-file is"
    ):
        _ = Serving("::", 1, tls_cert_file=cert).key_pair
    with pytest.raises(
        ConfigurationError, match="--tls-cert-file: must be given where --tls-private-key-file is"
    ):
        _ = Serving("::", 1, tls_private_key_file=key).key_pair
