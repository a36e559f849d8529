"""Failed requests: which are sent again, how often, and no earlier than the server asks."""

from __future__ import annotations

import asyncio
from itertools import repeat
from random import Random
from typing import Any

import pytest

from scheduler.daemon.app.api_access import ApiClient
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.metrics import Metrics
from scheduler.errors import ApiError
from scheduler.kube.client.discovery import ServedVersions
from scheduler.kube.client.requests import RetriedRequests
from scheduler.kube.http.request import Request, Response
from scheduler.retries import DEFERRED, REFUSALS, RetryPolicy
from tests.support.virtual_time import LoopClock


def failed(status: int, retry_after: float | None = None) -> ApiError:
    return ApiError(status, "", f"{status}", retry_after_seconds=retry_after)


class Server:
    """Answers with errors, and then with success; records the time of each request."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.times: list[float] = []
        self.versions = ServedVersions(self.send)

    async def send(self, _request: Request | None = None) -> Response:
        self.times.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)
        return Response(200, b"{}")


@pytest.mark.parametrize(
    ("policy", "statuses"),
    [
        pytest.param(RetryPolicy(), {0, 429, 500, 502, 503, 504}, id="transient"),
        pytest.param(RetryPolicy(also=REFUSALS), {0, 401, 403, 429, 500, 502, 503, 504}, id="refusals too"),
        pytest.param(DEFERRED, {429}, id="deferred"),
    ],
)
def test_a_policy_names_the_statuses_after_which_a_request_is_sent_again(
    policy: RetryPolicy, statuses: set[int]
):
    every = (0, 400, 401, 403, 404, 409, 412, 422, 429, 500, 502, 503, 504)
    assert {status for status in every if policy.allows(failed(status), 1)} == statuses
    assert DEFERRED.allows(failed(503, retry_after=1.0), 1)


async def test_a_request_is_sent_again_after_the_longer_of_the_pause_and_of_retry_after():
    server = Server(failed(500), failed(503, retry_after=7.0), failed(429, retry_after=1.0))
    await RetryPolicy().send(server.send, repeat(2.0), asyncio.sleep)
    began = server.times[0]
    assert [at - began for at in server.times] == [0.0, 2.0, 9.0, 11.0]


async def test_the_last_error_is_raised_after_the_most_tries():
    server = Server(*(failed(500 + number) for number in (0, 2, 3, 4)))
    with pytest.raises(ApiError, match="503"):
        await RetryPolicy(3).send(server.send, repeat(0.0), asyncio.sleep)
    assert len(server.times) == 3


async def test_requests_of_plugins_wait_for_a_busy_server_and_are_never_carried_out_twice():
    server = Server(failed(429, retry_after=5.0), failed(503, retry_after=3.0), failed(429))
    await RetriedRequests(server).send(Request("POST", "/a"))
    assert [at - server.times[0] for at in server.times] == [0.0, 5.0, 8.0, 9.0]

    unclear = Server(failed(503))
    with pytest.raises(ApiError, match="503"):
        await RetriedRequests(unclear).send(Request("POST", "/a"))
    assert len(unclear.times) == 1


async def test_the_capabilities_of_plugins_send_deferred_requests_again():
    connection: Any = Server(failed(429))
    writes = Server(failed(429))
    parts = Parts(LoopClock(), Metrics(), {})
    client = ApiClient(parts, connection, writes, metrics=Metrics(), random=Random(1))
    await client.access.get.api_get("/a")
    await client.access.write.api_write("POST", "/a", {})
    assert (len(connection.times), len(writes.times)) == (2, 2)
