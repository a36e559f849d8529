"""A column that grows, and a log of changed rows."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.snapshot.arrays import ChangeLog, Column, most_kept, own, put_where, selected, shared


def test_a_view_of_the_same_length_has_the_cells_of_a_column_that_grew() -> None:
    column = Column(np.int64, 3)
    before = column.view(3)
    column.reserve(1000)
    column.cells[1] = 7

    assert column.view(3).tolist() == [0, 7, 0]
    assert before.tolist() == [0, 0, 0]


def test_a_view_follows_later_writes_and_the_number_of_rows() -> None:
    column = Column(np.int64, 3)
    view = column.view(2)
    column.cells[1] = 7

    assert (view.tolist(), column.view(3).tolist()) == ([0, 7], [0, 7, 0])


def log_of(*rows: int, n_nodes: int = 3) -> ChangeLog:
    log = ChangeLog()
    for row in rows:
        log.note(row, n_nodes)
    return log


def test_rows_are_listed_in_the_order_of_their_changes_with_repeats():
    assert log_of(2, 0, 2).since(0) == [2, 0, 2]


def test_a_later_read_returns_only_new_changes():
    log = log_of(2, 0)
    seen = log.end
    assert log.since(seen) == []

    log.note(1, 3)
    assert log.since(seen) == [1]
    assert log.since(0) == [2, 0, 1]


@pytest.mark.parametrize("n_nodes", [1, 5000])
def test_old_changes_are_dropped_and_a_late_reader_gets_none(n_nodes: int):
    log = log_of(*range(100_000), n_nodes=n_nodes)
    remembered = [seen for seen in range(log.end + 1) if log.since(seen) is not None]

    assert log.end == 100_000
    assert max(1024, n_nodes) <= len(remembered) <= 2 * max(1024, n_nodes) + 1
    assert all(log.since(seen) == list(range(seen, log.end)) for seen in (remembered[0], remembered[-1]))
    assert log.since(remembered[0] - 1) is None


def test_results_for_all_nodes_are_limited_by_number_in_small_clusters_and_by_memory_in_large_ones():
    kept = [most_kept(128, n_nodes, 48) for n_nodes in (0, 100, 43_690, 50_000, 100_000, 10_000_000)]
    assert kept == [128, 128, 128, 111, 55, 16]
    assert 111 * 50_000 * 48 <= 256 * 2**20 < 112 * 50_000 * 48


def test_masks_without_a_pattern_select_and_replace_as_an_index_does():
    mask = np.random.default_rng(1).random(1000) < 0.5
    index = np.arange(1000, dtype=np.uint16)
    wanted = index.copy()
    wanted[mask] = 7

    assert selected(index, mask).tolist() == index[mask].tolist()
    put_where(index, mask, 7)
    assert index.tolist() == wanted.tolist()
    assert index.dtype == np.uint16


def test_numbers_replace_others_where_a_mask_is_set():
    mask = np.random.default_rng(2).random(1000) < 0.5
    numbers, values = np.full(1000, -1, dtype=np.int8), np.arange(1000, dtype=np.uint16) % 100

    put_where(numbers, mask, values)

    assert numbers.tolist() == np.where(mask, values.astype(np.int64), -1).tolist()


def test_an_array_is_copied_for_a_change_if_it_is_shared_or_too_small():
    numbers = np.array([1, 2], dtype=np.int8)
    assert own(numbers, 127) is numbers
    assert own(numbers, 128).dtype == np.int16
    assert own(numbers.astype(np.uint8), 255).dtype == np.uint8
    assert own(numbers.astype(np.uint8), 256).dtype == np.uint16

    copied = own(shared(numbers))
    copied[0] = 5

    assert numbers.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        numbers[0] = 5
