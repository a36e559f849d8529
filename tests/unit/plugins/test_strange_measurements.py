"""Invalid responses of Prometheus and of the metrics API lead to numbers by node, or to an OSError."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.node_measurements import Prometheus, PrometheusArgs, node_usages
from scheduler.daemon.app.assembly import MAX_BYTES
from scheduler.objects.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

VECTOR = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [{"metric": {"instance": "n1", "job": "node"}, "value": [1700000000.5, "0.25"]}],
    },
}
NODES = {
    "kind": "NodeMetricsList",
    "items": [{"metadata": {"name": "n1"}, "window": "10s", "usage": {"cpu": "250m", "memory": "1Gi"}}],
}
NUMBERS = (
    "0",
    "-1",
    "NaN",
    "+Inf",
    "1e999",
    "-1e999",
    "0x1p3",
    "1_0",
    "٣",
    "9" * 400,
    "1e-400",
    "",
    " 1",
    "1Ei",
    "1n",
)


class Answers:
    """Implements HttpGet and ApiGet with one body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def http_get(self, url: str, **options: object) -> bytes:
        return self._body

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        return self._body


async def of_prometheus(body: bytes) -> Mapping[str, float]:
    return await Prometheus(PrometheusArgs(), Answers(body)).query("up")


async def of_metrics_api(body: bytes) -> Mapping[str, float]:
    read = {"cpu": Quantity.milli_value, "memory": Quantity.value}
    found = await node_usages(Answers(body), read, timeout_seconds=5)
    return {f"{name} {of}": number for of, numbers in found.items() for name, number in numbers.items()}


def judge(ask: Callable[[bytes], Awaitable[Mapping[str, float]]], body: bytes) -> None:
    """Call; every result is either numbers or an OSError with a short message."""
    found: Mapping[str, float] | OSError
    try:
        found = asyncio.run(_awaited(ask(body)))
    except OSError as error:
        found = error
    if isinstance(found, OSError):
        assert len(str(found)) < 1000
    else:
        assert all(isinstance(number, float | int) and math.isfinite(number) for number in found.values())


async def _awaited(answer: Awaitable[Mapping[str, float]]) -> Mapping[str, float]:
    return await answer


def anything(good: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """JSON of any kind, the right response with one value replaced, or its bytes with some changed."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.sampled_from(NUMBERS)
    )
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=8,
    )
    replaced = st.tuples(st.sampled_from(list(_places(good))), values).map(
        lambda change: _with(good, *change)
    )
    bytes_of = json.dumps(good).encode()
    cut = st.tuples(st.integers(0, len(bytes_of)), st.binary(max_size=4), st.integers(0, 6)).map(
        lambda change: bytes_of[: change[0]] + change[1] + bytes_of[change[0] + change[2] :]
    )
    return values.map(_encoded) | replaced.map(_encoded) | cut


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places(value: Any, before: tuple[Any, ...] = ()) -> Any:
    yield before
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*before, key))


def _with(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    copied = value.copy()
    copied[place[0]] = _with(value[place[0]], place[1:], other)
    return copied


DEEP = b'{"data": {"resultType": "vector", "result": [{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}}"
DEEP_NODES = b'{"items": [{"x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}]}"


@given(anything(VECTOR))
@settings(max_examples=400)
def test_a_prometheus_response_gives_numbers_or_an_error(body: bytes) -> None:
    judge(of_prometheus, body)


@given(anything(NODES))
@settings(max_examples=400)
def test_a_response_of_the_metrics_api_gives_numbers_or_an_error(body: bytes) -> None:
    judge(of_metrics_api, body)


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        pytest.param(of_prometheus, DEEP, id="Prometheus, deep"),
        pytest.param(of_prometheus, b"\xff\xfe", id="Prometheus, no text"),
        pytest.param(
            of_prometheus, json.dumps(VECTOR).encode().replace(b"node", b"\xff"), id="Prometheus, a bad byte"
        ),
        pytest.param(of_metrics_api, DEEP_NODES, id="metrics API, deep"),
        pytest.param(
            of_metrics_api, json.dumps(NODES).encode().replace(b"n1", b"\xff"), id="metrics API, a bad byte"
        ),
    ],
)
def test_an_undecodable_response_is_an_error(
    ask: Callable[[bytes], Awaitable[Mapping[str, float]]], body: bytes
) -> None:
    with pytest.raises(OSError, match="not "):
        asyncio.run(_awaited(ask(body)))


@pytest.mark.parametrize("number", NUMBERS)
def test_odd_numbers_are_numbers_or_missing(number: str) -> None:
    sample = {"metric": {"instance": "n1"}, "value": [0, number]}
    judge(of_prometheus, json.dumps({"data": {"resultType": "vector", "result": [sample]}}).encode())
    item = {"metadata": {"name": "n1"}, "usage": {"cpu": number, "memory": number}}
    judge(of_metrics_api, json.dumps({"items": [item]}).encode())


@pytest.mark.parametrize(
    ("ask", "head", "one", "tail"),
    [
        pytest.param(
            of_prometheus,
            b'{"data": {"resultType": "vector", "result": [',
            b'{"metric": {"instance": "node-%d"}, "value": [0, "1"]}',
            b"]}}",
            id="Prometheus",
        ),
        pytest.param(
            of_metrics_api,
            b'{"items": [',
            b'{"metadata": {"name": "node-%d"}, "usage": {"cpu": "1", "memory": "1"}}',
            b"]}",
            id="metrics API",
        ),
    ],
)
def test_the_largest_response_blocks_the_loop_for_less_than_a_second(
    ask: Callable[[bytes], Awaitable[Mapping[str, float]]], head: bytes, one: bytes, tail: bytes
) -> None:
    count = MAX_BYTES // (len(one) + 6)
    body = head + b", ".join(one % number for number in range(count)) + tail
    begin = time.perf_counter()
    found = asyncio.run(_awaited(ask(body)))

    assert len(found) >= count
    assert time.perf_counter() - begin < 5  # it takes a tenth of that on an idle machine
