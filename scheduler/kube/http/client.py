"""Requests to any web server: extenders, Prometheus, sources of guests, and daemons.

One rule for all of them:

- Trust: given certificates, or else those of the system; see `certificates.trust`.
- Proxy: that of the environment; see `endpoint.proxy_of`.
- Redirects: followed as by Go's client, at most ten, to http and https: 307 and 308 repeat the request, 301, 302 and
  303 become a GET. The caller's headers are sent to the first server only.
- Cookies: none. Compressed answers: an error, because the size of the content is not known beforehand.
- Limits: each request has a deadline and a limit of the answer's bytes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from scheduler.kube.http.endpoint import Endpoint, basic_authorization, proxy_of
from scheduler.kube.http.pool import ConnectionPool
from scheduler.kube.http.request import JSON, USER_AGENT, Response, target
from scheduler.urls import shown_text, shown_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from scheduler.kube.http.protocol import HttpProtocol

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REPEATED = frozenset({307, 308})
_MOST_REDIRECTS = 10
_NO_HEADERS: Mapping[str, str] = {}


class HttpError(OSError):
    """No valid answer; the message has the method, the URL without secrets, and the cause."""


class HttpClient:
    """Sends requests to web servers, with one pool of connections for each server.

    Args:
        tls: see `Attributes`.
        server_hostname: name in the servers' certificates, if it is not that of the URL.

    Attributes:
        tls: TLS context of new connections; None trusts the system's authorities.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, server_hostname: str | None = None) -> None:
        self.tls = tls
        self._server_hostname = server_hostname
        self._pools: dict[str, ConnectionPool] = {}  # scheme, host and port -> pool

    async def send(
        self,
        method: str,
        url: str,
        *,
        timeout_seconds: float,
        most_bytes: int,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes | None = None,
        check: Callable[[], None] | None = None,
    ) -> Response:
        """Send a request and wait for the whole answer, whatever its status.

        Args:
            method: the HTTP method.
            url: the URL; its user and password are sent as Basic authorization.
            timeout_seconds: time limit, connecting and redirects included.
            most_bytes: the limit of the answer, head included.
            headers: additional headers.
            body: JSON; None for a request without a body.
            check: see `ConnectionPool.exchange`.

        Raises:
            HttpError: no valid answer in time.
        """
        first = url
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        try:
            for _ in range(1 + _MOST_REDIRECTS):
                pool = self._pool(origin(url))
                encode = partial(_encoded, method, pool.endpoint, url, headers, body)
                connection = await pool.exchange(method, encode, deadline, check=check, most_bytes=most_bytes)
                answer = Response(connection.status, connection.taken())
                pool.give_back(connection)
                location = _location(connection, url)
                if location is None:
                    _check_encoding(connection)
                    return answer
                if answer.status not in _REPEATED:
                    method, body = "GET", None
                if origin(location) != origin(url):
                    headers = _NO_HEADERS
                url = location
            raise ConnectionError(f"more than {_MOST_REDIRECTS} redirects")
        except (OSError, ValueError) as error:
            is_late = isinstance(error, TimeoutError)
            problem = f"no answer within {timeout_seconds:g} s" if is_late else shown_text(str(error), url)
            raise HttpError(f"{method} {shown_url(first)}: {problem}") from error

    async def close(self) -> None:
        """Close all connections."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _pool(self, server: str) -> ConnectionPool:
        pool = self._pools.get(server)
        if pool is None or pool.endpoint.tls is not self.tls:
            endpoint = Endpoint(server, self.tls, self._server_hostname, proxy_of(server))
            if pool is not None:
                pool.replace_endpoint(endpoint)
                return pool
            # Requests may lead to ever more servers.
            self._pools = {name: each for name, each in self._pools.items() if each.is_used}
            pool = self._pools[server] = ConnectionPool(endpoint)
        return pool


def origin(url: str) -> str:
    """Return scheme, host and port of a URL.

    Raises:
        ValueError: it is not the URL of a web server; the message contains no part of it.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", "" if parts.port is None else f":{parts.port}"
        name = f"[{host}]" if ":" in host else host.encode("idna").decode()
    except ValueError:  # UnicodeError is one
        name = ""
    if not name or not name.isprintable() or " " in name:
        raise ValueError("its host or port cannot be part of a URL")
    if parts.scheme not in {"http", "https"}:
        raise ValueError("not a URL of a web server")
    return f"{parts.scheme}://{name}{port}"


def _encoded(
    method: str, endpoint: Endpoint, url: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    parts = urlsplit(url)
    if basic := basic_authorization(parts):
        headers = {"Authorization": basic, **headers}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if not all(map(str.isprintable, lines)):
        raise ValueError("a header is more than one line of text")  # without its value
    if body is not None:
        lines += [f"Content-Type: {JSON}", f"Content-Length: {len(body)}"]
    path = target(f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}")
    head = (
        f"{method} {endpoint.target_prefix}{path} HTTP/1.1\r\nHost: {endpoint.host}\r\n"
        f"User-Agent: {USER_AGENT}\r\nAccept-Encoding: identity\r\n{endpoint.headers}"
    )
    return head.encode() + "".join(f"{line}\r\n" for line in (*lines, "")).encode() + (body or b"")


def _location(answer: HttpProtocol, url: str) -> str | None:
    """Return the URL that an answer redirects to; None if the answer is no redirect to a web server."""
    if answer.status not in _REDIRECTS or not (location := answer.header(b"location")):
        return None
    location = urljoin(url, location)
    return location if location.startswith(("http://", "https://")) else None


def _check_encoding(answer: HttpProtocol) -> None:
    encoding = answer.header(b"content-encoding") or "identity"
    if encoding != "identity":
        raise ConnectionError(f"the response is compressed with {encoding!r}, which was not requested")
