"""Pods whose place depends on other pods: what each kind of wish costs, beside plain pods in the same cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.engine.state.cache import Cache
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.objects.pod import PodInfo

_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"
_ZONES = 10
_APPS = 40
_RUNNING_PER_NODE = 2


def _selector(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


def _term(app: str, key: str) -> dict[str, Any]:
    return {"labelSelector": _selector(app), "topologyKey": key}


def _required(app: str, key: str, **more: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{**_term(app, key), **more}]}


def _preferred(app: str, key: str) -> dict[str, Any]:
    weighted = {"weight": 50, "podAffinityTerm": _term(app, key)}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}


def _spread(app: str, key: str, how: str) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": how, "labelSelector": _selector(app)}


_WISHES: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "plain": lambda _: {},
    "of a Service, spread by default": lambda _: {},
    "spread over zones": lambda app: {"topologySpreadConstraints": [_spread(app, _ZONE, "DoNotSchedule")]},
    "spread softly over hosts": lambda app: {
        "topologySpreadConstraints": [_spread(app, _HOST, "ScheduleAnyway")]
    },
    "affinity in the zone": lambda app: {"affinity": {"podAffinity": _required(app, _ZONE)}},
    "preferred affinity": lambda app: {"affinity": {"podAffinity": _preferred(app, _HOST)}},
    "anti-affinity on the host": lambda app: {"affinity": {"podAntiAffinity": _required(app, _HOST)}},
    "anti-affinity by namespace selector": lambda app: {
        "affinity": {
            "podAntiAffinity": _required(app, _HOST, namespaceSelector={"matchLabels": {"team": "red"}})
        }
    },
}

KINDS = tuple(_WISHES)


def _service(app: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"app": app}},
    }


def running_cluster(size: int, kind: str) -> Cache:
    """Return nodes in ten zones, with pods of forty apps on them that have the wish themselves."""
    cache = Cache()
    for number in range(size):
        labels = {_ZONE: f"zone-{number % _ZONES}", _HOST: f"n{number}"}
        cache.add_node(node(f"n{number}", cpu="64", memory="256Gi", labels=labels))
    cache.table.watch_kind("v1/namespaces")["default"] = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"team": "red"}},
    }
    services = cache.table.watch_kind("v1/services")
    if kind == "of a Service, spread by default":
        services.update({f"default/app-{number}": _service(f"app-{number}") for number in range(_APPS)})
    for number in range(size * _RUNNING_PER_NODE):
        app = f"app-{number % _APPS}"
        # Apps repel themselves only, so that each wish can still be met.
        there = pod(
            f"running-{number}",
            node=f"n{number % size}",
            cpu="100m",
            memory="500Mi",
            labels={"app": app},
            **_WISHES[kind](app),
        )
        cache.add_pod(there)
    return cache


def pending(kind: str, count: int) -> list[PodInfo]:
    """Return pods of the same forty apps."""
    return [
        pod(
            f"pending-{number}",
            cpu="100m",
            memory="500Mi",
            labels={"app": f"app-{number % _APPS}"},
            **_WISHES[kind](f"app-{number % _APPS}"),
        )
        for number in range(count)
    ]
