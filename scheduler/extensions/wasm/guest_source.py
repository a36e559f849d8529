"""Reads the bytes of a guest."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.files import read_regular
from scheduler.kube.http.client import HttpClient

if TYPE_CHECKING:
    from scheduler.kube.http.request import Response

_TOTAL_SECONDS = 60.0
"""How long a server may take in total."""
MOST_BYTES = 256 * 1024 * 1024
"""The limit of a guest's size."""
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
        OSError: it does not exist, or the server does not answer in time; the message contains no secrets.
        ValueError: a URL with another scheme.

    Source:
        kube-scheduler-wasm-extension, scheduler/plugin/wasm.go, newWasmFromURL.
    """
    path = guest_file(url, folder)
    if path is not None:
        return read_regular(path, MOST_BYTES)
    scheme = url.partition("://")[0]
    if scheme not in {"http", "https"}:
        raise ValueError(f"unsupported URL scheme: {scheme}")
    answers: Future[Response] = Future()

    async def ask() -> None:
        client = HttpClient()
        try:
            answers.set_result(
                await client.send("GET", url, timeout_seconds=_TOTAL_SECONDS, most_bytes=MOST_BYTES)
            )
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            answers.set_exception(error)
        finally:
            await client.close()

    # In a thread of its own, because that of the caller may run a loop, which then waits too.
    threading.Thread(target=asyncio.run, args=(ask(),), daemon=True).start()
    answer = answers.result()
    if answer.status != 200:
        raise OSError(f"received {answer.status} status code")
    return answer.body
