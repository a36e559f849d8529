"""Quantities, and their canonical form."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scheduler.objects.quantity import (
    Quantity,
    canonical_quantity,
    parse_quantity,
    quantity_as_read,
    quantity_text,
)
from tests.reference import quantity as judge

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)

DIGITS = st.integers(0, 10**12).map(str)
NUMBERS = st.one_of(
    DIGITS,
    st.builds("{}.{}".format, DIGITS, st.text("0123456789", min_size=1, max_size=12)),
    st.builds("{}.".format, DIGITS),
    st.builds(".{}".format, DIGITS),
    st.builds("00{}".format, DIGITS),
)
SUFFIXES = st.one_of(
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
    st.builds(
        "{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 12).map(str)
    ),
)
POSITIVE = st.builds("{}{}{}".format, st.sampled_from(["", "+"]), NUMBERS, SUFFIXES)
NEGATIVE = st.builds("-{}{}".format, NUMBERS, SUFFIXES)


def number(quantity: Quantity) -> Fraction:
    return quantity.unscaled * Fraction(10) ** quantity.exponent


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        pytest.param("0", 0, 0, id="zero"),
        pytest.param("100m", 1, 100, id="milli"),
        pytest.param("1.5Gi", 1610612736, 1610612736000, id="a binary fraction"),
        pytest.param("1e3", 1000, 10**6, id="small e is an exponent"),
        pytest.param("2E3", 2000, 2 * 10**6, id="large E with digits is an exponent"),
        pytest.param("1e+3", 1000, 10**6, id="a signed exponent"),
        pytest.param("15e-1", 2, 1500, id="a negative exponent"),
        pytest.param("3E", 3 * 10**18, 0, id="large E alone is exa, and overflows in milli"),
        pytest.param("+4", 4, 4000, id="a plus sign"),
        pytest.param("-1", -1, -1000, id="a minus sign"),
        pytest.param(".5", 1, 500, id="no digits before the point"),
        pytest.param("5.", 5, 5000, id="no digits after the point"),
        pytest.param("0.1n", 1, 1, id="below a nano"),
        pytest.param("1.0001", 2, 1001, id="rounded up in both"),
        pytest.param("-1.5", -2, -1500, id="negative, rounded away from zero"),
        pytest.param("1Ki", 1024, 1024000, id="kibi"),
        pytest.param("0007k", 7000, 7 * 10**6, id="leading zeros"),
        pytest.param("500000u", 1, 500, id="micro"),
        pytest.param(" 5 ", 5, 5000, id="blanks around"),
        pytest.param(1, 1, 1000, id="a JSON integer"),
        pytest.param(1.5, 2, 1500, id="a JSON number"),
        pytest.param(2e22, 0, 0, id="a JSON number beyond int64"),
        pytest.param(1e-7, 1, 1, id="a small JSON number"),
        # Overflow.
        pytest.param("1e19", 0, 0, id="int64 form is 0"),
        pytest.param("10E", 0, 0, id="int64 form of exa"),
        pytest.param("9e18", 9 * 10**18, 0, id="int64 form that fits only without milli"),
        pytest.param("10000000000000000", 10**16, 10**19 - 2**64, id="int64 form wraps in milli"),
        pytest.param("9999999999999M", 9999999999999 * 10**6 - 2**64, 1864712048423024128, id="and in units"),
        pytest.param("99999999999999999e4", 0, 0, id="a power that upstream does not multiply at once"),
        pytest.param("9223372036854775808", MIN_INT64, 0, id="decimal form wraps around"),
        pytest.param("18446744073709551616", 0, 0, id="decimal form wraps to zero"),
        pytest.param("18446744073709551617.5", 2, 1500, id="decimal form wraps, then rounds"),
        pytest.param("10Ei", MAX_INT64, -1000, id="capped, and wraps in milli"),
        pytest.param("-10Ei", -MAX_INT64, 1000, id="capped below"),
        pytest.param("8Pi", 2**53, 2**53 * 1000, id="decimal form that fits"),
        pytest.param("-0.0000000015", 1, 1, id="negative decimal form is one too high"),
        pytest.param("-1234567890123456789.5", -7888470988, -7888470989183, id="and wraps in nanos"),
    ],
)
def test_a_quantity_reads_as_int64_and_overflows_as_upstream(text: str | float, value: int, milli: int):
    quantity = parse_quantity(text)
    assert quantity.value() == value
    assert quantity.milli_value() == milli


@pytest.mark.parametrize(
    "text", ["+", "-", ".", "m", "Ki", "Ti", ".M", "e3", "-0", "000", "0.000Gi", "0e9999"]
)
def test_upstream_reads_a_missing_number_as_zero_in_int64(text: str):
    assert parse_quantity(text).is_zero
    assert parse_quantity(text).value() == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "expected a number and a suffix", id="empty"),
        pytest.param("   ", "expected a number and a suffix", id="blank"),
        pytest.param("12Qx", "expected a number and a suffix", id="letters of no suffix"),
        pytest.param("1.2.3", "expected a number and a suffix", id="two points"),
        pytest.param("1 Gi", "expected a number and a suffix", id="a blank inside"),
        pytest.param("++1", "unable to parse quantity's suffix", id="two signs"),
        pytest.param("1e3.5", "expected a number and a suffix", id="a fractional exponent"),
        pytest.param("1\n", "expected a number and a suffix", id="a line break"),
        pytest.param("\u0661", "expected a number and a suffix", id="digits of another script"),
        pytest.param("1_000", "expected a number and a suffix", id="an underscore"),
        pytest.param("1Mm", "unable to parse quantity's suffix", id="two suffixes"),
        pytest.param("1e", "unable to parse quantity's suffix", id="an exponent without digits"),
        pytest.param("1e+", "unable to parse quantity's suffix", id="an exponent that is a sign"),
        pytest.param("1+3", "unable to parse quantity's suffix", id="a sum"),
        pytest.param("1K", "unable to parse quantity's suffix", id="a large K"),
        pytest.param("1Ki3", "unable to parse quantity's suffix", id="digits after the suffix"),
        pytest.param("Ei", "unable to parse numeric part of quantity", id="a large suffix without a number"),
        pytest.param(".Pi", "unable to parse numeric part of quantity", id="a large suffix after a point"),
        pytest.param(
            "1e9223372036854775808", "unable to parse quantity's suffix", id="an exponent beyond int64"
        ),
        pytest.param("1e" + "9" * 10_000, "unable to parse quantity's suffix", id="an endless exponent"),
        pytest.param(True, "expected text or a number", id="a bool"),
        pytest.param(float("inf"), "expected a number and a suffix", id="infinity"),
    ],
)
def test_an_invalid_quantity_is_refused_with_the_reason(text: str | float, problem: str):
    with pytest.raises(ValueError, match=f"is not a quantity: {problem}"):
        parse_quantity(text)


def test_a_refusal_names_the_text():
    with pytest.raises(ValueError, match=r"^'12Qx' is not a quantity: "):
        parse_quantity("12Qx")


def test_a_bool_is_refused_even_after_an_equal_number():
    assert parse_quantity(1).value() == 1
    with pytest.raises(ValueError, match=r"^True is not a quantity"):
        parse_quantity(True)


@pytest.mark.parametrize(
    ("text", "is_int64"),
    [
        pytest.param("123456789012345678", True, id="18 digits"),
        pytest.param("1234567890123456789", False, id="19 digits, though int64 would hold them"),
        pytest.param("0.123456789", True, id="nanos"),
        pytest.param("0.1234567891", False, id="finer than nanos"),
        pytest.param("1n", True, id="one nano"),
        pytest.param("0.1n", False, id="a part of a nano"),
        pytest.param("1.5Ki", False, id="a binary fraction"),
        pytest.param("1.Ki", True, id="a point without decimals"),
        pytest.param("99999999999Ki", True, id="the most of Ki"),
        pytest.param("100000000000Ki", False, id="more of Ki"),
        pytest.param("99Ti", True, id="the most of Ti"),
        pytest.param("100Ti", False, id="more of Ti"),
        pytest.param("1Pi", False, id="any Pi"),
        pytest.param("1e10000", True, id="a large exponent of few digits"),
    ],
)
def test_the_internal_form_is_that_of_upstream(text: str, is_int64: bool):
    assert parse_quantity(text).is_int64 is is_int64


def test_a_sum_beyond_int64_becomes_decimal_and_wraps_around():
    nearly = parse_quantity("999999999999999999")
    total = nearly
    for _ in range(9):
        total += nearly
    assert total.is_int64 is False
    assert number(total) == 10 * number(nearly)
    assert total.value() == 10 * 999999999999999999 - 2**64


def test_a_sum_in_int64_form_wraps_around_in_milli():
    total = parse_quantity("1E") + parse_quantity("1")
    assert total.is_int64
    assert total.milli_value() == 10**3 * (10**18 + 1) - 54 * 2**64


def test_a_sum_becomes_decimal_when_the_finer_unit_does_not_hold_the_larger_part():
    total = parse_quantity("9e18") + parse_quantity("1m")
    assert (total.is_int64, total.exponent) == (False, -3)
    assert total.value() == 9 * 10**18 + 1


def test_a_sum_becomes_decimal_when_one_part_alone_does_not_fit():
    total = parse_quantity("10E") + parse_quantity("-999999999999999999")
    assert total.is_int64 is False
    assert total.value() == 9 * 10**18 + 1


def test_adding_zero_changes_neither_value_nor_form():
    one, zero = parse_quantity("1k"), parse_quantity("0m")
    assert (one + zero).exponent == one.exponent
    assert (zero + one).exponent == one.exponent


def test_a_decimal_zero_makes_a_sum_decimal():
    zero = parse_quantity("0.0000000000")
    assert zero.is_int64 is False
    total = parse_quantity("-1.5") + zero
    assert total.is_int64 is False
    assert total.value() == 0  # one too high, as every negative decimal


def test_a_comparison_with_a_decimal_leaves_a_decimal():
    large, decimal = parse_quantity("1e19"), parse_quantity("1Pi")
    assert large.in_form_of(large).value() == 0
    assert large.in_form_of(decimal).value() == MIN_INT64
    assert decimal.in_form_of(large) is decimal


def test_equal_numbers_are_equal_in_every_notation():
    notations = [parse_quantity(text) for text in ("1536Mi", "1.5Gi", "1610612736", "1610612736e0")]
    assert len(set(notations)) == 1
    assert parse_quantity("0") == parse_quantity("0Pi")
    assert hash(parse_quantity("0m")) == hash(parse_quantity("0k"))
    assert parse_quantity("1") != "1"


@settings(derandomize=True)
@given(text=POSITIVE)
def test_numbers_agree_with_exact_fractions(text: str):
    assert number(parse_quantity(text)) == judge.exact(text)


@settings(derandomize=True)
@given(text=POSITIVE)
def test_integers_agree_with_exact_fractions_where_they_fit(text: str):
    expected = judge.integer(judge.exact(text), judge.MILLI)
    assume(expected <= MAX_INT64 and "Ei" not in text)
    assert parse_quantity(text).milli_value() == expected
    assert parse_quantity(text).value() == judge.integer(judge.exact(text))


@settings(derandomize=True)
@given(text=NEGATIVE)
def test_negative_numbers_agree_with_exact_fractions(text: str):
    quantity = parse_quantity(text)
    assert number(quantity) == judge.exact(text)
    if quantity.is_int64 and judge.exact(text) >= MIN_INT64:
        assert quantity.value() == judge.integer(judge.exact(text))


@settings(derandomize=True)
@given(one=POSITIVE | NEGATIVE, other=POSITIVE | NEGATIVE)
def test_sums_and_order_agree_with_exact_fractions(one: str, other: str):
    left, right = parse_quantity(one), parse_quantity(other)
    assert number(left + right) == judge.exact(one) + judge.exact(other)
    assert (left < right) is (judge.exact(one) < judge.exact(other))
    assert (left >= right) is (judge.exact(one) >= judge.exact(other))
    assert (left == right) is (judge.exact(one) == judge.exact(other))


@settings(derandomize=True)
@given(text=st.text("+-.0123456789eEinumkKMGTPx ", max_size=8))
def test_any_text_is_a_quantity_or_is_refused_clearly(text: str):
    try:
        quantity = parse_quantity(text)
    except ValueError as error:
        assert "is not a quantity" in str(error)  # noqa: PT017 - both ends are fine, any other error is not
    else:
        assert MIN_INT64 <= quantity.value() <= MAX_INT64
        assert MIN_INT64 <= quantity.milli_value() <= MAX_INT64


LONG = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.one_of(
        st.integers(10**17, 10**25).map(str),
        st.builds("{}.{}".format, st.integers(0, 10**20), st.text("0123456789", min_size=1, max_size=40)),
        st.integers(1, 9).map(lambda digit: str(digit) * 1500),
        st.builds("{}.{}".format, st.integers(0, 99), st.integers(1, 9).map(lambda digit: str(digit) * 1500)),
    ),
    st.one_of(
        st.sampled_from(["", "n", "m", "k", "E", "Ki", "Mi", "Ei"]),
        st.integers(-3000, 3000).map("e{}".format),
    ),
)


def upstream_decimal(number: Fraction, power: int) -> int:
    """Compute upstream's ScaledValue of a decimal that it stores in nanos, with integers of any size."""

    def wrapped(size: int) -> int:
        return (size - MIN_INT64) % 2**64 + MIN_INT64

    nanos = int(number * 10**9)
    divisor = 10 ** (9 - power)
    if nanos < MAX_INT64:
        narrow = wrapped(nanos)
        whole = abs(narrow) // divisor
        return (whole if narrow >= 0 else -whole) + (1 if narrow % divisor else 0)
    return wrapped(wrapped(nanos // divisor) + (1 if nanos % divisor else 0))


@settings(derandomize=True)
@given(text=LONG)
def test_long_numbers_become_the_int64_that_upstream_makes_of_all_their_digits(text: str):
    quantity, exact = parse_quantity(text), judge.exact(text)
    assume(not quantity.is_int64 and abs(exact) != MAX_INT64)
    assert quantity.value() == upstream_decimal(exact, 0)
    assert quantity.milli_value() == upstream_decimal(exact, 3)


@settings(derandomize=True)
@given(texts=st.lists(LONG, min_size=2, max_size=4))
def test_sums_of_long_numbers_are_rounded_to_int64_as_upstream_does(texts: list[str]):
    parts, exact = [parse_quantity(text) for text in texts], sum(map(judge.exact, texts))
    # For capped quantities and scaled int64, upstream stores other exponents than nanos.
    assume(not any(part.is_int64 or part.exponent == 0 for part in parts))
    total = reduce(add, parts)
    assume((total.unscaled > 0) is (exact > 0))  # a difference in the last digits alone may lose the sign
    assert total.value() == upstream_decimal(exact, 0)
    assert total.milli_value() == upstream_decimal(exact, 3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("1e2147483647", 0, id="the largest exponent"),
        pytest.param("1e-2147483648", 1, id="the smallest exponent"),
        pytest.param("1e4294967299", 1000, id="an exponent of which Go keeps 32 bits"),
        pytest.param("1234567890123456789e2147483647", 0, id="a decimal of two billion digits"),
        pytest.param("-1234567890123456789e-2147483648", 1, id="a negative fraction"),
        pytest.param("0.0000000000000000000e-2147483648", 0, id="a zero with the smallest exponent"),
        pytest.param("0.0000000000000000000e2147483647", 0, id="a zero with the largest exponent"),
        pytest.param("7" * 1_000_000, 2049638230412172401, id="a million digits"),
        pytest.param("0." + "0" * 1_000_000 + "1", 1, id="a million decimals"),
        pytest.param("1." + "0" * 1_000_000 + "1Ki", 1025, id="a million decimals of a binary quantity"),
        pytest.param("9" * 1_000_000 + "Ki", MAX_INT64, id="a million digits of a binary quantity"),
        pytest.param("0" * 1_000_000 + "5", 5, id="a million leading zeros"),
        pytest.param("1e" + "0" * 1_000_000 + "3", 1000, id="an exponent with a million leading zeros"),
    ],
)
def test_the_longest_texts_and_exponents_are_read(text: str, value: int):
    assert parse_quantity(text).value() == value


HUGE = [
    *("1e2147483647", "1234567890123456789e2147483647", "-1234567890123456789e9999", "1e-2147483648"),
    *("9" * 100_000, "0." + "1" * 100_000, "1", "7Ei", "1n", "-1e2147483647", "0e2147483647"),
    *("0.0000000000000000000e-2147483648", "1234567890123456789e90", "1" * 100, "1" * 109),
]


@pytest.mark.parametrize("other", HUGE)
@pytest.mark.parametrize("one", HUGE)
def test_no_operation_computes_with_numbers_of_many_digits(one: str, other: str):
    left, right = parse_quantity(one), parse_quantity(other)
    for found in (left, left + right, (left + right) + left, left.in_form_of(right)):
        assert found.unscaled.bit_length() < 1000
        assert found.nanos.bit_length() < 1000
        assert MIN_INT64 <= found.milli_value() <= MAX_INT64
    assert (left < right) is (not left >= right)
    assert (left == right) is (left.reduced() == right.reduced())
    assert hash(left) == hash(left)


def test_long_numbers_are_ordered():
    ascending = [
        "-1e2147483647",
        "-1e9999",
        "-1",
        "0e2147483647",
        "1e-2147483648",
        "1e999",
        "1e9999",
        "2e9999",
    ]
    ascending += ["1234567890123456789e9999", "1234567890123456790e9999", "1e2147483647"]
    read = [parse_quantity(text) for text in ascending]
    assert all(less < more for less, more in pairwise(read))
    assert [quantity.nanos for quantity in read] == sorted(quantity.nanos for quantity in read)
    assert parse_quantity("100e9998") == parse_quantity("1e10000")


def test_a_long_text_is_not_cached():
    text = "1" * 5000
    assert parse_quantity(text) is not parse_quantity(text)
    assert parse_quantity("111") is parse_quantity("111")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("100m", "100m"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("0", "0"),
        ("-1", "-1"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1025Ki", "1025Ki"),
        ("0.1Gi", "107374182400m"),
        ("2e3", "2e3"),
        ("1E", "1E"),
        ("1e30", "1e30"),
        ("1000e9999", "1e10002"),
        ("1234567890123456789e9999", "1234567890123456789e9999"),
        ("1" + "0" * 24, "1000000E"),
        ("7" * 5000, "7" * 5000),
        (4, "4"),
        (0.25, "250m"),
    ],
)
def test_a_quantity_is_written_in_its_canonical_form(written: Any, canonical: str):
    assert canonical_quantity(written) == canonical


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("1.500", "1.500"),
        ("+110", "+110"),
        ("12Mi", "12Mi"),
        ("+12Mi", "+12Mi"),
        ("007", "007"),
        ("1E3", "1E3"),
        ("0", "0"),
        ("00", "0"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        (" 1.500 ", "1.500"),
        ("+8Mi", "8Mi"),
        ("1234567890123456789.000", "1234567890123456789"),
        ("1234567890123456789.5", "1234567890123456789500m"),
    ],
)
def test_a_quantity_that_go_considers_canonical_is_unchanged(read: str, written: str):
    assert quantity_as_read(read) == written


