"""Checks URLs, and hides their secrets in logs, events, errors, HTTP endpoints, metrics and recordings.

A URL may have a password, a token or a signature: before its host, and in its query. Readers of these texts
do not need them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_HIDDEN: Final = "xxxxx"
"""Go's replacement of a password."""
_PLAIN: Final = frozenset({"query"})
"""Parameters that are shown: the queries of Prometheus."""
_BEGINNING: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PUNCTUATION: Final = ".,:;!?)]}"
_URL: Final = re.compile(rf"{_BEGINNING.pattern}[^\s\"'<>`]+")


def is_http_url(text: str) -> bool:
    """Return whether this is a URL of HTTP or HTTPS that names a host."""
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:  # an invalid port, an unfinished IPv6 address
        return False


def shown_url(url: str) -> str:
    """Return a URL without user, password, fragment, and the values of its query; the function is idempotent.

    Text that is not a URL, or lacks the scheme, is treated as one.
    """
    begins = _BEGINNING.match(url)
    scheme = begins[0] if begins else ""
    rest, hash_mark, _ = url[len(scheme) :].partition("#")
    rest, question_mark, query = rest.partition("?")
    # A password may contain an unescaped slash: everything before the last @ is hidden.
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
    """Return the text of other code, such as an error, without the secrets of the URLs in it.

    Args:
        text: the text.
        urls: URLs that it may contain, also with spaces or quotes.
    """
    for url in urls:
        text = text.replace(url, shown_url(url))
    return _URL.sub(_shown_match, text) if "://" in text else text


def shown_value(value: str) -> str:
    """Return a setting, which may be a URL, or contain one, without secrets."""
    return shown_url(value) if _BEGINNING.match(value) else shown_text(value)


def shown_in(value: Any, show: Callable[[str], str]) -> Any:
    """Return a JSON value with `show` applied to every string; keys are unchanged."""
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
