"""Values that only Kubernetes' own functions understand: quantities, versions, addresses and networks.

cel-expr-python has no types for them, so expressions carry them as bytes: the type, and a text that is the same for
equal values, so that `==` is correct.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import Any

from plugins.dynamic_resources.cel.semver import Version, parse_version
from scheduler.objects.quantity import Quantity, parse_quantity

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
