from __future__ import annotations

import asyncio

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.connection import TIMEOUT
from scheduler.kube.client.writer import AdaptiveLimit, Lane
from scheduler.kube.http.request import Request, Response
from scheduler.retries import DEFERRED
from tests.support.errors import raises

DONE = Response(201, b"")


def busy(seconds: float | None = None, status: int = 429) -> ApiError:
    return ApiError(status, "TooManyRequests", "later", retry_after_seconds=seconds)


class Server:
    """Takes a second for every request; records the senders, and refuses some of them, in order."""

    def __init__(self) -> None:
        self.came: list[tuple[str, float]] = []
        self.held_back: list[float] = []
        self.refusals: dict[str, list[ApiError]] = {}
        self.under_way = 0
        self.most_under_way = 0

    async def send(self, request: Request) -> Response:
        name = request.path
        self.came.append((name, asyncio.get_running_loop().time()))
        self.held_back.append(request.limited_seconds)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.refusals.get(name):
                raise self.refusals[name].pop(0)
            await asyncio.sleep(1.0)
        finally:
            self.under_way -= 1
        return DONE

    @property
    def names(self) -> str:
        return "".join(name for name, _ in self.came)


def lane(server: Server, limit: int, *, maximum: int | None = None) -> Lane:
    return Lane(server, AdaptiveLimit(initial=limit, maximum=maximum or limit, slow_seconds=5.0))


async def test_requests_are_sent_in_order_and_within_the_limit():
    server = Server()
    at = lane(server, 3)

    await asyncio.gather(*(at.send(Request("POST", name)) for name in "abcdefgh"))

    assert server.names == "abcdefgh"
    assert server.most_under_way == 3
    assert [when for _, when in server.came] == [0, 0, 0, 1, 1, 1, 2, 2]


async def test_lines_are_served_in_turn_and_each_keeps_its_order():
    server = Server()
    at = lane(server, 1)
    many = [asyncio.create_task(at.send(Request("POST", name), line="many")) for name in "abcdefgh"]
    await asyncio.sleep(1.5)

    few = [asyncio.create_task(at.send(Request("POST", name), line="few")) for name in "123"]
    await asyncio.gather(*many, *few)

    assert server.names == "abc1d2e3fgh"


async def test_a_deferred_request_goes_first_in_its_line():
    server = Server()
    at = lane(server, 1)
    server.refusals["a"] = [busy(10.0)]

    sent = [at.send(Request("POST", name), line=name in "ab") for name in "a1b2"]
    await asyncio.gather(*sent)

    assert server.names == "aa1b2"


async def test_a_request_has_the_delay_of_each_of_its_tries():
    server = Server()
    at = lane(server, 1)
    server.refusals["b"] = [busy(10.0)]

    await asyncio.gather(*(at.send(Request("POST", name)) for name in "abc"))

    held_back = list(zip(server.names, server.held_back, strict=True))
    assert held_back == [("a", 0), ("b", 1), ("b", 10), ("c", 12)]


async def test_a_deferred_request_stops_the_lane_and_then_goes_first():
    server = Server()
    at = lane(server, 2)
    server.refusals["b"] = [busy(10.0)]

    await asyncio.gather(*(at.send(Request("POST", name)) for name in "abcd"))

    assert server.names == "abbcd"
    # Half the limit since then, and one more after each round trip.
    assert [when for _, when in server.came] == pytest.approx([0, 0, 10, 11, 11])


async def test_503_with_retry_after_defers_a_request_and_without_it_is_an_error():
    server = Server()
    at = lane(server, 1)
    server.refusals["a"] = [busy(3.0, 503), busy(None, 503)]

    with raises(ApiError, status=503):
        await at.send(Request("POST", "a"))
    assert [when for _, when in server.came] == [0, 3]


async def test_a_request_that_the_server_defers_forever_fails():
    server = Server()
    at = lane(server, 4)
    server.refusals["a"] = [busy() for _ in range(100)]

    with raises(ApiError, status=429):
        await at.send(Request("POST", "a"))
    assert len(server.came) == DEFERRED.tries
    assert at.present == 0


@pytest.mark.parametrize("error", [ApiError(409, "Conflict", "bound"), ApiError(0, TIMEOUT, "lost")])
async def test_a_refusal_fails_only_its_caller(error: ApiError):
    server = Server()
    at = lane(server, 1)
    server.refusals["a"] = [error]

    results = await asyncio.gather(
        at.send(Request("POST", "a")), at.send(Request("POST", "b")), return_exceptions=True
    )

    assert results == [error, DONE]
    assert server.names == "ab"


