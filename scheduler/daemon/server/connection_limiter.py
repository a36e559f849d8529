"""Limits the number of waiting connections, and chooses the one to close.

Probes and scrapes must be admitted at any load, and a client is known only after its first request. A new connection is
therefore never rejected: instead the longest-waiting connection of the peer with the most connections is closed.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_BITS_OF_ONE_IPV6_PEER = 64
"""A client with one address of such a network usually has all of them."""


class LimitedConnection(Protocol):
    """A waiting connection.

    Attributes:
        peer: the peer of the connection.
    """

    @property
    def peer(self) -> str: ...


class ConnectionLimiter:
    """Connections in order of arrival, at most `limit` of them.

    Args:
        limit: the maximum number of waiting connections.
        reject: called with the connection to close, after its removal.
    """

    def __init__(self, limit: int, reject: Callable[[LimitedConnection], None]) -> None:
        self._limit = limit
        self._reject = reject
        self._by_peer: dict[str, dict[LimitedConnection, None]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def enter(self, connection: LimitedConnection) -> None:
        """Add a connection; beyond the limit, another one is removed."""
        if self._size >= self._limit:
            most = max(self._by_peer.values(), key=len)  # on a tie the peer that came first
            oldest = next(iter(most))
            self.leave(oldest)
            self._reject(oldest)
        self._by_peer.setdefault(connection.peer, {})[connection] = None
        self._size += 1

    def leave(self, connection: LimitedConnection) -> bool:
        """Remove a connection, and return whether it was present."""
        of_peer = self._by_peer.get(connection.peer, {})
        if connection not in of_peer:
            return False
        del of_peer[connection]
        if not of_peer:
            del self._by_peer[connection.peer]
        self._size -= 1
        return True

    def next(self) -> LimitedConnection:
        """Remove the first connection of the next peer, in rotation: a peer with many connections delays only itself."""
        peer, of_peer = next(iter(self._by_peer.items()))
        connection = next(iter(of_peer))
        self.leave(connection)
        if peer in self._by_peer:
            self._by_peer[peer] = self._by_peer.pop(peer)  # to the end
        return connection


def peer_of(address: str) -> str:
    """Return the peer of an address: an IPv4 address, or a /64 of IPv6; any other text stands for itself."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    network = int(found) >> (128 - _BITS_OF_ONE_IPV6_PEER) << (128 - _BITS_OF_ONE_IPV6_PEER)
    return f"{IPv6Address(network)}/{_BITS_OF_ONE_IPV6_PEER}"
