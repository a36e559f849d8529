"""Measurements of nodes, also invalid ones."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.node_measurements.measurements import (
    NodeMeasurement,
    Prometheus,
    PrometheusArgs,
    host_of,
    node_usages,
)
from scheduler.daemon.app.assembly import MAX_BYTES
from scheduler.objects.quantity import Quantity
from tests.support.builders import node
from tests.support.clusters import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "FD00::3"}


def nodes(*names: str) -> Cluster:
    return cluster(
        *(
            node(
                name,
                addresses=[
                    {"type": "Hostname", "address": f"{name}.example"},
                    {"type": "InternalIP", "address": ADDRESSES.get(name, "10.9.9.9")},
                ],
            )
            for name in names
        )
    )


def known(measurement: NodeMeasurement, *names: str) -> list[float | None]:
    found = measurement.measured(nodes(*names).snapshot())
    return [None if np.isnan(number) else float(number) for number in found]


def expected(
    measurement: NodeMeasurement, *names: str, now: float = 0.0, rows: list[int] | None = None
) -> list[float] | None:
    snapshot = nodes(*names).snapshot()
    feasible = snapshot.all_rows if rows is None else np.array(rows, dtype=np.intp)
    found = measurement.expected(snapshot, feasible, now)
    return None if found is None else found.tolist()


def measured(values: dict[str, float], *, settle: float = 100.0) -> NodeMeasurement:
    made = NodeMeasurement(period_seconds=10.0, settle_seconds=settle, instance_is="Any")
    made.asking(0.0)
    made.learn(values, 0.0)
    return made


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        pytest.param("n1", "n1", id="a name"),
        pytest.param("n1.example:9100", "n1.example", id="a name with a port"),
        pytest.param("10.0.0.1:9100", "10.0.0.1", id="an address with a port"),
        pytest.param("[FD00::1]:9100", "fd00::1", id="IPv6 with a port"),
        pytest.param("[fd00::1]", "fd00::1", id="IPv6 in brackets"),
        pytest.param("fd00::1", "fd00::1", id="bare IPv6"),
        pytest.param("n1:metrics", "n1:metrics", id="no port"),
        pytest.param(":9100", ":9100", id="a port alone"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_port_is_not_part_of_an_instance(instance: str, host: str) -> None:
    assert host_of(instance) == host


@pytest.mark.parametrize(
    ("instance_is", "found"),
    [
        pytest.param("Any", [1.0, 2.0, 3.0, None], id="any that fit"),
        pytest.param("NodeName", [1.0, None, None, None], id="names only"),
        pytest.param("InternalIP", [None, 2.0, 3.0, None], id="addresses only"),
    ],
)
def test_an_instance_is_the_name_or_the_internal_address_of_a_node(
    instance_is: str, found: list[float | None]
) -> None:
    measurement = NodeMeasurement(period_seconds=1, settle_seconds=1, instance_is=instance_is)  # type: ignore[arg-type]
    measurement.learn({"a:9100": 1, "10.0.0.2:9100": 2, "[fd00::3]:9100": 3, "elsewhere": 4}, 0.0)

    assert known(measurement, "a", "b", "c", "d") == found


def test_the_larger_number_counts_if_two_instances_are_one_node() -> None:
    assert known(measured({"a": 1.0, "10.0.0.1": 5.0, "a:1": 3.0}), "a") == [5.0]


def test_a_node_without_data_counts_as_the_mean_of_the_feasible_ones_with_data() -> None:
    measurement = measured({"a": 10.0, "b": 30.0, "d": 1000.0})

    assert expected(measurement, "a", "b", "c", "d", rows=[0, 1, 2]) == [10.0, 30.0, 20.0, 1000.0]


def test_without_a_feasible_node_with_data_there_is_no_estimate() -> None:
    assert expected(measured({"a": 10.0}), "a", "b", rows=[1]) is None


def test_data_older_than_three_periods_give_no_estimate() -> None:
    measurement = measured({"a": 10.0})

    assert expected(measurement, "a", now=30.0) == [10.0]
    assert expected(measurement, "a", now=30.1) is None
    assert measurement.nodes_without_data(nodes("a", "b").snapshot(), 30.0) == 1
    assert measurement.nodes_without_data(nodes("a", "b").snapshot(), 30.1) == 2


def test_a_placement_counts_at_once_until_it_is_undone() -> None:
    measurement = measured({"a": 10.0, "b": 20.0})
    assert expected(measurement, "a", "b") == [10.0, 20.0]

    first, _ = measurement.note("a", 7.0), measurement.note("a", 3.0)
    assert expected(measurement, "a", "b") == [20.0, 20.0]
    measurement.take_back(first)

    assert expected(measurement, "a", "b") == [13.0, 20.0]


def test_a_placement_fades_while_data_begin_to_include_it() -> None:
    measurement = measured({"a": 0.0}, settle=20.0)
    measurement.note("a", 8.0)
    shown = []
    for at in (10.0, 15.0, 20.0, 30.0, 40.0):
        measurement.asking(at)
        measurement.learn({"a": 0.0}, at)
        shown.append(expected(measurement, "a", now=at))

    # Placed some time before 10, so it counts in full then; of 20 seconds a quarter has passed at 15.
    assert shown == [[8.0], [6.0], [4.0], [0.0], [0.0]]


def test_a_placement_during_a_query_counts_in_full() -> None:
    measurement = measured({"a": 0.0}, settle=20.0)
    measurement.asking(10.0)
    measurement.note("a", 8.0)
    measurement.learn({"a": 0.0}, 10.0)

    assert expected(measurement, "a", now=10.0) == [8.0]


def test_undoing_a_faded_placement_removes_the_rest_of_it() -> None:
    measurement = measured({"a": 1.0}, settle=20.0)
    noted, at = measurement.note("a", 8.0), 10.0
    measurement.note("a", 2.0)
    measurement.asking(at)
    measurement.asking(20.0)
    measurement.learn({"a": 1.0}, 20.0)
    assert expected(measurement, "a", now=20.0) == [6.0]

    measurement.take_back(noted)

    assert expected(measurement, "a", now=20.0) == [2.0]


def test_without_a_settle_time_new_data_include_everything() -> None:
    measurement = measured({"a": 1.0}, settle=0.0)
    measurement.note("a", 8.0)
    measurement.asking(10.0)
    measurement.learn({"a": 1.0}, 10.0)

    assert expected(measurement, "a", now=10.0) == [1.0]


def test_placements_are_dropped_also_without_new_data() -> None:
    measurement = measured({"a": 1.0})
    for period in range(1000):
        measurement.note("a", 1.0)
        measurement.asking(10.0 * period)

    assert len(measurement._placements) < 20


def test_rows_are_found_again_when_nodes_change() -> None:
    measurement = measured({"a": 1.0, "b": 2.0})
    measurement.note("b", 10.0)

    assert expected(measurement, "a", "b") == [1.0, 12.0]
    assert expected(measurement, "b", "a") == [12.0, 1.0]
    measurement.note("b", 100.0)
    assert expected(measurement, "b") == [112.0]
    assert expected(measurement, "c", "a") == [1.0, 1.0]


def test_rows_are_found_once_per_refresh_and_layout() -> None:
    measurement, snapshot = measured({"a": 1.0}), nodes("a", "b").snapshot()
    first = measurement.measured(snapshot)

    assert measurement.measured(snapshot) is first
    assert measurement.measured(nodes("a", "b").snapshot()) is first
    measurement.learn({"a": 2.0}, 1.0)
    assert measurement.measured(snapshot) is not first


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("place"), st.sampled_from("abc"), st.integers(0, 50)),
            st.tuples(st.just("undo"), st.integers(0, 30)),
            st.tuples(st.just("refresh"), st.booleans()),
        ),
        max_size=30,
    )
)
def test_the_estimate_equals_that_of_a_list_of_placements(steps: list[tuple[object, ...]]) -> None:
    settle, now, learnt_at = 25.0, 0.0, 0.0
    measurement = measured({"a": 5.0, "b": 5.0, "c": 5.0}, settle=settle)
    placed: list[list[object]] = []  # [what was noted, node, amount, when the data were next asked for]
    for step in steps:
        match step:
            case ("place", str(name), int(amount)):
                placed.append([measurement.note(name, amount), name, amount, None])
            case ("undo", int(index)) if index < len(placed):
                measurement.take_back(placed.pop(index)[0])  # type: ignore[arg-type]
            case ("refresh", bool(answered)):
                now += 10.0
                measurement.asking(now)
                for each in placed:
                    each[3] = now if each[3] is None else each[3]
                if answered:
                    learnt_at = now
                    measurement.learn({"a": 5.0, "b": 5.0, "c": 5.0}, now)
        wanted = dict.fromkeys("abc", 5.0)
        for _, name, amount, asked in placed:
            age = learnt_at - asked if asked is not None else 0.0  # type: ignore[operator]
            wanted[name] += amount * min(1.0, max(0.0, 1.0 - age / settle))  # type: ignore[index,operator]
        found = expected(measurement, "a", "b", "c", now=now)
        if now - learnt_at <= 30.0:
            assert found == pytest.approx(list(wanted.values()), abs=1e-6)
        else:
            assert found is None


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
@settings(max_examples=100)
def test_a_prometheus_response_gives_numbers_or_an_error(body: bytes) -> None:
    judge(of_prometheus, body)


@given(anything(NODES))
@settings(max_examples=100)
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
def test_the_largest_response_takes_little_processor_time(
    ask: Callable[[bytes], Awaitable[Mapping[str, float]]], head: bytes, one: bytes, tail: bytes
) -> None:
    count = MAX_BYTES // (len(one) + 6)
    body = head + b", ".join(one % number for number in range(count)) + tail
    begin = time.thread_time()
    found = asyncio.run(_awaited(ask(body)))

    assert len(found) >= count
    assert time.thread_time() - begin < 5  # it takes a tenth of that on an idle machine
