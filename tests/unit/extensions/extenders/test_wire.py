"""Requests to extenders, byte for byte as in Go, and all kinds of responses."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from scheduler.extensions import extender_wire
from scheduler.extensions.extender_wire import ExtenderError, FilterAnswer, MetaVictims
from tests.support.builders import node, pod

NODES = [node("n1", cpu="1"), node("n2", cpu="2")]
POD = pod("web", cpu="100m", labels={"app": "web"})


def test_names_are_sent_to_an_extender_with_a_node_cache() -> None:
    sent = json.loads(extender_wire.arguments(POD, NODES, names_only=True))
    assert sent == {"Pod": POD.object, "Nodes": None, "NodeNames": ["n1", "n2"]}
    assert list(sent) == ["Pod", "Nodes", "NodeNames"]


def test_whole_nodes_are_sent_to_an_extender_without_a_node_cache() -> None:
    sent = json.loads(extender_wire.arguments(POD, NODES, names_only=False))
    items = [NODES[0].object, NODES[1].object]
    assert sent == {"Pod": POD.object, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}


def test_a_binding_contains_the_uid() -> None:
    expected = {"PodName": "web", "PodNamespace": "default", "PodUID": POD.uid, "Node": "n1"}
    assert json.loads(extender_wire.binding_arguments(POD, "n1")) == expected


@pytest.mark.parametrize("names_only", [True, False], ids=["names", "whole pods"])
def test_victims_are_sent_by_node(names_only: bool) -> None:
    victim = pod("victim", node="n1", labels={"app": "old"})
    sent = json.loads(extender_wire.preemption_arguments(POD, {"n1": ([victim], 1)}, names_only=names_only))
    meta = {"n1": {"Pods": [{"UID": victim.uid}], "NumPDBViolations": 1}}
    assert sent["NodeNameToMetaVictims"] == (meta if names_only else None)
    if names_only:
        assert sent["NodeNameToVictims"] is None
    else:
        (whole,) = sent["NodeNameToVictims"]["n1"]["Pods"]
        assert whole["metadata"]["labels"] == {"app": "old"}
        assert sent["NodeNameToVictims"]["n1"]["NumPDBViolations"] == 1


FILTER_ANSWERS: dict[str, tuple[Any, FilterAnswer]] = {
    "names": ({"NodeNames": ["n2", "n1"]}, FilterAnswer(("n2", "n1"))),
    "no names": ({"NodeNames": []}, FilterAnswer()),
    "nothing at all": ({}, FilterAnswer()),
    "null": (None, FilterAnswer()),
    "lower case": ({"nodenames": ["n1"], "failednodes": {"n2": "no"}}, FilterAnswer(("n1",), {"n2": "no"})),
    "camel case": ({"nodeNames": ["n1"]}, FilterAnswer(("n1",))),
    "nodes though names were sent": (
        {"Nodes": {"items": [{"metadata": {"name": "n1"}}]}},
        FilterAnswer(("n1",)),
    ),
    "a name twice": ({"NodeNames": ["n1", "n1"]}, FilterAnswer(("n1",))),
    "both kinds of refusal": (
        {"NodeNames": [], "FailedNodes": {"n1": "busy"}, "FailedAndUnresolvableNodes": {"n2": "broken"}},
        FilterAnswer((), {"n1": "busy"}, {"n2": "broken"}),
    ),
    "nulls everywhere": (
        {"NodeNames": None, "Nodes": None, "FailedNodes": None, "Error": None},
        FilterAnswer(),
    ),
    "unknown fields": ({"NodeNames": ["n1"], "Colour": "red"}, FilterAnswer(("n1",))),
}


@pytest.mark.parametrize("case", FILTER_ANSWERS.values(), ids=FILTER_ANSWERS)
def test_a_filter_response_is_decoded(case: tuple[Any, FilterAnswer]) -> None:
    answer, expected = case
    assert extender_wire.filter_answer(json.dumps(answer).encode(), ["n1", "n2"], names_only=True) == expected


def test_whole_nodes_in_a_response_are_reduced_to_their_names() -> None:
    body = json.dumps({"nodes": {"Items": [{"metadata": {"name": "n2", "labels": {}}}]}}).encode()
    assert extender_wire.filter_answer(body, ["n1", "n2"], names_only=False).node_names == ("n2",)


def test_text_after_a_response_is_ignored() -> None:
    assert extender_wire.filter_answer(b' {"NodeNames":["n1"]}\n{"', ["n1"], names_only=True).node_names == (
        "n1",
    )


FILTER_FAULTS = {
    "an error": ({"NodeNames": ["n1"], "Error": "out of order"}, "out of order"),
    "an unknown node": (
        {"NodeNames": ["n1", "n9"]},
        'claims a filtered node "n9" which is not found in the input node list',
    ),
    "a list": ([], "answered [], expected an object"),
    "names as text": ({"NodeNames": "n1"}, 'answered "n1" at NodeNames, expected a list'),
    "a number among names": ({"NodeNames": ["n1", 2]}, "answered 2 at NodeNames[1], expected text"),
    "a reason that is none": (
        {"NodeNames": [], "FailedNodes": {"n1": 7}},
        "answered 7 at FailedNodes[n1], expected text",
    ),
    "a very long nonsense": (["x" * 200], f'answered ["{"x" * 98}..., expected an object'),
}


@pytest.mark.parametrize("case", FILTER_FAULTS.values(), ids=FILTER_FAULTS)
def test_an_invalid_filter_response_is_refused(case: tuple[Any, str]) -> None:
    answer, problem = case
    with pytest.raises(ExtenderError) as caught:
        extender_wire.filter_answer(json.dumps(answer).encode(), ["n1", "n2"], names_only=True)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{", b"\xff"], ids=["nothing", "a page", "half", "no text"]
)
def test_a_response_that_is_no_json_is_shown(body: bytes) -> None:
    with pytest.raises(ExtenderError, match=r"^answered what is no JSON: "):
        extender_wire.priorities_answer(body, 4)


def test_priorities_are_decoded_in_order() -> None:
    body = json.dumps(
        [{"Host": "n2", "Score": 10}, {"host": "n1", "score": 0}, {"Host": "n3"}, None]
    ).encode()
    assert extender_wire.priorities_answer(body, 4) == [("n2", 10), ("n1", 0), ("n3", 0), ("", 0)]
    assert extender_wire.priorities_answer(b"null", 4) == []


def test_a_priority_is_any_integer_of_64_bits() -> None:
    scores = [11, -1, (1 << 63) - 1, -(1 << 63)]
    body = json.dumps([{"Host": "n1", "Score": score} for score in scores]).encode()
    assert [score for _, score in extender_wire.priorities_answer(body, 4)] == scores


PRIORITY_FAULTS = {
    "no integer": ([{"Host": "n1", "Score": 1.5}], "answered 1.5 at [0].Score, expected an integer"),
    "a truth": ([{"Host": "n1", "Score": True}], "answered true at [0].Score, expected an integer"),
    "beyond 64 bits": (
        [{"Host": "n1", "Score": 1 << 63}],
        "answered 9223372036854775808 at [0].Score, expected an integer",
    ),
    "an object": ({"n1": 3}, 'answered {"n1":3}, expected a list'),
}


@pytest.mark.parametrize("case", PRIORITY_FAULTS.values(), ids=PRIORITY_FAULTS)
def test_invalid_priorities_are_refused(case: tuple[Any, str]) -> None:
    answer, problem = case
    with pytest.raises(ExtenderError) as caught:
        extender_wire.priorities_answer(json.dumps(answer).encode(), 4)
    assert str(caught.value) == problem


LARGE = " " * 300_000
TOO_MANY = {
    "names": {"NodeNames": ["n1"] * 20_000},
    "names that are none": {"NodeNames": [""] * 20_000},
    "reasons": {"FailedNodes": {f"n{number}": "" for number in range(20_000)}},
    "nodes": {"Nodes": {"items": [{}] * 20_000}},
}


@pytest.mark.parametrize("answer", TOO_MANY.values(), ids=TOO_MANY)
def test_a_large_response_with_far_too_many_nodes_is_refused_without_decoding(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_wire, "_node_name", None)
    names_only = "Nodes" not in answer
    with pytest.raises(ExtenderError, match=r"^answered (very many more nodes|a list of 20000 items)"):
        extender_wire.filter_answer(
            (json.dumps(answer) + LARGE).encode(), ["n1", "n2"], names_only=names_only
        )


def test_only_the_names_of_whole_nodes_in_a_large_response_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []
    really = msgspec.json.decode

    def decode(body: Any, **options: Any) -> Any:
        if not options:  # as a whole, and not in parts
            decoded.append(memoryview(body).nbytes)
        return really(body, **options)

    monkeypatch.setattr(msgspec.json, "decode", decode)
    nodes = [{"metadata": {"name": f"n{number}", "labels": {"a": "x" * 3000}}} for number in range(200)]
    body = json.dumps({"Nodes": {"items": nodes}}).encode()

    names = [f"n{number}" for number in range(200)]
    assert extender_wire.filter_answer(body, names, names_only=False).node_names == tuple(names)
    assert sum(decoded) < 3000


def test_a_failed_binding_is_an_error() -> None:
    extender_wire.binding_answer(b"{}")
    extender_wire.binding_answer(b'{"Error":""}')
    with pytest.raises(ExtenderError, match=r"^taken$"):
        extender_wire.binding_answer(b'{"error":"taken"}')


def test_victims_are_decoded_by_node() -> None:
    body = (
        b'{"nodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"a"},{"uid":"b"}],"NumPDBViolations":2},"n2":null}}'
    )
    assert extender_wire.preemption_answer(body) == {
        "n1": MetaVictims(("a", "b"), 2),
        "n2": MetaVictims((), 0),
    }
    twice = b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"b"},{"UID":"a"},{"UID":"b"}]}}}'
    assert extender_wire.preemption_answer(twice) == {"n1": MetaVictims(("b", "a"), 0)}
    with pytest.raises(ExtenderError) as caught:
        extender_wire.preemption_answer(b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":5}]}}}')
    assert str(caught.value) == "answered 5 at NodeNameToMetaVictims[n1].Pods[0].UID, expected text"
