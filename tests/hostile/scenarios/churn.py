"""Objects that change all the time: labels of namespaces and nodes, and kinds that scheduling reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.scenario import scenario
from tests.hostile.stage import HOSTNAME, namespace_object, preferred

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


@scenario()
async def namespaces_that_flip(it: Stage) -> None:
    """4000 namespaces whose labels flip 400 times a second, and 500 pods whose terms select namespaces by them"""
    names = [f"ns-{number}" for number in range(it.n(4000, least=10))]
    await it.api.create_all(
        namespace_object(name, team=f"t{number % 50}") for number, name in enumerate(names)
    )

    def terms(number: int) -> list[Json]:
        return [
            {
                "topologyKey": HOSTNAME,
                "labelSelector": {"matchLabels": {"app": f"a{number % 20}"}},
                "namespaceSelector": {"matchLabels": {"team": f"t{(number + term) % 50}"}},
            }
            for term in range(10)
        ]

    count = it.n(500, least=5)
    for number in range(count):
        anti = {"podAntiAffinity": preferred(terms(number))}
        if number % 2:
            anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms(number)}}
        on = it.node(number) if number % 4 < 2 else ""
        await it.api.create(
            it.pod(
                f"p-{number}",
                on=on,
                cpu="10m" if on else "99",
                labels={"app": f"a{number % 20}"},
                affinity=anti,
            )
        )

    async def flip(number: int) -> None:
        labels = {"metadata": {"labels": {"team": f"t{number % 50}"}}}
        await it.api.patch(f"/api/v1/namespaces/{names[number % len(names)]}", labels)

    await it.innocents_while(it.n(400, least=20), flip)


@scenario()
async def label_keys_of_nodes(it: Stage) -> None:
    """Each node gets a label with a new key again and again, 500 times a second, and pods wait for some of the keys"""
    await it.api.create_all(
        it.pod(f"w-{number}", nodeSelector={f"churn.io/k{number * 97}": "never"})
        for number in range(it.n(1000, least=5))
    )
    last: dict[str, str] = {}

    async def relabel(number: int) -> None:
        node, key = it.node(number), f"churn.io/k{number}"
        labels: dict[str, str | None] = {key: "x"}
        if node in last:
            labels[last[node]] = None
        last[node] = key
        await it.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})

    await it.innocents_while(it.n(500, least=30), relabel)


def _kinds(it: Stage, name: str) -> list[Json]:
    storage = "storage.k8s.io/v1"
    return [
        {
            "apiVersion": storage, "kind": "StorageClass", "metadata": {"name": f"{name}.example.com"},
            "provisioner": f"{name}.example.com", "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": storage, "kind": "CSIDriver", "metadata": {"name": f"{name}.example.com"},
            "spec": {"attachRequired": True, "podInfoOnMount": False, "storageCapacity": True},
        },
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": it.namespace},
            "spec": {"spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": "none.example.com"}}
            ]}}},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": f"{it.scenario.name}-{name}"}, "value": 1,
        },
    ]  # fmt: skip


@scenario()
async def classes_that_come_and_go(it: Stage) -> None:
    """StorageClasses, CSIDrivers, ResourceClaimTemplates and PriorityClasses that come and go, 400 a second, and 2000 pods with claims"""
    count = it.n(2000, least=5)
    for number in range(count):
        await it.api.create(
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": f"c-{number}", "namespace": it.namespace},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": f"s-{number}.example.com",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )  # fmt: skip
    await it.api.create_all(
        it.pod(
            f"p-{number}",
            cpu="99",
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": f"c-{number}"}}],
        )
        for number in range(count)
    )

    async def come_and_go(number: int) -> None:
        made = _kinds(it, f"s-{number % count}")[number % 4]
        await it.api.create(made)
        meta = made["metadata"]
        collection = await it.api.collection(made["apiVersion"], made["kind"], meta.get("namespace", ""))
        await it.api.ask("DELETE", f"{collection}/{meta['name']}")

    await it.innocents_while(it.n(400, least=20), come_and_go)


@scenario()
async def csi_nodes_that_change(it: Stage) -> None:
    """The CSINodes of 2000 nodes, whose 20 drivers change their limits, 200 times a second"""
    names = [it.node(number) for number in range(min(it.size.nodes, it.n(2000, least=4)))]

    def drivers(number: int) -> list[Json]:
        return [
            {
                "name": f"d{each}-{number % 7}.example.com",
                "nodeID": "x",
                "allocatable": {"count": 1 + number % 9},
            }
            for each in range(20)
        ]

    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    await it.api.create_all(
        {**kind, "metadata": {"name": name}, "spec": {"drivers": drivers(0)}} for name in names
    )

    async def change(number: int) -> None:
        name = names[number % len(names)]
        made = {**kind, "metadata": {"name": name}, "spec": {"drivers": drivers(number)}}
        await it.api.ask("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{name}")
        await it.api.create(made)

    await it.innocents_while(it.n(200, least=20), change)
