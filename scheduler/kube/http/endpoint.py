"""The address of a server and how to connect to it: TCP or a Unix socket, TLS, a proxy.

The proxy of the environment follows the rules of kubectl and all Go programs. `urllib` knows neither networks nor ports nor
`*.` in NO_PROXY, and uses a proxy for this machine's own addresses.

Source:
    golang.org/x/net, http/httpproxy/proxy.go.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import aiohappyeyeballs

from scheduler.kube.http.protocol import HttpProtocol
from scheduler.kube.tls import system_context
from scheduler.urls import is_http_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ipaddress import IPv4Address, IPv6Address
    from pathlib import Path

P = TypeVar("P", bound=asyncio.BaseProtocol)

_PORTS = {"http": 80, "https": 443}
_SECOND_FAMILY_AFTER_SECONDS = 0.25


@dataclass(frozen=True)
class Endpoint:
    """One server.

    Attributes:
        server: its URL, including a base path; `http://localhost` over a Unix socket.
        tls: TLS context for https; None for the system's trusted authorities.
        server_hostname: name in the server's certificate, if it is not the URL's.
        proxy: URL of an HTTP proxy, `http://user:password@host:port`; "" for none.
        unix_socket: path of the socket the server listens on; "" for TCP.
        advice: what to do if the server's certificate is not trusted; "" for none.
    """

    server: str
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str = ""
    unix_socket: str | Path = ""
    advice: str = ""

    @property
    def host(self) -> str:
        """The server's name, and its port unless it is the scheme's default, as in the header `Host`."""
        url = urlsplit(self.server)
        host = url.netloc.rpartition("@")[2]
        return host.rpartition(":")[0] if url.port == _PORTS.get(url.scheme) else host

    @property
    def target_prefix(self) -> str:
        """The part of the request target before the path: the URL's own path, for an HTTP proxy the absolute URL."""
        url = urlsplit(self.server)
        path = url.path.rstrip("/")
        return f"http://{self.host}{path}" if self._is_read_by_proxy else path

    @property
    def headers(self) -> str:
        """Header lines of every request over such a connection."""
        return _proxy_authorization(urlsplit(self.proxy)) if self._is_read_by_proxy else ""

    async def connect(self, protocol_factory: Callable[[], P]) -> P:
        """Open a connection.

        Raises:
            OSError: the connection failed; `ssl.SSLError` is one.
        """
        loop = asyncio.get_running_loop()
        url = urlsplit(self.server)
        secured = self._tls(url)
        if self.unix_socket:
            _, protocol = await loop.create_unix_connection(
                protocol_factory, str(self.unix_socket), **secured
            )
        elif self.proxy:
            protocol = await self._connect_by_proxy(protocol_factory, url, secured)
        else:
            where = await _where(url)
            _, protocol = await loop.create_connection(protocol_factory, **where, **secured)
        return protocol

    def why_not(self, error: OSError) -> str:
        """Return where a connection failed, and why."""
        # Other values may have a password.
        proxy = f" by proxy {urlsplit(self.proxy).hostname}" if is_http_url(self.proxy) else ""
        advice = self.advice if isinstance(error, ssl.SSLCertVerificationError) else ""
        return f"{shown_url(self.server)}{proxy}: {_told(error)}{advice and f'; {advice}'}"

    @property
    def _is_read_by_proxy(self) -> bool:
        return bool(self.proxy) and urlsplit(self.server).scheme == "http"

    def _tls(self, url: SplitResult) -> dict[str, Any]:
        if url.scheme != "https":
            return {}
        context = self.tls or system_context()
        return {"ssl": context, "server_hostname": self.server_hostname or url.hostname}

    async def _connect_by_proxy(
        self, protocol_factory: Callable[[], P], url: SplitResult, secured: dict[str, Any]
    ) -> P:
        loop = asyncio.get_running_loop()
        if not is_http_url(self.proxy):
            raise ConnectionError("not the URL of an HTTP proxy")  # the URL may contain a password
        proxy = urlsplit(self.proxy)
        to_proxy = {"ssl": system_context(), "server_hostname": proxy.hostname}
        options = {**await _where(proxy), **(to_proxy if proxy.scheme == "https" else {})}
        if not secured:
            _, protocol = await loop.create_connection(protocol_factory, **options)
            return protocol
        transport, tunnel = await loop.create_connection(HttpProtocol, **options)
        try:
            authority = self.host if url.port not in {None, 443} else f"{self.host}:443"
            head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{_proxy_authorization(proxy)}\r\n"
            await tunnel.begin_piecewise(head.encode())
            _check_opened(tunnel, proxy)
            protocol = protocol_factory()
            secure = await loop.start_tls(
                transport, protocol, secured["ssl"], server_hostname=secured["server_hostname"]
            )
        except BaseException:
            transport.abort()
            raise
        assert secure is not None
        protocol.connection_made(secure)
        return protocol


def _check_opened(tunnel: HttpProtocol, proxy: SplitResult) -> None:
    if tunnel.status != 200:
        raise ConnectionError(f"proxy {proxy.hostname} answered {tunnel.status}")


async def _where(url: SplitResult) -> dict[str, Any]:
    """Return the arguments to connect with; a name with several addresses gives a socket connected to the quickest one."""
    assert url.hostname is not None
    port = url.port or _PORTS[url.scheme]
    try:
        ip_address(url.hostname)
    except ValueError:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)
        connected = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_SECOND_FAMILY_AFTER_SECONDS
        )
        return {"sock": connected}
    return {"host": url.hostname, "port": port}


def _told(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if error.errno and error.errno > 0:  # a failed lookup has a negative one
        return os.strerror(error.errno)  # event loops differ in their own text
    return error.strerror or str(error) or type(error).__name__


def _proxy_authorization(proxy: SplitResult) -> str:
    authorization = basic_authorization(proxy)
    return f"Proxy-Authorization: {authorization}\r\n" if authorization else ""


def basic_authorization(url: SplitResult) -> str:
    """Return the value of the Authorization header for the user of a URL; "" for no user."""
    if url.username is None:
        return ""
    user = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {base64.b64encode(user.encode()).decode()}"


def proxy_of(server: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the proxy for a server, "" for none.

    Args:
        server: URL of the server.
        environment: the variables; an upper-case name takes precedence.
    """
    url = urlsplit(server)
    proxy = _variable(environment, f"{url.scheme}_proxy")
    if not proxy or not url.hostname:
        return ""
    host, port = url.hostname, url.port or _PORTS[url.scheme]
    if _is_here(host) or _is_excepted(host, port, _variable(environment, "no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _is_here(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    """Return whether a comma-separated list has a host: as an address, in a network, by name, or by a name's suffix."""
    address = _address(host)
    for text in exceptions.lower().split(","):
        exception = text.strip()
        if exception == "*":
            return True
        if "/" in exception:
            if address is not None and _has(exception, address):
                return True
            continue
        name, its_port = _split(exception)
        if its_port not in {"", str(port)}:
            continue
        if address is not None:
            if _address(name) == address:
                return True
        elif name and _is_called(host, name.removeprefix("*")):
            return True
    return False


def _is_called(host: str, name: str) -> bool:
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split(exception: str) -> tuple[str, str]:
    """Return a host and its port, "" for any port; an IPv6 address with a port is in brackets."""
    host, colon, port = exception.rpartition(":")
    if not colon or _address(exception) is not None:
        return exception, ""
    return host.removeprefix("[").removesuffix("]"), port


def _has(network: str, address: IPv4Address | IPv6Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:  # possibly a path
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
