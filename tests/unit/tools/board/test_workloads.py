"""The data of the pages about controllers, groups, quotas and past preemptions."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.quotas.fair_queues import FairQueues
from scheduler.configuration.load import default, parse
from scheduler.loop_work import run_to_end
from scheduler.objects.decode import decode_pod
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.workloads import controller_details, past_preemptions, quota_usages
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.support.builders import node, node_object, pod, pod_object
from tests.unit.tools.board.test_hub import shown

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.board.subject import Subject


def owned(name: str, **fields: Any) -> PodInfo:
    """Return a pod of the Job train."""
    obj = pod_object(name, **fields)
    obj["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "controller": True}]
    return decode_pod(msgspec.json.encode(obj))


def test_the_page_of_a_controller_has_its_pods_of_one_namespace() -> None:
    board = FileBoard(
        ClusterFile(
            [node("n1", cpu="4")],
            [
                owned("train-0", node="n1", cpu="1"),
                owned("train-1", cpu="9"),
                owned("train-2", cpu="9"),
                owned("train-3", cpu="9", namespace="other"),
                pod("web", cpu="1"),
            ],
        ),
        default(),
        refresh=False,
    )
    asyncio.run(board.judge())

    found = run_to_end(controller_details(board.subject, "default", "Job/train"))

    assert found is not None
    assert (found["count"], found["placed"], found["requests"]["cpu"]) == (3, 1, 19_000)
    assert found["nodes"] == {"n1": 1}
    [(message, number)] = found["causes"].items()
    assert (number, "Insufficient cpu" in message) == (2, True)
    assert [each["pod"] for each in found["pods"]] == [
        "default/train-1",
        "default/train-2",
        "default/train-0",
    ]
    assert run_to_end(controller_details(board.subject, "default", "Job/none")) is None


async def test_past_preemptions_have_their_cause_victims_and_preemptor(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, subject, _):
        it.add_nodes(node_object("n1", cpu="4"), node_object("n2", cpu="4"))
        it.add_pods(*(pod_object(f"low-{number}", cpu="3") for number in range(2)))
        await it.until(lambda: it.node_of("low-0") and it.node_of("low-1"))
        assert run_to_end(past_preemptions(subject)) == {"preemptions": [], "count": 0}
        it.add_pods(pod_object("urgent", cpu="3", priority=100))
        await it.until(lambda: it.node_of("urgent"))

        found = run_to_end(past_preemptions(subject))

        assert found["count"] == 1
        [past] = found["preemptions"]
        assert (past["kind"], past["preemptor"], past["priority"]) == ("pod", "default/urgent", 100)
        assert (past["plugin"], past["quota"]) == ("DefaultPreemption", "")
        assert past["node"] == past["placed"] == it.node_of("urgent")
        assert past["cause"] == "2 Insufficient cpu"
        [victim] = past["victims"]
        assert victim["pod"] in {"default/low-0", "default/low-1"}
        assert (victim["priority"], past["count"]) == (0, 1)

        of_group = subject.preemptions[0]._replace(
            kind="podgroup", message="0/3 nodes are available: 3 Too many pods."
        )
        found = run_to_end(past_preemptions(replace(subject, preemptions=[of_group])))
        assert found["preemptions"][0]["cause"] == "3 Too many pods"


# Quotas.


QUEUES = "custom-scheduler.io/v1alpha1/queues"
BOTH = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: FairQueues}]}}
- schedulerName: other
"""


def subject_with_queues() -> Subject:
    """Return a file with a queue, of which one profile of two knows."""
    queue = {"metadata": {"name": "web"}, "spec": {"namespaces": ["default"], "min": {"cpu": "3"}}}
    cluster = ClusterFile(
        nodes=[node("n1", cpu="4")],
        pods=[
            pod("there", node="n1", cpu="2"),
            pod("waits", cpu="9"),
            pod("of-another-profile", cpu="9", scheduler_name="other"),
        ],
        others={QUEUES: {"web": json.dumps(queue).encode()}},
    )
    return FileBoard(cluster, parse(BOTH), refresh=False).subject


def test_pending_pods_count_in_the_profiles_with_the_plugin() -> None:
    [web] = asyncio.run(quota_usages(subject_with_queues()))

    assert (web["plugin"], web["kind"], web["key"]) == ("FairQueues", QUEUES, "web")
    assert (web["used"], web["guaranteed"]) == ({"cpu": 2000}, {"cpu": 3000})
    assert (web["pending"], web["waiting"]["cpu"]) == (1, 9000)


def test_a_plugin_that_fails_is_left_out_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(FairQueues, "quota_usages", fails)

    assert asyncio.run(quota_usages(subject_with_queues())) == []
    assert "Plugin has no quotas" in caplog.text
