"""The fingerprint of a set of pods, by which a NodeResourceTopology names the pods that it includes.

The order of the pods does not matter. It is a hash of 64 bits (xxHash, XXH64), not a cryptographic one.

Source:
    podfingerprint v0.2, podfingerprint.go, version v001.
    The xxHash fast digest algorithm, version 0.2.0, XXH64.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX: Final = "pfp0v001"

_MASK: Final = 2**64 - 1
_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_PRIME_5: Final = 0x27D4EB2F165667C5
_STRIPE: Final = Struct("<4Q")
_WORD: Final = Struct("<Q")
_HALF_WORD: Final = Struct("<I")

_PODS_KEPT: Final = 65_536
_NAMESPACES_KEPT: Final = 4096


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods, given as (namespace, name)."""
    hashes = sorted(_pod_hash(namespace, name) for namespace, name in pods)
    total = xxh64(b"".join(map(_WORD.pack, hashes)))
    return f"{_PREFIX}{total:016x}"


@lru_cache(maxsize=_PODS_KEPT)
def _pod_hash(namespace: str, name: str) -> int:
    return xxh64(name.encode(), _namespace_hash(namespace))


@lru_cache(maxsize=_NAMESPACES_KEPT)
def _namespace_hash(namespace: str) -> int:
    return xxh64(namespace.encode())


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 hash of data."""
    length, place = len(data), 0
    if length >= 32:
        first, second = (seed + _PRIME_1 + _PRIME_2) & _MASK, (seed + _PRIME_2) & _MASK
        third, fourth = seed, (seed - _PRIME_1) & _MASK
        while place + 32 <= length:
            words = _STRIPE.unpack_from(data, place)
            first, second = _round(first, words[0]), _round(second, words[1])
            third, fourth = _round(third, words[2]), _round(fourth, words[3])
            place += 32
        total = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
        total &= _MASK
        for lane in (first, second, third, fourth):
            total = ((total ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK
    else:
        total = (seed + _PRIME_5) & _MASK
    total = (total + length) & _MASK
    while place + 8 <= length:
        total ^= _round(0, _WORD.unpack_from(data, place)[0])
        total = (_rotated(total, 27) * _PRIME_1 + _PRIME_4) & _MASK
        place += 8
    if place + 4 <= length:
        total ^= (_HALF_WORD.unpack_from(data, place)[0] * _PRIME_1) & _MASK
        total = (_rotated(total, 23) * _PRIME_2 + _PRIME_3) & _MASK
        place += 4
    for byte in data[place:]:
        total = (_rotated(total ^ (byte * _PRIME_5 & _MASK), 11) * _PRIME_1) & _MASK
    total = ((total ^ (total >> 33)) * _PRIME_2) & _MASK
    total = ((total ^ (total >> 29)) * _PRIME_3) & _MASK
    return total ^ (total >> 32)


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _PRIME_2) & _MASK, 31) * _PRIME_1) & _MASK


def _rotated(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (64 - bits))) & _MASK
