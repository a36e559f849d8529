from __future__ import annotations

import asyncio

from scheduler.kube.client.requests import RateLimitedRequests
from scheduler.kube.http.request import Request, Response
from tests.support import virtual_time


class Answering:
    """Records the times of requests."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.held_back: list[float] = []

    async def send(self, request: Request) -> Response:
        self.times.append(asyncio.get_running_loop().time())
        self.held_back.append(round(request.limited_seconds, 3))
        return Response(200, b"")


def sent_at(count: int, *, qps: float, burst: int, pause_seconds: float = 0.0) -> list[float]:
    async def scenario() -> list[float]:
        answering = Answering()
        limited = RateLimitedRequests(answering, qps=qps, burst=burst)
        await asyncio.gather(*(limited.send(Request("GET", "/")) for _ in range(count)))
        await asyncio.sleep(pause_seconds)
        if pause_seconds:
            await asyncio.gather(*(limited.send(Request("GET", "/")) for _ in range(count)))
        return [round(time, 3) for time in answering.times]

    return virtual_time.run(scenario())


def test_requests_beyond_the_burst_go_out_at_the_rate() -> None:
    assert sent_at(5, qps=2, burst=2) == [0.0, 0.0, 0.5, 1.0, 1.5]


def test_without_a_burst_every_request_waits() -> None:
    assert sent_at(3, qps=10, burst=1) == [0.0, 0.1, 0.2]


def test_after_a_pause_no_more_than_the_burst_is_sent_at_once() -> None:
    assert sent_at(3, qps=1, burst=2, pause_seconds=100) == [0.0, 0.0, 1.0, 101.0, 101.0, 102.0]


def test_a_request_has_its_delay() -> None:
    async def scenario() -> list[float]:
        answering = Answering()
        limited = RateLimitedRequests(answering, qps=2, burst=1)
        before = Request("GET", "/").held_back(4.0)  # as after a lane
        await asyncio.gather(*(limited.send(before) for _ in range(3)))
        return answering.held_back

    assert virtual_time.run(scenario()) == [4.0, 4.5, 5.0]
