"""Which connection is closed beyond the limit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from scheduler.http_server.listener import ConnectionLimiter, peer_of


@dataclass(frozen=True)
class Guest:
    peer: str
    number: int


def limiter(limit: int) -> tuple[ConnectionLimiter, list[Guest]]:
    gone: list[Guest] = []
    return ConnectionLimiter(limit, gone.append), gone  # type: ignore[arg-type]


def enter(limiter: ConnectionLimiter, *peers: str) -> list[Guest]:
    guests = [Guest(peer, number) for number, peer in enumerate(peers)]
    for guest in guests:
        limiter.enter(guest)
    return guests


@pytest.mark.parametrize(
    ("peers", "gone"),
    [
        pytest.param("aaaa", "0", id="of one peer the oldest"),
        pytest.param("abbb", "1", id="of several peers the oldest of the one that has most"),
        pytest.param("bbba", "0", id="also for a peer that has none yet"),
        pytest.param("abca", "0", id="of peers that have as many the first"),
        pytest.param("abcd", "0", id="different peers"),
        pytest.param("bbaaa", "02", id="one for each that is too many"),
    ],
)
def test_a_new_connection_over_the_limit_replaces_another(peers: str, gone: str) -> None:
    them, left = limiter(3)

    enter(them, *peers)

    assert [guest.number for guest in left] == [int(number) for number in gone]
    assert len(them) == 3


def test_a_closed_connection_replaces_no_other() -> None:
    them, left = limiter(2)
    first, *_ = enter(them, "a", "a")

    assert them.leave(first)
    assert not them.leave(first)
    enter(them, "b")

    assert left == []
    assert len(them) == 2


def test_peers_are_served_in_turn_for_any_number_of_connections() -> None:
    them, _ = limiter(9)
    enter(them, *"aaabaacb")

    turns = [them.next() for _ in range(8)]

    assert "".join(guest.peer for guest in turns) == "abcabaaa"
    assert len(them) == 0


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
    ids=["IPv4", "IPv4 on a socket of both", "a network of IPv6", "a link's own", "none"],
)
def test_addresses_of_one_peer(address: str, peer: str) -> None:
    assert peer_of(address) == peer
