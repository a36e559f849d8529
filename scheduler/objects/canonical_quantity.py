"""Quantities in the API server's canonical form: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`."""

from __future__ import annotations

import re
from functools import lru_cache

from scheduler.objects.quantity import Quantity, parse_quantity

_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_CACHED_LENGTH = 100
_DIGITS = re.compile(r"[+-]?0*([0-9]*)\.?([0-9]*)", re.ASCII)  # before and after the point


def canonical_quantity(value: str | float) -> str:
    """Return a quantity in upstream's canonical form: the greatest suffix with a whole number.

    The family of suffixes stays: binary, decimal, or an exponent. Quantities with more than 100 digits are
    unchanged.

    Raises:
        ValueError: it is not a quantity.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go, CanonicalizeBytes.
    """
    text = value if isinstance(value, str) else repr(value)
    return _cached(text) if len(text) <= _CACHED_LENGTH else _canonical(text)


def _canonical(text: str) -> str:
    quantity = parse_quantity(text)
    trimmed = text.strip()
    if quantity.is_long and len(trimmed) > _CACHED_LENGTH:
        return trimmed  # its last digits were not kept
    if trimmed.endswith("i"):
        return _binary(quantity)
    # An E is a suffix (1E) or begins an exponent (1E3).
    has_exponent = "e" in trimmed or ("E" in trimmed and not trimmed.endswith("E"))
    mantissa, power = _by_thousands(quantity)
    if has_exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    above = power - max(_DECIMAL)
    if above > 0:
        return f"{mantissa}{'0' * above}{_DECIMAL[power - above]}"
    return f"{mantissa}{_DECIMAL[power]}" if power in _DECIMAL else f"{mantissa}e{power}"


_cached = lru_cache(maxsize=16_384)(_canonical)


def quantity_as_read(value: str | float) -> str:
    """Return a quantity as Go writes it after parsing: text that looks canonical is kept, such as `1.500` and `+1`.

    Raises:
        ValueError: it is not a quantity.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
    """
    text = (value if isinstance(value, str) else repr(value)).strip()
    quantity = parse_quantity(text)
    return text if quantity.is_int64 and _looks_canonical(text, quantity) else canonical_quantity(text)


def _looks_canonical(text: str, quantity: Quantity) -> bool:
    """Return whether Go considers text canonical, by its suffix and its last digits."""
    if text.endswith("i"):
        return bool(abs(quantity.unscaled) >> 10 * _BINARY.index(text[-2:]) & 7)
    match = _DIGITS.match(text)
    assert match is not None, "every quantity begins with digits"
    digits = (match[1] or "0") + match[2]
    return quantity.exponent % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _by_thousands(quantity: Quantity) -> tuple[int, int]:
    """Split a quantity into a whole number and a power of ten, the greatest multiple of three that allows it."""
    number, power = quantity.reduced()
    shift = power % 3
    return number * 10**shift, power - shift


def _binary(quantity: Quantity) -> str:
    """Format with a binary suffix; a fraction of a byte falls back to decimals, as upstream."""
    if quantity.exponent < 0 and quantity.unscaled % 10**-quantity.exponent:
        number, power = _by_thousands(quantity)
        return f"{number}{_DECIMAL[power]}"
    number = (
        quantity.unscaled * 10**quantity.exponent
        if quantity.exponent >= 0
        else (quantity.unscaled // 10**-quantity.exponent)
    )
    if abs(number) < 1024:
        return str(number)
    step = 0
    while number % 1024 == 0 and step < len(_BINARY) - 1:
        number, step = number // 1024, step + 1
    return f"{number}{_BINARY[step]}"
