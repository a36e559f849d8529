"""URLs as they are shown: in logs, events, errors, pages, metrics and recordings.

A URL may have a password, a token or a signature: before its host, and in its query. Nobody who reads these needs them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_HIDDEN: Final = "xxxxx"
"""What Go writes for a password."""
_PLAIN: Final = frozenset({"query"})
"""Parameters that are shown: Prometheus is asked with it."""
_BEGINNING: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PUNCTUATION: Final = ".,:;!?)]}"
_URL: Final = re.compile(rf"{_BEGINNING.pattern}[^\s\"'<>`]+")


def shown_url(url: str) -> str:
    """Return a URL without user, password, fragment, and the values of its query; the same again if it is given that.

    What is no URL, or lacks the scheme, is taken for one all the same.
    """
    begins = _BEGINNING.match(url)
    scheme = begins[0] if begins else ""
    rest, hash_mark, _ = url[len(scheme) :].partition("#")
    rest, question_mark, query = rest.partition("?")
    # A password may hold a slash that should have been escaped: whatever is before the last @ is none of anybody's business.
    _, at, host = rest.rpartition("@")
    return "".join(
        (
            scheme,
            _HIDDEN if at else "",
            at,
            host,
            question_mark,
            "&".join(map(_parameter, query.split("&"))) if query else "",
            f"#{_HIDDEN}" if hash_mark else "",
        )
    )


def shown_text(text: str, *urls: str) -> str:
    """Return what somebody else's code says, such as an error, without the secrets of the URLs in it.

    Args:
        text: it.
        urls: that it may hold, also such as have spaces or quotes.
    """
    for url in urls:
        text = text.replace(url, shown_url(url))
    return _URL.sub(_shown_match, text) if "://" in text else text


def shown_value(value: str) -> str:
    """Return a setting, which may be a URL, or have one in its text."""
    return shown_url(value) if _BEGINNING.match(value) else shown_text(value)


def shown_in(value: Any, show: Callable[[str], str]) -> Any:
    """Return what JSON can say, with every text in it as it is shown; keys stay."""
    match value:
        case str():
            return show(value)
        case dict():
            return {key: shown_in(item, show) for key, item in value.items()}
        case list() | tuple():
            return [shown_in(item, show) for item in value]
    return value


def _shown_match(found: re.Match[str]) -> str:
    url = found[0].rstrip(_PUNCTUATION)
    return shown_url(url) + found[0][len(url) :]


def _parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return parameter if name in _PLAIN else f"{name}={_HIDDEN}" if equals else _HIDDEN
