"""Volumes with odd topologies, and claims that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.testing.storage import claim, mounted, storage_class, volume
from tests.hostile.scenario import scenario
from tests.hostile.scenarios.affinity import judged

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]

NOBODY = "kubernetes.io/no-provisioner"


def bare(made: Json, **spec: Any) -> Json:
    """Return an object as somebody would write it who has it created."""
    made["spec"] = {**made.get("spec", {}), **spec} if "spec" in made else made.get("spec")
    return {field: value for field, value in made.items() if field != "status" and value is not None} | {
        "metadata": {name: value for name, value in made["metadata"].items() if name != "uid"}
    }


async def pvc(it: Stage, name: str, class_name: str) -> None:
    await it.api.create(bare(claim(name, namespace=it.namespace, class_name=class_name)))


def available(name: str, class_name: str, terms: list[Json]) -> Json:
    """Return a free PersistentVolume that nodes with one of some terms reach."""
    made = volume(
        name,
        csi=None,
        local={"path": f"/{name}"},
        storageClassName=class_name,
        nodeAffinity={"required": {"nodeSelectorTerms": terms}},
    )
    return bare(made)


@scenario()
async def terms_of_volumes(it: Stage) -> None:
    """50 free volumes whose node affinity has 1000 terms each, and 100 claims that wait for one of them"""
    name = it.namespace
    await it.api.create(storage_class(name, provisioner=NOBODY))
    for number in range(it.n(50, least=2)):
        terms = [
            {"matchExpressions": [{"key": f"k{number}-{term}", "operator": "In", "values": ["a", "b"]}]}
            for term in range(it.n(1000, least=10))
        ]
        await it.api.create(available(f"{name}-{number}", name, terms))
    for number in range(it.n(100, least=2)):
        await pvc(it, f"c-{number}", name)
        await it.api.create(it.pod(f"c-{number}", volumes=mounted(f"c-{number}")))
    await it.innocents()
    it.expect(await it.wait_for("c-0", judged, 60), "the claimant is not judged")


@scenario()
async def topologies_of_classes(it: Stage) -> None:
    """A StorageClass with 5000 allowed topologies, and 100 claims of it"""
    name = it.namespace
    topologies = [{f"k{number}": [f"v{number}"]} for number in range(it.n(5000, least=10))]
    await it.api.create(storage_class(name, provisioner="hostile.example.com", topologies=topologies))
    for number in range(it.n(100, least=2)):
        await pvc(it, f"c-{number}", name)
        await it.api.create(it.pod(f"c-{number}", volumes=mounted(f"c-{number}")))
    await it.innocents()
    it.expect(await it.wait_for("c-0", judged, 60), "the claimant is not judged")


@scenario()
async def waiting_claims(it: Stage) -> None:
    """1000 claims that wait for their first consumer, 1000 volumes that are too small, and labels of nodes that change"""
    name, count = it.namespace, it.n(1000, least=4)
    await it.api.create(storage_class(name, provisioner=NOBODY))
    anywhere = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]
    small = [available(f"{name}-{number}", name, anywhere) for number in range(count)]
    for made in small:
        made["spec"]["capacity"] = {"storage": "1Mi"}
    await it.api.create_all(small)
    await it.api.create_all(
        bare(claim(f"c-{number}", namespace=it.namespace, class_name=name)) for number in range(count)
    )
    await it.api.create_all(it.pod(f"c-{number}", volumes=mounted(f"c-{number}")) for number in range(count))

    async def relabel(number: int) -> None:
        label = {"metadata": {"labels": {"churn": str(number)}}}
        await it.api.patch(f"/api/v1/nodes/{it.node(number * 7)}", label)

    async with it.meanwhile(10, relabel):
        await it.innocents()
        await it.pause(15)
