from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.wording import Duration

_SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("15s", 15 * _SECOND),
        ("1m30s", 90 * _SECOND),
        ("100ms", _SECOND // 10),
        ("1.5h", 5400 * _SECOND),
        (".5s", _SECOND // 2),
        ("1.s", _SECOND),
        ("-2s", -2 * _SECOND),
        ("+2s", 2 * _SECOND),
        ("7us", 7_000),
        ("7µs", 7_000),
        ("7μs", 7_000),
        ("0.9ns", 0),
        ("0", 0),
        ("9223372036854775807ns", 2**63 - 1),
    ],
)
def test_durations_are_parsed_as_in_go(text: str, nanoseconds: int) -> None:
    assert Duration.parse(text) == Duration(nanoseconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "15",
        "s",
        "15 s",
        "1m 30s",
        "1d",
        "1e3s",
        "s15",
        ".s",
        "1..5s",
        "\N{FULLWIDTH DIGIT ONE}s",
        "9" * 5000 + "s",
        15,
        None,
        [],
        True,
    ],
)
def test_an_invalid_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be a duration as in 15s or 1m30s, was "):
        Duration.parse(value)


def test_a_duration_beyond_an_int64_is_refused() -> None:
    with pytest.raises(ValueError, match='must be shorter than 292 years, was "9223372036854775808ns"'):
        Duration.parse("9223372036854775808ns")


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (100_000_000, "100ms"),
        (1_500_000_000, "1.5s"),
        (60 * _SECOND, "1m0s"),
        (90 * _SECOND, "1m30s"),
        (600 * _SECOND, "10m0s"),
        (3600 * _SECOND, "1h0m0s"),
        (-90 * _SECOND, "-1m30s"),
        (3661 * _SECOND + 1, "1h1m1.000000001s"),
    ],
)
def test_durations_are_formatted_as_in_go(nanoseconds: int, text: str) -> None:
    assert str(Duration(nanoseconds)) == text


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_written_duration_is_parsed_unchanged(nanoseconds: int) -> None:
    assert Duration.parse(str(Duration(nanoseconds))) == Duration(nanoseconds)
