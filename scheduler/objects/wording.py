"""Parts of messages about invalid input: paths, found values, suggestions."""

from __future__ import annotations

import difflib
import json
import re
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to follow a sentence, as in `, did you mean "plugins"?`; "" if nothing is similar."""
    if len(name) > _LONGEST_SHOWN:
        return ""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f", did you mean {quoted(by_lower_case[near[0]])}?" if near else ""
