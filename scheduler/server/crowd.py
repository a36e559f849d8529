"""Who waits at the door, and who gives way to whom.

Probes and scrapes must get in whatever else comes, and who somebody is shows only when he has spoken. So nobody is
refused for those that are there already: of the peer that has most connections the one that has waited longest goes.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_BITS_OF_ONE_IPV6_PEER = 64
"""Whoever has one address of such a network mostly has all of them."""


class Connection(Protocol):
    """One that waits.

    Attributes:
        peer: whose it is.
    """

    @property
    def peer(self) -> str: ...


class Crowd:
    """Connections in the order of their coming, at most `limit` of them.

    Args:
        limit: how many may wait.
        turn_away: is called with the one that gives way, which has left by then.
    """

    def __init__(self, limit: int, turn_away: Callable[[Connection], None]) -> None:
        self._limit = limit
        self._turn_away = turn_away
        self._by_peer: dict[str, dict[Connection, None]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def enter(self, connection: Connection) -> None:
        """Take one in; if that is one too many, another goes."""
        if self._size >= self._limit:
            most = max(self._by_peer.values(), key=len)  # of several the peer that came first
            oldest = next(iter(most))
            self.leave(oldest)
            self._turn_away(oldest)
        self._by_peer.setdefault(connection.peer, {})[connection] = None
        self._size += 1

    def leave(self, connection: Connection) -> bool:
        """Let one go, and say whether it was here."""
        of_peer = self._by_peer.get(connection.peer, {})
        if connection not in of_peer:
            return False
        del of_peer[connection]
        if not of_peer:
            del self._by_peer[connection.peer]
        self._size -= 1
        return True

    def next(self) -> Connection:
        """Let the first of one peer go, the next time that of another, so that a peer with many delays its own."""
        peer, of_peer = next(iter(self._by_peer.items()))
        connection = next(iter(of_peer))
        self.leave(connection)
        if peer in self._by_peer:
            self._by_peer[peer] = self._by_peer.pop(peer)  # behind the others
        return connection


def peer_of(address: str) -> str:
    """Return who is counted as one peer: an IPv4 address, or a /64 of IPv6; what is no address stands for itself."""
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