QUANTITIES = st.builds(
    "{}{}{}".format,
    st.integers(-(10**6), 10**6),
    st.sampled_from(["", ".5", ".25", ".001"]),
    st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E2", "u"]),
)


@given(QUANTITIES)
def test_the_canonical_form_is_the_same_number_and_stays_unchanged(written: Any):
    canonical = canonical_quantity(written)

    assert parse_quantity(canonical) == parse_quantity(written)
    assert canonical_quantity(canonical) == canonical


@pytest.mark.parametrize("written", ["", "abc", "1Kb", "--1"])
def test_an_invalid_quantity_is_refused(written: Any):
    with pytest.raises(ValueError, match="quantity"):
        canonical_quantity(written)


@given(QUANTITIES)
def test_a_decoded_number_stays_the_same_and_its_canonical_form_too(written: Any):
    assert parse_quantity(quantity_as_read(written)) == parse_quantity(written)
    assert quantity_as_read(canonical_quantity(written)) == canonical_quantity(written)


@given(NUMBERS, NUMBERS)
def test_a_product_is_exact(first: str, second: str):
    factors = parse_quantity(first), parse_quantity(second)

    assert number(factors[0] * factors[1]) == number(factors[0]) * number(factors[1])


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("3", "500m", "1500m"),
        ("2Gi", "2", "4Gi"),
        ("1Gi", "500m", "512Mi"),
        ("1k", "2Ki", "2048k"),
        ("0", "2", "0"),
    ],
)
def test_a_product_is_written_like_the_first_factor(first: str, second: str, text: str):
    assert quantity_text(parse_quantity(first) * parse_quantity(second), first) == text
