"""Translates the library's error messages to those of upstream's library."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"^[A-Z_]+: |(?: \[[A-Z_]+\])$")
_SAID = (
    (re.compile(r'Key not found in map : "?(.*?)"?'), r"no such key: \1"),
    (re.compile(r"No matching overloads found : .*"), "no such overload"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile("divide by zero"), "division by zero"),
    (re.compile("Iteration budget exceeded"), "operation cancelled: actual cost limit exceeded"),
)


_LONGEST = 4096  # characters; some messages repeat the text for each error in it


def _said(said: Any) -> str:
    """Return a message without its code, shortened."""
    text = str(said)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}...{text[-len(' [INVALID_ARGUMENT]') :]}"
    return _CODE.sub("", text)


def compile_error(error: Exception) -> str:
    """Return why an expression could not be compiled."""
    return f"compilation failed: {_said(error)}"


def evaluation_error(said: Any) -> str:
    """Return why an evaluation failed."""
    text = _said(said)
    for pattern, words in _SAID:
        found = pattern.fullmatch(text)
        if found:
            return found.expand(words)
    return text


def conversion_error(kind: str) -> str:
    """Return the message for a result that is not a bool."""
    name = kind.lower()
    problem = {
        "INT": "unsupported type conversion from 'int' to bool",
        "STRING": "unsupported native conversion from string to 'bool'",
    }.get(kind, f"type conversion error from '{name}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {problem}"
