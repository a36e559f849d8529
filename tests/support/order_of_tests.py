"""The order of the tests when several processes run them."""

from __future__ import annotations

from itertools import chain, groupby, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    T = TypeVar("T")

LONG = (
    "tests/integration/documents",
    "tests/process",
    "tests/integration/packaging",
    "tests/hostile",
    "tests/third_party",
    "tests/integration/board",
    "tests/integration/commands",
    "tests/integration/configuration",
    "tests/integration/daemon",
)
"""The folders with tests that start processes and wait for them, the longest first."""


PAGES = "tests/integration/documents/test_pages.py"
"""The module whose tests are all long."""
BOARD = "tests/integration/board"
"""The folder whose modules share a browser, which takes seconds to start."""


def together(test: str) -> str:
    """Return what tests that stay together have in common: module or folder, or nothing if each of them is long."""
    module = test.partition("::")[0]
    if module.startswith(f"{BOARD}/"):
        return BOARD
    return test if module == PAGES else module


def long_first(tests: Sequence[T], path_of: Callable[[T], str], n_workers: int) -> list[T]:
    """Divide the tests with long ones first, so that no worker begins one at the end while the others have no work.

    xdist gives each worker one part of the list, all of the same size, and moves tests from the end of a part. The
    modules with long tests are at the beginning of all parts in turn. Neighbours with one path stay together.

    Args:
        tests: the tests in the order of their modules.
        path_of: returns the path of a test's module, relative to the repository, or more; see `together`.
        n_workers: the number of processes.
    """
    modules = [(path, list(group)) for path, group in groupby(tests, path_of)]
    ranks = {path: rank for path, _ in modules for rank, folder in enumerate(LONG) if path.startswith(folder)}
    long = sorted((module for module in modules if module[0] in ranks), key=lambda module: ranks[module[0]])
    others = chain.from_iterable(group for path, group in modules if path not in ranks)
    parts: list[list[T]] = [[] for _ in range(n_workers)]
    for number, (_, group) in enumerate(long):
        parts[number % n_workers] += group
    left = len(tests)
    for number in range(n_workers):
        size = left // (n_workers - number)
        left -= size
        parts[number] += islice(others, max(0, size - len(parts[number])))
    return [*chain.from_iterable(parts), *others]
