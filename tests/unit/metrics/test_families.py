"""Counting, and the text it is read as."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from scheduler.metrics.families import Counters, Gauges, Histograms, ReadGauges, exponential_buckets, go_float

LABEL_VALUES = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        pytest.param(0, "0", id="nothing"),
        pytest.param(1.0, "1", id="a whole number"),
        pytest.param(-2.5, "-2.5", id="a negative one"),
        pytest.param(0.0001, "0.0001", id="the smallest without exponent"),
        pytest.param(0.00002, "2e-05", id="a smaller one"),
        pytest.param(655.36, "655.36", id="a bound in seconds"),
        pytest.param(999999, "999999", id="the largest without exponent"),
        pytest.param(1000000, "1e+06", id="a million"),
        pytest.param(1048576, "1.048576e+06", id="a mebibyte"),
        pytest.param(-1.4345678e7, "-1.4345678e+07", id="a large negative one"),
        pytest.param(1e21, "1e+21", id="a two-digit exponent"),
        pytest.param(1e100, "1e+100", id="a three-digit exponent"),
        pytest.param(9.999999999999999e-06, "9.999999999999999e-06", id="the next float below a power"),
        pytest.param(math.inf, "+Inf", id="endless"),
        pytest.param(-math.inf, "-Inf", id="endless below"),
        pytest.param(math.nan, "NaN", id="no number"),
    ],
)
def test_numbers_are_written_as_go_writes_them(number: float, text: str) -> None:
    assert go_float(number) == text


@given(st.floats(allow_nan=False))
def test_numbers_are_read_back_as_they_were(number: float) -> None:
    assert float(go_float(number)) == number


def test_bounds_have_the_rounding_errors_of_go() -> None:
    assert go_float(exponential_buckets(0.00001, 1.5, 20)[-1]) == "0.02216837820053101"
    assert exponential_buckets(1, 2, 5) == [1, 2, 4, 8, 16]


def test_a_counter_without_labels_begins_at_zero() -> None:
    assert (
        Counters("c_total", "Counts.").render()
        == "# HELP c_total Counts.\n# TYPE c_total counter\nc_total 0\n"
    )


def test_a_counter_with_labels_shows_nothing_until_something_was_counted() -> None:
    counters = Counters("c_total", "Counts.", ["a", "b"])
    assert counters.render() == ""

    counters.add(("x", "y"))
    counters.add(("x", "y"), 2)
    counters.add(("x", "z"), 0.5)

    assert counters.render().splitlines()[2:] == ['c_total{a="x",b="y"} 3', 'c_total{a="x",b="z"} 0.5']


def test_a_gauge_goes_down_too() -> None:
    gauges = Gauges("g", "Gauge.", ["a"])
    gauges.add(("x",), 2)
    gauges.add(("x",), -1)

    assert gauges.render().splitlines()[1:] == ["# TYPE g gauge", 'g{a="x"} 1']


def test_a_gauge_that_is_read_shows_what_is_so_now() -> None:
    now = {("x",): 1.0}
    gauges = ReadGauges("g", "Gauge.", ["a"], now.items)
    assert gauges.render().splitlines()[2:] == ['g{a="x"} 1']

    now[("x",)] = 7

    assert gauges.render().splitlines()[2:] == ['g{a="x"} 7']


def test_a_number_that_equals_a_bound_counts_below_it() -> None:
    histograms = Histograms("h", "Histogram.", [], [1, 2])
    for number in (1, 1.5, 2, 3):
        histograms.observe((), number)

    assert histograms.render().splitlines()[2:] == [
        'h_bucket{le="1"} 1',
        'h_bucket{le="2"} 3',
        'h_bucket{le="+Inf"} 4',
        "h_sum 7.5",
        "h_count 4",
    ]


def test_a_histogram_without_labels_begins_empty() -> None:
    assert Histograms("h", "Histogram.", [], [1]).render().splitlines()[-1] == "h_count 0"
    assert Histograms("h", "Histogram.", ["a"], [1]).render() == ""


@given(st.lists(st.tuples(LABEL_VALUES, st.floats(min_value=0, max_value=1e9)), min_size=1))
def test_a_histogram_says_what_prometheus_own_client_says(observed: list[tuple[str, float]]) -> None:
    bounds = exponential_buckets(0.001, 2, 15)
    ours = Histograms("h", "Histogram.", ["a"], bounds)
    registry = CollectorRegistry()
    theirs = Histogram("h", "Histogram.", ["a"], buckets=bounds, registry=registry)
    for value, number in observed:
        ours.observe((value,), number)
        theirs.labels(value).observe(number)

    (found,) = text_string_to_metric_families(ours.render())
    (expected,) = registry.collect()

    def plain(samples: object) -> dict[tuple[str, str, float], float]:
        return {
            (
                sample.name,
                sample.labels["a"],
                float(sample.labels.get("le", -1)),
            ): sample.value
            for sample in samples  # type: ignore[attr-defined]
            if not sample.name.endswith("_created")
        }

    assert plain(found.samples) == plain(expected.samples)
