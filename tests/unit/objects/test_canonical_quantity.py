from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.quantity import canonical_quantity, parse_quantity, quantity_as_read


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
