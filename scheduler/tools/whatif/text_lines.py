"""Lines of text that fit a terminal, broken between words."""

from __future__ import annotations

import textwrap


def filled(text: str, width: int, *, indent: int = 0, hanging: int | None = None) -> str:
    """Break a text into lines; a word that is wider than a line stays whole.

    Args:
        text: text without line breaks; leading spaces are kept.
        width: width of a line, in columns.
        indent: spaces before the first line.
        hanging: spaces before the other lines; None for the same number.
    """
    text, begin = text.lstrip(" "), " " * (indent + len(text) - len(text.lstrip(" ")))
    after = begin if hanging is None else " " * hanging
    return textwrap.fill(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=after,
        break_long_words=False,
        break_on_hyphens=False,
    )


def some(names: list[str], shown: int | None) -> str:
    """Return the first names of many: `a, b, c and 7 more`; all with None."""
    rest = 0 if shown is None else max(0, len(names) - shown)
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest else "")
