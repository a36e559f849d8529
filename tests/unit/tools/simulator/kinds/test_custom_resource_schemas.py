"""Structural schemas: pruning, defaults, validation, and patterns as in Go."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler.tools.simulator.kinds.custom_resource_schemas import fill_in, go_pattern, prune, violations
from tests.unit.tools.simulator.definitions import with_spec

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
MAP_LIST = {
    "type": "array",
    "items": {"type": "object"},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}


def told(value: Any, schema: dict[str, Any]) -> list[str]:
    return [cause.message for cause in violations(value, schema, "f")]


def test_unknown_fields_are_dropped_at_every_depth():
    schema = with_spec(
        known=TEXT,
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        items={"type": "array", "items": {"type": "object", "properties": {"a": NUMBER}}},
        byName={"type": "object", "additionalProperties": {"type": "object", "properties": {"b": TEXT}}},
    )
    obj: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n"},
        "extra": 1,
        "spec": {
            "known": "x",
            "lost": 1,
            "free": {"any": {"thing": 1}},
            "items": [{"a": 1, "z": 2}],
            "byName": {"k": {"b": "c", "z": 1}},
        },
    }
    gone = prune(obj, schema, is_resource=True)

    assert gone == ["extra", "spec.lost", "spec.items[0].z", "spec.byName.k.z"]
    assert obj["spec"] == {
        "known": "x",
        "free": {"any": {"thing": 1}},
        "items": [{"a": 1}],
        "byName": {"k": {"b": "c"}},
    }


def test_defaults_fill_missing_fields_and_forbidden_nulls():
    schema = with_spec(
        size=NUMBER | {"default": 3},
        note=TEXT | {"default": "x", "nullable": True},
        given=NUMBER | {"default": 1},
    )
    obj: dict[str, Any] = {"spec": {"note": None, "given": 7, "size": None}}
    fill_in(obj, schema)

    assert obj["spec"] == {"note": None, "given": 7, "size": 3}


def test_defaults_are_never_shared_between_objects():
    schema = with_spec(tags={"type": "array", "default": [], "items": TEXT})
    first: dict[str, Any] = {"spec": {}}
    second: dict[str, Any] = {"spec": {}}
    fill_in(first, schema)
    fill_in(second, schema)
    first["spec"]["tags"].append("x")

    assert second["spec"]["tags"] == []


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        pytest.param(0, NUMBER | {"minimum": 1}, "Invalid value: 0: f in body should be greater than or equal to 1", id="too small"),
        pytest.param(9, NUMBER | {"maximum": 9, "exclusiveMaximum": True}, "Invalid value: 9: f in body should be less than 9", id="not below"),
        pytest.param("x", NUMBER, 'Invalid value: "string": f in body must be of type integer: "string"', id="text for a number"),
        pytest.param(True, NUMBER, 'Invalid value: "boolean": f in body must be of type integer: "boolean"', id="true is no number"),
        pytest.param(1.5, NUMBER, 'Invalid value: "number": f in body must be of type integer: "number"', id="a fraction is no integer"),
        pytest.param(None, TEXT, 'Invalid value: "null": f in body must be of type string: "null"', id="null"),
        pytest.param("c", TEXT | {"enum": ["a", "b"]}, 'Unsupported value: "c": supported values: "a", "b"', id="enum"),
        pytest.param("c", TEXT | {"pattern": "^[0-9]+$"}, "Invalid value: \"c\": f in body should match '^[0-9]+$'", id="pattern"),
        pytest.param("", TEXT | {"minLength": 1}, 'Invalid value: "": f in body should be at least 1 chars long', id="short"),
        pytest.param("abc", TEXT | {"maxLength": 2}, "Too long: may not be more than 2 bytes", id="long"),
        pytest.param({}, {"type": "object", "required": ["a"]}, "Required value", id="missing"),
        pytest.param([1, 2], {"type": "array", "items": NUMBER, "maxItems": 1}, "Too many: 2: must have at most 1 items", id="many items"),
        pytest.param([{"name": "a"}, {"name": "a"}], MAP_LIST, 'Duplicate value: {"name":"a"}', id="a key twice"),
        pytest.param(1.5, {"x-kubernetes-int-or-string": True}, 'Invalid value: "number": f in body must be of type integer,string: "number"', id="neither integer nor text"),
        pytest.param("x", {"anyOf": [NUMBER, {"type": "boolean"}]}, 'Invalid value: "x": "f" must validate at least one schema (anyOf)', id="none of several"),
        pytest.param(1 << 31, NUMBER | {"format": "int32"}, f"Invalid value: {1 << 31}: f in body should be a int32", id="beyond 32 bits"),
        pytest.param("noon", TEXT | {"format": "date-time"}, 'Invalid value: "noon": f in body must be of type date-time: "noon"', id="no moment"),
    ],
)  # fmt: skip
def test_a_schema_violation_has_the_message_of_the_server(value: Any, schema: dict[str, Any], message: str):
    assert told(value, schema) == [message]


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        pytest.param(3, {"x-kubernetes-int-or-string": True}, id="an integer as either"),
        pytest.param("50%", {"x-kubernetes-int-or-string": True}, id="text as either"),
        pytest.param(None, TEXT | {"nullable": True}, id="null where it may be"),
        pytest.param(2, {"type": "number"}, id="an integer is a number"),
        pytest.param({"a": 1}, {"type": "object", "additionalProperties": NUMBER}, id="any key"),
        pytest.param([{"name": "a"}, {"name": "b"}], MAP_LIST, id="keys that differ"),
        pytest.param(2, {"oneOf": [{"minimum": 1}, {"maximum": 1}]}, id="one of two"),
    ],
)
def test_a_valid_object_is_accepted(value: Any, schema: dict[str, Any]):
    assert told(value, schema) == []


@pytest.mark.parametrize(
    ("pattern", "matching", "failing"),
    [
        pytest.param("^(?i)(abort|warn)?$", ["Warn", "ABORT", ""], ["warned"], id="flags after the start"),
        pytest.param(
            "^(a(?i)b)c$", ["abc", "aBc"], ["abC", "Abc"], id="flags hold to the end of their group"
        ),
        pytest.param("^(?i)a(?s).$", ["A\n", "ab"], ["b\n"], id="two flags in one group"),
        pytest.param(r"^[(?i)]+\z", ["(i)?", "i"], ["I", "i\n"], id="a class holds no flags"),
        pytest.param(r"^\(?i\)$", ["(i)", "i)"], ["(I)"], id="an escaped bracket opens nothing"),
        pytest.param("^(?:a|b)$", ["a", "b"], ["ab"], id="a group without a number"),
    ],
)
def test_an_expression_has_its_meaning_in_go(pattern: str, matching: list[str], failing: list[str]):
    found = go_pattern(pattern)

    assert [text for text in matching if not found.search(text)] == []
    assert [text for text in failing if found.search(text)] == []


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "(?U)a*", "*"])
def test_an_invalid_expression_is_refused(pattern: str):
    with pytest.raises(re.error):
        go_pattern(pattern)
