from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler.kube.client.status_queue import status_patch
from scheduler.objects.decode import decode_pod
from scheduler.objects.v1 import PodCondition
from tests.support.builders import pod_object

NOW = datetime(2026, 11, 21, 1, 34, 13, 843610, tzinfo=UTC)
MESSAGE = (
    "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to"
    " deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)
REJECTED = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=MESSAGE)
DISRUPTED = PodCondition(
    type="DisruptionTarget",
    status="True",
    reason="PreemptionByScheduler",
    message="default-scheduler: preempting to accommodate a higher priority pod",
)
SCHEDULED = {
    "type": "PodScheduled",
    "status": "True",
    "lastProbeTime": None,
    "lastTransitionTime": "2026-11-21T01:00:00Z",
    "observedGeneration": 1,
}
SAID = {**SCHEDULED, "status": "False", "reason": "Unschedulable", "message": MESSAGE}


def patch(
    *wanted: PodCondition,
    nominate: str | None = None,
    present: tuple[dict[str, Any], ...] = (),
    generation: int = 1,
    nominated: str = "",
) -> Any:
    said = {"conditions": list(present), **({"nominatedNodeName": nominated} if nominated else {})}
    found = pod_object("toobig", status=said)
    found["metadata"]["generation"] = generation
    body = status_patch(decode_pod(json.dumps(found).encode()), wanted, nominate, NOW)
    return None if body is None else json.loads(body)["status"]


def test_the_first_failure_of_a_pod_is_written_as_in_kube_scheduler():
    assert patch(REJECTED) == {
        "conditions": [
            {
                "lastProbeTime": None,
                "lastTransitionTime": "2026-11-21T01:34:13Z",
                "message": MESSAGE,
                "observedGeneration": 1,
                "reason": "Unschedulable",
                "status": "False",
                "type": "PodScheduled",
            }
        ]
    }


def test_a_nomination_is_part_of_the_same_patch():
    assert patch(REJECTED, nominate="n1")["nominatedNodeName"] == "n1"


def test_a_second_condition_is_added_after_the_existing_ones():
    assert patch(DISRUPTED, present=(SCHEDULED,)) == {
        "$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "DisruptionTarget"}],
        "conditions": [
            {
                "lastProbeTime": None,
                "lastTransitionTime": "2026-11-21T01:34:13Z",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
                "observedGeneration": 1,
                "reason": "PreemptionByScheduler",
                "status": "True",
                "type": "DisruptionTarget",
            }
        ],
    }


@pytest.mark.parametrize("generation", [1, 2], ids=["same generation", "newer generation"])
def test_an_existing_condition_is_not_written_again(generation: int):
    assert patch(REJECTED, present=(SAID,), generation=generation) is None


TOLD = {
    "message": MESSAGE,
    "observedGeneration": 1,
    "reason": "Unschedulable",
    "status": "False",
    "type": "PodScheduled",
}


def test_a_new_message_is_patched_with_all_fields_but_the_transition_time():
    assert patch(REJECTED, present=({**SAID, "message": "before"},)) == {
        "$setElementOrder/conditions": [{"type": "PodScheduled"}],
        "conditions": [TOLD],
    }


def test_another_message_of_a_newer_pod_has_its_generation():
    assert patch(REJECTED, present=({**SAID, "message": "before"},), generation=3)["conditions"] == [
        {**TOLD, "observedGeneration": 3}
    ]


def test_another_status_changes_the_time():
    assert patch(REJECTED, present=(SCHEDULED,))["conditions"] == [
        {**TOLD, "lastTransitionTime": "2026-11-21T01:34:13Z"}
    ]


def test_an_empty_message_is_removed():
    silent = PodCondition(type="PodScheduled", status="False", reason="Unschedulable")

    assert patch(silent, present=(SAID,))["conditions"] == [{**TOLD, "message": None}]


@pytest.mark.parametrize(
    ("nominated", "nominate", "expected"),
    [
        pytest.param("", None, None, id="leave none"),
        pytest.param("n1", None, None, id="leave one"),
        pytest.param("n1", "n1", None, id="the same"),
        pytest.param("", "", None, id="clear none"),
        pytest.param("", "n1", {"nominatedNodeName": "n1"}, id="set"),
        pytest.param("n1", "n2", {"nominatedNodeName": "n2"}, id="change"),
        pytest.param("n1", "", {"nominatedNodeName": None}, id="clear"),
    ],
)
def test_a_nomination_is_written_if_it_changes(nominated: str, nominate: str | None, expected: Any):
    assert patch(nominated=nominated, nominate=nominate) == expected


def test_an_oversized_message_is_truncated_and_logged_once():
    endless = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="x" * 10**6)

    written = patch(endless, present=(SAID,))["conditions"][0]["message"]

    assert len(written) == 32 * 1024
    assert written.endswith("x...")
    assert patch(endless, present=({**SAID, "message": written},)) is None
