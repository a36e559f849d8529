"""The functions that Kubernetes adds to the language, as far as they are useful in device selectors.

These are left out: url and format, whose values no attribute has; authorizer; list functions of 1.34; find and findAll,
because Python does not match their patterns in linear time; and macros with two variables.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/cel/library, and vendor/github.com/google/cel-go/ext/sets.go.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from ipaddress import ip_address, ip_interface
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from plugins.dynamic_resources.cel.values import (
    LONGEST_CACHED,
    NO_SUCH_OVERLOAD,
    Address,
    Network,
    Opaque,
    Version,
    from_bytes,
    parse_version,
    parse_version_tolerantly,
    quantity_to_bytes,
    to_bytes,
)
from scheduler.objects.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

_MAX_INT64 = 2**63 - 1
_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class Function(NamedTuple):
    """A function that expressions may call.

    Attributes:
        name: the name in expressions.
        parameters: their types: those of the language, and `opaque`.
        result: the type of the result.
        call: takes and returns values of these types; a ValueError is an error of the evaluation.
        is_member: whether it is called on its first parameter.
    """

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., Any]
    is_member: bool = True


# Common functions of quantities and versions.


_COMPARABLE = Quantity | Version


def _compare_to(left: bytes, right: bytes) -> int:
    first, second = bytes(left), bytes(right)
    return (_cached_comparison if len(first) + len(second) <= LONGEST_CACHED else _compared)(first, second)


def _compared(left: bytes, right: bytes) -> int:
    first, second = from_bytes(left, _COMPARABLE), from_bytes(right, _COMPARABLE)
    if type(first) is not type(second):
        raise ValueError(NO_SUCH_OVERLOAD)
    return int(first > second) - int(first < second)


_cached_comparison = lru_cache(maxsize=4096)(_compared)


_COMPARISONS = (
    Function("compareTo", ("opaque", "opaque"), "int", _compare_to),
    Function("isGreaterThan", ("opaque", "opaque"), "bool", lambda left, right: _compare_to(left, right) > 0),
    Function("isLessThan", ("opaque", "opaque"), "bool", lambda left, right: _compare_to(left, right) < 0),
)


# Quantities.


def _quantity(text: str) -> bytes:
    try:
        return quantity_to_bytes(text)
    except ValueError as error:
        problem = str(error).rpartition(": ")[2]
        raise ValueError(problem if problem.startswith("unable to") else _WRONG_FORMAT) from error


def _as_integer(carried: bytes) -> int | None:
    """Return a quantity as an int64; None if it is not one."""
    quantity: Quantity = from_bytes(carried, Quantity)
    if quantity.exponent < 0 or abs(quantity.nanos) > (_MAX_INT64 + 1) * 10**9:
        return None
    whole: int = quantity.unscaled * 10**quantity.exponent
    return whole if -_MAX_INT64 - 1 <= whole <= _MAX_INT64 else None


def _get_integer(carried: bytes) -> int:
    whole = _as_integer(carried)
    if whole is None:
        raise ValueError("cannot convert value to integer")
    return whole


def _approximate_float(carried: bytes) -> float:
    quantity: Quantity = from_bytes(carried, Quantity)
    try:
        return float(quantity.unscaled) * float(f"1e{quantity.exponent}")
    except OverflowError:
        return float("inf") if quantity.unscaled > 0 else float("-inf")


def _sign(carried: bytes) -> int:
    quantity: Quantity = from_bytes(carried, Quantity)
    return int(quantity.unscaled > 0) - int(quantity.unscaled < 0)


def _add(left: bytes, right: bytes | int, factor: int = 1) -> bytes:
    other = Quantity(right) if isinstance(right, int) else from_bytes(right, Quantity)
    negated = Quantity(factor * other.unscaled, other.exponent, is_int64=other.is_int64)
    return to_bytes(from_bytes(left, Quantity) + negated)


def _subtract(left: bytes, right: bytes | int) -> bytes:
    return _add(left, right, -1)


_QUANTITIES = (
    Function("quantity", ("string",), "opaque", _quantity, is_member=False),
    Function("isQuantity", ("string",), "bool", lambda text: _is(_quantity, text), is_member=False),
    Function("sign", ("opaque",), "int", _sign, is_member=False),
    Function("isInteger", ("opaque",), "bool", lambda carried: _as_integer(carried) is not None),
    Function("asInteger", ("opaque",), "int", _get_integer),
    Function("asApproximateFloat", ("opaque",), "double", _approximate_float),
    Function("add", ("opaque", "opaque"), "opaque", _add),
    Function("add", ("opaque", "int"), "opaque", _add),
    Function("sub", ("opaque", "opaque"), "opaque", _subtract),
    Function("sub", ("opaque", "int"), "opaque", _subtract),
)


# Versions.


def _semver(text: str, tolerantly: bool = False) -> bytes:
    return to_bytes(parse_version_tolerantly(text) if tolerantly else parse_version(text))


def _core(place: int) -> Callable[[bytes], int]:
    return lambda carried: int(from_bytes(carried, Version).core[place])


_VERSIONS = (
    Function("semver", ("string",), "opaque", _semver, is_member=False),
    Function("semver", ("string", "bool"), "opaque", _semver, is_member=False),
    Function("isSemver", ("string",), "bool", lambda text: _is(_semver, text), is_member=False),
    Function(
        "isSemver",
        ("string", "bool"),
        "bool",
        lambda text, tolerantly: _is(_semver, text, tolerantly),
        is_member=False,
    ),
    Function("major", ("opaque",), "int", _core(0)),
    Function("minor", ("opaque",), "int", _core(1)),
    Function("patch", ("opaque",), "int", _core(2)),
)


# Addresses and networks.


def _parse_ip(text: str) -> Address:
    if "%" in text:
        raise ValueError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ip_address(text)
    except ValueError as error:
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {error}') from error
    if address.version == 6 and address.ipv4_mapped:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def _parse_cidr(text: str) -> Network:
    address, _, bits = text.partition("/")
    problem = "network address parse error during conversion from string"
    if not (bits.isascii() and bits.isdigit()) or (len(bits) > 1 and bits[0] == "0"):
        raise ValueError(f"{problem}: {text!r} has no length of a prefix")
    try:
        return ip_interface(f"{_parse_ip(address)}/{bits}")
    except ValueError as error:
        raise ValueError(f"{problem}: {error}") from error


def _cidr(text: str) -> bytes:
    return to_bytes(_parse_cidr(text))


def _ip(text: str) -> bytes:
    return to_bytes(_parse_ip(text))


def _about_ip(says: Callable[[Address], Any]) -> Callable[[bytes], Any]:
    return lambda carried: says(from_bytes(carried, Address))


def _about_cidr(says: Callable[[Network], Any]) -> Callable[[bytes], Any]:
    return lambda carried: says(from_bytes(carried, Network))


def _contains_ip(carried: bytes, other: bytes | str) -> bool:
    address = _parse_ip(other) if isinstance(other, str) else from_bytes(other, Address)
    return address in from_bytes(carried, Network).network


def _contains_cidr(carried: bytes, other: bytes | str) -> bool:
    outer: Network = from_bytes(carried, Network)
    inner: Network = _parse_cidr(other) if isinstance(other, str) else from_bytes(other, Network)
    if outer.version != inner.version:
        return False
    return inner.ip in outer.network and outer.network.prefixlen <= inner.network.prefixlen


def _is_global_unicast(address: Address) -> bool:
    return not (
        address.is_multicast
        or address.is_unspecified
        or address.is_loopback
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


def _is_link_local_multicast(address: Address) -> bool:
    packed = address.packed
    if address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 2


_NETWORKS = (
    Function("ip", ("string",), "opaque", _ip, is_member=False),
    Function("isIP", ("string",), "bool", lambda text: _is(_parse_ip, text), is_member=False),
    Function(
        "ip.isCanonical", ("string",), "bool", lambda text: str(_parse_ip(text)) == text, is_member=False
    ),
    Function("family", ("opaque",), "int", _about_ip(lambda address: address.version)),
    Function("isUnspecified", ("opaque",), "bool", _about_ip(lambda address: address.is_unspecified)),
    Function("isLoopback", ("opaque",), "bool", _about_ip(lambda address: address.is_loopback)),
    Function("isLinkLocalMulticast", ("opaque",), "bool", _about_ip(_is_link_local_multicast)),
    Function("isLinkLocalUnicast", ("opaque",), "bool", _about_ip(lambda address: address.is_link_local)),
    Function("isGlobalUnicast", ("opaque",), "bool", _about_ip(_is_global_unicast)),
    Function("cidr", ("string",), "opaque", _cidr, is_member=False),
    Function("isCIDR", ("string",), "bool", lambda text: _is(_parse_cidr, text), is_member=False),
    Function("containsIP", ("opaque", "opaque"), "bool", _contains_ip),
    Function("containsIP", ("opaque", "string"), "bool", _contains_ip),
    Function("containsCIDR", ("opaque", "opaque"), "bool", _contains_cidr),
    Function("containsCIDR", ("opaque", "string"), "bool", _contains_cidr),
    Function("ip", ("opaque",), "opaque", _about_cidr(lambda network: to_bytes(network.ip))),
    Function("prefixLength", ("opaque",), "int", _about_cidr(lambda network: network.network.prefixlen)),
    Function(
        "masked",
        ("opaque",),
        "opaque",
        _about_cidr(lambda network: to_bytes(ip_interface(network.network.with_prefixlen))),
    ),
)


# Lists, also used as sets.


def _equal(left: Any, right: Any) -> bool:
    """Return whether values are equal in the language: true does not equal 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _set_of(items: Sequence[Any]) -> set[Hashable]:
    """Return hashable keys of values: equal keys for equal values."""
    return set(map(_hashable, items))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list):
        return ("list", *map(_hashable, value))
    if isinstance(value, dict):
        return ("map", frozenset((_hashable(key), _hashable(item)) for key, item in value.items()))
    if isinstance(value, bytearray):
        return bytes(value)
    try:
        hash(value)
    except TypeError:  # a type, as the language has them
        return type(value).__name__, repr(value)
    return isinstance(value, bool), value


