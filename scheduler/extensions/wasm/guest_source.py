"""Reads the bytes of a guest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.files import read_regular

if TYPE_CHECKING:
    from http.client import HTTPResponse

_TIMEOUT_SECONDS = 10.0
"""How long a server may send nothing."""
_TOTAL_SECONDS = 60.0
"""How long a server may take in total."""
MOST_BYTES = 256 * 1024 * 1024
"""The limit of a guest's size."""
_PART_BYTES = 1024 * 1024
_FILE = "file://"


def guest_file(url: str, folder: Path | None) -> Path | None:
    """Return the file that a guestURL names; None if it is not a file."""
    if url.startswith(_FILE):
        # As upstream: all that follows is the path, so that file://./x and file://../x are relative.
        return (folder or Path()) / url[len(_FILE) :]
    return None if "://" in url else (folder or Path()) / url


def read_guest(url: str, folder: Path | None) -> bytes:
    """Read a guest; this takes as long as the network does, so never in a cycle.

    Raises:
        OSError: it does not exist, or the server does not answer in time; the message does not contain the URL.
        ValueError: a URL with another scheme, or an invalid one.

    Source:
        kube-scheduler-wasm-extension, scheduler/plugin/wasm.go, newWasmFromURL.
    """
    path = guest_file(url, folder)
    if path is not None:
        return read_regular(path, MOST_BYTES)
    scheme = url.partition("://")[0]
    if scheme not in {"http", "https"}:
        raise ValueError(f"unsupported URL scheme: {scheme}")
    # These imports take a while, and few profiles have guests.
    import urllib.error
    import urllib.request
    from http.client import HTTPException, InvalidURL

    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked above
            if answer.status != 200:
                raise OSError(f"received {answer.status} status code")
            return _not_too_large(_body(answer))
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"received {error.code} status code") from error
    except urllib.error.URLError as error:
        raise OSError(str(error.reason)) from error
    except InvalidURL:
        # Its message repeats a part of the URL, perhaps with a password, which shown_text cannot recognize as a URL.
        raise ValueError("its host, port or path cannot be part of a URL") from None
    except HTTPException as error:
        raise OSError(f"no answer of HTTP: {type(error).__name__}: {error}") from error


def _body(answer: HTTPResponse) -> bytes:
    """Read a response to its end, or slightly beyond the limit."""
    end = time.monotonic() + _TOTAL_SECONDS
    content = bytearray()
    while len(content) <= MOST_BYTES and (part := answer.read1(_PART_BYTES)):
        content += part
        if time.monotonic() > end:
            raise OSError(f"not read within {_TOTAL_SECONDS:.0f} seconds")
    if answer.length and len(content) <= MOST_BYTES:
        raise OSError(f"the answer ends {answer.length} bytes too early")
    return bytes(content)


def _not_too_large(content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise OSError(f"more than {MOST_BYTES} bytes")
    return content
