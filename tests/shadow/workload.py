"""Nodes and pods of many kinds, as JSON: the same for a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

SERVICES = 20
REPLICA_SETS = 10
PRIORITIES = {"low": 100, "middle": 1000, "high": 10000}
_ZONES = 5
_TIGHT = 50  # every so many nodes is one that fills up
_HOST = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
_IMAGES = ("registry.example/small:1", "registry.example/large:1")


def node(number: int) -> dict[str, Any]:
    """Return one of the nodes: four shapes, five zones, some tainted, some with images, some that are soon full."""
    name = f"node-{number:04d}"
    labels = {_HOST: name, _ZONE: f"zone-{number % _ZONES}", "pool": f"p{number % 10}", "kind": "wide"}
    taints, cpu, memory = [], (4, 8, 16, 32)[number % 4], (16, 32, 64, 128)[number % 4]
    if number % _TIGHT == 7:
        labels["kind"], cpu, memory = "tight", 4, 16
        taints.append({"key": "tight", "value": "yes", "effect": "NoSchedule"})
    elif number % 10 == 3:
        labels["kind"] = "dedicated"
        taints.append({"key": "dedicated", "value": "yes", "effect": "NoSchedule"})
    elif number % 20 == 5:
        taints.append({"key": "rather-not", "value": "yes", "effect": "PreferNoSchedule"})
    sizes = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    images = [
        {"names": [image], "sizeBytes": (300, 900)[place] * 1024 * 1024}
        for place, image in enumerate(_IMAGES)
        if (number + place) % 7 == 0
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "capacity": sizes,
            "allocatable": sizes,
            "images": images,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def others() -> list[tuple[str, dict[str, Any]]]:
    """Return path -> object for what pods refer to: Services, ReplicaSets, PriorityClasses."""
    found: list[tuple[str, dict[str, Any]]] = []
    for number in range(SERVICES):
        spec = {"selector": {"app": f"service-{number}"}, "ports": [{"port": 80}]}
        made = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"service-{number}"},
            "spec": spec,
        }
        found.append(("/api/v1/namespaces/default/services", made))
    for number in range(REPLICA_SETS):
        labels = {"app": f"replicas-{number}"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": f"replicas-{number}"}}
        found.append(("/apis/apps/v1/namespaces/default/replicasets", {**made, "spec": spec}))
    for name, value in PRIORITIES.items():
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        found.append(("/apis/scheduling.k8s.io/v1/priorityclasses", {**made, "value": value}))
    return found


def pod(number: int, scheduler_name: str, random: Random, kind: str = "") -> dict[str, Any]:
    """Return one of the pods; the kinds take turns."""
    kind = kind or list(_KINDS)[number % len(_KINDS)]
    cpu, memory = f"{random.randrange(1, 6) * 50}m", f"{random.randrange(1, 9) * 64}Mi"
    spec: dict[str, Any] = {
        "schedulerName": scheduler_name,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        ],
    }
    labels = {"app": f"app-{number % 40}", "kind": kind}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05d}", "namespace": "default", "labels": labels},
        "spec": spec,
    }
    _KINDS[kind](made, number)
    return made


def _plain(made: dict[str, Any], _number: int) -> None:
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": "200Mi"}}


def _asks_for_nothing(made: dict[str, Any], _number: int) -> None:
    made["spec"]["containers"][0].pop("resources")


def _unlike(made: dict[str, Any], number: int) -> None:
    asked = {"cpu": f"{50 + number % 97}m", "memory": f"{100 + number % 193}Mi"}
    made["spec"]["containers"][0]["resources"] = {"requests": asked}


def _spread(key: str, how: str, skew: int, made: dict[str, Any]) -> dict[str, Any]:
    chosen = {"matchLabels": {"app": made["metadata"]["labels"]["app"]}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": how, "labelSelector": chosen}


def _spread_zones(made: dict[str, Any], number: int) -> None:
    made["spec"]["topologySpreadConstraints"] = [_spread(_ZONE, "DoNotSchedule", 1 + number % 3, made)]


def _spread_hosts(made: dict[str, Any], _number: int) -> None:
    made["spec"]["topologySpreadConstraints"] = [
        _spread(_HOST, "ScheduleAnyway", 1, made),
        _spread(_ZONE, "ScheduleAnyway", 2, made),
    ]


def _affinity(made: dict[str, Any], which: str, key: str, weight: int, label: str, value: str) -> None:
    term: dict[str, Any] = {"labelSelector": {"matchLabels": {label: value}}, "topologyKey": key}
    name = "required" if not weight else "preferred"
    terms = [term] if not weight else [{"weight": weight, "podAffinityTerm": term}]
    rule = {f"{name}DuringSchedulingIgnoredDuringExecution": terms}
    made["spec"].setdefault("affinity", {})[which] = rule


def _near(made: dict[str, Any], number: int) -> None:
    made["metadata"]["labels"]["team"] = f"team-{number % 7}"
    _affinity(made, "podAffinity", _ZONE, 0, "team", f"team-{number % 7}")


def _rather_near(made: dict[str, Any], number: int) -> None:
    _affinity(made, "podAffinity", _HOST, 1 + number % 100, "app", made["metadata"]["labels"]["app"])


def _apart(made: dict[str, Any], number: int) -> None:
    made["metadata"]["labels"]["ring"] = f"ring-{number % 23}"
    _affinity(made, "podAntiAffinity", _HOST, 0, "ring", f"ring-{number % 23}")


def _rather_apart(made: dict[str, Any], number: int) -> None:
    _affinity(made, "podAntiAffinity", _ZONE, 1 + number % 50, "app", made["metadata"]["labels"]["app"])


def _tolerating(made: dict[str, Any], _number: int) -> None:
    made["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]


def _pools(made: dict[str, Any], number: int) -> None:
    pools = {"key": "pool", "operator": "In", "values": [f"p{each}" for each in range(number % 5 + 1)]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [pools]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    made["spec"]["affinity"] = {"nodeAffinity": rule}


def _rather_pools(made: dict[str, Any], number: int) -> None:
    pool = {"key": "pool", "operator": "In", "values": [f"p{number % 10}"]}
    terms = [{"weight": 1 + number % 100, "preference": {"matchExpressions": [pool]}}]
    rule = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    made["spec"]["affinity"] = {"nodeAffinity": rule}


def _port(made: dict[str, Any], number: int) -> None:
    port = 8000 + number % 5
    made["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]


def _image(made: dict[str, Any], number: int) -> None:
    made["spec"]["containers"][0]["image"] = _IMAGES[number % 2]


def _served(made: dict[str, Any], number: int) -> None:
    made["metadata"]["labels"]["app"] = f"service-{number % SERVICES}"


def _replica(made: dict[str, Any], number: int) -> None:
    which = number % REPLICA_SETS
    made["metadata"]["labels"]["app"] = f"replicas-{which}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"replicas-{which}", "controller": True}
    made["metadata"]["ownerReferences"] = [{**owner, "uid": f"replicas-{which}"}]


def _in_tight(made: dict[str, Any], priority: str, cpu: str) -> None:
    made["spec"] |= {
        "nodeSelector": {"kind": "tight"},
        "tolerations": [{"key": "tight", "operator": "Exists"}],
        "priorityClassName": priority,
    }
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": "64Mi"}}


def _filling(made: dict[str, Any], number: int) -> None:
    _in_tight(made, ("low", "middle")[number % 2], ("400m", "700m", "1")[number % 3])


def _urgent(made: dict[str, Any], number: int) -> None:
    if number % 3:
        made["spec"]["priorityClassName"] = "high"
    else:
        _in_tight(made, "high", ("600m", "1500m")[number % 2])


def _nowhere(made: dict[str, Any], number: int) -> None:
    if number % 4 == 0:
        made["spec"]["nodeSelector"] = {"kind": "none"}


_KINDS = {
    "plain": _plain,
    "asks-for-nothing": _asks_for_nothing,
    "unlike": _unlike,
    "spread-zones": _spread_zones,
    "spread-hosts": _spread_hosts,
    "near": _near,
    "rather-near": _rather_near,
    "apart": _apart,
    "rather-apart": _rather_apart,
    "tolerating": _tolerating,
    "pools": _pools,
    "rather-pools": _rather_pools,
    "port": _port,
    "image": _image,
    "served": _served,
    "replica": _replica,
    "filling": _filling,
    "urgent": _urgent,
    "nowhere": _nowhere,
}
