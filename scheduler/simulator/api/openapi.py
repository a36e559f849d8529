"""OpenAPI, as far as kubectl reads it before writes: the kinds that support `fieldValidation`.

kubectl leaves validation to the server if the description of a kind's path has that parameter. The fields of kinds are
not described.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kind, Kinds
    from scheduler.simulator.apimachinery.objects import Object

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
        "components": {"schemas": {_schema_name(kind): _schema(kind) for kind in served}},
    }


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
