"""A line of a watch means the same however it is written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.client.wire import ObjectIdentity, decode_list_page, decode_watch_event

OBJECT = {
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
    "spec": {"x": "}]"},
}
IDENTITY = ObjectIdentity("a", "ns", "u", "7")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            json.dumps({"type": "ADDED", "object": OBJECT}, separators=(",", ":")), id="as Go writes it"
        ),
        pytest.param(json.dumps({"type": "ADDED", "object": OBJECT}), id="with spaces"),
        pytest.param(
            json.dumps({"object": OBJECT, "type": "ADDED"}, separators=(",", ":")), id="the object first"
        ),
        pytest.param(
            json.dumps({"type": "ADDED", "object": OBJECT, "more": {}}, separators=(",", ":")),
            id="with more behind",
        ),
        pytest.param(
            json.dumps({"type": "ADDED", "object": OBJECT}, separators=(",", ":")) + " ",
            id="with a space behind",
        ),
    ],
)
def test_a_line_means_the_same_however_it_is_written(line: str):
    event = decode_watch_event(line.encode())

    assert (event.type, event.identity, json.loads(event.object)) == ("ADDED", IDENTITY, OBJECT)


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(
            {"metadata": {"name": "a"}, "spec": {}}, id="a built-in type, which does not say its kind"
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}, id="another type"
        ),
    ],
)
def test_an_item_of_a_list_is_the_object_that_a_watch_shows(item: dict[str, Any]):
    answer = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [item]}

    (found,) = decode_list_page(json.dumps(answer, separators=(",", ":")).encode()).objects()

    assert json.loads(found) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    type_=st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "ODD"]),
    content=JSON,
    tight=st.booleans(),
)
def test_the_object_of_an_event_is_what_stands_in_the_line(type_: str, content: Any, *, tight: bool):
    whole = {"metadata": {"name": "a"}, "content": content}
    line = json.dumps({"type": type_, "object": whole}, separators=(",", ":") if tight else None)
    event = decode_watch_event(line.encode())

    assert (event.type, event.identity.name, json.loads(event.object)) == (type_, "a", whole)


@pytest.mark.parametrize("line", [b"", b'{"type":"ADDED"', b"[]", b'{"type":"ADDED"}', b'{"object":{}}'])
def test_what_is_no_event_is_an_error(line: bytes):
    with pytest.raises(msgspec.DecodeError):
        decode_watch_event(line)
