"""Parts of messages about invalid input, and booleans and durations in the syntax of Go."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST_SHOWN = 80  # characters


def child(path: str, key: str) -> str:
    """Return the path of a field or key: `a.b`, or `a["b.c"]` for other keys."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{quoted(key)}]"
    return f"{path}.{key}" if path else key


def entry(path: str, index: int) -> str:
    """Return the path of a list's entry: `a[3]`."""
    return f"{path}[{index}]"


def quoted(text: str) -> str:
    """Return text in double quotes on one line, cut if it is long."""
    shown = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
    return json.dumps(shown, ensure_ascii=False)


def was(value: object) -> str:
    """Describe the found value, as in `was 12`, `was "12"`, `was a list`."""
    match value:
        case None:
            return "was null"
        case bool():
            return f"was {str(value).lower()}"
        case str():
            return f"was {quoted(value)}"
        case list() | tuple():
            return "was a list"
        case dict():
            return "was a mapping"
    return f"was {value}"


def ranges_text(numbers: Iterable[int]) -> str:
    """Return increasing numbers as ranges, as in `0-63,70`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def did_you_mean(name: str, known: Iterable[str], *, similarity: float = 0.6) -> str:
    """Return a suggestion to follow a sentence, as in `, did you mean "plugins"?`; "" if nothing is similar.

    Args:
        name: the unknown name.
        known: the names to suggest one of.
        similarity: how similar a suggestion is at least, from 0 to 1.
    """
    if len(name) > _LONGEST_SHOWN:
        return ""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=similarity)
    return f", did you mean {quoted(by_lower_case[near[0]])}?" if near else ""


GO_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""Source: Go's strconv.ParseBool."""


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
