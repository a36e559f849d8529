"""Garbage is looked for in few objects at a time, whatever the cluster's size."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import gc
from scheduler.app import memory
from scheduler.app.memory import settle_memory

class Known:
    pass

def cycle():
    made = Known()
    made.itself = made
    return made

settle_memory()
gc.collect()
"""


def prints(program: str) -> list[int]:
    """Run a program in a process of its own, and return the numbers that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_a_collection_of_young_objects_looks_through_a_bounded_number() -> None:
    young, times, most = prints("print(*gc.get_threshold()[:2], memory.MOST_OBJECTS)")

    assert young * (times + 1) <= most


def test_objects_that_stay_are_not_looked_through_again() -> None:
    looked_through, frozen = prints(
        """
pods = [Known() for _ in range(300_000)]
gc.collect(1)
gc.collect()
print(len(gc.get_objects()), gc.get_freeze_count())
"""
    )

    assert looked_through < 1000
    assert frozen > 300_000


@pytest.mark.parametrize(("others", "left"), [(0, 0), (300_000, 1)])
def test_old_garbage_is_found_where_few_objects_have_to_be_looked_through(others: int, left: int) -> None:
    found = prints(
        f"""
import weakref
pods = [Known() for _ in range({others})]
old = cycle()
seen = weakref.ref(old)
gc.collect(1)
del old
gc.collect()
print(int(seen() is not None))
"""
    )

    assert found == [left]
