"""How an extender is reached: one pool of connections each, with its own TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.certificates.key_pair import load_key_pair
from scheduler.errors import ConfigurationError, FieldError
from scheduler.extenders.wire import ExtenderError

if TYPE_CHECKING:
    import aiohttp

    from scheduler.configuration.types import Extender, ExtenderTLS
    from scheduler.objects.durations import Duration

_DEFAULT_SECONDS = 5.0
_LONGEST_ANSWER_BYTES = 256 * 1024 * 1024


class Transport:
    """Sends requests to one extender; nothing is opened before the first.

    Args:
        settings: the extender's.
        path: where they stand in the configuration, for messages.

    Raises:
        ConfigurationError: its certificates cannot be read.
    """

    def __init__(self, settings: Extender, path: str) -> None:
        self._prefix = settings.url_prefix.rstrip("/")
        self._server_name = (settings.tls_config.server_name if settings.tls_config else "") or None
        self._seconds = _seconds(settings.http_timeout)
        try:
            self._context = _ssl_context(settings)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"cannot be used: {getattr(error, 'strerror', None) or error}"
            raise ConfigurationError([FieldError(f"{path}.tlsConfig", problem)]) from error
        self._session: aiohttp.ClientSession | None = None

    async def post(self, verb: str, body: bytes) -> bytes:
        """Send a request and return the answer.

        Raises:
            ExtenderError: no answer in time, or not 200.
        """
        import aiohttp  # few profiles have extenders

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._context),
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=self._seconds),
            )
        url = f"{self._prefix}/{verb}"
        try:
            async with self._session.post(url, data=body, server_hostname=self._server_name) as answer:
                if answer.status != 200:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {answer.status}")
                return await answer.read()
        except TimeoutError as error:
            raise ExtenderError(f"POST {url}: no answer within {self._seconds:g} s") from error
        except aiohttp.ClientError as error:
            raise ExtenderError(f"POST {url}: {error}") from error

    async def close(self) -> None:
        """Close the pool."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _seconds(timeout: Duration) -> float:
    return timeout.nanoseconds / 1e9 or _DEFAULT_SECONDS


def _ssl_context(settings: Extender) -> ssl.SSLContext:
    """Return what https:// means for this extender.

    Source:
        kube-scheduler v1.36, pkg/scheduler/extender.go, makeTransport: with enableHTTPS and no authority given,
        whoever answers is believed.
    """
    tls = settings.tls_config
    has_authority = tls is not None and bool(tls.ca_file or tls.ca_data)
    context = ssl.create_default_context()
    if tls is not None and has_authority:
        context = ssl.create_default_context(
            cafile=None if tls.ca_data else tls.ca_file, cadata=tls.ca_data.decode() or None
        )
    if (settings.enable_https and not has_authority) or (tls is not None and tls.insecure):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls is not None and (tls.cert_file or tls.cert_data):
        load_key_pair(context, _key_pair(tls))
    return context


def _key_pair(tls: ExtenderTLS) -> bytes:
    """Return the client's key and certificate; data take precedence over files."""
    key = tls.key_data or Path(tls.key_file).read_bytes()
    certificate = tls.cert_data or Path(tls.cert_file).read_bytes()
    return key + b"\n" + certificate
