r"""Regular expressions in Go's syntax, for Python.

Two differences occur in schemas: `\z` is the end of the text, and flags may be set in the middle, as in `^(?i)(on|off)$`;
they apply to the rest of their group.

Source:
    Go's regexp/syntax package, documented syntax.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?P<flags>[ims]+)\)|\(|\)|.", re.DOTALL)


@lru_cache(maxsize=1024)
def go_pattern(text: str) -> re.Pattern[str]:
    """Compile a Go expression.

    Raises:
        re.error: it is not an expression, or uses a feature that only Go has.
    """
    return re.compile(_for_python(text))


def _for_python(text: str) -> str:
    parts: list[str] = []
    open_flags = [0]  # for each open group, outermost first: number of flags set in it
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
