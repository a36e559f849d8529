"""Limits of reviews for unknown clients."""

from __future__ import annotations

from scheduler.daemon.server.access import ReviewLimit


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.limit = ReviewLimit(lambda: self.now)

    def asked(self, peer: str, times: int, *, answered: bool = True) -> int:
        """Return how many of the given reviews were allowed."""
        begun = [self.limit.begin(peer) for _ in range(times)].count(0.0) if not answered else 0
        for _ in range(times if answered else 0):
            if not self.limit.begin(peer):
                begun += 1
                self.limit.end()
        return begun


def test_a_peer_has_a_small_burst_and_then_five_reviews_a_second() -> None:
    it = Scene()
    assert it.asked("a", 100) == 10
    assert it.limit.begin("a") == 0.2
    it.now = 2.0
    assert it.asked("a", 100) == 10
    it.now = 3.0
    assert it.asked("a", 100) == 5


def test_a_peer_with_constant_requests_does_not_block_others() -> None:
    it = Scene()
    for it.now in (0.0, 1.0, 2.0, 3.0):
        it.asked("a", 100)
        assert it.asked("b", 4) == 4


def test_all_peers_together_have_twenty_reviews_a_second() -> None:
    it = Scene()
    for second in range(5):
        it.now = float(second)
        begun = sum(it.asked(f"{second}-{peer}", 1) for peer in range(1000))
        assert begun == (20 if second else 40)


def test_the_number_of_concurrent_reviews_is_bounded() -> None:
    it = Scene()
    begun = sum(it.asked(f"{peer}", 1, answered=False) for peer in range(30))
    assert begun == 20
    assert it.limit.begin("x") == 1.0
    it.limit.end()
    assert it.limit.begin("x") == 0.0


def test_the_number_of_remembered_peers_is_bounded() -> None:
    it = Scene()
    for peer in range(1500):
        it.asked(f"{peer}", 1)
    assert len(it.limit._peers) == 1000
