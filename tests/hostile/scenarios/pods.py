"""Pods and the objects that refer to them: sizes, resizes, services, budgets, priorities, preemption."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.hostile.api import STRATEGIC, RefusedError
from tests.hostile.scenario import scenario
from tests.hostile.scenarios.affinity import everywhere, judged, lacking
from tests.hostile.scenarios.groups import priority_class
from tests.hostile.stage import preferred

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]

_MANAGED = {"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": "@"}  # fmt: skip


def deep(made: Json, depth: int) -> bytes:
    """Return an object as JSON with managedFields that nest; `json.dumps` cannot write them."""
    made["metadata"]["managedFields"] = [_MANAGED]
    made["metadata"]["labels"] = {"hostile": "deep"}
    return json.dumps(made).replace('"@"', '{"f:a":' * depth + "{}" + "}" * depth).encode()


@scenario()
async def deep_objects(it: Stage) -> None:
    """Pods and a Service whose managedFields nest up to 9000 deep"""
    for depth in (1100, 4000, 9000):
        if depth > 1100 and it.is_small:
            break  # the simulated API server stores no such thing
        made = it.pod(f"deep-{depth}")
        try:
            await it.api.create(made, deep(made, depth))
        except RefusedError:
            it.expect(it.is_small, "it is refused")
            await it.api.create(it.pod(f"deep-{depth}"))
    await it.innocents()
    it.expect(await it.wait_for("deep-1100", judged, 60), "the hostile pod is not judged")


def hungry(it: Stage, name: str, count: int, on: str = "") -> Json:
    """Return a pod that asks for resources that there are nowhere."""
    made = it.pod(name, on=on)
    amounts = {f"x.io/{name}-{number}": "1" for number in range(count)}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return made


@scenario()
async def resources(it: Stage) -> None:
    """A pod with 20,000 made-up resources"""
    await it.api.create(hungry(it, "hungry", it.n(20_000)))
    await it.innocents()


@scenario()
async def resources_on_nodes(it: Stage) -> None:
    """Four bound pods with 20,000 made-up resources each, and a node that is new"""
    for number in range(4):
        await it.api.create(hungry(it, f"h{number}", it.n(20_000), on=it.node(number)))
    await it.own_nodes(["new"])
    await it.api.create(it.pod("newcomer", **it.own()))
    await it.innocents()
    it.expect(await it.wait_for("newcomer", judged, 60), "no pod goes to the new node")


@scenario()
async def resizes(it: Stage) -> None:
    """1000 bound pods that are resized in place, 200 times a second, while pods wait for room"""
    count = it.n(1000, least=4)
    await it.own_nodes(["tight"], cpu="2", pods=str(count + 10))
    for number in range(count):
        made = it.pod(f"r-{number}", on="tight", cpu="1m")
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
        await it.api.create(made)
    for number in range(it.n(100, least=2)):
        await it.api.create(it.pod(f"w-{number}", cpu="3", **it.own()))

    async def resize(number: int) -> None:
        path = f"/api/v1/namespaces/{it.namespace}/pods/r-{number % count}"
        new = {"requests": {"cpu": f"{1 + (number // count) % 2}m"}}
        if it.is_small:  # the simulated API server has no pods/resize: its kubelet's part is played instead
            state = {"name": "main", "resources": new, "allocatedResources": new["requests"]}
            await it.api.patch(f"{path}/status", {"status": {"containerStatuses": [state]}}, STRATEGIC)
            return
        spec = {"spec": {"containers": [{"name": "main", "resources": new}]}}
        await it.api.patch(f"{path}/resize", spec, STRATEGIC)

    await it.innocents_while(it.n(200, least=20), resize)


@scenario()
async def selectors_of_services(it: Stage) -> None:
    """A Service whose selector has 10,000 labels, 1000 Services of one label, and 100 pods that spread by them"""
    many = {f"k{number}": "v" for number in range(it.n(10_000, least=10))}
    services = [("large", many), *((f"s-{number}", {"app": "a"}) for number in range(it.n(1000, least=3)))]
    await it.api.create_all(
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": it.namespace},
            "spec": {"clusterIP": "None", "selector": selector, "ports": [{"port": 80}]},
        }
        for name, selector in services
    )  # fmt: skip
    await it.api.create_all(
        it.pod(f"p-{number}", labels={"app": "a", **(many if number == 0 else {})})
        for number in range(it.n(100, least=3))
    )
    await it.innocents()
    it.expect(await it.wait_for("p-0", judged, 60), "the hostile pod is not judged")


async def _full_nodes(it: Stage, nodes: int, each: int, **spec: Any) -> int:
    """Create nodes full of pods of low priority; return how many pods there are."""
    low = await priority_class(it, "low", 1)
    names = [f"full-{number}" for number in range(nodes)]
    await it.own_nodes(names)
    await it.api.create_all(
        it.pod(
            f"v-{number}-{other}",
            on=name,
            cpu=f"{4000 // each}m",
            priorityClassName=low,
            labels={"app": f"a{other % 10}"},
            **spec,
        )
        for number, name in enumerate(names)
        for other in range(each)
    )
    return nodes * each


@scenario()
async def many_victims(it: Stage) -> None:
    """Preemption where 200 nodes have 110 victims each, by pods with 500 terms of affinity"""
    await _full_nodes(it, it.n(200, least=2), it.n(110, least=5))
    high = await priority_class(it, "high", 1000)
    terms = preferred(everywhere(lacking(f"k{term}")) for term in range(it.n(500, least=5)))
    for number in range(it.n(6, least=2)):
        await it.api.create(
            it.pod(
                f"high-{number}",
                cpu="3",
                priorityClassName=high,
                affinity={"podAntiAffinity": terms},
                **it.own(),
            )
        )
    await it.innocents()
    took = await it.wait_for("high-0", lambda pod: pod["spec"].get("nodeName"), 90)
    it.expect(took is not None, "nobody makes room")
    it.figure(f"first preemptor bound {took or 0:.1f} s later")


@scenario()
async def budgets(it: Stage) -> None:
    """5000 PodDisruptionBudgets that select all pods of full nodes, and preemption there"""
    await _full_nodes(it, it.n(500, least=2), 10)
    high = await priority_class(it, "high", 1000)
    await it.api.create_all(
        {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": f"b-{number}", "namespace": it.namespace},
            "spec": {
                "minAvailable": 1 + number % 3,
                "selector": {"matchExpressions": [
                    {"key": "app", "operator": "In", "values": [f"a{number % 10}", f"a{number % 7}"]},
                    {"key": f"none-{number}", "operator": "DoesNotExist"},
                ]},
            },
        }
        for number in range(it.n(5000, least=5))
    )  # fmt: skip
    await it.pause(3)
    for number in range(it.n(6, least=2)):
        await it.api.create(it.pod(f"high-{number}", cpu="3", priorityClassName=high, **it.own()))
    await it.innocents()
    took = await it.wait_for("high-0", lambda pod: pod["spec"].get("nodeName"), 90)
    it.expect(took is not None, "nobody makes room")
    it.figure(f"first preemptor bound {took or 0:.1f} s later")


@scenario()
async def priority_classes(it: Stage) -> None:
    """10,000 PriorityClasses that come and go, and pods of 1000 priorities"""
    count = it.n(1000, least=3)
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    names = [f"{it.scenario.name}-{number}" for number in range(it.n(10_000, least=5))]
    await it.api.create_all(
        {**kind, "metadata": {"name": name}, "value": number} for number, name in enumerate(names)
    )
    await it.api.create_all(
        it.pod(f"p-{number}", cpu="99", priorityClassName=names[number % len(names)])
        for number in range(count)
    )
    collection = await it.api.collection("scheduling.k8s.io/v1", "PriorityClass", "")

    async def change(number: int) -> None:
        await it.api.patch(f"{collection}/{names[-1 - number % len(names)]}", {"description": str(number)})

    await it.innocents_while(it.n(200, least=10), change, 10)


@scenario()
async def all_pods_deleted(it: Stage) -> None:
    """20,000 bound pods of one namespace that are all deleted at once, twice"""
    for turn in range(2):
        await it.api.create_all(
            it.pod(f"d-{turn}-{number}", on=it.node(number), cpu="1m")
            for number in range(it.n(20_000, least=20))
        )
        await it.pause(5)
        await it.delete_all_pods()


@scenario()
async def contested_conditions(it: Stage) -> None:
    """2000 pods that fit nowhere, whose PodScheduled condition their owner rewrites, 200 times a second"""
    count = it.n(2000, least=10)
    await it.api.create_all(it.pod(f"c-{number}", cpu="99") for number in range(count))

    async def rewrite(number: int) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Mine",
            "message": str(number),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        path = f"/api/v1/namespaces/{it.namespace}/pods/c-{number % count}/status"
        await it.api.patch(path, {"status": {"conditions": [condition]}}, STRATEGIC)

    async with it.meanwhile(it.n(200, least=20), rewrite):
        await it.innocents()
        await it.pause(15)
        await it.api.create(it.pod("newcomer", cpu="99"))
        it.expect(await it.wait_for("newcomer", judged, 60), "another pod waits for its condition")


@scenario()
async def large_pods_come_and_go(it: Stage) -> None:
    """Pods of our schedulerName with 200 KB of annotations that are created and deleted, 200 times a second"""
    text = "x" * (200_000 if not it.is_small else 20_000)

    async def come_and_go(number: int) -> None:
        made = it.pod(f"l-{number}", cpu="99")
        made["metadata"]["annotations"] = {"large": text}
        await it.api.create(made)
        path = f"/api/v1/namespaces/{it.namespace}/pods/l-{number}"
        await it.api.ask("DELETE", path, gracePeriodSeconds="0")

    await it.innocents_while(it.n(200, least=20), come_and_go)
