"""Discovery: version, groups, resources."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kind, Kinds
    from scheduler.simulator.apimachinery.objects import Object

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}

_CHANGED_VERBS: Final = ["get", "patch", "update"]
_SUBRESOURCES: Final[dict[str, Object]] = {
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": _CHANGED_VERBS},
    "finalize": {"verbs": ["update"]},
    "token": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest", "verbs": ["create"]},
}


_BINDINGS: Final[Object] = {
    "name": "bindings",
    "singularName": "binding",
    "namespaced": True,
    **_SUBRESOURCES["binding"],
}


def api_versions(address: str) -> Object:
    """Return the document at /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_groups(kinds: Kinds) -> Object:
    """Return the document at /apis."""
    groups = [_group(name, versions) for name, versions in kinds.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(kinds: Kinds, group: str) -> Object | None:
    """Return the document at /apis/GROUP; None for an unknown group."""
    versions = kinds.groups().get(group)
    if not group or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def api_resources(kinds: Kinds, group: str, version: str) -> Object | None:
    """Return the resources of a group and version; None if there are none."""
    served = kinds.of(group, version)
    if not served:
        return None
    resources: list[Object] = [] if group else [_BINDINGS]
    for kind in sorted(served, key=lambda kind: kind.resource):
        resources.append(_resource(kind))
        resources += [_subresource(kind, name) for name in sorted(kind.subresources)]
    head: Object = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return head | {"groupVersion": f"{group}/{version}" if group else version, "resources": resources}


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource(kind: Kind) -> Object:
    resource: Object = {
        "name": kind.resource,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if "get" in kind.verbs:  # reviews are not stored
        resource["storageVersionHash"] = _storage_hash(kind)
    return resource


def _storage_hash(kind: Kind) -> str:
    """Return a hash that changes when objects are stored in another version.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go.
    """
    group, version = ("", "v1") if kind.stored_as else (kind.group, kind.version)
    digest = hashlib.sha256(f"{group}/{version}/{kind.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _subresource(kind: Kind, name: str) -> Object:
    resource: Object = {
        "name": f"{kind.resource}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _CHANGED_VERBS,
    }
    return resource | _SUBRESOURCES.get(name, {})
