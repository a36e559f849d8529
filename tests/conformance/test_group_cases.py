"""Pod groups end as in kube-scheduler in every recorded scenario, unless an argument says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conformance.group_deviations import ARGUMENTS, DEVIATIONS, unexpected
from tests.conformance.groups import cases
from tests.conformance.simulated_groups import play_simulated
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", cases())
def test_groups_end_as_in_kube_scheduler(name: str, tmp_path: Path) -> None:
    differences = run(play_simulated(cases()[name], tmp_path))

    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_gang_scheduling_changes_the_end_as_listed(name: str, tmp_path: Path) -> None:
    case = replace(cases()[name], args={ARGUMENTS[name]: True})
    differences = run(play_simulated(case, tmp_path))

    assert not (reported := unexpected(name, differences)), "\n".join(reported)


def test_the_list_of_cases_and_the_recordings_match() -> None:
    assert len(cases()) == 18
    assert DEVIATIONS.keys() == ARGUMENTS.keys()
