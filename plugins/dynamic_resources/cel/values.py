"""Values that only Kubernetes' own functions understand: quantities, semantic versions, addresses and others.

cel-expr-python has no types for them, so expressions carry them as bytes: the type, and a text that is the same for
equal values, so that `==` is correct.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import Any

from scheduler.objects.quantity import Quantity, parse_quantity

_NUMBERS = frozenset("0123456789")
_LETTERS = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-")
_MAX_UINT64 = 2**64 - 1


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A version without its build metadata, which does not matter in comparisons.

    Attributes:
        core: major, minor and patch.
        prerelease: its parts, numbers as numbers; a version without prerelease is greater.
    """

    core: tuple[int, int, int]
    prerelease: tuple[int | str, ...] = ()

    def __lt__(self, other: Version) -> bool:
        return self._order() < other._order()

    def __str__(self) -> str:
        core = ".".join(map(str, self.core))
        return f"{core}-{'.'.join(map(str, self.prerelease))}" if self.prerelease else core

    def _order(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int | str], ...]]:
        """Return the sort key: numbers sort before letters, and a prefix before a longer list."""
        parts = tuple((isinstance(part, str), part) for part in self.prerelease)
        return self.core, not self.prerelease, parts


def parse_version(text: str) -> Version:
    """Read a version.

    Raises:
        ValueError: the text is invalid; the message is that of upstream's library.

    Source:
        kube-scheduler v1.36, vendor/github.com/blang/semver/v4/semver.go, Parse.
    """
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch, dash, prerelease = rest.partition("-")
    core = (major, minor, _number(patch, "patch"))
    read = tuple(_prerelease(part) for part in prerelease.split(".")) if dash else ()
    for part in build.split(".") if plus else ():
        if not part:
            raise ValueError("Build meta data is empty")
        if not _LETTERS.issuperset(part):
            raise ValueError(f"Invalid character(s) found in build meta data {json.dumps(part)}")
    return Version(core, read)


def parse_version_tolerantly(text: str) -> Version:
    """Read a version with common deviations: a `v` prefix, leading zeros, fewer than three numbers.

    Raises:
        ValueError: the text is invalid, also after these corrections.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/cel/library/semverlib.go, normalizeAndParse.
    """
    parts = [_without_leading_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return parse_version(".".join(parts))


def _without_leading_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    left = part.lstrip("0")
    return left if left and left[0] in _NUMBERS else f"0{left}"


def _number(text: str, place: str) -> int:
    if not _NUMBERS.issuperset(text):
        raise ValueError(f"Invalid character(s) found in {place} number {json.dumps(text)}")
    if len(text) > 1 and text[0] == "0":
        raise ValueError(f"{place.capitalize()} number must not contain leading zeroes {json.dumps(text)}")
    return _uint64(text)


def _prerelease(part: str) -> int | str:
    if not part:
        raise ValueError("Prerelease is empty")
    if _NUMBERS.issuperset(part):
        if len(part) > 1 and part[0] == "0":
            raise ValueError(f"Numeric PreRelease version must not contain leading zeroes {json.dumps(part)}")
        return _uint64(part)
    if not _LETTERS.issuperset(part):
        raise ValueError(f"Invalid character(s) found in prerelease {json.dumps(part)}")
    return part


def _uint64(text: str) -> int:
    if not text:
        raise ValueError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > _MAX_UINT64:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


NO_SUCH_OVERLOAD = "no such overload"

Address = IPv4Address | IPv6Address
Network = IPv4Interface | IPv6Interface
"""An address with a prefix length, as Go's netip.Prefix."""

Opaque = Quantity | Version | Address | Network


LONGEST_CACHED = 256
"""Longer values are not cached, because an expression may create thousands of them."""


def quantity_to_bytes(written: str | float) -> bytes:
    """Return a quantity in the form of `to_bytes`.

    Raises:
        ValueError: the text is not a quantity.
    """
    is_long = isinstance(written, str) and len(written) > LONGEST_CACHED
    return _quantity_to_bytes(written) if is_long else _cached_quantity(written)


def _quantity_to_bytes(written: str | float) -> bytes:
    return to_bytes(parse_quantity(written))


_cached_quantity = lru_cache(maxsize=4096)(_quantity_to_bytes)


def to_bytes(value: Opaque) -> bytes:
    """Encode a value; equal values have equal bytes."""
    if isinstance(value, Quantity):
        unscaled, exponent = value.reduced()
        return f"kubernetes.Quantity {unscaled} {exponent}".encode()
    if isinstance(value, Version):
        return f"kubernetes.Semver {value}".encode()
    if isinstance(value, Network):
        return f"net.CIDR {value}".encode()
    return f"net.IP {value}".encode()


def _from_bytes(carried: bytes) -> Opaque:
    kind, _, text = carried.decode().partition(" ")
    if kind == "kubernetes.Quantity":
        unscaled, exponent = text.split(" ")
        return Quantity(int(unscaled), int(exponent))
    if kind == "kubernetes.Semver":
        return parse_version(text)
    return ip_interface(text) if kind == "net.CIDR" else ip_address(text)


_cached = lru_cache(maxsize=4096)(_from_bytes)


def from_bytes(carried: Any, kind: type[Any] | Any) -> Any:
    """Decode a value.

    Raises:
        ValueError: it is of another type, or the bytes are not an encoded value.
    """
    try:
        written = bytes(carried)
        value = _cached(written) if len(written) <= LONGEST_CACHED else _from_bytes(written)
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(NO_SUCH_OVERLOAD) from error
    # In Python's class hierarchy a network is an address too.
    if not isinstance(value, kind) or (kind == Address and isinstance(value, Network)):
        raise ValueError(NO_SUCH_OVERLOAD)
    return value
