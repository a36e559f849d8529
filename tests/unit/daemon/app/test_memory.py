"""Each garbage collection examines a bounded number of objects for any size of the cluster."""

from __future__ import annotations

import subprocess
import sys

BEGIN = """
import gc
from scheduler.daemon.app.memory import collect_young, settle_memory

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
    """Run a program in a separate process, and return the numbers that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_a_collection_of_young_objects_visits_a_bounded_number() -> None:
    young, times = prints("print(*gc.get_threshold()[:2])")

    assert young * (times + 1) <= 30_000


def test_long_lived_objects_are_not_visited_again() -> None:
    looked_through, frozen = prints(
        """
pods = [Known() for _ in range(300_000)]
gc.collect(1)
gc.collect(1)
print(len(gc.get_objects()), gc.get_freeze_count())
"""
    )

    assert looked_through < 1000
    assert frozen > 300_000


def test_a_full_collection_frees_old_garbage() -> None:
    found = prints(
        """
import weakref
pods = [Known() for _ in range(300_000)]
old = cycle()
seen = weakref.ref(old)
gc.collect(1)
del old
gc.collect()
print(int(seen() is not None))
"""
    )

    assert found == [0]


def test_few_objects_are_young_while_new_objects_replace_old_ones() -> None:
    youngest, young, frozen = prints(
        """
pods = [Known() for _ in range(300_000)]
gc.collect(1)
youngest = young = 0
for number in range(200_000):
    pods[number] = Known()
    if number % 5000 == 0:
        youngest = max(youngest, len(gc.get_objects(0)))
        young = max(young, len(gc.get_objects(1)))
        collect_young()
print(youngest, young, gc.get_freeze_count())
"""
    )

    assert youngest <= 6_000
    assert young <= 30_000
    assert frozen > 250_000
