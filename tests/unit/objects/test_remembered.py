from __future__ import annotations

from scheduler.objects.remembered import Remembered


def test_the_cache_stays_within_its_bytes():
    known: Remembered[int, str] = Remembered(1_000_000)
    for number in range(10_000):
        assert known.keep(number, str(number), 100) == str(number)
        assert known.get(number) == str(number)
        assert known.bytes <= 1_000_000

    assert 0 < len(known) < 1000
    assert known.get(0) is None


def test_a_very_large_value_is_not_cached_and_evicts_nothing():
    known: Remembered[str, int] = Remembered(1_000_000)
    known.keep("a", 1, 10)

    assert known.keep("b", 2, 10_000_000) == 2

    assert known.get("b") is None
    assert known.get("a") == 1
