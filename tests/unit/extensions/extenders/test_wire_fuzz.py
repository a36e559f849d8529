"""Any response of an extender is decoded or rejected in short time, and can be shown to users."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.daemon.server.extender import LONGEST_REQUEST_BYTES
from scheduler.errors import SchedulerError
from scheduler.extensions import extender_serving_wire, extender_wire
from scheduler.extensions.extender_wire import ExtenderError

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ["n1", "n2"]
READERS: dict[str, Callable[[bytes], Any]] = {
    "filter": lambda body: extender_wire.filter_answer(body, NAMES, names_only=True),
    "filter with nodes": lambda body: extender_wire.filter_answer(body, NAMES, names_only=False),
    "prioritize": lambda body: extender_wire.priorities_answer(body, 4),
    "preempt": extender_wire.preemption_answer,
    "bind": extender_wire.binding_answer,
}
REQUESTS: dict[str, Callable[[bytes], Any]] = {
    "nodes": extender_serving_wire.nodes_request,
    "preempt": extender_serving_wire.preemption_request,
    "bind": extender_serving_wire.binding_request,
}
FIELDS = [
    "NodeNames", "Nodes", "FailedNodes", "FailedAndUnresolvableNodes", "Error", "Host", "Score", "items", "metadata",
    "name", "NodeNameToMetaVictims", "NodeNameToVictims", "Pods", "UID", "NumPDBViolations", "Pod", "PodName",
    "PodUID", "PodNamespace", "Node", "n1", "spec", "containers",
]  # fmt: skip
TEXT = st.text(st.characters(codec=None), max_size=5) | st.sampled_from(FIELDS) | st.just("\ud800")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | TEXT, inner, max_size=4)
    ),
    max_leaves=20,
)
DEEP = [b'{"NodeNames":' * 20_000, b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}", b"[" * 900 + b"]" * 900]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Almost valid JSON, with a few bytes replaced."""
    body = bytearray(json.dumps(draw(JSON)).encode())
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(body)))
        body[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(body)


def tell(found: object) -> None:
    """A decoded response can be encoded as JSON for users."""
    msgspec.json.encode(found)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@given(body=bodies())
@example(body=b'{"NodeNames":["\\ud800"],"FailedNodes":{"n1":"\\udfff"}}')
@example(body=b'[{"Host":"\\ud800","Score":' + b"9" * 3000 + b"}]")
@example(body=DEEP[0])
@example(body=DEEP[1])
@example(body=DEEP[2])
def test_any_response_is_decoded_or_refused(read: Callable[[bytes], Any], body: bytes) -> None:
    try:
        tell(read(body))
    except ExtenderError as error:
        tell(str(error))


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@given(answer=JSON)
@example(answer={"NodeNames": None, "FailedNodes": None, "Nodes": {"Items": [None, {"metadata": None}]}})
@example(answer={"nodes": {"items": [{"Metadata": {"NAME": "n1"}}]}, "FailedNodes": {"n2": None}})
@example(answer=[None, {"host": "n1", "Score": None}])
@example(answer={"NodeNameToMetaVictims": {"n1": None, "n2": {"pods": None}, "": {"Pods": [{"uid": "u"}]}}})
def test_a_large_response_is_decoded_as_a_small_one(read: Callable[[bytes], Any], answer: object) -> None:
    body = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    with pytest.MonkeyPatch.context() as patch:
        small = _read(read, body)
        patch.setattr(extender_wire, "_LARGE_BYTES", -1)
        large = _read(read, body)
    if small != large:  # another message for the same error
        assert isinstance(small, str)
        assert isinstance(large, str)


def _read(read: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return read(body)
    except ExtenderError as error:
        return str(error)


@pytest.mark.parametrize("read", REQUESTS.values(), ids=REQUESTS)
@given(body=bodies())
@example(body=b'{"Pod":' + DEEP[1] + b"}")
@example(
    body=b'{"NodeNameToVictims":' + DEEP[1] + b',"Pod":{"metadata":{"name":"a","namespace":"b","uid":"c"}}}'
)
@example(body=DEEP[0])
@example(body=DEEP[1])
@example(body=DEEP[2])
def test_any_request_is_decoded_or_refused(read: Callable[[bytes], Any], body: bytes) -> None:
    assert len(body) < LONGEST_REQUEST_BYTES
    try:
        read(body)
    except SchedulerError as error:
        tell(str(error))
