"""Pod groups fare here as in kube-scheduler, in every recorded scenario, but for what is listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.group_deviations import DEVIATIONS, unexpected
from tests.conformance.groups import cases
from tests.conformance.simulated_groups import play_simulated
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", cases())
def test_groups_fare_as_in_kube_scheduler(name: str, tmp_path: Path) -> None:
    differences = run(play_simulated(cases()[name], tmp_path))

    assert not (told := unexpected(name, differences)), "\n".join(told)


def test_no_case_is_missing_and_none_is_listed_that_is_not_there() -> None:
    assert len(cases()) == 18
    assert DEVIATIONS.keys() <= cases().keys()
