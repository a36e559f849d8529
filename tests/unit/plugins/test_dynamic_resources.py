"""Pods with resource claims are not placed without them; of all others nothing is said but what upstream says."""

from __future__ import annotations

import pytest

from plugins.dynamic_resources.plugin import NOT_ALLOCATED, DynamicResources
from scheduler.framework import SKIP, Code, CycleState, Diagnosis, Status
from tests.builders import pod
from tests.snapshots import snapshot_of

PLUGIN = DynamicResources()
CLAIMING = pod("claiming", resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
SNAPSHOT = snapshot_of("n0")


def test_a_pod_without_claims_is_nothing_to_it() -> None:
    assert PLUGIN.pre_filter(CycleState(), pod("plain"), SNAPSHOT) is SKIP


def test_a_pod_with_claims_is_refused_for_good() -> None:
    status = PLUGIN.pre_filter(CycleState(), CLAIMING, SNAPSHOT)
    assert status == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (NOT_ALLOCATED,))


@pytest.mark.parametrize(
    ("each", "asked", "expected"),
    [
        pytest.param(pod("p"), True, Status.unschedulable("no new claims to deallocate"), id="no claims"),
        pytest.param(CLAIMING, True, Status.unschedulable("still not schedulable"), id="claims"),
        pytest.param(pod("p"), False, Status.failed("not found"), id="given up before it was asked"),
    ],
)
def test_after_the_filters_it_says_what_upstream_says(each: object, asked: bool, expected: Status) -> None:
    state = CycleState()
    if asked:
        PLUGIN.pre_filter(state, each, SNAPSHOT)  # type: ignore[arg-type]
    result = PLUGIN.post_filter(state, each, SNAPSHOT, Diagnosis.blank(1))  # type: ignore[arg-type]
    assert (result.status.code, result.status.reasons) == (expected.code, expected.reasons)
    assert result.nominated_node_name is None
