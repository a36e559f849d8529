"""A line of a watch has the same meaning in any form of JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube.client.wire import (
    ObjectIdentity,
    answer_error,
    decode_identity,
    decode_list_page,
    decode_watch_event,
    event_error,
    typed_event_decoder,
)
from scheduler.objects.decode import decode_object
from scheduler.objects.meta import ObjectMeta
from scheduler.objects.v1 import Pod

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
def test_a_line_has_the_same_meaning_in_any_format(line: str):
    for decode in (decode_watch_event, typed_event_decoder(Pod)):
        event = decode(line.encode())

        assert (event.type, event.identity, json.loads(event.object)) == ("ADDED", IDENTITY, OBJECT)


@pytest.mark.parametrize(
    ("changed", "decoded"),
    [
        pytest.param({}, Pod(ObjectMeta("a", "ns", "u", "7")), id="a pod"),
        pytest.param({"status": "Failure"}, None, id="another type of a field"),
        pytest.param({"metadata": {"name": None, "uid": "u"}}, None, id="a null"),
        pytest.param({"metadata": 5}, None, id="no metadata"),
    ],
)
def test_an_object_is_decoded_with_its_line_if_its_struct_fits(changed: dict[str, Any], decoded: Pod | None):
    line = msgspec.json.encode({"type": "MODIFIED", "object": OBJECT | changed})
    untyped = decode_watch_event(line)

    event = typed_event_decoder(Pod)(line)

    assert event.decoded == decoded
    assert (event.type, event.identity, event.object) == (untyped.type, untyped.identity, untyped.object)


@pytest.mark.parametrize(
    "item",
    [
        pytest.param({"metadata": {"name": "a"}, "spec": {}}, id="a built-in type without its kind"),
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
def test_the_object_of_an_event_is_the_text_of_its_line(type_: str, content: Any, *, tight: bool):
    whole = {"metadata": {"name": "a"}, "content": content}
    line = json.dumps({"type": type_, "object": whole}, separators=(",", ":") if tight else None)
    event = decode_watch_event(line.encode())

    assert (event.type, event.identity.name, json.loads(event.object)) == (type_, "a", whole)


@pytest.mark.parametrize("line", [b"", b'{"type":"ADDED"', b"[]", b'{"type":"ADDED"}', b'{"object":{}}'])
def test_an_invalid_event_is_an_error(line: bytes):
    with pytest.raises(msgspec.DecodeError):
        decode_watch_event(line)


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        pytest.param("7", b"", 7.0, id="some seconds"),
        pytest.param("86400", b"", 30.0, id="a day"),
        pytest.param("9" * 400, b"", 30.0, id="for ever"),
        pytest.param("-5", b"", 0.0, id="before now"),
        pytest.param("soon", b"", None, id="no number"),
        pytest.param("9" * 5000, b"", None, id="more digits than a number has"),
        pytest.param(None, b'{"details":{"retryAfterSeconds":3}}', 3.0, id="in the body"),
        pytest.param(None, b'{"details":{"retryAfterSeconds":1e300}}', 30.0, id="for ever in the body"),
        pytest.param(None, b'{"details":{"retryAfterSeconds":-1e300}}', 0.0, id="before now in the body"),
        pytest.param("2", b'{"details":{"retryAfterSeconds":3}}', 2.0, id="the header takes precedence"),
        pytest.param(None, b"\xff", None, id="no text"),
        pytest.param(None, b'{"message":"\xff"}', None, id="no text in it"),
        pytest.param(None, b'{"x":' * 5000, None, id="deeper than the decoder reads"),
    ],
)
def test_retry_after_is_at_most_half_a_minute(header: str | None, body: bytes, seconds: float | None):
    assert answer_error("GET /", 503, header, body).retry_after_seconds == seconds
    if header is None:
        assert event_error("GET /", body).retry_after_seconds == seconds


def deep(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def managed(metadata: dict[str, Any], levels: int) -> bytes:
    """Return an object with nested managedFields."""
    found = {"metadata": {**metadata, "managedFields": [{"fieldsV1": "@"}]}, "spec": {"x": "}]"}}
    return json.dumps(found, separators=(",", ":")).encode().replace(b'"@"', deep(levels))


METADATA = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize("levels", [*range(970, 1000), 1100, 10_000])
@pytest.mark.parametrize("written", [b'{"type":"%b","object":%b}', b'{"object": %b, "type": "%b"}'])
def test_a_line_is_decoded_with_an_object_of_any_depth(kind: str, levels: int, written: bytes):
    obj = managed(METADATA, levels)
    parts = (kind.encode(), obj) if written.startswith(b'{"type') else (obj, kind.encode())

    event = decode_watch_event(written % parts)

    assert (event.type, event.identity) == (kind, IDENTITY)
    assert decode_object(event.object)["spec"] == {"x": "}]"}


@pytest.mark.parametrize(
    "bad", [deep(1100), b'"\xff"', b'"\\ud800"'], ids=["deep", "no UTF-8", "half a character"]
)
@pytest.mark.parametrize("place", ["metadata", "spec"])
def test_a_line_with_an_undecodable_object_still_has_its_identity(place: str, bad: bytes):
    obj = {"metadata": METADATA, "spec": {}}
    obj[place] = {**obj[place], "more": {"odd": "@"}}
    line = json.dumps({"type": "ADDED", "object": obj}).encode().replace(b'"@"', bad)

    assert decode_watch_event(line).identity == IDENTITY


@pytest.mark.parametrize("levels", [10, 1100, 10_000])
def test_a_list_is_decoded_with_objects_of_any_depth(levels: int):
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"c"},"items":[%b, %b]}'
    page = decode_list_page(body % (managed(METADATA, levels), managed({"name": "b"}, 1)))

    assert (page.metadata.resource_version, page.metadata.continue_token) == ("9", "c")
    objects = list(page.objects())
    assert [decode_identity(each).key for each in objects] == ["ns/a", "b"]
    assert [decode_object(each)["kind"] for each in objects] == ["Pod", "Pod"]


def test_a_truncated_deep_line_is_an_error():
    line = b'{"type":"ADDED","object":' + managed(METADATA, 1100) + b"}"

    with pytest.raises(msgspec.DecodeError):
        decode_watch_event(line[:-1])
