"""All readable parts of an object are decoded for any depth and content of the rest."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import ObjectError
from scheduler.objects.decode import (
    decode_node,
    decode_object,
    decode_pod,
    elements,
    legible,
    members,
    outline_pod,
    without_managed_fields,
)
from tests.support.builders import node_object, pod_object

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text('a\\"{}[],: é', max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('a\\"{[,:', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
spaces = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


def nested(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def with_field(found: dict[str, Any], place: str, name: str, value: bytes) -> bytes:
    """Return an object with an additional raw field in one of its parts."""
    changed = {**found, place: {**found.get(place, {}), name: "@@"}}
    return json.dumps(changed).encode().replace(b'"@@"', value)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4), spaces, st.booleans())
def test_the_members_of_an_object_equal_those_of_a_decoder(
    found: dict[str, Any], separators: tuple[str, str], ascii_only: bool
):
    raw = json.dumps(found, separators=separators, ensure_ascii=ascii_only).encode()

    assert {name: json.loads(part) for name, part in members(raw).items()} == found
    assert legible(raw) == found


@given(st.lists(values, max_size=4), spaces)
def test_the_elements_of_a_list_equal_those_of_a_decoder(found: list[Any], separators: tuple[str, str]):
    raw = json.dumps(found, separators=separators).encode()

    assert [json.loads(part) for part in elements(raw)] == found


@given(st.binary(max_size=60), st.sampled_from([members, elements, legible, without_managed_fields]))
def test_invalid_json_is_read_partially_or_refused(raw: bytes, read: Any):
    with suppress(ValueError):
        read(raw)


@pytest.mark.parametrize(
    "raw",
    [b"", b"7", b'"{}"', b"{", b'{"a":1', b'{"a":"}', b"[1]", b"{1}", b"{,}", b"[]", b"{]", b"{}x", b"x{}"],
)
def test_only_a_whole_object_has_members(raw: bytes):
    with pytest.raises(ValueError, match="JSON"):
        members(raw)


@pytest.mark.parametrize("levels", [10, 985, 1100, 10_000, 200_000])
@pytest.mark.parametrize(
    ("kind", "decode"),
    [
        (pod_object, lambda raw: decode_pod(raw).object),
        (node_object, lambda raw: decode_node(raw).object),
        (pod_object, decode_object),
    ],
    ids=["Pod", "Node", "another kind"],
)
def test_managed_fields_may_nest_to_any_depth(kind: Any, decode: Any, levels: int):
    found = kind("a", labels={"x": '}{\\"'})
    raw = with_field(found, "metadata", "managedFields", b'[{"fieldsV1":' + nested(levels) + b"}]")

    assert {**(read := decode(raw)), "metadata": {**read["metadata"], "managedFields": 0}} == {
        **found,
        "metadata": {**found["metadata"], "managedFields": 0},
    }


@pytest.mark.parametrize("bad", [b'"\xff"', b'"\\ud800"', b"{]", b"1e", b"[" * 2000 + b"]" * 2000])
def test_managed_fields_may_be_invalid(bad: bytes):
    raw = with_field(pod_object("web"), "metadata", "managedFields", bad)

    assert decode_pod(raw).key == "default/web"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (nested(5000), "nests too deeply"),
        (b'{"a":1,,}', "expected JSON: "),
        (b'"\xff"', "expected JSON: "),
        (b'"\\ud800"', "expected JSON: "),
    ],
    ids=["deep", "no JSON", "no UTF-8", "half a character"],
)
@pytest.mark.parametrize(
    ("place", "field"), [("metadata", "annotations"), ("spec", "containers"), ("status", "message")]
)
def test_an_undecodable_pod_has_its_name(place: str, field: str, value: bytes, problem: str):
    raw = with_field(pod_object("web", namespace="shop", schedulerName="mine"), place, field, value)

    with pytest.raises(ObjectError) as caught:
        decode_pod(raw)

    assert str(caught.value).startswith(f"Pod shop/web: {problem}")
    assert caught.value.found is not None
    outline = outline_pod(caught.value.found)
    assert outline is not None
    assert (outline.key, outline.scheduler_name) == ("shop/web", "mine")


def test_the_cost_of_an_outline_does_not_depend_on_the_size_of_a_part():
    many = b"{" + b",".join(b'"k%d":1' % number for number in range(100_000)) + b',"bad":"\xff"}'
    raw = with_field(pod_object("web"), "metadata", "annotations", many)

    assert "annotations" not in legible(raw)["metadata"]


def test_an_object_keeps_everything_but_its_managed_fields():
    found = pod_object("web", labels={"managedFields": "é"})
    raw = with_field(found, "metadata", "managedFields", b"[]")

    assert msgspec.json.decode(without_managed_fields(raw)) == found


def test_a_pod_with_a_broken_part_has_its_name():
    raw = json.dumps({**pod_object("web"), "status": "@@"}).encode().replace(b'"@@"', b'{"a":1,,}')

    with pytest.raises(ObjectError) as caught:
        decode_pod(raw)

    assert caught.value.key == "default/web"
