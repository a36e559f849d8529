"""Long tests come first, in equal parts for all processes that run the tests."""

from __future__ import annotations

from tests.support.manifests import ROOT
from tests.support.order_of_tests import LONG, PAGES, long_first, together


def test_modules_with_long_tests_begin_all_parts_in_turn() -> None:
    short = [f"tests/unit/test_{module}.py::{number}" for module in "ab" for number in range(4)]
    hostile = [f"tests/hostile/test_hostile.py::{number}" for number in range(2)]
    pages = [f"{PAGES}::{number}" for number in range(2)]

    ordered = long_first([*hostile, *pages, *short], together, 2)

    assert ordered == [pages[0], *hostile, *short[:3], pages[1], *short[3:]]


def test_one_process_runs_all_tests_with_long_ones_first() -> None:
    assert long_first(["tests/a.py::0", "tests/process/b.py::0"], together, 1) == [
        "tests/process/b.py::0",
        "tests/a.py::0",
    ]


def test_the_folders_of_long_tests_exist() -> None:
    assert [folder for folder in LONG if not (ROOT / folder).is_dir()] == []
    assert (ROOT / PAGES).is_file()
