"""Durations in configuration files: `15s`, `1m30s`, `100ms`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from scheduler.objects.wording import was

_NANOSECONDS = {  # unit -> its length in nanoseconds
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[-+]?(?:{_PART.pattern})+")
_MAX_NANOSECONDS = 2**63 - 1
_MAX_CHARACTERS = 100  # far beyond any int64; keeps the arithmetic below small


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """A metav1.Duration: a signed duration with a resolution of one nanosecond.

    Source:
        Go's time.ParseDuration and Duration.String, which metav1.Duration uses.
    """

    nanoseconds: int = 0

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Parse a duration as `time.ParseDuration` does.

        Raises:
            ValueError: not text, not a duration, or beyond an int64 of nanoseconds.
        """
        wrong = ValueError(f"must be a duration as in 15s or 1m30s, {was(value)}")
        if not isinstance(value, str) or len(value) > _MAX_CHARACTERS:
            raise wrong
        if value in {"0", "+0", "-0"}:  # the only number that Go allows without a unit
            return cls(0)
        if not _WHOLE.fullmatch(value):
            raise wrong
        total = sum(int(Fraction(number) * _NANOSECONDS[unit]) for number, unit in _PART.findall(value))
        if total > _MAX_NANOSECONDS:
            raise ValueError(f"must be shorter than 292 years, {was(value)}")
        return cls(-total if value.startswith("-") else total)

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.nanoseconds / 1e9

    def __str__(self) -> str:
        """Format as Go does: `1m30s`, `1.5s`, `100ms`, `0s`."""
        if self.nanoseconds == 0:
            return "0s"
        sign, left = ("-", -self.nanoseconds) if self.nanoseconds < 0 else ("", self.nanoseconds)
        if left < _NANOSECONDS["s"]:
            unit = next(unit for unit in ("ms", "µs", "ns") if left >= _NANOSECONDS[unit])
            return f"{sign}{_decimal(left, _NANOSECONDS[unit])}{unit}"
        minutes, left = divmod(left, _NANOSECONDS["m"])
        hours, minutes = divmod(minutes, 60)
        seconds = f"{_decimal(left, _NANOSECONDS['s'])}s"
        if hours:
            return f"{sign}{hours}h{minutes}m{seconds}"
        return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(amount: int, unit: int) -> str:
    """Format amount / unit exactly, without trailing zeros; the unit is a power of ten."""
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0")
    return f"{whole}.{digits}"
