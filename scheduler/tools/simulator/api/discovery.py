"""Discovery of groups, versions and resources, single and aggregated, and OpenAPI.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/discovery/aggregated.

kubectl leaves validation to the server if the description of a kind's path has that parameter. OpenAPI v3 has the fields
of built-in kinds with their types, and without texts.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

from scheduler.objects.api_types import api_type
from scheduler.tools.simulator.api.requests import accepted_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.api_types import ApiType
    from scheduler.tools.simulator.apimachinery.kinds import Kind, Kinds
    from scheduler.tools.simulator.apimachinery.objects import Object

_PATCH_RELEASES: Final = {"1.34": "v1.34.9", "1.35": "v1.35.6", "1.36": "v1.36.2", "1.37": "v1.37.0"}
_BUILD: Final = {
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def version_document(version: str) -> Object:
    """Return the document at /version."""
    major, minor = version.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": _PATCH_RELEASES[version],
        **_BUILD,
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


_INFO: Final = {"title": "Kubernetes", "version": "v1.36.2"}
_WRITES: Final = {"post": "create", "put": "update", "patch": "patch"}
_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")

OPENAPI_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def openapi_v2_protobuf() -> bytes:
    """Return the protobuf document at /openapi/v2: a Document without paths and definitions.

    kubectl reads it when a file contains a List; undescribed kinds are validated by the server.
    """
    info = _text(1, _INFO["title"]) + _text(2, _INFO["version"])
    return _text(1, "2.0") + _field(2, info) + _field(8, b"")


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message; the content must be shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


def openapi_document(kinds: Kinds, place: list[str]) -> Object | None:
    """Return the document at a path under /openapi; None if there is none.

    Args:
        kinds: the served kinds.
        place: path segments after /openapi.
    """
    match place:
        case ["v2"]:
            return openapi_v2(kinds)
        case ["v3"]:
            return openapi_v3_index(kinds)
        case ["v3", "api", version]:
            return openapi_v3(kinds, "", version)
        case ["v3", "apis", group, version]:
            return openapi_v3(kinds, group, version)
    return None


def openapi_v2(kinds: Kinds) -> Object:
    """Return the document at /openapi/v2."""
    definitions = {_schema_name(kind): _schema(kind) for kind in kinds}
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(list(kinds), {"type": "string"}),
        "definitions": definitions,
    }


def openapi_v3_index(kinds: Kinds) -> Object:
    """Return the document at /openapi/v3: the paths of all groups and versions."""
    places = [
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in kinds.groups().items()
        for version in versions
    ]
    return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}}


def openapi_v3(kinds: Kinds, group: str, version: str) -> Object | None:
    """Return the description of a group and version; None if it is not served."""
    served = kinds.of(group, version)
    if not served:
        return None
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": _paths(served, {"schema": {"type": "string", "uniqueItems": True}}),
        "components": {"schemas": _schemas(served)},
    }


_SCALARS: Final[Mapping[str, Object]] = {
    "text": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "quantity": {"type": "string"},
    "intstr": {"type": "string", "format": "int-or-string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "raw": {"type": "object"},
    "any": {"type": "object"},
}
"""Scalar type, as in `ApiField` -> its schema."""


def _schemas(kinds: list[Kind]) -> Object:
    """Return the schemas of kinds, and of the types that their fields have; `kubectl explain` shows these."""
    schemas: Object = {}
    left: list[tuple[str, str]] = []
    for kind in kinds:
        type_ = kind.type
        fields = {} if type_ is None else {"properties": _properties(type_, left)}
        schemas[_schema_name(kind)] = _schema(kind) | fields
    while left:
        version, name = left.pop()
        key = _type_name(version, name)
        if key not in schemas:
            schemas[key] = {"type": "object", "properties": _properties(api_type(version, name), left)}
    return schemas


def _properties(type_: ApiType, used: list[tuple[str, str]]) -> Object:
    """Return the schemas of the fields of a type, and add their types to `used`."""
    found: Object = {}
    for name, field in type_.by_name.items():
        if field.type_name is None:
            schema = _SCALARS[field.scalar]
        else:
            used.append(field.type_name)
            schema = {"$ref": f"#/components/schemas/{_type_name(*field.type_name)}"}
        if field.container == "[]":
            schema = {"type": "array", "items": schema}
        elif field.container:
            schema = {"type": "object", "additionalProperties": schema}
        found[name] = schema
    return found


def _type_name(api_version: str, name: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{name}"


def _paths(kinds: list[Kind], parameter_type: Object) -> Object:
    paths: Object = {}
    for kind in kinds:
        base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        place = (
            f"{base}/namespaces/{{namespace}}/{kind.resource}"
            if kind.namespaced
            else f"{base}/{kind.resource}"
        )
        paths[place] = {"post": _operation(kind, "post", parameter_type)}
        paths[f"{place}/{{name}}"] = {
            method: _operation(kind, method, parameter_type) for method in ("put", "patch")
        }
    return paths


def _operation(kind: Kind, method: str, parameter_type: Object) -> Object:
    return {
        "x-kubernetes-action": _WRITES[method],
        "x-kubernetes-group-version-kind": _type(kind),
        "parameters": [{"name": name, "in": "query", **parameter_type} for name in _PARAMETERS],
        "responses": {"200": {"description": "OK"}},
    }


def _schema(kind: Kind) -> Object:
    return {"type": "object", "x-kubernetes-group-version-kind": [_type(kind)]}


def _schema_name(kind: Kind) -> str:
    return f"io.k8s.api.{kind.group.partition('.')[0] or 'core'}.{kind.version}.{kind.kind}"


def _type(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
