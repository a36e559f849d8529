"""Pod groups end as with the kube-scheduler of each version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.simulated_groups import play_simulated
from tests.conformance.version_cases import version_cases
from tests.conformance.version_groups import scenario_of
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", version_cases("groups"))
def test_groups_end_as_in_each_version(name: str, tmp_path: Path) -> None:
    differences = run(play_simulated(scenario_of(version_cases("groups")[name]), tmp_path))

    assert not differences, "\n".join(map(str, differences))
