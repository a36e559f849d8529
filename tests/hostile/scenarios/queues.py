"""Queues and quotas by the thousand, in chains and in circles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.scenario import scenario

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


def instead_of_preemption(plugin: str) -> Json:
    """Return a profile with a plugin that takes DefaultPreemption's place."""
    enabled = [{"name": plugin}]
    return {
        "plugins": {
            "multiPoint": {"enabled": enabled},
            "postFilter": {"enabled": enabled, "disabled": [{"name": "*"}]},
        }
    }


QUEUES, QUOTAS = instead_of_preemption("FairQueues"), instead_of_preemption("CapacityScheduling")


def queue(name: str, **spec: Any) -> Json:
    head = {"apiVersion": "custom-scheduler.io/v1alpha1", "kind": "Queue"}
    return {**head, "metadata": {"name": name}, "spec": spec}


async def _change(it: Stage, name: str) -> None:
    """Innocent pods, while one of the queues changes all the time."""
    collection = await it.api.collection("custom-scheduler.io/v1alpha1", "Queue", "")

    async def change(number: int) -> None:
        await it.api.patch(f"{collection}/{name}", {"spec": {"weight": 1 + number % 100}})

    await it.innocents_while(10, change, 10)


@scenario(profile=QUEUES, is_ours=True, definitions=("queues",))
async def chain_of_queues(it: Stage) -> None:
    """A chain of 800 Queues, each part of the one before, one of which changes all the time"""
    count = it.n(800, least=10)
    for number in range(count):
        parent = {"parent": f"q-{number - 1}"} if number else {}
        await it.api.create(queue(f"q-{number}", **parent))
    await _change(it, f"q-{count // 2}")


@scenario(profile=QUEUES, is_ours=True, definitions=("queues",))
async def circle_of_queues(it: Stage) -> None:
    """400 Queues with names of 250 characters that are parts of each other in a circle"""
    names = [f"q-{number}-".ljust(250, "x") for number in range(it.n(400, least=8))]
    for number, name in enumerate(names):
        await it.api.create(queue(name, parent=names[number - 1]))
    await _change(it, names[0])


@scenario(profile=QUEUES, is_ours=True, definitions=("queues",))
async def many_queues(it: Stage) -> None:
    """10,000 Queues below 100 others, one of which changes all the time"""
    parents = it.n(100, least=2)
    await it.api.create_all(queue(f"p-{number}") for number in range(parents))
    await it.api.create_all(
        queue(f"q-{number}", parent=f"p-{number % parents}", min={"cpu": "1"})
        for number in range(it.n(10_000, least=10))
    )
    await _change(it, "q-0")


@scenario(profile=QUOTAS, is_ours=True, definitions=("elasticquotas",))
async def many_quotas(it: Stage) -> None:
    """10,000 ElasticQuotas in one namespace, of which one counts and which change all the time"""
    version, count = "scheduling.x-k8s.io/v1alpha1", it.n(10_000, least=10)
    await it.api.create_all(
        {
            "apiVersion": version, "kind": "ElasticQuota",
            "metadata": {"name": f"e-{number}", "namespace": it.namespace},
            "spec": {"min": {"cpu": "1"}, "max": {"cpu": str(2 + number % 5), "memory": "1Gi"}},
        }
        for number in range(count)
    )  # fmt: skip
    await it.api.create_all(it.pod(f"p-{number}", cpu="1") for number in range(it.n(100, least=3)))
    collection = await it.api.collection(version, "ElasticQuota", it.namespace)

    async def change(number: int) -> None:
        await it.api.patch(
            f"{collection}/e-{number % count}", {"spec": {"min": {"cpu": str(1 + number % 2)}}}
        )

    await it.innocents_while(it.n(100, least=10), change)


@scenario(profile=QUOTAS, is_ours=True, definitions=("elasticquotas",))
async def large_quota(it: Stage) -> None:
    """An ElasticQuota with a min and a max of 20,000 resources each, which changes, and 20 pods in its namespace"""
    version = "scheduling.x-k8s.io/v1alpha1"
    least = {f"example.com/r{number}": "1" for number in range(it.n(20_000))}
    most = {"cpu": "1", "memory": "1Gi"} | least
    await it.api.create(
        {
            "apiVersion": version, "kind": "ElasticQuota", "metadata": {"name": "e", "namespace": it.namespace},
            "spec": {"min": least, "max": most},
        }
    )  # fmt: skip
    await it.api.create_all(it.pod(f"p-{number}", cpu="100m") for number in range(it.n(20, least=2)))
    path = f"{await it.api.collection(version, 'ElasticQuota', it.namespace)}/e"

    async def change(number: int) -> None:
        await it.api.patch(path, {"spec": {"max": {"cpu": str(1 + number % 5)}}})

    await it.innocents_while(2, change, 10)
