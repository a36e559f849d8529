"""Kubernetes quantities: `100m`, `1.5Gi`, `2e3`, their canonical form, and their int64 values.

Upstream stores a quantity in one of two forms: an int64 with a power of ten, or, if that is too small, a
decimal of any size. The form matters after the arithmetic: a value that does not fit int64 wraps around in the
second form, and in the first one it is read as 0, or wraps around if it is multiplied at once. So the form is kept here too.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import TYPE_CHECKING, Final, NoReturn

from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, is_hugepage_resource_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_INT64 = 2**63 - 1
_MIN_INT64 = -(2**63)
_INT64_DIGITS = 18  # int64 always holds this many digits

_MAX_DIGITS = 100
_MAX_BITS = 332  # the bits of 100 digits
_MAX_NANOS = 10**_MAX_DIGITS
_CHUNK = 500  # digits; Python converts text to an int in quadratic time
_CACHED_LENGTH = 100

# The powers of ten by which upstream multiplies an int64 at once. By others it multiplies ten by ten until that does not fit.
# Source: kube-scheduler v1.36, k8s.io/apimachinery/pkg/api/resource/math.go, positiveScaleInt64.
_WRAPPING_POWERS = frozenset({1, 2, 3, 6, 9})

_MILLI = -3
_NANO = -9
# Half of the largest MilliValue() of int64, in billionths: below it, upstream's form does not matter.
_FORMLESS_NANOS = _MAX_INT64 * 10 ** (_MILLI - _NANO) // 2
# Value() and MilliValue() of a decimal follow from its sign and its value modulo this.
_MODULUS = 2**64 * 10**-_NANO

# Sign, leading zeros, digits, decimals, suffix.
_NOTATION = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([-+]?)(?=[0-9])0*+([0-9]*+)", re.ASCII)  # sign, digits

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

# Spaces that Go trims; control characters cannot occur raw in JSON, and Go reads quantities raw.
_SPACES = " \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


@total_ordering
class Quantity:
    """A decimal number, in one of upstream's two forms. Immutable.

    It is exact up to 100 digits. Of longer numbers the first 100 digits are kept, so that all operations are
    cheap: two that differ only in later digits are equal. `value` and `milli_value` are exact for all
    numbers.

    Attributes:
        unscaled: the number without its power of ten.
        exponent: the exponent of ten; the number is `unscaled * 10**exponent`.
        is_int64: whether upstream stores it as a scaled int64, not as a decimal of any size.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/resource, quantity.go and amount.go.
    """

    __slots__ = ("_held", "exponent", "is_int64", "unscaled")

    def __init__(
        self,
        unscaled: int,
        exponent: int = 0,
        *,
        is_int64: bool = True,
        held: tuple[int, int] | None = None,
    ) -> None:
        """Create a quantity.

        Args:
            unscaled: see the attributes.
            exponent: see the attributes.
            is_int64: see the attributes.
            held: for a decimal of more than 100 digits: upstream's exponent, and upstream's unscaled number
                modulo 2**64 * 10**9.
        """
        self.unscaled = unscaled
        self.exponent = exponent
        self.is_int64 = is_int64
        self._held = held

    @property
    def is_zero(self) -> bool:
        return self.unscaled == 0

    @property
    def is_long(self) -> bool:
        """Whether upstream stores a decimal of more than 100 digits, of which some may be missing here."""
        return self._held is not None

    @property
    def nanos(self) -> int:
        """The number of billionths, for comparisons; at most 10**100."""
        if not self.unscaled:
            return 0
        most: int = _MAX_NANOS if self.unscaled > 0 else -_MAX_NANOS
        if self.is_long or self.exponent > _MAX_DIGITS:
            return most
        nanos = self._at(_NANO)
        return nanos if -_MAX_NANOS < nanos < _MAX_NANOS else most

    def value(self) -> int:
        """Return the int64 of upstream's Value(): rounded away from zero, if it fits."""
        unscaled = self.unscaled
        if not self.exponent and _MIN_INT64 <= unscaled <= _MAX_INT64:  # the usual case
            return unscaled
        return self._scaled(0)

    def milli_value(self) -> int:
        """Return the int64 of upstream's MilliValue(): thousandths, rounded away from zero."""
        return self._scaled(_MILLI)

    def in_form_of(self, other: Quantity) -> Quantity:
        """Return this number in upstream's form after comparing it with another.

        A comparison converts a scaled int64 to a decimal if the other number is one.
        """
        if self.is_int64 and not other.is_int64:
            return _decimal_form(self.unscaled, self.exponent, self.exponent)
        return self

    def __add__(self, other: Quantity) -> Quantity:
        exponent = min(self.exponent, other.exponent)
        if self.is_int64 and other.is_int64:
            if other.unscaled == 0:
                return self
            if self.unscaled == 0:
                return other
            if abs(self.exponent - other.exponent) <= _INT64_DIGITS:
                mine, theirs = self._at(exponent), other._at(exponent)
                if _fits_int64(mine) and _fits_int64(theirs) and _fits_int64(mine + theirs):
                    return Quantity(mine + theirs, exponent)
        is_long = self.is_long or other.is_long
        if not is_long and self._is_short(exponent) and other._is_short(exponent):
            return Quantity(self._at(exponent) + other._at(exponent), exponent, is_int64=False)
        return self._long_sum(other)

    def __mul__(self, other: Quantity) -> Quantity:
        """Multiply as upstream multiplies decimals of any size.

        Source:
            kube-scheduler v1.36, plugins/dynamicresources/nodeallocatabledynamicresources.go, buildNodeAllocatableDRAInfo.
        """
        return Quantity(self.unscaled * other.unscaled, self.exponent + other.exponent, is_int64=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._compared(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self._compared(other) < 0

    def __hash__(self) -> int:
        return hash(self.reduced())

    def reduced(self) -> tuple[int, int]:
        """Return the number with the greatest exponent, which is equal for equal quantities; zero is (0, 0)."""
        unscaled, exponent = self.unscaled, self.exponent
        if unscaled % 10:
            return unscaled, exponent
        if not unscaled:
            return 0, 0
        digits = str(unscaled)
        kept = digits.rstrip("0")
        return int(kept), exponent + len(digits) - len(kept)

    def __repr__(self) -> str:
        form = "" if self.is_int64 else ", is_int64=False"
        held = "" if self._held is None else f", held={self._held}"
        return f"Quantity({self.unscaled}, {self.exponent}{form}{held})"

    def _at(self, exponent: int) -> int:
        """Return the number in units of a power of ten that is not above its exponent."""
        if exponent == self.exponent:
            return self.unscaled
        return self.unscaled * _power(self.exponent - exponent)

    def _is_short(self, exponent: int) -> bool:
        return _is_short(self.unscaled, self.exponent - exponent)

    def _compared(self, other: Quantity) -> int:
        """Return a negative number, 0 or a positive one, as the result of a comparison."""
        mine, theirs = self.unscaled, other.unscaled
        if self.exponent != other.exponent:
            sign = (mine > 0) - (mine < 0)
            if not mine or not theirs or sign != (theirs > 0) - (theirs < 0):
                return sign - ((theirs > 0) - (theirs < 0))
            if abs(self.exponent - other.exponent) > _INT64_DIGITS:
                digits = _digits(mine) + self.exponent - _digits(theirs) - other.exponent
                if digits:
                    return digits * sign
            exponent = min(self.exponent, other.exponent)
            mine, theirs = self._at(exponent), other._at(exponent)
        return (mine > theirs) - (mine < theirs)

    def _long_sum(self, other: Quantity) -> Quantity:
        """Add if upstream's decimal has more than 100 digits, or may have them."""
        if self._size() < other._size():
            return other._long_sum(self)
        held = min(self._exponent_held, other._exponent_held)
        unscaled, exponent = self.unscaled, self.exponent
        is_exact = not self.is_long and not other.is_long
        if other.unscaled:
            least = min(exponent, other.exponent)
            if self._size() - least <= 2 * _MAX_DIGITS:
                unscaled, exponent = self._at(least) + other._at(least), least
            else:
                is_exact = False
        if is_exact:
            return _decimal_form(unscaled, exponent, held)
        return _truncated(unscaled, exponent, held, self._rest(held) + other._rest(held))

    @property
    def _exponent_held(self) -> int:
        return self.exponent if self._held is None else self._held[0]

    def _rest(self, exponent: int) -> int:
        """Return upstream's unscaled number for an exponent not above upstream's, modulo `_MODULUS`."""
        held, rest = (self.exponent, self.unscaled) if self._held is None else self._held
        found: int = rest * _power_of_rest(held - exponent) % _MODULUS
        return found

    def _size(self) -> int:
        """Return the number of digits before the point; the minimum for 0."""
        return _digits(self.unscaled) + self.exponent if self.unscaled else -(2**32)

    def _scaled(self, exponent: int) -> int:
        """Return the number in units of a power of ten, as upstream's ScaledValue()."""
        if self.exponent == exponent and _fits_int64(self.unscaled):
            return self.unscaled
        return self._scaled_int64(exponent) if self.is_int64 else self._scaled_decimal(exponent)

    def _scaled_int64(self, exponent: int) -> int:
        if self.exponent < exponent:
            size = _divide_up(abs(self.unscaled), _power(exponent - self.exponent))
            return size if self.unscaled > 0 else -size
        power = self.exponent - exponent
        if not self.unscaled or power > _INT64_DIGITS:
            return 0
        scaled = self._at(exponent)
        if _fits_int64(scaled):
            return scaled
        return _wrap(scaled) if power in _WRAPPING_POWERS and self.unscaled != _MIN_INT64 else 0

    def _scaled_decimal(self, exponent: int) -> int:
        held, unscaled = (self.exponent, self.unscaled) if self._held is None else self._held
        if held >= exponent:
            power = held - exponent
            # Beyond int64, Go's conversion of the power from a float gives the lowest int64 (amd64).
            factor = _power(power) if power < 19 else _MIN_INT64
            return _wrap(_wrap(unscaled) * factor)
        divisor = _power(exponent - held)
        if self.unscaled < 0 or (not self.is_long and unscaled < _MAX_INT64):
            # Go divides toward zero and then adds one, so negative numbers come out one too high.
            narrow = _wrap(unscaled)
            whole, rest = divmod(abs(narrow), divisor)
            return (whole if narrow >= 0 else -whole) + (1 if rest else 0)
        whole, rest = divmod(unscaled, divisor)
        return _wrap(_wrap(whole) + (1 if rest else 0))


def as_integers(quantities: Sequence[Quantity]) -> tuple[list[int], int] | None:
    """Return quantities as multiples of one power of ten, and its exponent, for fast arithmetic.

    Returns:
        None if the result of adding some of them may depend on upstream's form: if one is negative or has more than 100
        digits, or if the sum of all is above half of what MilliValue() can return; an overhead may be added later.
    """
    exponents = {quantity.exponent for quantity in quantities}
    exponent, greatest = min(exponents), max(exponents)
    if exponent < _NANO or greatest > _INT64_DIGITS:
        return None
    if any(each.is_long for each in quantities if not each.is_int64):
        return None
    if exponent == greatest:
        numbers = [quantity.unscaled for quantity in quantities]
    else:
        powers = {each: _power(each - exponent) for each in exponents}
        numbers = [quantity.unscaled * powers[quantity.exponent] for quantity in quantities]
    if min(numbers) < 0 or sum(numbers) * _power(exponent - _NANO) > _FORMLESS_NANOS:
        return None
    return numbers, exponent


def from_integer(number: int, exponent: int) -> Quantity:
    """Return one of the numbers of `as_integers`, or a sum of them, as a quantity."""
    return Quantity(number, exponent, is_int64=_fits_int64(number))


def parse_quantity(text: str | float) -> Quantity:
    """Parse a quantity in any notation that Kubernetes accepts, in linear time; JSON numbers are quantities too.

    Values below 1n are rounded up to it, away from zero; binary quantities are capped at 2**63 - 1.

    Raises:
        ValueError: it is not a quantity; the message says why.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
    """
    if type(text) is str and len(text) <= _CACHED_LENGTH:
        return _cached(text)
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ValueError(f"{text!r} is not a quantity: expected text or a number")  # noqa: TRY004 - one kind
    written = text if isinstance(text, str) else repr(text)
    return _cached(written) if len(written) <= _CACHED_LENGTH else _parse(written)


def _parse(text: str) -> Quantity:
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
        exponent = -len(decimals)
    else:
        exponent = _int32(_power_of_ten(text, suffix) - len(decimals))
        if len(digits) + len(decimals) <= 18 and exponent >= _NANO:
            return Quantity(factor * int(digits + decimals), exponent)

    if not (zeros or match[3] or decimals):
        _refuse(text, "unable to parse numeric part of quantity")
    if power_of_two is not None:
        return _binary_decimal(factor, digits, decimals, power_of_two)
    return _decimal(factor, (digits + decimals).lstrip("0"), exponent)


_cached = lru_cache(maxsize=16_384)(_parse)


def _decimal(factor: int, digits: str, exponent: int) -> Quantity:
    """Return a decimal of any size, rounded up to nanos."""
    if not digits:
        return Quantity(0, max(exponent, _NANO), is_int64=False)
    if exponent < _NANO:
        kept, dropped = digits[: exponent - _NANO], digits[exponent - _NANO :]
        more, exponent = (1 if dropped.strip("0") else 0), _NANO
    else:
        kept, more = digits, 0
    if len(kept) <= _MAX_DIGITS:
        return _decimal_form(factor * (int(kept or "0") + more), exponent, _NANO)
    rest = 0
    for start in range(0, len(kept), _CHUNK):
        chunk = kept[start : start + _CHUNK]
        rest = (rest * _power(len(chunk)) + int(chunk)) % _MODULUS
    rest = factor * (rest + more) * _power_of_rest(exponent - _NANO)
    excess = len(kept) - _MAX_DIGITS
    return _truncated(factor * int(kept[:_MAX_DIGITS]), exponent + excess, _NANO, rest)


def _binary_decimal(factor: int, digits: str, decimals: str, power_of_two: int) -> Quantity:
    """Return a decimal of any size for a binary quantity, rounded up to nanos, and capped."""
    size = _MAX_INT64 * 10**-_NANO + 1
    if len(digits) <= _INT64_DIGITS + 1:
        carry, is_rounded = 0, False  # of the decimals beyond nanos, from the last one
        for start in reversed(range(-_NANO, len(decimals), _CHUNK)):
            chunk = decimals[start : start + _CHUNK]
            carry, rest = divmod((int(chunk) << power_of_two) + carry, _power(len(chunk)))
            is_rounded |= bool(rest)
        size = (int(digits + decimals[:-_NANO].ljust(-_NANO, "0")) << power_of_two) + carry + is_rounded
    if size > _MAX_INT64 * 10**-_NANO:
        return Quantity(factor * _MAX_INT64, is_int64=False)
    return Quantity(factor * size, _NANO, is_int64=False)


def _decimal_form(unscaled: int, exponent: int, held: int) -> Quantity:
    """Return a decimal of any size for an exact number; upstream's exponent is not above its own."""
    if _is_short(unscaled, exponent - held):
        return Quantity(unscaled * _power(exponent - held), held, is_int64=False)
    return _truncated(unscaled, exponent, held, unscaled * _power_of_rest(exponent - held))


def _truncated(unscaled: int, exponent: int, held: int, rest: int) -> Quantity:
    """Return a decimal of any size with a number's first 100 digits; the rest is upstream's number, modulo `_MODULUS`."""
    excess = _digits(unscaled) - _MAX_DIGITS
    if excess > 0:
        size = abs(unscaled) // _power(excess)
        unscaled, exponent = (size if unscaled > 0 else -size), exponent + excess
    return Quantity(unscaled, exponent, is_int64=False, held=(held, rest % _MODULUS))


def _power_of_ten(text: str, suffix: str) -> int:
    power = _DECIMAL_SUFFIXES.get(suffix)
    if power is not None:
        return power
    match = _EXPONENT.fullmatch(suffix)
    if match is None or len(match[2]) > _INT64_DIGITS + 1:
        _refuse(text, "unable to parse quantity's suffix")
    power = int(match[1] + (match[2] or "0"))
    if not _fits_int64(power):
        _refuse(text, "unable to parse quantity's suffix")
    return _int32(power)


def _refuse(text: str, problem: str) -> NoReturn:
    shown = text if len(text) <= _CACHED_LENGTH else f"{text[:20]}..."
    raise ValueError(f"{shown!r} is not a quantity: {problem}")


def _power(exponent: int) -> int:
    return int(10**exponent)


def _is_short(number: int, zeros: int) -> bool:
    """Return whether a number has at most about 100 digits after appending zeros, so that arithmetic is cheap."""
    return zeros <= _MAX_DIGITS and number.bit_length() + zeros * 10 // 3 <= _MAX_BITS


def _power_of_rest(exponent: int) -> int:
    return int(pow(10, exponent, _MODULUS))


def _digits(number: int) -> int:
    """Return the number of decimal digits."""
    size = abs(number)
    least = size.bit_length() * 30102 // 100_000  # exact, or one too few
    return least + (size >= _power(least))


def _int32(number: int) -> int:
    """Keep the low 32 bits, as Go keeps exponents."""
    return (number + 2**31) % 2**32 - 2**31


def _divide_up(size: int, divisor: int) -> int:
    return -(-size // divisor)


def _fits_int64(number: int) -> bool:
    return _MIN_INT64 <= number <= _MAX_INT64


def _wrap(number: int) -> int:
    """Keep the low 64 bits, as Go's integer arithmetic does."""
    return (number - _MIN_INT64) % 2**64 + _MIN_INT64


_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
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
    return _cached_canonical(text) if len(text) <= _CACHED_LENGTH else _canonical(text)


def _canonical(text: str) -> str:
    quantity = parse_quantity(text)
    trimmed = text.strip()
    if quantity.is_long and len(trimmed) > _CACHED_LENGTH:
        return trimmed  # its last digits were not kept
    return quantity_text(quantity, trimmed)


def quantity_text(quantity: Quantity, like: str | float) -> str:
    """Return a quantity in upstream's canonical form, with the family of suffixes of another one as written."""
    trimmed = str(like).strip()
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


_cached_canonical = lru_cache(maxsize=16_384)(_canonical)


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


Amounts = dict[str, str | int | float]
"""Resource -> quantity, as written in an object."""

_LARGEST: Final = 2**63 - 1
_MOST, _MOST_MILLI = _LARGEST * 10**9, _LARGEST * 10**6  # in billionths


MOST_RESOURCES: Final = 256
"""Maximum number of resources in one list of a custom resource: each is compared with all nodes, or at each attempt."""


def check_count(given: Amounts) -> None:
    """Check the number of resources in a list of a custom resource.

    Raises:
        ValueError: there are too many.
    """
    if len(given) > MOST_RESOURCES:
        raise ValueError(f"at most {MOST_RESOURCES} resources are expected, were {len(given)}")


def amounts_of(given: Amounts) -> dict[str, int]:
    """Return resource -> milliCPU, bytes or a count.

    Raises:
        ValueError: an amount is not a quantity, or there are too many resources.
    """
    check_count(given)
    quantities = {name: parse_quantity(str(amount)) for name, amount in given.items()}
    return {
        name: quantity.milli_value() if name == CPU else quantity.value()
        for name, quantity in quantities.items()
    }


def bounded_amount(resource: str, given: str | float) -> int:
    """Return milliCPU, bytes or a count; negative amounts, and those that overflow upstream's int64, are errors.

    Raises:
        ValueError: it is not a quantity, or such an amount.
    """
    quantity = parse_quantity(str(given))
    if quantity.unscaled < 0:
        raise ValueError(f"at least 0 is expected, was {given}")
    if quantity.nanos > (_MOST_MILLI if resource == CPU else _MOST):
        raise ValueError(f"at most {amount_text(resource, _MAX_INT64)} is expected, was {given}")
    return quantity.milli_value() if resource == CPU else quantity.value()


def amount_text(resource: str, amount: int) -> str:
    """Format milliCPU, bytes or a count as a quantity."""
    if resource == CPU:
        return canonical_quantity(f"{amount}m")
    if resource in {MEMORY, EPHEMERAL_STORAGE} and amount and amount % 1024 == 0:
        return canonical_quantity(f"{amount // 1024}Ki")
    return str(amount)


_BYTE_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def readable_amounts(resource: str, *amounts: int) -> list[str]:
    """Format amounts of one resource; bytes with two decimals if different amounts stay different, else in full."""
    if resource == CPU:
        return [_plain(amount, 3) for amount in amounts]
    if resource not in {MEMORY, EPHEMERAL_STORAGE} and not is_hugepage_resource_name(resource):
        return [str(amount) for amount in amounts]
    short = [_short(amount) for amount in amounts]
    return short if len(set(short)) == len(set(amounts)) else [str(amount) for amount in amounts]


def _short(size_bytes: int) -> str:
    step = min(max(0, abs(size_bytes).bit_length() - 1) // 10, len(_BYTE_UNITS) - 1)
    hundredths = abs(size_bytes) * 100 >> 10 * step
    return _plain(hundredths if size_bytes >= 0 else -hundredths, 2) + _BYTE_UNITS[step]


def _plain(number: int, digits: int) -> str:
    """Format a number whose last digits are decimals, without trailing zeros."""
    whole, rest = divmod(abs(number), 10**digits)
    sign = "-" if number < 0 else ""
    return f"{sign}{whole}.{rest:0{digits}}".rstrip("0") if rest else f"{sign}{whole}"


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Format amounts for people, as in `cpu: 2, memory: 4Gi`."""
    return ", ".join(f"{name}: {amount_text(name, amount)}" for name, amount in sorted(amounts.items()))
