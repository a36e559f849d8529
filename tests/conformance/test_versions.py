"""The verdicts on pods, and the ends of pod groups, are those of the kube-scheduler of each version."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.feature_gates import VERSIONS
from tests.conformance.simulated_groups import play_simulated
from tests.conformance.version_cases import version_cases, wrong_pods
from tests.conformance.version_groups import scenario_of
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", version_cases("pods"))
def test_the_verdicts_on_pods_are_those_of_each_version(name: str) -> None:
    wrong = wrong_pods(version_cases("pods")[name])

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", version_cases("groups"))
def test_groups_end_as_in_each_version(name: str, tmp_path: Path) -> None:
    differences = run(play_simulated(scenario_of(version_cases("groups")[name]), tmp_path))

    assert not differences, "\n".join(map(str, differences))


def test_every_version_has_cases() -> None:
    judged = {(case.version, bool(case.gates)) for case in version_cases("pods").values()}

    assert judged == set(product(VERSIONS, (True, False)))
