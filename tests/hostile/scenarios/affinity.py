"""Affinity terms: of pods of other schedulers, of pending pods, and very many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.scenario import scenario
from tests.hostile.stage import HOSTNAME, ZONE, namespace_object, preferred

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


def everywhere(selector: Json, key: str = HOSTNAME) -> Json:
    """Return a term that counts pods of all namespaces."""
    return {"labelSelector": selector, "namespaceSelector": {}, "topologyKey": key}


def lacking(key: str) -> Json:
    """Return a selector of all pods without a label, which are nearly all."""
    return {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}


@scenario(
    {f"{pods}x{terms}": (pods, terms) for pods, terms in ((51, 600), (211, 600), (20, 6000), (50, 6000))}
)
async def bound_terms(it: Stage, pods: int, terms: int) -> None:
    """{0} pods created on nodes, each with {1} preferred anti-affinity terms that match nearly all pods"""
    for number in range(it.n(pods, least=3)):
        distinct = preferred(everywhere(lacking(f"k{number}-{term}")) for term in range(it.n(terms)))
        await it.api.create(it.pod(f"b-{number}", on=it.node(number), affinity={"podAntiAffinity": distinct}))
    await it.pause(2)
    await it.innocents()


@scenario()
async def topologies(it: Stage) -> None:
    """A bound pod with 600 preferred anti-affinity terms of distinct topology keys"""
    terms = preferred(everywhere({}, f"t{term}") for term in range(it.n(600)))
    await it.api.create(it.pod("b", on=it.node(0), affinity={"podAntiAffinity": terms}))
    await it.innocents()


@scenario()
async def node_labels(it: Stage) -> None:
    """A pod with 20,000 label keys in its node affinity"""
    terms = [{"matchExpressions": [{"key": f"k{key}", "operator": "Exists"}]} for key in range(it.n(20_000))]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    await it.api.create(it.pod("picky", affinity={"nodeAffinity": required}))
    await it.innocents()
    it.expect(await it.wait_for("picky", judged, 60), "the hostile pod is not judged")


@scenario()
async def compared_numbers(it: Stage) -> None:
    """A pod with 8000 required and one with 6000 preferred node affinity terms of Gt and Lt, while nodes change"""

    def between(number: int) -> Json:
        bounds = ("Gt", number), ("Lt", number + 2)
        return {
            "matchExpressions": [
                {"key": "number", "operator": operator, "values": [str(bound)]} for operator, bound in bounds
            ]
        }

    required = [between(2 * number) for number in range(it.n(8000, least=300))]
    weighed = [{"weight": 1, "preference": between(number)} for number in range(it.n(6000, least=300))]
    await it.own_nodes(["odd"], labels={"number": "1"})
    for name, affinity in (
        ("required", {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required}}),
        ("preferred", {"preferredDuringSchedulingIgnoredDuringExecution": weighed}),
    ):
        own = it.own() if name == "required" else {}
        await it.api.create(it.pod(name, affinity={"nodeAffinity": affinity}, **own))

    async def change(number: int) -> None:
        await it.api.patch("/api/v1/nodes/odd", {"metadata": {"labels": {"changes": str(number)}}})

    async with it.meanwhile(it.n(50, least=10), change):
        await it.innocents()
    for name in ("required", "preferred"):
        it.expect(await it.wait_for(name, judged, 60), f"the hostile pod {name} is not judged")


@scenario()
async def spread_requirements(it: Stage) -> None:
    """20 waiting pods with two spread constraints of 5000 requirements each, and 200 pods that come and go beside them"""
    requirements = [{"key": f"k{key}", "operator": "DoesNotExist"} for key in range(it.n(5000, least=200))]
    constraints = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchExpressions": requirements}}
        for key in (HOSTNAME, "no-node-has-it")
    ]  # fmt: skip
    names = [f"s-{number}" for number in range(it.n(20, least=2))]
    await it.api.create_all(it.pod(name, topologySpreadConstraints=constraints) for name in names)
    others = it.n(200, least=5)
    await it.api.create_all(it.pod(f"o-{number}", on=it.node(number)) for number in range(others))
    await it.innocents()
    for number in range(others):
        await it.api.ask(
            "DELETE",
            await it.api.collection("v1", "Pod", it.namespace) + f"/o-{number}",
            gracePeriodSeconds="0",
        )
    await it.innocents()
    it.expect(await it.wait_for(names[-1], judged, 60), "the hostile pod is not judged")


@scenario()
async def waiting_pods(it: Stage) -> None:
    """3000 pods that wait for pods of other labels, and 3000 deletions"""
    count = it.n(3000)

    def waiting(number: int) -> Json:
        term = {"labelSelector": {"matchLabels": {"app": f"none-{number % 50}"}}, "topologyKey": HOSTNAME}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return it.pod(f"w-{number}", affinity={"podAffinity": required})

    await it.api.create_all(
        it.pod(f"b-{number}", on=it.node(number), labels={"color": "x"}) for number in range(count)
    )
    await it.api.create_all(map(waiting, range(count)))
    await it.pause(20)
    pods = await it.api.collection("v1", "Pod", it.namespace)
    await it.api.ask("DELETE", pods, labelSelector="color=x", gracePeriodSeconds="0")
    await it.innocents()


def judged(pod: Json) -> bool:
    """Whether a pod is bound, or was told why not."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(condition["type"] == "PodScheduled" for condition in conditions)


