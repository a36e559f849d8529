"""Counting, and the output for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Histogram
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from scheduler.daemon.metrics import Metrics
from scheduler.daemon.metrics.families import Counters, Histograms, ReadGauges, exponential_buckets
from scheduler.daemon.metrics.registry import _Families, registry_of
from scheduler.framework import Code
from scheduler.framework.interface import ExtensionPoint

if TYPE_CHECKING:
    from prometheus_client import Metric

    from scheduler.daemon.metrics.families import Family

LABEL_VALUES = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def scraped(family: Family) -> Metric | None:
    """Return the family parsed from the text; None if it does not exist."""
    text = generate_latest(registry_of([family])).decode()
    name = family.name.removesuffix("_total")
    return next((metric for metric in text_string_to_metric_families(text) if metric.name == name), None)


def series(family: Family) -> dict[tuple[str, ...], float]:
    """Return the name of each series and the values of its labels -> number."""
    metric = scraped(family)
    samples = metric.samples if metric else []
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


def test_bounds_have_the_rounding_errors_of_go() -> None:
    assert exponential_buckets(0.00001, 1.5, 20)[-1] == 0.02216837820053101
    assert exponential_buckets(1, 2, 5) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        pytest.param(1.0, "1", id="a whole number"),
        pytest.param(0.0001, "0.0001", id="the smallest without exponent"),
        pytest.param(0.00002, "2e-05", id="a smaller one"),
        pytest.param(655.36, "655.36", id="seconds"),
        pytest.param(524288, "524288", id="a large whole number"),
        pytest.param(2592000, "2.592e+06", id="a larger one"),
        pytest.param(16777216, "1.6777216e+07", id="all its digits"),
        pytest.param(1000000, "1e+06", id="one digit"),
    ],
)
def test_bounds_are_formatted_as_in_go(bound: float, text: str) -> None:
    assert (
        f'h_bucket{{le="{text}"}} 0.0\n'
        in generate_latest(registry_of([Histograms("h", "Histogram.", [], [bound])])).decode()
    )


def test_a_counter_without_labels_begins_at_zero() -> None:
    counter = scraped(Counters("c_total", "Counts."))

    assert counter is not None
    assert (counter.type, counter.documentation) == ("counter", "Counts.")
    assert [(sample.name, sample.value) for sample in counter.samples] == [("c_total", 0)]


def test_a_counter_with_labels_shows_nothing_before_its_first_increment() -> None:
    counters = Counters("c_total", "Counts.", ["a", "b"])
    assert scraped(counters) is None

    counters["x", "y"].add()
    counters["x", "y"].add(2)
    counters["x", "z"].add(0.5)

    assert series(counters) == {("c_total", "x", "y"): 3, ("c_total", "x", "z"): 0.5}


def test_a_gauge_with_a_callback_shows_the_current_value() -> None:
    now = {("x",): 1.0}
    gauges = ReadGauges("g", "Gauge.", ["a"], now.items)
    assert series(gauges) == {("g", "x"): 1}

    now[("x",)] = 7

    assert series(gauges) == {("g", "x"): 7}


def test_a_number_that_equals_a_bound_counts_below_it() -> None:
    histograms = Histograms("h", "Histogram.", [], [1, 2])
    for number in (1, 1.5, 2, 3):
        histograms[()].observe(number)

    assert series(histograms) == {
        ("h_bucket", "1"): 1,
        ("h_bucket", "2"): 3,
        ("h_bucket", "+Inf"): 4,
        ("h_sum",): 7.5,
        ("h_count",): 4,
    }


def test_a_histogram_without_labels_begins_empty() -> None:
    assert series(Histograms("h", "Histogram.", [], [1]))["h_count",] == 0
    assert scraped(Histograms("h", "Histogram.", ["a"], [1])) is None


def test_a_family_that_joins_later_is_collected_too() -> None:
    families: list[Family] = []
    registry = registry_of(families)
    families.append(Counters("c_total", "Counts."))

    assert registry.get_sample_value("c_total") == 0


@given(st.lists(st.tuples(LABEL_VALUES, st.floats(min_value=0, max_value=1e9)), min_size=1))
def test_a_histogram_equals_that_of_the_prometheus_client(observed: list[tuple[str, float]]) -> None:
    bounds = exponential_buckets(0.001, 2, 15)
    ours = Histograms("h", "Histogram.", ["a"], bounds)
    registry = CollectorRegistry()
    theirs = Histogram("h", "Histogram.", ["a"], buckets=bounds, registry=registry)
    for value, number in observed:
        ours[value].observe(number)
        theirs.labels(value).observe(number)
    ours_scraped = scraped(ours)
    (expected,) = registry.collect()

    def plain(metric: Metric) -> dict[tuple[str, str, float], float]:
        return {
            (sample.name, sample.labels["a"], float(sample.labels.get("le", -1))): sample.value
            for sample in metric.samples
            if not sample.name.endswith("_created")
        }

    assert ours_scraped is not None
    assert plain(ours_scraped) == plain(expected)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0"])
def test_a_large_metric_family_written_in_parts_is_the_same_text(accept: str) -> None:
    metrics = Metrics()
    many = {f"q-{number}": float(number) for number in range(3000)}
    metrics.watch_gauge("custom_scheduler_queue_used_share", "What they use.", "queue", lambda: many)
    for number in range(200):
        metrics.over_budget(f"team-{number}", "Endless")
        metrics.extension_point(f"team-{number}", ExtensionPoint.FILTER, Code.SUCCESS)(0.001)
    pieces, _ = metrics.pieces(accept)
    written = list(pieces)
    encode, _ = choose_encoder(accept)
    ours = encode(_Families(metrics.families)).removesuffix(b"# EOF\n")
    assert b"".join(written).startswith(ours)
    assert b"".join(written).count(b"# EOF\n") == (1 if accept else 0)
    assert max(len(piece.splitlines()) for piece in written[:-1]) < 1500
    assert len(written) > 3000 / 256
