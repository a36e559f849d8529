"""Caches stay within their limits."""

from __future__ import annotations

from scheduler.objects.caches import BoundedDict, Remembered


def test_the_oldest_entry_is_dropped_beyond_the_limit():
    cache: BoundedDict[str, int] = BoundedDict(2)
    for number, key in enumerate("abc"):
        cache[key] = number
    assert dict(cache) == {"b": 1, "c": 2}
    assert cache.setdefault("d", 3) == 3
    assert dict(cache) == {"c": 2, "d": 3}


def test_an_entry_that_is_set_again_is_the_newest():
    cache: BoundedDict[str, int] = BoundedDict(2)
    cache["a"] = cache["b"] = 0
    cache["a"] = 1
    cache["c"] = 2
    assert list(cache.items()) == [("a", 1), ("c", 2)]


def test_a_used_entry_is_dropped_last():
    cache: BoundedDict[str, int] = BoundedDict(2)
    cache["a"] = cache["b"] = 0
    cache.move_to_end("a")
    cache["c"] = 2
    assert list(cache) == ["a", "c"]


def test_only_entries_dropped_by_the_limit_are_reported():
    dropped: list[tuple[str, int]] = []
    cache: BoundedDict[str, int] = BoundedDict(2, lambda *entry: dropped.append(entry))
    cache["a"] = 0
    del cache["a"]
    for number, key in enumerate("bcd"):
        cache[key] = number
    cache.pop("c")
    cache.clear()
    assert dropped == [("b", 0)]


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