async def test_a_cancelled_request_frees_its_place_for_the_next():
    server = Server()
    at = lane(server, 1)
    first, second, third = (asyncio.create_task(at.send(Request("POST", name))) for name in "abc")
    await asyncio.sleep(0.5)

    first.cancel()
    second.cancel()

    assert await third == DONE
    assert server.names == "ac"
    assert at.present == 0


async def test_a_request_cancelled_at_its_turn_frees_its_place_for_the_next():
    server = Server()
    at = lane(server, 1)

    async def first() -> None:
        await at.send(Request("POST", "a"))
        second.cancel()  # it may start, but its task has not run yet

    beginning = asyncio.create_task(first())
    await asyncio.sleep(0)
    second, third = (asyncio.create_task(at.send(Request("POST", name))) for name in "bc")

    assert await third == DONE
    await beginning
    assert second.cancelled()
    assert server.names == "ac"


async def test_an_idle_lane_has_no_waiting_and_no_current_requests():
    server = Server()
    at = lane(server, 1)
    await at.wait_idle()
    tasks = [asyncio.create_task(at.send(Request("POST", name))) for name in "abc"]
    await asyncio.sleep(0)

    await at.wait_idle()

    assert asyncio.get_running_loop().time() == 3.0
    assert all(task.done() for task in tasks)


async def test_a_full_lane_grows_while_responses_are_fast():
    server = Server()
    at = lane(server, 4, maximum=20)

    await asyncio.gather(*(at.send(Request("POST", "x")) for _ in range(200)))

    assert 8 <= server.most_under_way <= 20


def test_an_unused_limit_does_not_grow():
    limit = AdaptiveLimit(initial=4, maximum=20)
    for _ in range(100):
        limit.answered(started=0.0, now=0.01, all_used=False)

    assert limit.value == 4


def answers(limit: AdaptiveLimit, number: int, *, seconds: float) -> int:
    for _ in range(number):
        limit.answered(started=0.0, now=seconds, all_used=True)
    return limit.value


def test_a_limit_doubles_each_round_trip_until_requests_queue_and_then_grows_by_one() -> None:
    limit = AdaptiveLimit(initial=4, maximum=12)
    assert answers(limit, 4, seconds=0.01) == 8
    assert answers(limit, 1, seconds=0.05) == 7
    assert answers(limit, 17, seconds=0.01) == 9
    assert answers(limit, 100, seconds=0.01) == 12


def test_a_limit_shrinks_while_responses_take_much_longer_than_the_fastest() -> None:
    limit = AdaptiveLimit(initial=4, maximum=20)
    assert answers(limit, 16, seconds=0.01) == 20
    assert answers(limit, 20, seconds=0.05) == 18
    assert answers(limit, 170, seconds=0.05) == 4


def test_a_limit_that_shrank_adopts_the_slower_latency_of_the_server() -> None:
    """Other clients keep it busy; a client that sent fewer and fewer requests would get no share."""
    limit = AdaptiveLimit(initial=4, maximum=20)
    answers(limit, 186, seconds=0.01)
    assert min(answers(limit, 1, seconds=0.05) for _ in range(250)) == 4

    assert answers(limit, 300, seconds=0.05) == 20


def test_a_limit_halved_by_the_server_is_not_raised_while_requests_queue() -> None:
    limit = AdaptiveLimit(initial=8)
    answers(limit, 1, seconds=0.01)
    limit.overloaded(started=1.0, now=2.0)
    limit.answered(started=3.0, now=3.05, all_used=True)

    assert limit.value == 4


def test_a_limit_halved_before_the_first_response_still_learns_the_fast_latency() -> None:
    limit = AdaptiveLimit(initial=8)
    limit.overloaded(started=-2.0, now=-1.0)
    assert answers(limit, 200, seconds=0.01) > 16

    before = limit.value
    assert answers(limit, 40, seconds=0.5) < before


def test_a_limit_shrinks_once_for_all_concurrent_requests():
    limit = AdaptiveLimit(initial=64)
    for _ in range(64):
        limit.overloaded(started=1.0, now=2.0)
    assert limit.value == 32

    limit.overloaded(started=3.0, now=4.0)
    assert limit.value == 16


def test_a_limit_shrinks_for_slow_responses_and_never_below_one():
    limit = AdaptiveLimit(initial=10, slow_seconds=1.0)
    limit.answered(started=0.0, now=1.5, all_used=True)
    assert limit.value == 7

    for second in range(2, 100):
        limit.overloaded(started=float(second), now=float(second))
    assert limit.value == 1
