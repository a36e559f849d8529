"""Jobs, in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.unit.tools.simulator.a_store import AStore
from tests.unit.tools.simulator.definitions import one_node


def job(name: str, command: list[str], *, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "busybox", "command": command}]
    template = {"spec": {"restartPolicy": policy, "containers": containers}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def play(store: AStore, seconds: float) -> None:
    """Let time pass, with a scheduler that puts every pod on n1 at once."""
    for _ in range(int(seconds * 2)):
        for one in store.list("pods", fields="spec.nodeName="):
            if "deletionTimestamp" not in one["metadata"]:
                store.bind(one["metadata"]["name"], "n1")
        await asyncio.sleep(0.5)


def conditions(store: AStore, name: str) -> dict[str, str]:
    status = store.get("jobs", name)["status"]
    return {one["type"]: one["reason"] for one in status.get("conditions", ()) if one["status"] == "True"}


async def test_a_job_runs_its_parallel_pods_until_enough_have_succeeded():
    async with one_node() as store:
        store.create("jobs", job("j", ["sleep", "10"], completions=5, parallelism=2))
        await play(store, 5)
        status = store.get("jobs", "j")["status"]
        assert (status["active"], status["ready"]) == (2, 2)
        await play(store, 40)

        status = store.get("jobs", "j")["status"]
        assert (status["succeeded"], status.get("active", 0)) == (5, 0)
        assert conditions(store, "j") == {
            "SuccessCriteriaMet": "CompletionsReached",
            "Complete": "CompletionsReached",
        }
        assert status["completionTime"] > status["startTime"]
        assert {one["status"]["phase"] for one in store.list("pods")} == {"Succeeded"}
        assert len(store.list("pods")) == 5


async def test_a_job_retries_with_growing_delays_and_then_fails():
    async with one_node() as store:
        store.create("jobs", job("j", ["false"], backoffLimit=2))
        await play(store, 8)
        assert len(store.list("pods")) == 1
        await play(store, 8)
        assert len(store.list("pods")) == 2
        await play(store, 30)

        assert store.get("jobs", "j")["status"]["failed"] == 3
        assert conditions(store, "j")["Failed"] == "BackoffLimitExceeded"
        assert {one["status"]["phase"] for one in store.list("pods")} == {"Failed"}


async def test_a_failed_container_restarts_in_the_same_pod():
    async with one_node() as store:
        store.create("jobs", job("j", ["false"], policy="OnFailure", backoffLimit=3))
        await play(store, 30)
        (only,) = store.list("pods")
        status = only["status"]["containerStatuses"][0]
        assert status["restartCount"] == 2
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        await play(store, 60)

        assert conditions(store, "j")["Failed"] == "BackoffLimitExceeded"
        assert store.list("pods") == []


async def test_an_indexed_job_has_one_pod_per_index():
    async with one_node() as store:
        store.create("jobs", job("j", ["sleep", "1"], completions=3, parallelism=2, completionMode="Indexed"))
        await play(store, 20)

        label = "batch.kubernetes.io/job-completion-index"
        assert sorted(one["metadata"]["labels"][label] for one in store.list("pods")) == ["0", "1", "2"]
        assert store.get("jobs", "j")["status"]["completedIndexes"] == "0-2"


async def test_a_suspended_job_has_no_pods_until_it_is_resumed():
    async with one_node() as store:
        store.create("jobs", job("j", ["sleep", "1"], suspend=True))
        await play(store, 2)
        assert (store.list("pods"), conditions(store, "j")) == ([], {"Suspended": "JobSuspended"})

        store.patch("jobs", "j", {"spec": {"suspend": False}})
        await play(store, 6)
        assert conditions(store, "j")["Complete"] == "CompletionsReached"


async def test_a_job_past_its_deadline_fails_and_its_pods_are_deleted():
    async with one_node() as store:
        store.create("jobs", job("j", ["sleep", "600"], activeDeadlineSeconds=10))
        await play(store, 20)

        assert conditions(store, "j")["Failed"] == "DeadlineExceeded"
        assert store.list("pods") == []


async def test_a_finished_job_is_deleted_after_its_ttl_with_its_pods():
    async with one_node() as store:
        store.create("jobs", job("j", ["true"], ttlSecondsAfterFinished=30))
        await play(store, 20)
        assert store.find("jobs", "j") is not None
        await play(store, 30)

        assert (store.find("jobs", "j"), store.list("pods")) == (None, [])


def test_the_restart_policy_always_is_refused_for_a_job():
    with pytest.raises(StatusError) as caught:
        AStore().create("jobs", job("j", ["true"], policy="Always"))

    assert 'supported values: "OnFailure", "Never"' in caught.value.message


def test_the_template_of_a_job_is_immutable(store: AStore):
    store.create("jobs", job("j", ["true"]))
    with pytest.raises(StatusError, match="field is immutable"):
        store.patch("jobs", "j", {"spec": {"template": {"spec": {"priorityClassName": "x"}}}})
