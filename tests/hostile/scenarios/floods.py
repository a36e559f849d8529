"""Objects by the hundred thousand: events, and pods and namespaces that are deleted at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.hostile.scenario import scenario
from tests.hostile.stage import namespace_object

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


@scenario()
async def events_of_failures(it: Stage) -> None:
    """20,000 pods that no node can run, whose labels change 500 times a second, so that attempts fail all the time"""
    count = it.n(20_000, least=20)
    await it.api.create_all(
        it.pod(f"f-{number}", nodeSelector={"never": "x"}, labels={"app": f"a{number}"})
        for number in range(count)
    )

    async def change(number: int) -> None:
        toleration = {"key": f"t{number}", "operator": "Exists"}
        path = f"/api/v1/namespaces/{it.namespace}/pods/f-{number % count}"
        await it.api.patch(path, {"spec": {"tolerations": [toleration]}})

    await it.innocents_while(it.n(500, least=30), change)


@scenario()
async def created_events(it: Stage) -> None:
    """100,000 Events about pods of others, which a tenant creates and deletes all at once"""
    await it.api.create_all(
        {
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": f"e-{number}", "namespace": it.namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "custom-scheduler",
            "reportingInstance": "x", "action": "Scheduling", "reason": "FailedScheduling", "type": "Warning",
            "regarding": {"kind": "Pod", "namespace": it.namespace, "name": f"p-{number}"},
            "note": "x" * 1000,
        }
        for number in range(it.n(100_000, least=20))
    )  # fmt: skip
    collection = await it.api.collection("events.k8s.io/v1", "Event", it.namespace)
    deleting = asyncio.create_task(it.api.ask("DELETE", collection))
    await it.innocents()
    await deleting


@scenario()
async def pending_pods_deleted(it: Stage) -> None:
    """100,000 pending pods of different priorities and labels that are all deleted at once"""
    await it.api.create_all(
        it.pod(
            f"d-{number}", cpu="99", labels={"app": f"a{number}"}, nodeSelector={"never": f"x{number % 100}"}
        )
        for number in range(it.n(100_000, least=20))
    )
    await it.pause(10)
    await it.delete_all_pods()


@scenario()
async def gated_pods_deleted(it: Stage) -> None:
    """100,000 pods with scheduling gates that are all deleted at once"""
    await it.api.create_all(
        it.pod(f"g-{number}", schedulingGates=[{"name": f"x.io/g{number % 100}"}])
        for number in range(it.n(100_000, least=20))
    )
    await it.pause(5)
    await it.delete_all_pods()


@scenario()
async def scheduled_pods_deleted(it: Stage) -> None:
    """100,000 small pods that the scheduler binds to large nodes and that are all deleted at once"""
    count = it.n(100_000, least=20)
    nodes = it.n(200, least=2)
    await it.own_nodes([f"roomy-{number}" for number in range(nodes)], pods=str(2 * count // nodes))
    await it.api.create_all(it.pod(f"b-{number}", cpu="1m", **it.own()) for number in range(count))
    await it.pause(10)
    await it.delete_all_pods()


@scenario()
async def terminating_namespaces(it: Stage) -> None:
    """100 namespaces with 200 pending pods each that terminate while their pods are tried"""
    names = [f"{it.namespace}-{number}"[-63:] for number in range(it.n(100, least=2))]
    for name in names:
        await it.api.create(namespace_object(name))
    await it.api.create_all(
        it.pod(f"t-{number}", namespace=name, cpu="99")
        for name in names
        for number in range(it.n(200, least=3))
    )

    async def terminate() -> None:
        for name in names:
            await it.api.ask("DELETE", f"/api/v1/namespaces/{name}")
            await it.api.ask("DELETE", f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds="0")

    ending = asyncio.create_task(terminate())
    await it.innocents()
    await ending
