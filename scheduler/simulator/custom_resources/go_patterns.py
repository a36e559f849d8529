r"""Regular expressions as Go writes them, for Python.

Two things differ in what schemas use: `\z` is the end of the text, and flags may be set in the middle, as in `^(?i)(on|off)$`,
from where they hold to the end of the group they are in.

Source:
    Go's regexp/syntax package, the syntax it documents.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?P<flags>[ims]+)\)|\(|\)|.", re.DOTALL)


@lru_cache(maxsize=1024)
def go_pattern(text: str) -> re.Pattern[str]:
    """Compile an expression that Go would.

    Raises:
        re.error: it is none, or uses what only Go knows.
    """
    return re.compile(_for_python(text))


def _for_python(text: str) -> str:
    parts: list[str] = []
    open_flags = [0]  # of each group that is open, the outermost first: how many flags were set in it
    for token in _TOKEN.finditer(text):
        part = token[0]
        if token["flags"]:
            part = f"(?{token['flags']}:"
            open_flags[-1] += 1
        elif part == r"\z":
            part = r"\Z"
        elif part == "(":
            open_flags.append(0)
        elif part == ")" and len(open_flags) > 1:
            part = ")" * (1 + open_flags.pop())
        parts.append(part)
    return "".join(parts) + ")" * sum(open_flags)
