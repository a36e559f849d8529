"""Devices: claims that are expensive to satisfy, and devices that change constantly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.testing.devices import (
    CLASS,
    claims_of,
    device_class,
    exactly,
    resource_claim,
    resource_slice,
    unsaved,
)
from tests.hostile.scenario import scenario
from tests.hostile.scenarios.affinity import judged

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]

SERIAL = "gpu.example.com/serial"
NO_TIMEOUT = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "0s"}}]}


async def devices(it: Stage, nodes: int, each: int, **more: Any) -> list[str]:
    """Create nodes for the tenant alone, each with so many devices, whose serial numbers differ; return their names."""
    names = [f"dev-{number}" for number in range(nodes)]
    await it.own_nodes(names)
    await it.api.create(unsaved(device_class()))
    for name in names:
        made = [
            {"name": f"gpu-{number}", "attributes": {SERIAL: {"string": f"{name}-{number}"}}, **more}
            for number in range(each)
        ]
        await it.api.create(unsaved(resource_slice(name, made)))
    return names


async def claim(it: Stage, name: str, *requests: Json, constraints: list[Json] | None = None) -> None:
    made = unsaved(resource_claim(name, *requests, namespace=it.namespace))
    made["spec"]["devices"]["constraints"] = constraints or []
    await it.api.create(made)


async def claimant(it: Stage, name: str, *claims: str) -> None:
    await it.api.create(it.pod(name, resourceClaims=claims_of(*claims), **it.own()))


async def _without_match(it: Stage) -> None:
    await devices(it, it.n(4, least=2), it.n(28, least=6))
    last = it.n(10, least=4) - 1
    await claim(
        it, "odd", *(exactly(f"r{number}") for number in range(last + 1)),
        constraints=[{"requests": [f"r{last - 1}", f"r{last}"], "matchAttribute": SERIAL}],
    )  # fmt: skip
    await claimant(it, "odd", "odd")
    await it.innocents()


@scenario()
async def no_match(it: Stage) -> None:
    """A claim of 10 requests on nodes of 28 devices, two of which must be equal in what differs on all devices"""
    await _without_match(it)


@scenario(starts=False)
async def no_match_replicas(it: Stage) -> None:
    """The same with two replicas that are started again when they end"""
    await it.start(replicas=2, restarts=True)
    await _without_match(it)


@scenario(profile=NO_TIMEOUT)
async def no_timeout(it: Stage) -> None:
    """A claim of 21 devices where one node has 21 and another 20, and the search has no timeout"""
    count = it.n(21, least=8)
    await it.own_nodes(["dev-0", "dev-1"])
    await it.api.create(unsaved(device_class()))
    await it.api.create(unsaved(resource_slice("dev-0", count)))
    await it.api.create(unsaved(resource_slice("dev-1", count - 1)))
    await claim(it, "many", exactly(count=count))
    await claimant(it, "many", "many")
    await it.innocents()
    took = await it.wait_for("many", lambda pod: pod["spec"].get("nodeName") == "dev-0", 120)
    it.expect(took is not None, "the claimant is not placed where the devices are")
    it.figure(f"claimant placed {took or 0:.1f} s later")


@scenario()
async def counters(it: Stage) -> None:
    """Claims of 12 partitions of cards that have 8 sets of 32 counters, of which each partition takes much"""
    names = [f"dev-{number}" for number in range(it.n(8, least=2))]
    await it.own_nodes(names)
    await it.api.create(unsaved(device_class()))
    sets, each = it.n(8, least=2), it.n(32, least=4)

    def taken(number: int, amount: int) -> Json:
        values = {f"c{counter}": {"value": str(amount)} for counter in range(each)}
        return {"counterSet": f"card-{number % sets}", "counters": values}

    for name in names:
        shared = [
            {"name": f"card-{number}", "counters": {f"c{c}": {"value": "7"} for c in range(each)}}
            for number in range(sets)
        ]
        card = unsaved(resource_slice(name, [], name=f"{name}-counters", sharedCounters=shared))
        parts = [
            {"name": f"part-{n}", "consumesCounters": [taken(n, 2 + n % 3), taken(n + 1, 1 + n % 2)]}
            for n in range(it.n(64, least=6))
        ]
        rest = unsaved(resource_slice(name, parts, name=f"{name}-parts"))
        for each_slice in (card, rest):
            each_slice["spec"]["pool"]["resourceSliceCount"] = 2
            each_slice["spec"] = {field: value for field, value in each_slice["spec"].items() if value != []}
            await it.api.create(each_slice)
    for number in range(it.n(4, least=2)):
        await claim(it, f"parts-{number}", exactly(count=it.n(30, least=4)))
        await claimant(it, f"parts-{number}", f"parts-{number}")
    await it.innocents()


@scenario()
async def alternatives(it: Stage) -> None:
    """A claim of 8 requests with 8 alternatives each, of which no choice satisfies a constraint"""
    await devices(it, it.n(4, least=2), it.n(28, least=4))
    requests = [
        {
            "name": f"r{number}",
            "firstAvailable": [
                {"name": f"s{other}", "deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
                for other in range(it.n(8, least=2))
            ],
        }
        for number in range(it.n(8, least=3))
    ]
    last = [each["name"] for each in requests[-2:]]
    await claim(it, "any", *requests, constraints=[{"requests": last, "matchAttribute": SERIAL}])
    await claimant(it, "any", "any")
    await it.innocents()


@scenario()
async def admin_access(it: Stage) -> None:
    """200 claims of all devices with admin access, in a namespace that may have it"""
    await it.api.patch(
        f"/api/v1/namespaces/{it.namespace}",
        {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}},
    )
    await devices(it, it.n(20, least=2), it.n(30, least=4))
    for number in range(it.n(200, least=3)):
        request: Json = {"deviceClassName": CLASS, "allocationMode": "All", "adminAccess": True}
        await claim(it, f"all-{number}", {"name": "all", "exactly": request})
        await claimant(it, f"all-{number}", f"all-{number}")
    await it.innocents()
    it.expect(await it.wait_for("all-0", judged, 60), "no claimant is judged")


@scenario()
async def shared_claim(it: Stage) -> None:
    """300 pods that share one claim, of which 256 may reserve it"""
    await devices(it, it.n(4, least=2), 4)
    await claim(it, "shared", exactly())
    for number in range(it.n(300, least=4)):
        await claimant(it, f"s-{number}", "shared")
    await it.innocents()
    it.expect(await it.wait_for("s-0", judged, 60), "no claimant is judged")


@scenario()
async def changing_slices(it: Stage) -> None:
    """2000 nodes with devices whose ResourceSlices change all the time, and pods that wait for devices"""
    names = await devices(it, it.n(2000, least=4), 4)
    slices = await it.api.collection("resource.k8s.io/v1", "ResourceSlice", "")
    for number in range(it.n(50, least=2)):
        await claim(it, f"w-{number}", exactly(count=5))
        await claimant(it, f"w-{number}", f"w-{number}")

    async def change(number: int) -> None:
        name = f"{names[number % len(names)]}-gpu.example.com"
        made = [{"name": f"gpu-{g}", "attributes": {SERIAL: {"string": f"{number}-{g}"}}} for g in range(4)]
        await it.api.patch(f"{slices}/{name}", {"spec": {"devices": made}})

    await it.innocents_while(it.n(500, least=20), change)


@scenario()
async def missing_claims(it: Stage) -> None:
    """5000 pods that wait for claims, and claims that come and go, 400 a second"""
    await devices(it, it.n(20, least=2), 4)
    count = it.n(5000, least=6)
    for number in range(count):
        await claimant(it, f"m-{number}", f"m-{number}")
    claims = await it.api.collection("resource.k8s.io/v1", "ResourceClaim", it.namespace)

    async def come_and_go(number: int) -> None:
        name = f"m-{number * 97 % count}"
        await claim(it, name, exactly(count=5))
        await it.api.ask("DELETE", f"{claims}/{name}")

    await it.innocents_while(it.n(400, least=20), come_and_go)
