"""The words of errors about what somebody wrote: paths, what was found, what may have been meant."""

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
    """The path of a field or key: `a.b`, or `a["b.c"]` for keys that are no plain word."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{quoted(key)}]"
    return f"{path}.{key}" if path else key


def entry(path: str, index: int) -> str:
    """The path of a list's entry: `a[3]`."""
    return f"{path}[{index}]"


def quoted(text: str) -> str:
    """Text in double quotes on one line, cut where it gets long."""
    shown = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
    return json.dumps(shown, ensure_ascii=False)


def was(value: object) -> str:
    """What was found, as in `was 12`, `was "12"`, `was a list`."""
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
    """A hint that follows a sentence, as in `, did you mean "plugins"?`; "" when nothing is near."""
    if len(name) > _LONGEST_SHOWN:
        return ""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f", did you mean {quoted(by_lower_case[near[0]])}?" if near else ""
