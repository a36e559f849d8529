"""Nodes with far too much of everything, and nodes that change all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.api import STRATEGIC
from tests.hostile.scenario import scenario

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


@scenario()
async def large_nodes(it: Stage) -> None:
    """50 nodes with 1000 taints, 10,000 labels and 2000 images each, which change all the time"""
    names = [f"large-{number}" for number in range(it.n(50, least=2))]
    for number, name in enumerate(names):
        images = [
            {"names": [f"r.io/{number}/{image}:v"], "sizeBytes": 10**8 + image}
            for image in range(it.n(2000, least=5))
        ]
        labels = {f"l{number}-{label}": "x" for label in range(it.n(10_000, least=10))}
        await it.own_nodes([name], labels=labels, images=images)
        taints = [
            {
                "key": f"t{number}-{taint}",
                "value": "x",
                "effect": ("NoSchedule", "PreferNoSchedule")[taint % 2],
            }
            for taint in range(it.n(1000, least=5))
        ]
        await it.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
    tolerations = [{"key": f"t{number}-0", "operator": "Exists"} for number in range(it.n(1000, least=5))]
    await it.api.create(it.pod("tolerant", tolerations=tolerations))

    async def change(number: int) -> None:
        label = {"metadata": {"labels": {"churn": str(number)}}}
        await it.api.patch(f"/api/v1/nodes/{names[number % len(names)]}", label)

    await it.innocents_while(10, change)


@scenario()
async def unschedulable_pods(it: Stage) -> None:
    """20,000 pods that fit nowhere, and 10 label changes of nodes a second"""
    nowhere: list[Json] = [{"cpu": "99"}, {"nodeSelector": {"never": "x"}}]
    await it.api.create_all(
        it.pod(f"u-{number}", **nowhere[number % 2]) for number in range(it.n(20_000, least=10))
    )
    await it.pause(30)

    await it.innocents_while(10, it.relabel)


@scenario()
async def heartbeats(it: Stage) -> None:
    """500 heartbeats of nodes a second"""

    async def beat(number: int) -> None:
        at = f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
        status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}]}
        await it.api.patch(f"/api/v1/nodes/{it.node(number * 7)}/status", {"status": status}, STRATEGIC)

    await it.innocents_while(it.n(500, least=30), beat)
