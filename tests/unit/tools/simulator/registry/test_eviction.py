"""Evictions and the budgets that limit them, in virtual time on a store without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.structure import WriteOptions
from scheduler.tools.simulator.kinds.workloads import count
from scheduler.tools.simulator.registry.deletion import DeleteOptions, evict
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, deployment, node, pod
from tests.unit.tools.simulator.definitions import running


def budget(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


def evict_pod(store: AStore, name: str, *, dry_run: bool = False, **options: Any) -> None:
    evict(store.registry, "default", name, {}, DeleteOptions(**options), WriteOptions(dry_run=dry_run))


async def a_running_deployment(store: AStore, replicas: int = 3) -> list[str]:
    store.create("nodes", node("n1"))
    store.create("deployments", deployment("web", replicas))
    await asyncio.sleep(1)
    names = [one["metadata"]["name"] for one in store.list("pods")]
    for name in names:
        store.bind(name, "n1")
    await asyncio.sleep(3)
    return names


def ready_pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.mark.parametrize(
    ("spec", "expected", "desired", "allowed"),
    [
        pytest.param({"minAvailable": 2}, 5, 2, 3, id="at least two"),
        pytest.param({"minAvailable": "50%"}, 10, 5, 0, id="at least half of ten wanted"),
        pytest.param({"minAvailable": "41%"}, 10, 5, 0, id="percentages round up"),
        pytest.param({"maxUnavailable": 6}, 10, 4, 1, id="at most six missing"),
        pytest.param({"maxUnavailable": "55%"}, 10, 4, 1, id="at most 55 percent missing"),
        pytest.param({"maxUnavailable": 20}, 10, 0, 5, id="all may be missing"),
    ],
)
def test_a_budget_counts_as_in_upstream(spec: dict[str, Any], expected: int, desired: int, allowed: int):
    found = count(budget(**spec), [ready_pod(str(place)) for place in range(5)], scale=10)

    assert (found.expected_pods, found.desired_healthy, found.current_healthy) == (expected, desired, 5)
    assert found.disruptions_allowed == allowed


async def test_the_status_of_a_budget_follows_its_pods(store: AStore):
    async with running(store):
        store.create("poddisruptionbudgets", budget(maxUnavailable="34%"))
        await a_running_deployment(store)

        status = store.get("poddisruptionbudgets", "web")["status"]
        numbers = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
        assert [status[name] for name in numbers] == [3, 1, 3, 2]
        assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == (
            "True",
            "SufficientPods",
        )
        assert status["observedGeneration"] == 1


async def test_an_eviction_beyond_the_budget_is_refused_until_a_replacement_is_ready(store: AStore):
    async with running(store):
        store.create("poddisruptionbudgets", budget(minAvailable=2))
        names = await a_running_deployment(store)
        evict_pod(store, names[0])
        with pytest.raises(StatusError) as caught:
            evict_pod(store, names[1])
        await asyncio.sleep(5)
        with pytest.raises(StatusError):
            evict_pod(store, names[1])
        for one in store.list("pods", fields="spec.nodeName="):
            store.bind(one["metadata"]["name"], "n1")
        await asyncio.sleep(5)
        evict_pod(store, names[1])

    assert (caught.value.code, caught.value.reason) == (429, "TooManyRequests")
    assert caught.value.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert caught.value.details is not None
    message = "The disruption budget web needs 2 healthy pods and has 3 currently"
    assert caught.value.details["causes"] == [{"reason": "DisruptionBudget", "message": message}]


async def test_an_evicted_pod_has_a_condition_and_its_grace_period(store: AStore):
    async with running(store):
        names = await a_running_deployment(store, 1)
        evict_pod(store, names[0], grace_period_seconds=7)
        going = store.get("pods", names[0])

    condition = next(one for one in going["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert (condition["reason"], condition["message"]) == ("EvictionByEvictionAPI", "Eviction API: evicting")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_dry_run_of_an_eviction_evicts_nothing(store: AStore):
    async with running(store):
        store.create("poddisruptionbudgets", budget(maxUnavailable=1))
        names = await a_running_deployment(store)
        version = store.version
        evict_pod(store, names[0], dry_run=True)
        evict_pod(store, names[1], dry_run=True)

        assert store.version == version


async def test_an_eviction_with_another_uid_is_a_conflict(store: AStore):
    async with running(store):
        store.create("poddisruptionbudgets", budget(maxUnavailable=1))
        names = await a_running_deployment(store)
        with raises(StatusError, code=409):
            evict_pod(store, names[0], uid="another")
        assert store.get("poddisruptionbudgets", "web")["status"]["disruptionsAllowed"] == 1


async def test_a_pod_that_does_not_run_needs_no_budget(store: AStore):
    async with running(store):
        store.create("poddisruptionbudgets", budget(minAvailable=5))
        store.create("pods", pod("p") | {"metadata": {"name": "p", "labels": {"app": "web"}}})
        evict_pod(store, "p")

        assert store.find("pods", "p") is None


async def test_a_pod_of_two_budgets_cannot_be_evicted(store: AStore):
    async with running(store):
        for name in ("a", "b"):
            store.create("poddisruptionbudgets", budget(name, maxUnavailable=1))
        names = await a_running_deployment(store)
        with pytest.raises(StatusError, match="more than one PodDisruptionBudget") as caught:
            evict_pod(store, names[0])
        assert caught.value.code == 500


async def test_an_unprocessed_budget_forbids_all_evictions(store: AStore):
    async with running(store):
        names = await a_running_deployment(store)
        store.create("poddisruptionbudgets", budget(maxUnavailable=1))
        with pytest.raises(StatusError) as caught:
            evict_pod(store, names[0])

    assert caught.value.retry_after_seconds == 10
    assert "is still being processed by the server" in str(caught.value.details)


async def test_a_pod_that_is_not_ready_may_be_evicted_while_the_budget_is_healthy(store: AStore):
    async with running(store):
        store.create("poddisruptionbudgets", budget(minAvailable=2))
        names = await a_running_deployment(store)
        broken = store.get("pods", names[0])["status"]["conditions"]
        unready = [one | {"status": "False"} if one["type"] == "Ready" else one for one in broken]
        store.patch("pods", names[0], {"status": {"conditions": unready}}, subresource="status")
        await asyncio.sleep(0.01)
        evict_pod(store, names[0])

        assert "deletionTimestamp" in store.get("pods", names[0])["metadata"]
