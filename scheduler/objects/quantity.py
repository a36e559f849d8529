"""Kubernetes quantities: `100m`, `1.5Gi`, `2e3`, and the int64 that scheduling makes of them.

Upstream keeps a quantity in one of two forms: an int64 with a power of ten, or, when that does not hold it,
a decimal of any size. The form outlives the value: what does not fit int64 in the end reads as 0 in the
first form and wraps around in the second. So the form is kept here too.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import NoReturn

_MAX_INT64 = 2**63 - 1
_MIN_INT64 = -(2**63)

_MAX_LENGTH = 1000
_MAX_EXPONENT = 10_000

_MILLI = -3
_NANO = -9

_NOTATION = re.compile(
    r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII
)  # sign, leading zeros, digits, decimals, suffix
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)", re.ASCII)

_DECIMAL_SUFFIXES = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}  # suffix -> power of ten
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}  # suffix -> power of two

# What Go trims around a quantity; control characters cannot stand raw in JSON, and Go reads quantities raw.
_SPACES = " \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


@total_ordering
class Quantity:
    """An exact decimal number, in one of upstream's two forms. Immutable.

    Attributes:
        unscaled: the number without its power of ten.
        exponent: that power; the number is `unscaled * 10**exponent`.
        is_int64: whether upstream holds it as a scaled int64, not as a decimal of any size.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/resource, quantity.go and amount.go.
    """

    __slots__ = ("exponent", "is_int64", "unscaled")

    def __init__(self, unscaled: int, exponent: int = 0, *, is_int64: bool = True) -> None:
        self.unscaled = unscaled
        self.exponent = exponent
        self.is_int64 = is_int64

    @property
    def is_zero(self) -> bool:
        return self.unscaled == 0

    @property
    def nanos(self) -> int:
        """The exact number of billionths, of what was parsed; to compare many."""
        return self._at(_NANO)

    def value(self) -> int:
        """Return the int64 upstream's Value() gives: rounded away from zero, as far as it fits."""
        unscaled = self.unscaled
        if not self.exponent and _MIN_INT64 <= unscaled <= _MAX_INT64:  # as nearly all are
            return unscaled
        return self._scaled(0)

    def milli_value(self) -> int:
        """Return the int64 upstream's MilliValue() gives: thousandths, rounded away from zero."""
        return self._scaled(_MILLI)

    def in_form_of(self, other: Quantity) -> Quantity:
        """Return this number as upstream holds it after comparing it with another.

        A comparison turns a scaled int64 into a decimal when the other side is one.
        """
        if self.is_int64 and not other.is_int64:
            return Quantity(self.unscaled, self.exponent, is_int64=False)
        return self

    def __add__(self, other: Quantity) -> Quantity:
        exponent = min(self.exponent, other.exponent)
        if self.is_int64 and other.is_int64:
            if other.unscaled == 0:
                return self
            if self.unscaled == 0:
                return other
            mine, theirs = self._at(exponent), other._at(exponent)
            if _fits_int64(mine) and _fits_int64(theirs) and _fits_int64(mine + theirs):
                return Quantity(mine + theirs, exponent)
        return Quantity(self._at(exponent) + other._at(exponent), exponent, is_int64=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        exponent = min(self.exponent, other.exponent)
        return self._at(exponent) == other._at(exponent)

    def __lt__(self, other: Quantity) -> bool:
        exponent = min(self.exponent, other.exponent)
        return self._at(exponent) < other._at(exponent)

    def __hash__(self) -> int:
        unscaled, exponent = self.unscaled, self.exponent
        while unscaled and unscaled % 10 == 0:
            unscaled, exponent = unscaled // 10, exponent + 1
        return hash((unscaled, exponent if unscaled else 0))

    def __repr__(self) -> str:
        form = "" if self.is_int64 else ", is_int64=False"
        return f"Quantity({self.unscaled}, {self.exponent}{form})"

    def _at(self, exponent: int) -> int:
        """Return the number in units of a power of ten that is not above its own."""
        if exponent == self.exponent:
            return self.unscaled
        return self.unscaled * _power(self.exponent - exponent)

    def _scaled(self, exponent: int) -> int:
        """Return the number in units of a power of ten, as upstream's ScaledValue()."""
        if self.exponent == exponent and _fits_int64(self.unscaled):
            return self.unscaled
        return self._scaled_int64(exponent) if self.is_int64 else self._scaled_decimal(exponent)

    def _scaled_int64(self, exponent: int) -> int:
        if self.exponent < exponent:
            size = _divide_up(abs(self.unscaled), _power(exponent - self.exponent))
            return size if self.unscaled > 0 else -size
        scaled = self._at(exponent)
        return scaled if _fits_int64(scaled) else 0

    def _scaled_decimal(self, exponent: int) -> int:
        if self.exponent >= exponent:
            power = self.exponent - exponent
            # Beyond int64, Go's conversion of the power from a float gives the lowest int64 (amd64).
            factor = _power(power) if power < 19 else _MIN_INT64
            return _wrap(_wrap(self.unscaled) * factor)
        shift = exponent - self.exponent
        divisor = _power(shift)
        if self.unscaled < _MAX_INT64 and shift < 19:
            # Go divides toward zero and then adds one, so negative numbers come out one too high.
            narrow = _wrap(self.unscaled)
            whole, rest = divmod(abs(narrow), divisor)
            return (whole if narrow >= 0 else -whole) + (1 if rest else 0)
        whole, rest = divmod(self.unscaled, divisor)
        return _wrap(_wrap(whole) + (1 if rest else 0))


def parse_quantity(text: str | float) -> Quantity:
    """Read a quantity in any notation Kubernetes takes; JSON numbers are quantities as well.

    What is smaller than 1n is rounded up to it, away from zero; binary quantities are capped at 2**63 - 1.
    Unlike upstream, exponents beyond 10,000 and texts beyond 1000 characters are refused: upstream would
    compute with numbers of that many digits.

    Raises:
        ValueError: it is none; the message says why.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
    """
    if type(text) is str:
        return _parse(text)
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ValueError(f"{text!r} is not a quantity: expected text or a number")  # noqa: TRY004 - one kind
    return _parse(text if isinstance(text, str) else repr(text))


@lru_cache(maxsize=16_384)
def _parse(text: str) -> Quantity:
    if len(text) > _MAX_LENGTH:
        _refuse(text[:20] + "...", f"longer than {_MAX_LENGTH} characters")
    trimmed = text.strip(_SPACES)
    match = _NOTATION.fullmatch(trimmed)
    if not trimmed or match is None:
        _refuse(text, "expected a number and a suffix, as in 100m, 1.5Gi or 2e3")
    sign, zeros, digits, decimals, suffix = match.groups(default="")
    factor = -1 if sign == "-" else 1
    digits = digits or "0"

    power_of_two = _BINARY_SUFFIXES.get(suffix)
    if power_of_two is not None:
        # Upstream estimates three decimal digits for each step of 2**10, in a budget of 14.
        if not decimals and len(digits) + power_of_two * 3 // 10 <= 14:
            return Quantity(factor * (int(digits) << power_of_two))
        power_of_ten = 0
    else:
        power_of_ten = _power_of_ten(text, suffix)
        exponent = power_of_ten - len(decimals)
        if len(digits) + len(decimals) <= 18 and exponent >= _NANO:
            return Quantity(factor * int(digits + decimals), exponent)

    if not (zeros or match[3] or decimals):
        _refuse(text, "unable to parse numeric part of quantity")
    return _decimal(factor, int(digits + decimals), power_of_ten - len(decimals), power_of_two)


def _decimal(factor: int, size: int, exponent: int, power_of_two: int | None) -> Quantity:
    """Build the form of any size, rounded up to nanos and, with a binary suffix, capped."""
    if power_of_two is not None:
        size <<= power_of_two
    if size:
        if exponent >= _NANO:
            size *= _power(exponent - _NANO)
        else:
            size = _divide_up(size, _power(_NANO - exponent))
        exponent = _NANO
    if power_of_two is not None and size > _MAX_INT64 * 10**-_NANO:
        size, exponent = _MAX_INT64, 0
    return Quantity(factor * size, exponent, is_int64=False)


def _power_of_ten(text: str, suffix: str) -> int:
    power = _DECIMAL_SUFFIXES.get(suffix)
    if power is not None:
        return power
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        _refuse(text, "unable to parse quantity's suffix")
    power = int(match[1])
    if abs(power) > _MAX_EXPONENT:
        _refuse(text, f"exponents go up to {_MAX_EXPONENT}")
    return power


def _refuse(text: str, problem: str) -> NoReturn:
    raise ValueError(f"{text!r} is not a quantity: {problem}")


def _power(exponent: int) -> int:
    return int(10**exponent)


def _divide_up(size: int, divisor: int) -> int:
    return -(-size // divisor)


def _fits_int64(number: int) -> bool:
    return _MIN_INT64 <= number <= _MAX_INT64


def _wrap(number: int) -> int:
    """Keep the low 64 bits, as Go's integer arithmetic does."""
    return (number - _MIN_INT64) % 2**64 + _MIN_INT64
