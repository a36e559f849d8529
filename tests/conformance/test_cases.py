"""Our verdict on every stored case is that of kube-scheduler."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.conformance.comparison import FAMILIES, compare, report
from tests.conformance.corpus import CASES, explain, load, paths

if TYPE_CHECKING:
    from pathlib import Path


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"


@pytest.mark.parametrize("path", paths(), ids=_name)
def test_the_verdicts_of_a_case_are_those_of_kube_scheduler(path: Path) -> None:
    case = load(path)
    mismatches = compare(case, explain(case))

    assert not mismatches, report(mismatches)


def test_no_case_is_missing() -> None:
    found = Counter(path.parent.name for path in paths())

    assert found == FAMILIES, f"in {CASES}"
