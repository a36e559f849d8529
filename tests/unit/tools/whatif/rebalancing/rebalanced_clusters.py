"""Clusters to rebalance, and a profile that fills nodes one after another."""

from __future__ import annotations

import json
from typing import Any

from scheduler.configuration.load import parse
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.rebalancing.evictable_pods import Wanted
from scheduler.tools.whatif.rebalancing.rebalancer import Rebalancer
from tests.support.builders import pod_object
from tests.support.manifests import MANIFESTS

PACKING = (MANIFESTS / "examples" / "rebalance" / "scheduler.yaml").read_text()
ZONE = "topology.kubernetes.io/zone"


def replica(
    name: str, node: str, cpu: str = "1", *, owner: str = "web", kind: str = "ReplicaSet", **fields: Any
) -> dict[str, Any]:
    """Return a pod on a node with a controller; its label `app` is the name of the controller."""
    fields.setdefault("labels", {"app": owner})
    pod = pod_object(name, cpu=cpu, node=node, **fields)
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-of-{owner}", "controller": True}
    ]
    return pod


def spread(max_skew: int = 1, app: str = "web", key: str = ZONE, **fields: Any) -> dict[str, Any]:
    """Return a soft constraint on pods of an app."""
    selector = {"matchLabels": {"app": app}}
    constraint = {"maxSkew": max_skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    return {**constraint, "labelSelector": selector, **fields}


def budget(name: str, allowed: int, *, app: str = "web", **fields: Any) -> dict[str, Any]:
    """Return a PodDisruptionBudget for pods of an app."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": app}}, **fields},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }


def rebalancer_of(
    *objects: Any, objective: str = "nodes", config: str = PACKING, wanted: Wanted | None = None
) -> Rebalancer:
    """Return a cluster to rebalance."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    given = cluster_file.parse(text.encode(), "cluster")
    scheduler = OfflineScheduler(given, parse(config, "config"))
    return Rebalancer(scheduler, given, objective, wanted or Wanted())


def moves(rebalancer: Rebalancer, *, evictions: int = 20, tries: int = 2000) -> list[str]:
    """Return the steps of a plan: pod, old node and new node."""
    plan = rebalancer.plan(most_evictions=evictions, most_tries=tries)
    return [f"{step.pod.partition('/')[2]} {step.from_node} {step.to_node}" for step in plan.steps]
