"""Structural schemas: pruning and defaulting of custom resources.

CEL rules (`x-kubernetes-validations`) are kept in the definition, but not evaluated.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema (pruning, defaulting)
    and pkg/apiserver/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.simulator.apimachinery.objects import clone

Schema = Mapping[str, Any]

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_TYPE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Schema, *, is_resource: bool = False, path: str = "") -> list[str]:
    """Remove fields that a schema does not have; return their paths.

    Args:
        value: the value; it is changed.
        schema: its schema.
        is_resource: whether apiVersion, kind and metadata are known although the schema does not have them.
        path: path of the value, for the result.
    """
    gone: list[str] = []
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        is_resource = is_resource or bool(schema.get(_EMBEDDED))
        for key in list(value):
            where = f"{path}.{key}" if path else key
            if is_resource and key in _TYPE_FIELDS:
                continue
            if key in properties:
                gone += prune(value[key], properties[key], path=where)
            elif isinstance(additional, dict):
                gone += prune(value[key], additional, path=where)
            elif not schema.get(_PRESERVE) and additional is not True:
                del value[key]
                gone.append(where)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            gone += prune(item, schema["items"], path=f"{path}[{index}]")
    return gone


def fill_in(value: Any, schema: Schema) -> None:
    """Set missing fields that have a default; a null that is not allowed is replaced too."""
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        for key, inner in properties.items():
            if (
                value.get(key) is None
                and "default" in inner
                and (key not in value or not inner.get("nullable"))
            ):
                value[key] = clone(inner["default"])
        additional = schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                fill_in(item, properties[key])
            elif isinstance(additional, dict):
                fill_in(item, additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            fill_in(item, schema["items"])
