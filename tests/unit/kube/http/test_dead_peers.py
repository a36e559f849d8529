"""The system detects a peer that vanishes, within seconds."""

from __future__ import annotations

import asyncio
import socket

import pytest

from scheduler.configuration.types import LeaderElection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.protocol import UNACKNOWLEDGED_SECONDS, HttpProtocol

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="another system")


@pytest.mark.parametrize("of", ["asyncio", "uvloop"])
def test_idle_connections_are_probed_and_closed_without_acknowledgement(of: str) -> None:
    loops = pytest.importorskip("uvloop") if of == "uvloop" else asyncio

    async def scenario() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = await Endpoint(f"http://127.0.0.1:{port}").connect(HttpProtocol)
        assert connection._transport is not None
        connected = connection._transport.get_extra_info("socket")

        def option(name: str) -> int:
            return int(connected.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)))

        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        noticed_after = option("TCP_KEEPIDLE") + option("TCP_KEEPINTVL") * option("TCP_KEEPCNT")
        assert noticed_after <= 15
        assert option("TCP_USER_TIMEOUT") == UNACKNOWLEDGED_SECONDS * 1000
        connection.abort()
        server.close()

    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        runner.run(scenario())


def test_unacknowledged_requests_fail_before_another_may_lead() -> None:
    election = LeaderElection()
    assert election.lease_duration.seconds - election.renew_deadline.seconds >= UNACKNOWLEDGED_SECONDS
