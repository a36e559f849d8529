"""Sockets, limits and the end of the simulated API server."""

from __future__ import annotations

import asyncio
import io
import socket
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.integration.simulator.simulator_client import PODS, pod, serving

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_unix_socket_that_an_ended_process_left_is_replaced(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "socket"))

    async with serving(tmp_path) as (_, client):
        assert (await client.ask("GET", "/version"))[0] == 200
    assert not (tmp_path / "socket").exists()


def test_a_file_is_not_replaced_by_a_unix_socket(tmp_path: Path):
    path = tmp_path / "socket"
    path.write_text("precious")

    with pytest.raises(OSError, match="in use"):
        asyncio.run(ApiServer(socket_path=path).start())
    assert path.read_text() == "precious"


async def test_a_body_over_the_limit_is_refused_as_by_kube_apiserver(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        body = io.BytesIO(b"x" * (3 * 2**20 + 1))
        async with client.session.post(f"http://localhost{PODS}", data=body) as response:
            answer = await response.json()

        assert (response.status, answer["reason"]) == (413, "RequestEntityTooLarge")
        assert answer["message"] == "Request entity too large: limit is 3145728"
        assert (await client.ask("POST", PODS, pod("a")))[0] == 201


async def test_a_selector_may_be_longer_than_a_request_to_the_daemon(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        names = ",".join(f"name-{number}" for number in range(2000))

        assert (await client.ask("GET", f"{PODS}?labelSelector=a+in+({names})"))[0] == 200


async def test_watches_end_in_good_order_when_the_server_stops(tmp_path: Path):
    async with serving(tmp_path) as (server, client), client.watch(f"{PODS}?watch=true") as watching:
        await asyncio.sleep(1)
        await server.stop()
        await watching.wait_end()

        assert watching.ended


async def test_idle_connections_are_not_limited_as_those_of_unknown_clients(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        connections = []
        for _ in range(200):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
            connections.append((reader, writer))
        await client.ask("GET", "/version")

        assert not any(reader.at_eof() for reader, _ in connections)
        for _, writer in connections:
            writer.close()
