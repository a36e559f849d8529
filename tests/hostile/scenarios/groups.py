"""Pod groups: large ones, ones with a high priority, and ones with changing members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.scenario import scenario
from tests.hostile.scenarios.affinity import everywhere, judged, lacking
from tests.hostile.stage import namespace_object, preferred

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]

COSCHEDULING: Json = {
    "plugins": {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
}
GROUPS = ("podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh")
_VERSION = "scheduling.k8s.io/v1alpha2"


async def priority_class(it: Stage, name: str, value: int) -> str:
    """Create a PriorityClass; return its name."""
    full = f"{it.scenario.name}-{name}"
    await it.api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": full},
            "value": value,
        }
    )
    return full


async def _gang(it: Stage, members: int, **spec: Any) -> None:
    terms = preferred(everywhere(lacking(f"k{term}")) for term in range(it.n(50, least=3)))
    policy = {"gang": {"minCount": members}}
    head = {"name": "gang", "namespace": it.namespace}
    group = {"apiVersion": _VERSION, "kind": "PodGroup", "metadata": head}
    priority = {"priorityClassName": spec["priorityClassName"]} if "priorityClassName" in spec else {}
    await it.api.create({**group, "spec": {"schedulingPolicy": policy, **priority}})
    await it.api.create_all(
        it.pod(
            f"m-{number}",
            schedulingGroup={"podGroupName": "gang"},
            affinity={"podAntiAffinity": terms},
            **spec,
        )
        for number in range(members)
    )


@scenario()
async def gang(it: Stage) -> None:
    """A gang of 500 members with 50 terms of anti-affinity each"""
    await _gang(it, it.n(500, least=4))
    await it.innocents()
    bound = await it.pods_where(lambda pod: pod["spec"].get("nodeName"))
    it.figure(f"{len(bound)} members bound")


@scenario()
async def gang_without_room(it: Stage) -> None:
    """A gang of 1500 members with 50 terms each, which does not fit even after preemption"""
    low, high = await priority_class(it, "low", 1), await priority_class(it, "high", 1000)
    members = it.n(1500, least=8)
    nodes = [f"room-{number}" for number in range(max(1, members // 5))]
    await it.own_nodes(nodes)
    await it.api.create_all(
        it.pod(f"v-{number}-{other}", on=name, cpu="990m", priorityClassName=low)
        for number, name in enumerate(nodes)
        for other in range(4)
    )
    await _gang(it, members, cpu="990m", priorityClassName=high, **it.own())
    await it.innocents()
    left = await it.pods_where(lambda pod: pod["metadata"]["name"].startswith("v-"))
    it.expect(len(left) == 4 * len(nodes), "pods are evicted in vain")


@scenario(profile=COSCHEDULING, is_ours=True, definitions=GROUPS)
async def volcano_priority(it: Stage) -> None:
    """A Volcano PodGroup that names system-node-critical in a namespace whose quota forbids every PriorityClass"""
    victims = f"{it.namespace}-other"[:63]
    await it.api.create(namespace_object(victims))
    high = await priority_class(it, "high", 100_000)
    await it.own_nodes(["full"])
    await it.api.create_all(
        it.pod(f"v-{number}", namespace=victims, on="full", cpu="1", priorityClassName=high)
        for number in range(4)
    )
    scopes = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    await it.api.create(
        {
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "none", "namespace": it.namespace},
            "spec": {"hard": {"pods": "0"}, "scopeSelector": scopes},
        }
    )  # fmt: skip
    await it.api.create(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": "grab", "namespace": it.namespace},
            "spec": {"minMember": 2, "priorityClassName": "system-node-critical"},
        }
    )  # fmt: skip
    named = {"scheduling.k8s.io/group-name": "grab"}
    for number in range(2):
        await it.api.create(it.pod(f"g-{number}", cpu="2", annotations=named, **it.own()))
    await it.wait_for("g-0", judged, 30)
    await it.innocents()
    here = await it.pods_where(lambda pod: not pod["metadata"].get("deletionTimestamp"), victims)
    it.expect(len(here) == 4, f"{4 - len(here)} pods of priority 100000 are evicted")


@scenario(profile=COSCHEDULING, is_ours=True, definitions=GROUPS)
async def changing_members(it: Stage) -> None:
    """1000 pods whose labels name another group ten times a second, and groups whose minMember changes"""
    groups, pods = it.n(20, least=2), it.n(1000, least=6)
    version = "scheduling.x-k8s.io/v1alpha1"
    await it.api.create_all(
        {
            "apiVersion": version, "kind": "PodGroup",
            "metadata": {"name": f"g{number}", "namespace": it.namespace}, "spec": {"minMember": 2 * pods},
        }
        for number in range(groups)
    )  # fmt: skip
    await it.api.create_all(
        it.pod(f"m-{number}", labels={"scheduling.x-k8s.io/pod-group": f"g{number % groups}"})
        for number in range(pods)
    )
    collection = await it.api.collection(version, "PodGroup", it.namespace)

    async def change(number: int) -> None:
        if number % 10 == 0:
            few = {"spec": {"minMember": 2 * pods + number % 7}}
            await it.api.patch(f"{collection}/g{number % groups}", few)
            return
        label = {"scheduling.x-k8s.io/pod-group": f"g{(number + number // pods) % groups}"}
        path = f"/api/v1/namespaces/{it.namespace}/pods/m-{number % pods}"
        await it.api.patch(path, {"metadata": {"labels": label}})

    await it.innocents_while(it.n(300, least=20), change)


@scenario(
    profile=COSCHEDULING,
    is_ours=True,
    definitions=GROUPS,
    logged=frozenset({"PreEnqueue failed; the pod stays gated"}),
)
async def large_groups(it: Stage) -> None:
    """5 Volcano PodGroups that request 20,000 resources and 20,000 tasks each, of which one changes, and 5 pods of each"""
    version = "scheduling.volcano.sh/v1beta1"
    resources = {f"example.com/r{number}": "1" for number in range(it.n(20_000))}
    tasks = {f"t{number}": 0 for number in range(it.n(20_000))}
    groups = [f"g-{number}" for number in range(it.n(5, least=2))]
    for name in groups:
        spec = {"minMember": 2, "minResources": resources, "minTaskMember": tasks}
        head = {"name": name, "namespace": it.namespace}
        await it.api.create({"apiVersion": version, "kind": "PodGroup", "metadata": head, "spec": spec})
        named = {"scheduling.k8s.io/group-name": name}
        await it.api.create_all(it.pod(f"{name}-{member}", annotations=named) for member in range(5))
    path = f"{await it.api.collection(version, 'PodGroup', it.namespace)}/{groups[0]}"

    async def change(number: int) -> None:
        await it.api.patch(path, {"spec": {"minResources": {"example.com/r0": str(number)}}})

    await it.innocents_while(2, change, 10)