@scenario()
async def large_selectors(it: Stage) -> None:
    """A namespaceSelector of 30,000 requirements with 2000 namespaces, affinity terms of 80,000 labels, Services of 50,000"""
    lacks = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(it.n(30_000))]
    labels = {f"k{number}": "v" for number in range(it.n(80_000))}
    for number in range(it.n(2000)):
        await it.api.create(namespace_object(f"{it.namespace}-{number}"))
    for number in range(it.n(50, least=2)):
        selector = {f"k{label}-{number}": "v" for label in range(it.n(50_000))}
        await it.api.create(
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s-{number}", "namespace": it.namespace},
                "spec": {"clusterIP": "None", "selector": selector, "ports": [{"port": 80}]},
            }
        )  # fmt: skip
    chosen = {"matchExpressions": [*lacks, {"key": "kubernetes.io/metadata.name", "operator": "Exists"}]}
    none = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "none"}}}
    long = {"topologyKey": ZONE, "labelSelector": {"matchLabels": labels}}
    for number in range(it.n(10, least=2)):
        for name, term in ((f"n-{number}", {**none, "namespaceSelector": chosen}), (f"l-{number}", long)):
            apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            await it.api.create(it.pod(name, affinity=apart))
    await it.innocents()
    it.expect(await it.wait_for("n-0", judged, 60), "the pod with the selector of namespaces is not judged")
    it.expect(await it.wait_for("l-0", judged, 60), "the pod with a large term is not judged")


@scenario()
async def large_terms(it: Stage) -> None:
    """Selectors of 50,000 labels, 60,000 keys or 180,000 values in affinity terms and spread constraints, and 20 Services that select one pod"""
    keys = [f"{number:x}" for number in range(0x10000, 0x10000 + it.n(60_000))]
    values = [f"{number:x}" for number in range(0x10000, 0x10000 + it.n(180_000))]
    labels = {"matchLabels": dict.fromkeys(keys[: it.n(50_000)], "v")}
    selectors = [
        labels,
        {"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]},
        {
            "matchExpressions": [
                {"key": key, "operator": "NotIn", "values": ["v"]} for key in keys[: it.n(50_000)]
            ]
        },
        *(
            {"matchExpressions": [{"key": "k", "operator": each, "values": values}]}
            for each in ("In", "NotIn")
        ),
    ]
    for number, selector in enumerate(selectors):
        for place in range(it.n(3, least=1)):
            apart = {"podAntiAffinity": preferred([everywhere(selector, ZONE)])}
            spread = {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
            await it.api.create(it.pod(f"b-{number}-{place}", on=it.node(number), affinity=apart))
            await it.api.create(it.pod(f"a-{number}-{place}", affinity=apart))
            await it.api.create(it.pod(f"s-{number}-{place}", topologySpreadConstraints=[spread]))
    for number in range(it.n(20, least=2)):
        selector = {**labels["matchLabels"], f"s-{number}": "v"}
        await it.api.create(
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": f"l-{number}", "namespace": it.namespace},
                "spec": {"clusterIP": "None", "selector": selector, "ports": [{"port": 80}]},
            }
        )  # fmt: skip
    own = dict.fromkeys((f"s-{number}" for number in range(it.n(20, least=2))), "v")
    await it.api.create(it.pod("large", labels=labels["matchLabels"] | own))
    await it.innocents()
    it.expect(await it.wait_for("large", judged, 60), "the pod with many labels is not judged")
    for number in range(len(selectors)):
        it.expect(await it.wait_for(f"a-{number}-0", judged, 60), f"the pod a-{number}-0 is not judged")
        it.expect(await it.wait_for(f"s-{number}-0", judged, 60), f"the pod s-{number}-0 is not judged")
        pods = await it.api.collection("v1", "Pod", it.namespace)
        await it.api.ask("DELETE", f"{pods}/b-{number}-0", gracePeriodSeconds="0")
    await it.innocents()


@scenario()
async def large_controllers(it: Stage) -> None:
    """5 ReplicaSets with 5 pods each, and 5 PodDisruptionBudgets, with selectors of 60,000 requirements that change"""
    lacks = [
        {"key": f"{number:x}", "operator": "DoesNotExist"}
        for number in range(0x10000, 0x10000 + it.n(60_000))
    ]
    names = [f"r-{number}" for number in range(it.n(5, least=2))]
    for name in names:
        selector = {"matchLabels": {"app": name}, "matchExpressions": lacks}
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "c"}]},
        }
        head = {"name": name, "namespace": it.namespace}
        spec = {"replicas": 0, "selector": selector, "template": template}
        await it.api.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": head, "spec": spec})
        budget = {"maxUnavailable": 0, "selector": selector}
        await it.api.create(
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": head, "spec": budget}
        )
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": name,
            "uid": "00000000-0000-0000-0000-000000000001",
            "controller": True,
        }
        for number in range(5):
            pod = it.pod(f"{name}-{number}", labels={"app": name})
            pod["metadata"]["ownerReferences"] = [owner]
            await it.api.create(pod)

    async def change(number: int) -> None:
        for kind in ("apps/v1/namespaces/{}/replicasets", "policy/v1/namespaces/{}/poddisruptionbudgets"):
            path = f"/apis/{kind.format(it.namespace)}/{names[number % len(names)]}"
            await it.api.patch(path, {"metadata": {"labels": {"n": str(number)}}})

    await it.innocents_while(1, change, 5)
    it.expect(await it.wait_for(f"{names[0]}-0", judged, 60), "a pod of the ReplicaSet is not judged")
