"""The decisions of another scheduler are detected in changes of pods."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.daemon.app.shadow.decisions import ShadowedOutcome, decision_in
from tests.support.builders import node, pod


def theirs(**fields: Any) -> Any:
    return pod("p", **{"scheduler_name": "theirs", **fields})


def waiting(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    said = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"conditions": [said]}


WITH_VOLUME = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
WITH_DEVICES = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}

CASES: dict[str, tuple[Any, Any, tuple[ShadowedOutcome, str] | None]] = {
    "it was placed": (theirs(), theirs(node="a"), (ShadowedOutcome.PLACED, "a")),
    "it waits": (theirs(), theirs(status=waiting("no")), (ShadowedOutcome.WAITS, "")),
    "it waits for another reason": (
        theirs(status=waiting("no")),
        theirs(status=waiting("not yet")),
        (ShadowedOutcome.WAITS, ""),
    ),
    "it waits as before": (theirs(status=waiting("no")), theirs(status=waiting("no")), None),
    "it is gated": (theirs(), theirs(status=waiting("no", "SchedulingGated")), None),
    "room is made": (
        theirs(),
        theirs(status={**waiting("no"), "nominatedNodeName": "a"}),
        (ShadowedOutcome.PREEMPTS, "a"),
    ),
    "room is made again on another node": (
        theirs(status={**waiting("no"), "nominatedNodeName": "a"}),
        theirs(status={**waiting("no"), "nominatedNodeName": "b"}),
        (ShadowedOutcome.PREEMPTS, "b"),
    ),
    "it fits and its volumes or devices follow": (theirs(), theirs(status={"nominatedNodeName": "a"}), None),
    "it fits after a failed attempt, and its volume follows": (
        theirs(status=waiting("no"), **WITH_VOLUME),
        theirs(status={**waiting("no"), "nominatedNodeName": "a"}, **WITH_VOLUME),
        None,
    ),
    "it fits after a failed attempt, and its devices follow": (
        theirs(status=waiting("no"), **WITH_DEVICES),
        theirs(status={**waiting("no"), "nominatedNodeName": "a"}, **WITH_DEVICES),
        None,
    ),
    "room is made for a pod with a volume": (
        theirs(status=waiting("no"), **WITH_VOLUME),
        theirs(status={**waiting("not yet"), "nominatedNodeName": "a"}, **WITH_VOLUME),
        (ShadowedOutcome.PREEMPTS, "a"),
    ),
    "room was made": (
        theirs(status={"nominatedNodeName": "a"}),
        theirs(status={**waiting("no"), "nominatedNodeName": "a"}),
        (ShadowedOutcome.WAITS, ""),
    ),
    "it is on a node already": (theirs(node="a"), theirs(node="a", labels={"a": "b"}), None),
    "it has ended": (theirs(), theirs(node="a", status={"phase": "Failed"}), None),
    "it was changed": (theirs(), theirs(labels={"a": "b"}), None),
    "it is another scheduler's": (pod("p"), pod("p", node="a"), None),
    "it came": (None, theirs(), None),
    "it went": (theirs(), None, None),
    "it is no pod": (node("a"), node("a"), None),
}


@pytest.mark.parametrize(("old", "new", "expected"), CASES.values(), ids=CASES)
def test_the_outcome_and_the_node_of_a_decision(
    old: Any, new: Any, expected: tuple[ShadowedOutcome, str] | None
) -> None:
    found = decision_in(old, new, "theirs")

    assert (found and (found.what, found.node_name)) == expected
    assert found is None or found.pod is old


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"nominatedNodeName": "a"}, "", id="nominated when it fitted"),
        pytest.param({**waiting("no"), "nominatedNodeName": "a"}, "a", id="nominated after a preemption"),
    ],
)
def test_a_binding_is_evaluated_without_the_nomination_that_announced_it(
    status: dict[str, Any], expected: str
) -> None:
    found = decision_in(theirs(status=status), theirs(status=status, node="a"), "theirs")

    assert found is not None
    assert found.what is ShadowedOutcome.PLACED
    assert found.pod.pod.status.nominated_node_name == expected
