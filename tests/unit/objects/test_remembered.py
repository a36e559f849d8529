from __future__ import annotations

from scheduler.objects.remembered import Remembered


def test_what_is_kept_stays_within_the_bytes_given_for_it():
    known: Remembered[int, str] = Remembered(1_000_000)
    for number in range(10_000):
        assert known.keep(number, str(number), 100) == str(number)
        assert known.get(number) == str(number)
        assert known.bytes <= 1_000_000

    assert 0 < len(known) < 1000
    assert known.get(0) is None


def test_what_is_very_long_is_not_kept_and_drives_nothing_out():
    known: Remembered[str, int] = Remembered(1_000_000)
    known.keep("a", 1, 10)

    assert known.keep("b", 2, 10_000_000) == 2

    assert known.get("b") is None
    assert known.get("a") == 1
