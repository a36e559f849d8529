"""Pod groups end as in kube-scheduler 1.37 in every derived case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.groups_1_37 import cases_1_37
from tests.conformance.simulated_groups import play_simulated
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", cases_1_37())
def test_groups_end_as_in_kube_scheduler_1_37(name: str, tmp_path: Path) -> None:
    differences = run(play_simulated(cases_1_37()[name], tmp_path))

    assert not differences, "\n".join(map(str, differences))
