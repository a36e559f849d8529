"""Fair shares of siblings, compared with a slow search by ever finer levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plugins.fair_queues.ledger import FairShares, divide, want
from plugins.fair_queues.queues import Queue, Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[int, ...]


def divided(
    room: Row, wanted: Sequence[Row], *, sure: Sequence[Row] | None = None, weights: Sequence[int] = ()
) -> list[list[float]]:
    found = divide(
        np.array(room, dtype=float),
        np.maximum(np.array(room, dtype=float), 1),
        np.array(wanted, dtype=float),
        np.zeros((len(wanted), len(room))) if sure is None else np.array(sure, dtype=float),
        np.array(weights or [1] * len(wanted), dtype=float),
    )
    return [[round(float(each), 6) for each in row] for row in found]


@pytest.mark.parametrize(
    ("room", "wanted", "options", "found"),
    [
        pytest.param((12,), [(99,), (99,), (99,)], {}, [[4], [4], [4]], id="equals get equal parts"),
        pytest.param(
            (12,), [(99,), (99,), (99,)], {"weights": [1, 2, 3]}, [[2], [4], [6]], id="parts go by weight"
        ),
        pytest.param(
            (12,), [(2,), (99,), (99,)], {}, [[2], [5], [5]], id="unused shares are divided among the others"
        ),
        pytest.param((12,), [(2,), (3,)], {}, [[2], [3]], id="no more than the demand"),
        pytest.param(
            (12,), [(99,), (99,)], {"sure": [(8,), (0,)]}, [[8], [4]], id="the guaranteed part comes first"
        ),
        pytest.param(
            (12,),
            [(99,), (99,)],
            {"sure": [(3,), (0,)]},
            [[6], [6]],
            id="the guaranteed part counts toward the share",
        ),
        pytest.param(
            (12,),
            [(99,), (99,)],
            {"sure": [(18,), (6,)]},
            [[9], [3]],
            id="too much that is sure is scaled down",
        ),
        pytest.param((12,), [(1,), (99,)], {"sure": [(8,), (0,)]}, [[1], [11]], id="unused min is borrowed"),
        pytest.param(
            (9, 18),
            [(90, 360), (270, 90)],
            {},
            [[3, 12], [6, 2]],
            id="dominant shares, as in the paper on DRF",
        ),
        pytest.param(
            (10, 10), [(99, 0), (0, 99), (99, 99)], {}, [[5, 0], [0, 5], [5, 5]], id="two resources run out"
        ),
        pytest.param(
            (10, 10),
            [(99, 0), (99, 0), (0, 99)],
            {},
            [[5, 0], [5, 0], [0, 10]],
            id="a resource with one consumer goes to it",
        ),
        pytest.param((0,), [(5,), (5,)], {}, [[0], [0]], id="nothing to divide"),
        pytest.param((5,), [(0,), (0,)], {}, [[0], [0]], id="no demand"),
    ],
)
def test_the_capacity_is_divided(
    room: Row, wanted: Sequence[Row], options: dict[str, Any], found: list[list[float]]
) -> None:
    assert divided(room, wanted, **options) == found


def slowly(
    room: Sequence[float], wanted: Sequence[Row], sure: Sequence[Row], weights: Sequence[int]
) -> list[list[float]]:
    """Let all shares grow together; if that exceeds a resource, find the level by bisection, and the queues that stop."""
    n, columns = len(wanted), range(len(room))
    whole = [max(each, 1) for each in room]
    floor = [[float(min(s, w)) for s, w in zip(sure[i], wanted[i], strict=True)] for i in range(n)]
    for r in columns:
        total = sum(floor[i][r] for i in range(n))
        if total > room[r]:
            for i in range(n):
                floor[i][r] *= room[r] / total
    dominant = [max(wanted[i][r] / whole[r] for r in columns) for i in range(n)]
    full = [dominant[i] / weights[i] for i in range(n)]

    def has(i: int, level: float) -> list[float]:
        part = 1.0 if full[i] == 0 else min(1.0, level / full[i])
        return [max(floor[i][r], wanted[i][r] * part) for r in columns]

    stopped: dict[int, float] = {}

    def overfilled(level: float) -> list[int]:
        totals = [sum(has(i, stopped.get(i, level))[r] for i in range(n)) for r in columns]
        return [r for r in columns if totals[r] > room[r] * (1 + 1e-9) + 1e-9]

    while len(stopped) < n:
        top = max(full[i] for i in range(n) if i not in stopped)
        if not overfilled(top):
            break
        low, high = 0.0, top
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if overfilled(middle) else (middle, high)
        out = overfilled(high + 1e-7 * (1 + high))
        growing = [
            i
            for i in range(n)
            if i not in stopped
            and any(has(i, high + 1e-7 * (1 + high))[r] > has(i, low)[r] + 1e-12 for r in out)
        ]
        for i in growing:
            stopped[i] = low
    return [has(i, stopped.get(i, full[i])) for i in range(n)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Row, list[Row], list[Row], list[int]]:
    n, columns = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    row = st.tuples(*[st.sampled_from([0, 0, 1, 2, 3, 5, 8, 20, 100])] * columns)
    rows = st.lists(row, min_size=n, max_size=n)
    weights = st.lists(st.integers(1, 5), min_size=n, max_size=n)
    return draw(row), draw(rows), draw(rows), draw(weights)


@given(cases())
@example(((0, 1), [(1, 0), (0, 1)], [(0, 0), (0, 0)], [1, 1]))
def test_the_fast_division_equals_the_slow_one(case: tuple[Row, list[Row], list[Row], list[int]]) -> None:
    room, wanted, sure, weights = case
    found = divided(room, wanted, sure=sure, weights=weights)

    assert np.allclose(found, slowly(room, wanted, sure, weights), atol=1e-3)
    assert (np.array(found).sum(axis=0) <= np.array(room) + 1e-3).all()
    assert (np.array(found) <= np.array(wanted) + 1e-6).all()


def test_a_tree_is_divided_from_the_root_within_every_max() -> None:
    tree = Tree(
        [
            Queue("a", weight=3),
            Queue("b"),
            Queue("a-1", "a"),
            Queue("a-2", "a", max={"cpu": 10}),
        ]
    )
    shares = FairShares(tree, ("cpu",))
    wanted, asked = np.zeros((2, 4, 1), dtype=np.int64)
    for name in ("a-1", "a-2", "b"):
        want(wanted, asked, shares.limit, tree.paths[name], np.array([200]))
    found = shares.deserved(wanted, np.array([100]), np.array([100]))

    assert {queue.name: int(found[place, 0]) for place, queue in enumerate(tree.queues)} == {
        "a": 75,
        "b": 25,
        "a-1": 65,
        "a-2": 10,
    }


def test_large_amounts_are_divided_exactly() -> None:
    tree = Tree([Queue("a"), Queue("b")])
    gib = 1 << 50
    demand = np.array([[gib + 1], [3]])
    found = FairShares(tree, ("memory",)).deserved(demand, np.array([gib + 4]), np.array([gib + 4]))

    assert found.tolist() == [[gib + 1], [3]]
