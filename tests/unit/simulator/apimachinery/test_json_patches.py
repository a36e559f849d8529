from __future__ import annotations

from typing import Any

import pytest

from scheduler.simulator.apimachinery.objects import clone
from scheduler.simulator.apimachinery.patch_types import json_patch, merge_patch
from scheduler.simulator.apimachinery.status import StatusError


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="a value is replaced"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="a value is added"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="null removes"),
        pytest.param({"a": ["b"]}, {"a": ["c"]}, {"a": ["c"]}, id="lists are replaced"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": None, "d": 1}}, {"a": {"d": 1}}, id="objects are merged"),
        pytest.param({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="nulls inside new fields"),
        pytest.param({"a": "b"}, {"a": {"c": 1}}, {"a": {"c": 1}}, id="an object replaces text"),
    ],
)
def test_a_merge_patch_follows_rfc_7386(original: Any, patch: Any, expected: Any):
    before = clone(original)

    assert merge_patch(original, patch) == expected
    assert original == before


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}, id="add a field"),
        pytest.param([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}, id="insert"),
        pytest.param([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}, id="append"),
        pytest.param([{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="remove an item"),
        pytest.param([{"op": "replace", "path": "/a", "value": 0}], {"a": 0}, id="replace"),
        pytest.param(
            [{"op": "move", "from": "/a", "path": "/x~1y"}], {"x/y": [1, 2]}, id="move to an escaped name"
        ),
        pytest.param([{"op": "copy", "from": "/a/0", "path": "/c"}], {"a": [1, 2], "c": 1}, id="copy"),
        pytest.param(
            [{"op": "test", "path": "/a/0", "value": 1}, {"op": "remove", "path": "/a"}],
            {},
            id="a test that holds",
        ),
        pytest.param(
            [{"op": "copy", "from": "/a", "path": "/c"}, {"op": "add", "path": "/c/-", "value": 3}],
            {"a": [1, 2], "c": [1, 2, 3]},
            id="a copy is one of its own",
        ),
    ],
)
def test_a_json_patch_follows_rfc_6902(operations: Any, expected: Any):
    original = {"a": [1, 2]}

    assert json_patch(original, operations) == expected
    assert original == {"a": [1, 2]}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/a/0", "value": 2}, id="a test that fails"),
        pytest.param({"op": "test", "path": "/a/0", "value": True}, id="a test that takes true for 1"),
        pytest.param({"op": "remove", "path": "/absent"}, id="nothing to remove"),
        pytest.param({"op": "replace", "path": "/absent", "value": 1}, id="nothing to replace"),
        pytest.param({"op": "add", "path": "/absent/b", "value": 1}, id="nowhere to add"),
        pytest.param({"op": "add", "path": "/a/7", "value": 1}, id="past the end"),
        pytest.param({"op": "remove", "path": "/a/-1"}, id="an index below zero"),
        pytest.param({"op": "jump", "path": "/a"}, id="no such operation"),
        pytest.param({"op": "add", "path": "/b"}, id="no value"),
        pytest.param({"path": "/b"}, id="no operation"),
        pytest.param({"op": "add", "path": "b", "value": 1}, id="no pointer"),
    ],
)
def test_an_operation_that_does_not_fit_is_unprocessable(operation: Any):
    with pytest.raises(StatusError) as caught:
        json_patch({"a": [1, 2]}, [operation])

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


def test_a_value_that_is_no_list_of_operations_is_a_bad_request():
    with pytest.raises(StatusError) as caught:
        json_patch({}, {"op": "add"})

    assert caught.value.code == 400
