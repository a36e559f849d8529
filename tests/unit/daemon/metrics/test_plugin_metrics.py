"""The metrics that plugins declare."""

from __future__ import annotations

import re

import pytest

from scheduler.daemon.metrics import Metrics


def shown(metrics: Metrics) -> list[str]:
    """Return the series of metrics whose names begin with `mine_`, without the times of their creation."""
    lines = metrics.text()[0].decode().splitlines()
    return [line for line in lines if line.startswith("mine_") and "_created" not in line]


def test_a_counter_of_a_plugin_is_shared_by_its_instances():
    metrics = Metrics()
    for _profile in range(2):
        metrics.counter("mine_total", "Mine.", "kind size").add("a", "b", amount=2)

    assert shown(metrics) == ['mine_total{kind="a",size="b"} 4.0']


def test_a_gauge_of_a_plugin_shows_the_last_numbers_only():
    metrics = Metrics()
    gauge = metrics.gauge("mine_share", "Mine.", "queue")
    gauge.replace({("a",): 0.5, ("b",): 0.25})
    gauge.replace({("b",): 0.75})

    assert shown(metrics) == ['mine_share{queue="b"} 0.75']


def test_a_histogram_of_a_plugin_counts_in_its_buckets():
    metrics = Metrics()
    metrics.histogram("mine_seconds", "Mine.", bounds=[1, 2]).observe(1.5)

    assert shown(metrics) == [
        'mine_seconds_bucket{le="1"} 0.0',
        'mine_seconds_bucket{le="2"} 1.0',
        'mine_seconds_bucket{le="+Inf"} 1.0',
        "mine_seconds_count 1.0",
        "mine_seconds_sum 1.5",
    ]


@pytest.mark.parametrize("labels", [(), ("a", "b")], ids=["too few", "too many"])
def test_another_number_of_labels_than_was_declared_is_an_error(labels: tuple[str, ...]):
    metrics = Metrics()
    counter = metrics.counter("mine_total", "Mine.", "kind")

    with pytest.raises(ValueError, match="mine_total has the labels"):
        counter.add(*labels)
    with pytest.raises(ValueError, match="mine_share has the labels"):
        metrics.gauge("mine_share", "Mine.", "kind").replace({labels: 1.0})
    with pytest.raises(ValueError, match="mine_seconds has the labels"):
        metrics.histogram("mine_seconds", "Mine.", "kind", bounds=[1]).observe(1, *labels)
    assert shown(metrics) == []


def test_a_metric_that_is_declared_in_two_ways_is_an_error():
    metrics = Metrics()
    metrics.counter("mine_total", "Mine.", "kind")
    metrics.histogram("mine_seconds", "Mine.", bounds=[1])

    with pytest.raises(ValueError, match="mine_total is declared twice"):
        metrics.counter("mine_total", "Mine.", "size")
    with pytest.raises(ValueError, match="mine_total is declared twice"):
        metrics.gauge("mine_total", "Mine.", "kind")
    with pytest.raises(ValueError, match="mine_seconds is declared twice"):
        metrics.histogram("mine_seconds", "Mine.", bounds=[2])


def test_a_metric_of_the_scheduler_is_not_declared_by_a_plugin():
    name = "scheduler_schedule_attempts_total"
    with pytest.raises(ValueError, match=re.escape(f"the metric {name} belongs to the scheduler")):
        Metrics().counter(name, "Mine.", "result profile")
