"""The verdicts on pods are those of the kube-scheduler of each version."""

from __future__ import annotations

from itertools import product

import pytest

from scheduler.configuration.feature_gates import VERSIONS
from tests.conformance.version_cases import version_cases, wrong_pods


@pytest.mark.parametrize("name", version_cases("pods"))
def test_the_verdicts_on_pods_are_those_of_each_version(name: str) -> None:
    wrong = wrong_pods(version_cases("pods")[name])

    assert not wrong, "\n".join(wrong)


def test_every_version_has_cases() -> None:
    judged = {(case.version, bool(case.gates)) for case in version_cases("pods").values()}

    assert judged == set(product(VERSIONS, (True, False)))
