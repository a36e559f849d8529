"""Which proxy the environment names for a server, if any: read as kubectl and all that is written in Go read it.

`urllib` knows neither networks nor ports nor `*.` in NO_PROXY, and sends what is meant for this machine by a proxy.

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
    """Return the URL of the proxy between, "" for none.

    Args:
        server: its URL.
        environment: variables; of each, capitals go before small letters.
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
    """Say whether this is the URL of an HTTP proxy; what it is otherwise is not for messages: a password may be in it."""
    try:
        url = urlsplit(proxy)
        return url.scheme in _PORTS and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is no number, an unfinished IPv6 address
        return False


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _is_here(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    """Say whether a list with commas has a host: as an address, a network, or a name or what it ends in."""
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
    """Return a host and its port, "" for any; an IPv6 address is in brackets where a port follows."""
    host, colon, port = exception.rpartition(":")
    if not colon or _address(exception) is not None:
        return exception, ""
    return host.removeprefix("[").removesuffix("]"), port


def _has(network: str, address: IPv4Address | IPv6Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:  # a path, perhaps
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
