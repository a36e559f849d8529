"""Aggregated discovery: all groups, versions and resources in two documents instead of one per version.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/discovery/aggregated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.api.discovery import api_resources
from scheduler.simulator.api.request_info import accepted_types

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kinds
    from scheduler.simulator.apimachinery.objects import Object

CONTENT_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_aggregated(accept: str) -> bool:
    """Return whether a client prefers aggregated discovery."""
    wanted = ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
    for media_type, asked in accepted_types(accept):
        if media_type == "application/json":
            return (asked.get("g"), asked.get("v"), asked.get("as")) == wanted
    return False


def aggregated_discovery(kinds: Kinds, *, core: bool) -> Object:
    """Return the document at /api (core) or /apis."""
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [_version(kinds, group, version) for version in versions],
        }
        for group, versions in kinds.groups().items()
        if core == (not group)
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _version(kinds: Kinds, group: str, version: str) -> Object:
    found = api_resources(kinds, group, version) or {"resources": []}
    resources: dict[str, Object] = {}
    for one in found["resources"]:
        name, _, subresource = one["name"].partition("/")
        kind = {
            "group": one.get("group", group),
            "version": one.get("version", version),
            "kind": one["kind"],
        }
        if subresource:
            part = {"subresource": subresource, "responseKind": kind, "verbs": one["verbs"]}
            if name in resources:
                resources[name].setdefault("subresources", []).append(part)
            continue
        resource: Object = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if one["namespaced"] else "Cluster",
            "singularResource": one["singularName"],
            "verbs": one["verbs"],
        }
        for field in ("shortNames", "categories"):
            if field in one:
                resource[field] = one[field]
        resources[name] = resource
    return {"version": version, "resources": list(resources.values()), "freshness": "Current"}