def _index_of(items: Sequence[Any], wanted: Any) -> int:
    return next((place for place, item in enumerate(items) if _equal(item, wanted)), -1)


def _last_index_of(items: Sequence[Any], wanted: Any) -> int:
    return next((place for place in reversed(range(len(items))) if _equal(items[place], wanted)), -1)


def _extreme(name: str, choose: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    def chosen(items: Sequence[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return _ordered(lambda: choose(items))

    return chosen


def _is_sorted(items: Sequence[Any]) -> bool:
    return bool(_ordered(lambda: all(left <= right for left, right in pairwise(items))))


def _ordered(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except TypeError as error:  # values of different types
        raise ValueError(NO_SUCH_OVERLOAD) from error


_LISTS = (
    Function(
        "sets.contains",
        ("list", "list"),
        "bool",
        lambda items, others: _set_of(others) <= _set_of(items),
        is_member=False,
    ),
    Function(
        "sets.equivalent",
        ("list", "list"),
        "bool",
        lambda left, right: _set_of(left) == _set_of(right),
        is_member=False,
    ),
    Function(
        "sets.intersects",
        ("list", "list"),
        "bool",
        lambda left, right: not _set_of(left).isdisjoint(_set_of(right)),
        is_member=False,
    ),
    Function("indexOf", ("list", "dyn"), "int", _index_of),
    Function("lastIndexOf", ("list", "dyn"), "int", _last_index_of),
    Function("isSorted", ("list",), "bool", _is_sorted),
    Function("min", ("list",), "dyn", _extreme("min", min)),
    Function("max", ("list",), "dyn", _extreme("max", max)),
    Function("sum", ("list",), "dyn", lambda items: _ordered(lambda: reduce(add, items, 0))),
)


def _is(parse: Callable[..., Opaque | bytes], *arguments: Any) -> bool:
    try:
        parse(*arguments)
    except ValueError:
        return False
    return True


FUNCTIONS = (*_COMPARISONS, *_QUANTITIES, *_VERSIONS, *_NETWORKS, *_LISTS)
