"""Reads the readable parts of JSON that a decoder rejects as a whole.

A decoder recurses at every level, so it fails on JSON that nests deeper than the stack, wherever the nesting
is; an API server stores 10,000 levels. This module counts all brackets at once instead, and leaves out
unreadable parts.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of a decoder that fails on the whole."""

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_TEXT = msgspec.json.Decoder(str)


def members(raw: bytes) -> dict[str, bytes]:
    """Return the raw members of an object; those with unreadable names are left out.

    Raises:
        ValueError: the bytes are not a complete object.
    """
    starts, ends, colons = _parts(raw)
    is_empty = len(starts) == 1 and not raw[starts[0] : ends[0]].strip()
    if raw[starts[0] - 1 : starts[0]] != b"{" or len(colons) != (0 if is_empty else len(starts)):
        raise ValueError("no JSON object")
    found = {}
    for start, colon, end in zip(starts, colons, ends, strict=False):  # an empty object has no colon
        try:
            name = _TEXT.decode(raw[start:colon])
        except UNREADABLE:
            continue
        found[name] = raw[colon + 1 : end].strip()
    return found


def elements(raw: bytes) -> list[bytes]:
    """Return the raw elements of a list.

    Raises:
        ValueError: the bytes are not a complete list.
    """
    starts, ends, _ = _parts(raw)
    if raw[starts[0] - 1 : starts[0]] != b"[":
        raise ValueError("no JSON list")
    found = [raw[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return found if found != [b""] else []


def legible(raw: bytes, levels: int = 1) -> dict[str, Any]:
    """Return the readable parts of an object, as untyped JSON.

    Args:
        raw: the object.
        levels: number of levels at which objects are read in parts; deeper unreadable objects are left out.

    Raises:
        ValueError: the bytes are not a complete object.
    """
    found = {}
    for name, part in members(raw).items():
        try:
            found[name] = msgspec.json.decode(part)
        except UNREADABLE:
            if levels:
                with suppress(ValueError):
                    found[name] = legible(part, levels - 1)
    return found


def without_managed_fields(raw: bytes) -> bytes:
    """Return an object without managedFields, whatever they contain.

    Raises:
        ValueError: the bytes are not a complete object.
    """
    fields = members(raw)
    if "metadata" in fields:
        metadata = members(fields["metadata"])
        metadata.pop("managedFields", None)
        fields["metadata"] = _joined(metadata)
    return _joined(fields)


def _joined(parts: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join([msgspec.json.encode(name) + b":" + part for name, part in parts.items()]) + b"}"


def _parts(raw: bytes) -> tuple[list[int], list[int], list[int]]:
    """Return the starts and ends of the parts of an object or list, and the colons in them."""
    plain = _ESCAPED.sub(b"__", raw) if b"\\" in raw else raw  # then each quote begins or ends a string
    cells = np.frombuffer(plain, dtype=np.uint8)
    outside: NDArray[np.bool_] = ~np.logical_xor.accumulate(cells == ord('"'))
    # As bytes, { and [ differ by one bit, and so do } and ].
    opens, closes = (((cells | 0x20) == ord(bracket)) & outside for bracket in "{}")
    depth = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    whole = np.flatnonzero(closes & (depth == 0))
    first = int(opens.argmax()) if len(cells) else 0
    if not whole.size or not opens[first]:
        raise ValueError("no whole JSON object or list")
    between = outside & (depth == 1)
    end = int(whole[0])
    brackets = raw[first : first + 1] + raw[end : end + 1]
    if brackets not in {b"{}", b"[]"} or raw[:first].strip() or raw[end + 1 :].strip():
        raise ValueError("no JSON object or list")
    commas, colons = (np.flatnonzero(between[:end] & (cells[:end] == ord(sign))).tolist() for sign in ",:")
    return [first + 1, *(comma + 1 for comma in commas)], [*commas, end], colons
