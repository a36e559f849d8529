from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

import pytest

from scheduler.errors import ApiError, ObjectError
from scheduler.kube.client.requests import ApiPodReader
from tests.support.builders import pod_object
from tests.support.errors import raises
from tests.unit.kube.client.scripted_server import Answer, NoAnswer, failure, scripted_server

PATH = "/api/v1/namespaces/default/pods/web"


async def read(*answers: Answer | NoAnswer) -> tuple[str | None, list[float]]:
    """Return the node of the read pod, "" for none, None for no pod; and the times of the requests."""
    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", PATH, *answers)
        try:
            found = await ApiPodReader(connection, Random(7)).read_pod("default", "web")
        finally:
            asked = [each.at for each in server.received]
        return (None if found is None else found.node_name), asked


BOUND = Answer(body=pod_object("web", node="n1"))


async def test_a_pod_is_read_in_its_current_version():
    assert await read(BOUND) == ("n1", [0.0])


async def test_a_deleted_pod_is_none():
    assert (await read(failure(404, "NotFound")))[0] is None


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(NoAnswer(), id="no answer"),
        pytest.param(failure(429, "TooManyRequests"), id="too many requests"),
        pytest.param(failure(500, "InternalError"), id="broken"),
        pytest.param(failure(503, "ServiceUnavailable"), id="unavailable"),
        pytest.param(failure(504, "Timeout"), id="too slow"),
    ],
)
async def test_a_read_is_retried_until_there_is_a_response(trouble: Answer | NoAnswer):
    node, asked = await read(*[trouble] * 40, BOUND)

    assert (node, len(asked)) == ("n1", 41)
    assert max(later - sooner for sooner, later in pairwise(asked)) <= 5.1


async def test_a_refusal_of_a_starting_server_is_not_accepted():
    node, asked = await read(*[failure(403, "Forbidden")] * 3, BOUND)

    assert (node, len(asked)) == ("n1", 4)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_is_raised_after_a_minute(status: int):
    with raises(ApiError, status=status):
        await read(*[failure(status, "Refused")] * 40)
    assert 60.0 <= asyncio.get_running_loop().time() <= 66.0


async def test_a_refusal_after_other_errors_is_not_accepted_earlier():
    troubles = [failure(503, "ServiceUnavailable")] * 20
    node, asked = await read(*troubles, *[failure(401, "Unauthorized")] * 8, *troubles, BOUND)

    assert (node, len(asked)) == ("n1", 49)


async def test_an_undecodable_pod_is_an_error():
    with pytest.raises(ObjectError, match="not a quantity"):
        await read(Answer(body=pod_object("web", cpu="a little")))
