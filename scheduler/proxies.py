"""The proxy for a server from the environment, with the rules of kubectl and all Go programs.

`urllib` knows neither networks nor ports nor `*.` in NO_PROXY, and uses a proxy for this machine's own
addresses.

Source:
    golang.org/x/net, http/httpproxy/proxy.go.
"""

from __future__ import annotations

import os
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ipaddress import IPv4Address, IPv6Address

_PORTS = {"http": 80, "https": 443}


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


def is_http(proxy: str) -> bool:
    """Return whether this is the URL of an HTTP proxy. Other values must not appear in messages: they may have a password."""
    try:
        url = urlsplit(proxy)
        return url.scheme in _PORTS and bool(url.hostname) and url.port != 0
    except ValueError:  # an invalid port, an unfinished IPv6 address
        return False


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
