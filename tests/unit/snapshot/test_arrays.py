from __future__ import annotations

import numpy as np

from scheduler.snapshot.arrays import Column


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
