"""What the library says of errors, in the words of the one that upstream uses."""

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


def compile_error(error: Exception) -> str:
    """Say why an expression could not be compiled."""
    return f"compilation failed: {_CODE.sub('', str(error))}"


def evaluation_error(said: Any) -> str:
    """Say why an evaluation failed."""
    text = _CODE.sub("", str(said))
    for pattern, words in _SAID:
        found = pattern.fullmatch(text)
        if found:
            return found.expand(words)
    return text


def conversion_error(kind: str) -> str:
    """Say that a result is no bool."""
    name = kind.lower()
    problem = {
        "INT": "unsupported type conversion from 'int' to bool",
        "STRING": "unsupported native conversion from string to 'bool'",
    }.get(kind, f"type conversion error from '{name}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {problem}"
