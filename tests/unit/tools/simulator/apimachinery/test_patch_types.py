"""JSON merge patches, JSON patches, and strategic merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.objects.api_types import ApiType, api_type
from scheduler.tools.simulator.apimachinery.objects import clone
from scheduler.tools.simulator.apimachinery.patch_types import json_patch, merge_patch, strategic_merge
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.errors import raises


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
    with raises(StatusError, code=422, reason="Invalid"):
        json_patch({"a": [1, 2]}, [operation])


def test_a_value_that_is_no_list_of_operations_is_a_bad_request():
    with raises(StatusError, code=400):
        json_patch({}, {"op": "add"})


POD = api_type("v1", "Pod")


def conditions(*types: str) -> dict:
    return {"status": {"conditions": [{"type": type_, "status": "True"} for type_ in types]}}


def types(pod: dict) -> list[str]:
    return [condition["type"] for condition in pod["status"]["conditions"]]


def test_conditions_merge_by_type():
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}}

    merged = strategic_merge(conditions("Ready", "PodScheduled"), patch, POD)

    assert merged["status"]["conditions"] == [
        {"type": "Ready", "status": "False", "reason": "x"},
        {"type": "PodScheduled", "status": "True"},
    ]


def test_a_new_condition_goes_before_the_old_ones():
    merged = strategic_merge(conditions("PodScheduled"), conditions("DisruptionTarget"), POD)

    assert types(merged) == ["DisruptionTarget", "PodScheduled"]


def test_set_element_order_arranges_a_list():
    patch = conditions("DisruptionTarget")
    patch["status"]["$setElementOrder/conditions"] = [{"type": "PodScheduled"}, {"type": "DisruptionTarget"}]

    merged = strategic_merge(conditions("PodScheduled"), patch, POD)

    assert types(merged) == ["PodScheduled", "DisruptionTarget"]


def test_set_element_order_alone_reorders():
    patch = {"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]}}

    merged = strategic_merge(conditions("A", "B"), patch, POD)

    assert merged == conditions("B", "A")


def test_items_outside_the_order_keep_their_places():
    patch = conditions("New")
    patch["status"]["$setElementOrder/conditions"] = [{"type": "C"}, {"type": "New"}]

    merged = strategic_merge(conditions("A", "B", "C"), patch, POD)

    assert types(merged) == ["A", "B", "C", "New"]


def test_an_item_can_be_deleted():
    patch = {"status": {"conditions": [{"$patch": "delete", "type": "A"}]}}

    assert strategic_merge(conditions("A", "B"), patch, POD) == conditions("B")


def test_a_list_can_be_replaced():
    patch = {"status": {"conditions": [{"$patch": "replace"}, {"type": "C"}]}}

    assert strategic_merge(conditions("A", "B"), patch, POD) == {"status": {"conditions": [{"type": "C"}]}}


@pytest.mark.parametrize(
    ("original", "patch", "expected", "type_"),
    [
        pytest.param(
            {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}},
            {"spec": {"containers": [{"name": "a", "image": "2"}]}},
            {"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}},
            POD,
            id="containers merge by name",
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            POD,
            id="tolerations are replaced",
        ),
        pytest.param(
            {"spec": {"taints": [{"key": "a"}]}},
            {"spec": {"taints": [{"key": "b"}]}},
            {"spec": {"taints": [{"key": "b"}]}},
            api_type("v1", "Node"),
            id="taints are replaced",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b"]}},
            POD,
            id="from a list of text",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a"]}},
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["a", "b"]}},
            POD,
            id="lists of text are united",
        ),
        pytest.param(
            {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
            {"spec": {"strategy": {"type": "Recreate"}}},
            api_type("apps/v1", "Deployment"),
            id="keys that are not retained go",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"a": "1", "b": "2"}}},
            {"spec": {"nodeSelector": {"$patch": "replace", "c": "3"}}},
            {"spec": {"nodeSelector": {"c": "3"}}},
            POD,
            id="a map can be replaced",
        ),
        pytest.param(
            {
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}
                    }
                }
            },
            {
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}]}
                    }
                }
            },
            {
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}]}
                    }
                }
            },
            api_type("apps/v1", "Deployment"),
            id="lists in lists",
        ),
        pytest.param(
            {"spec": {"unschedulable": True}},
            {"spec": {"unschedulable": None}},
            {"spec": {}},
            api_type("v1", "Node"),
            id="null removes",
        ),
    ],
)
def test_a_strategic_merge_uses_the_list_types_of_a_kind(
    original: Any, patch: Any, expected: Any, type_: ApiType
):
    before = clone(original)

    assert strategic_merge(original, patch, type_) == expected
    assert original == before


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"status": {"conditions": [{"status": "True"}]}}, id="no merge key"),
        pytest.param({"status": {"$patch": "mangle"}}, id="unknown directive"),
        pytest.param({"status": {"conditions": ["Ready"]}}, id="items of the wrong type"),
    ],
)
def test_an_invalid_patch_is_a_bad_request(patch: Any):
    with raises(StatusError, code=400):
        strategic_merge(conditions("Ready"), patch, POD)
