"""The HTTP client of plugins."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.files import read_regular
from scheduler.kube.certificates.trust import client_context
from scheduler.kube.http.client import HttpClient, HttpError
from scheduler.replay_hooks import NO_HOOKS
from scheduler.urls import shown_url
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.replay_hooks import ReplayHooks

T = TypeVar("T")

MAX_BYTES = 8 * 2**20
"""The limit of a response, which is read in less than half a second; 15,000 nodes need a quarter of it."""


class WebClient:
    """Sends requests to web servers; reads tokens and CA files again when they change."""

    def __init__(self, hooks: ReplayHooks = NO_HOOKS) -> None:
        self._hooks = hooks
        self._clients: dict[str, HttpClient] = {}  # CA file -> client; "" for the system's authorities
        self._insecure = HttpClient(client_context(verifies=False))
        # CA file -> its modification time, and its content
        self._trust: dict[str, tuple[int, ssl.SSLContext]] = {}
        self._reading: dict[str, asyncio.Task[Any]] = {}  # path -> task that reads it

    async def http_get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 5.0,
        ca_file: str = "",
        insecure: bool = False,
        bearer_token_file: str = "",
    ) -> bytes:
        ask = partial(self._get, url, headers or {}, timeout_seconds, ca_file, insecure, bearer_token_file)
        return await self._hooks.external_call(f"GET {shown_url(url)}", ask, bytes)

    async def _get(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout_seconds: float,
        ca_file: str,
        insecure: bool,
        bearer_token_file: str,
    ) -> bytes:
        if bearer_token_file:
            token = await self._read(bearer_token_file, _token, timeout_seconds)
            headers = {**headers, "Authorization": f"Bearer {token}"}
        client = self._insecure if insecure else self._clients.setdefault(ca_file, HttpClient())
        if ca_file and not insecure:
            client.tls = await self._read(ca_file, self._trusted, timeout_seconds)
        answer = await client.send(
            "GET", url, headers=headers, timeout_seconds=timeout_seconds, most_bytes=MAX_BYTES
        )
        if not 200 <= answer.status <= 299:
            raise HttpError(f"GET {shown_url(url)}: {answer.status}: {answer.body[:256]!r}")
        return answer.body

    async def close(self) -> None:
        """Close all connections, without waiting for files."""
        for reading in self._reading.values():
            reading.cancel()
        for client in (self._insecure, *self._clients.values()):
            await client.close()

    async def _read(self, path: str, read: Callable[[str], T], timeout_seconds: float) -> T:
        """Read a file once for all requests that wait for it.

        Raises:
            OSError: it cannot be read, or not in time.
        """
        reading = self._reading.get(path)
        if reading is None:
            ask = in_a_thread(partial(read, path), f"reading {path}", gives_up=False)
            reading = self._reading[path] = asyncio.create_task(ask, name=f"reading {path}")
            reading.add_done_callback(lambda _: self._reading.pop(path))
        done, _ = await asyncio.wait({reading}, timeout=timeout_seconds)
        if not done:
            raise OSError(f"{path}: not read within {timeout_seconds:g} seconds")
        result: T = reading.result()
        return result

    def _trusted(self, ca_file: str) -> ssl.SSLContext:
        """Return the TLS settings for a CA file; the file is read again after a change."""
        written = Path(ca_file).stat().st_mtime_ns
        known = self._trust.get(ca_file)
        if known is None or known[0] != written:
            try:
                context = client_context(read_regular(Path(ca_file)))
            except ssl.SSLError as error:
                raise OSError(f"{ca_file}: not certificates in PEM: {error}") from error
            known = self._trust[ca_file] = (written, context)
        return known[1]


def _token(path: str) -> str:
    try:
        token = read_regular(Path(path)).decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise OSError(f"{path}: not a bearer token") from error
    if not token or any(not character.isprintable() for character in token):
        raise OSError(f"{path}: not a bearer token")  # without its content
    return token
