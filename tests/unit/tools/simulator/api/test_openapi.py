"""OpenAPI v3 has the fields of built-in kinds, for `kubectl explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.feature_gates import DEFAULT_VERSION, features_of
from scheduler.tools.simulator.api.discovery import openapi_document
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = builtin_kinds(features_of({}, DEFAULT_VERSION))


def schemas(*place: str) -> dict[str, Any]:
    document = openapi_document(KINDS, ["v3", *place])
    assert document is not None
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def test_the_fields_of_a_kind_have_their_types_down_to_the_last_one() -> None:
    found = schemas("api", "v1")
    spec = found["io.k8s.api.core.v1.PodSpec"]["properties"]

    assert found["io.k8s.api.core.v1.Pod"]["properties"]["spec"] == {
        "$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"
    }
    assert spec["schedulerName"] == {"type": "string"}
    assert spec["nodeSelector"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert spec["containers"] == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
    }


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_reference_has_its_schema() -> None:
    document = openapi_document(KINDS, ["v3"])
    assert document is not None
    for path in document["paths"]:
        found = schemas(*path.split("/"))

        assert {each.rpartition("/")[2] for each in references(found)} <= found.keys()
