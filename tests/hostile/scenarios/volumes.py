"""Volumes with odd topologies, and claims that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.testing.samples import claim, csi_driver, mounted, storage_capacity, storage_class, volume
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


def _has_a_node(made: Json) -> bool:
    return "volume.kubernetes.io/selected-node" in made["metadata"].get("annotations", {})


async def claimants(it: Stage, class_name: str) -> None:
    """Create 100 claims, each with a pod."""
    for number in range(it.n(100, least=2)):
        name = f"c-{number}"
        await it.api.create(bare(claim(name, namespace=it.namespace, class_name=class_name)))
        await it.api.create(it.pod(name, volumes=mounted(name)))


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
async def monitors(it: Stage) -> None:
    """20 pods on nodes and 20 waiting ones with Ceph images that name 150,000 monitors each"""
    count = it.n(150_000)
    for number in range(it.n(20, least=2)):
        names = [f"{each:x}" for each in range(0x10000 + number * 10, 0x10000 + number * 10 + count)]
        disk = {"name": "d", "rbd": {"monitors": names, "image": "i", "pool": "p"}}
        await it.api.create(it.pod(f"b-{number}", on=it.node(number), volumes=[disk]))
        await it.api.create(it.pod(f"w-{number}", volumes=[disk]))
    await it.innocents()
    it.expect(await it.wait_for("w-0", judged, 60), "the pod with many monitors is not judged")


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
    await claimants(it, name)
    await it.innocents()
    it.expect(await it.wait_for("c-0", judged, 60), "the claimant is not judged")


@scenario()
async def topologies_of_classes(it: Stage) -> None:
    """A StorageClass with 5000 allowed topologies, and 100 claims of it"""
    name = it.namespace
    topologies = [{f"k{number}": [f"v{number}"]} for number in range(it.n(5000, least=10))]
    await it.api.create(storage_class(name, provisioner="hostile.example.com", topologies=topologies))
    await claimants(it, name)
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

    await it.innocents_while(10, it.relabel)


@scenario()
async def very_many_volumes(it: Stage) -> None:
    """10,000 free volumes with labels of their own, further ones that come, and pods with 50 selectors, 100 sizes and 1000 times one claim"""
    name, count = it.namespace, it.n(10_000, least=20)
    await it.api.create(storage_class(name, provisioner=NOBODY))

    def labelled(number: int) -> Json:
        host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [it.node(number)]}
        made = available(f"{name}-{number}", name, [{"matchExpressions": [host]}])
        made["metadata"]["labels"] = {"number": f"{number}"}
        return made

    def claims(kind: str, number: int) -> Json:
        other = {"key": "number", "operator": "NotIn", "values": [f"{number}"]}
        differs = {"selector": {"matchExpressions": [other]}} if kind == "selector" else {}
        size = f"{number + 1}Mi" if kind == "size" else "1Mi"
        return bare(
            claim(f"{kind}-{number}", namespace=it.namespace, class_name=name, storage=size, **differs)
        )

    await it.api.create_all(map(labelled, range(count)))
    pods = {"selector": it.n(50, least=3), "size": it.n(100, least=3), "one": 1}
    for kind, number in pods.items():
        await it.api.create_all(claims(kind, each) for each in range(number))
        names = ["one-0"] * it.n(1000, least=5) if kind == "one" else [f"{kind}-{n}" for n in range(number)]
        await it.api.create(it.pod(kind, volumes=mounted(*names)))

    async def one_more(number: int) -> None:
        await it.api.create(labelled(count + number))

    async with it.meanwhile(5, one_more):
        await it.innocents()
        for kind in pods:
            it.expect(await it.wait_for(kind, judged, 60), f"the pod with the claims {kind} is not judged")


@scenario()
async def claims_of_bound_pods(it: Stage) -> None:
    """15 pods created on one node with 1000 claims each, which change, and 100 pods with a claim"""
    name, pods, count = it.namespace, it.n(15, least=2), it.n(1000, least=5)
    await it.api.create(storage_class(name, provisioner="hostile.example.com"))
    for number in range(pods):
        claims = [f"b-{number}-{place}" for place in range(count)]
        await it.api.create_all(bare(claim(each, namespace=it.namespace, class_name=name)) for each in claims)
        await it.api.create(it.pod(f"b-{number}", on=it.node(0), volumes=mounted(*claims)))

    async def change(number: int) -> None:
        label = {"metadata": {"labels": {"churn": f"{number}"}}}
        path = f"/api/v1/namespaces/{it.namespace}/persistentvolumeclaims"
        await it.api.patch(f"{path}/b-{number % pods}-{number % count}", label)

    async with it.meanwhile(50, change):
        await claimants(it, name)
        await it.innocents()
        it.expect(
            await it.wait_for("c-0", _has_a_node, 60, kind="persistentvolumeclaims"), "no node is selected"
        )


@scenario()
async def reports_of_room(it: Stage) -> None:
    """5000 reports of the room for new volumes, all of which change again and again, and 100 claims that wait for room"""
    name, count = it.namespace, it.n(5000, least=5)
    await it.api.create(storage_class(name, provisioner=name))
    await it.api.create(bare(csi_driver(name)))
    await it.api.create_all(
        storage_capacity(f"r-{number}", name, "1Mi", labels={"kubernetes.io/hostname": it.node(number)})
        | {"metadata": {"name": f"r-{number}", "namespace": it.namespace}}
        for number in range(count)
    )

    async def change(number: int) -> None:
        path = f"/apis/storage.k8s.io/v1/namespaces/{it.namespace}/csistoragecapacities"
        await it.api.patch(f"{path}/r-{number % count}", {"capacity": f"{1 + number % 7}Mi"})

    async with it.meanwhile(200, change):
        await claimants(it, name)
        await it.innocents()
        it.expect(await it.wait_for("c-0", judged, 60), "the claimant is not judged")
