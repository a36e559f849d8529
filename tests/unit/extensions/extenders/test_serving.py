"""kube-scheduler's requests to its extender, in Go's format, and invalid requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.extensions import extender_serving_wire, extender_wire
from scheduler.extensions.extender_serving_wire import BindingRequest, RequestError
from scheduler.extensions.extender_wire import FilterAnswer, MetaVictims
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Callable

# As Go marshals v1.Pod out of an informer: no kind, empty structs present, nothing where a field is empty and omitted.
POD = (
    b'{"metadata":{"name":"web-7c5b8d7f9b-x2x9k","generateName":"web-7c5b8d7f9b-","namespace":"shop",'
    b'"uid":"3f6ee5a4-1f2d-4c33-8ecc-9a4cba1f2a11","resourceVersion":"1204","generation":1,'
    b'"creationTimestamp":"2026-05-04T10:11:12Z","labels":{"app":"web"},"ownerReferences":[{"apiVersion":"apps/v1",'
    b'"kind":"ReplicaSet","name":"web-7c5b8d7f9b","uid":"2b3e","controller":true,"blockOwnerDeletion":true}]},'
    b'"spec":{"volumes":[{"name":"kube-api-access-8x2lp","projected":{"sources":[{"serviceAccountToken":'
    b'{"expirationSeconds":3607,"path":"token"}}],"defaultMode":420}}],"containers":[{"name":"web",'
    b'"image":"nginx:1.27","resources":{"limits":{"memory":"128Mi"},"requests":{"cpu":"250m","memory":"64Mi"}},'
    b'"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",'
    b'"imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,'
    b'"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","securityContext":{},'
    b'"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists",'
    b'"effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,'
    b'"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"Pending","qosClass":"Burstable"}}'
)
UID = "3f6ee5a4-1f2d-4c33-8ecc-9a4cba1f2a11"
ASKED = b'{"Pod":%b,"Nodes":null,"NodeNames":["node-1","node-2"]}\n' % POD
# With creationTimestamp null, as in a pod that was never stored, and lists that Go has as nil.
NULLS = (
    b'{"Pod":{"metadata":{"name":"a","namespace":"d","uid":"u","creationTimestamp":null,"labels":null},'
    b'"spec":{"containers":null,"tolerations":null,"nodeSelector":null},"status":{}},"Nodes":null,"NodeNames":["n"]}'
)
BEFORE_1_18 = b'{"pod":%b,"nodenames":["node-1","node-2"]}' % POD


@pytest.mark.parametrize("body", [ASKED, BEFORE_1_18], ids=["of today", "with names in lower case"])
def test_a_pod_and_the_names_of_nodes_are_decoded(body: bytes) -> None:
    request = extender_serving_wire.nodes_request(body)
    assert request.node_names == ("node-1", "node-2")
    assert (request.pod.key, request.pod.uid) == ("shop/web-7c5b8d7f9b-x2x9k", UID)
    assert request.pod.scheduler_name == "default-scheduler"
    assert request.pod.raw == POD


def test_nulls_are_decoded_as_in_go() -> None:
    request = extender_serving_wire.nodes_request(NULLS)
    assert (request.pod.key, request.node_names) == ("d/a", ("n",))


def test_a_repeated_name_counts_once() -> None:
    assert extender_serving_wire.nodes_request(b'{"Pod":%b,"NodeNames":["b","a","b"]}' % POD).node_names == (
        "b",
        "a",
    )


def test_an_empty_list_of_nodes_is_accepted() -> None:
    assert extender_serving_wire.nodes_request(b'{"Pod":%b,"NodeNames":[]}' % POD).node_names == ()


def test_a_request_of_our_own_client_is_decoded() -> None:
    asking = pod("web", cpu="1")
    request = extender_serving_wire.nodes_request(
        extender_wire.arguments(asking, [node("a"), node("b")], names_only=True)
    )
    assert (request.pod.raw, request.node_names) == (asking.raw, ("a", "b"))


NONSENSE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the request is no JSON object"),
    "no JSON": (b"<html>", "the request is no JSON object: .*'<html>'"),
    "no text": (b'{"\xff":1}', "the request is no JSON object"),
    "a list": (b"[]", "the request is no JSON object"),
    "null": (b"null", "the request is no JSON object"),
    "an empty object": (b"{}", "Pod: expected an object, found none"),
    "no pod": (b'{"Pod":null,"NodeNames":["a"]}', "Pod: expected an object, found none"),
    "a pod without a name": (b'{"Pod":{},"NodeNames":["a"]}', "metadata.name"),
    "a pod that is a number": (b'{"Pod":7,"NodeNames":["a"]}', "Pod"),
    "a pod with a bad quantity": (
        (
            b'{"Pod":{"metadata":{"name":"a","namespace":"d","uid":"u"},"spec":{"containers":[{"name":"c",'
            b'"resources":{"requests":{"cpu":"much"}}}]}},"NodeNames":["a"]}'
        ),
        "d/a: .*cpu",
    ),
    "neither names nor nodes": (b'{"Pod":%b}' % POD, "NodeNames: expected a list of node names, found none"),
    "names that are numbers": (b'{"Pod":%b,"NodeNames":[1]}' % POD, "NodeNames: Expected `str`, got `int`"),
    "one name": (b'{"Pod":%b,"NodeNames":"a"}' % POD, "NodeNames: Expected `array"),
}


@pytest.mark.parametrize(("body", "problem"), NONSENSE.values(), ids=NONSENSE)
def test_an_invalid_request_is_refused_with_its_field(body: bytes, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        extender_serving_wire.nodes_request(body)


META = b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":%b}'
VICTIMS: dict[str, tuple[bytes, dict[str, MetaVictims]]] = {
    "by UID": (
        META % (POD, b'{"n":{"Pods":[{"UID":"a"},{"UID":"b"}],"NumPDBViolations":2}}'),
        {"n": MetaVictims(("a", "b"), 2)},
    ),
    "in lower case": (
        b'{"pod":%b,"nodeNameToMetaVictims":{"n":{"pods":[{"uid":"a"}],"numPDBViolations":1}}}' % POD,
        {"n": MetaVictims(("a",), 1)},
    ),
    "whole": (
        b'{"Pod":%b,"NodeNameToVictims":{"n":{"Pods":[%b],"NumPDBViolations":0}},"NodeNameToMetaVictims":null}'
        % (POD, POD),
        {"n": MetaVictims((UID,), 0)},
    ),
    "none at a node": (META % (POD, b'{"n":{"Pods":null,"NumPDBViolations":0}}'), {"n": MetaVictims((), 0)}),
    "nothing of a node": (META % (POD, b'{"n":null}'), {"n": MetaVictims((), 0)}),
    "no nodes": (META % (POD, b"{}"), {}),
}


@pytest.mark.parametrize(("body", "victims"), VICTIMS.values(), ids=VICTIMS)
def test_victims_are_decoded_by_node(body: bytes, victims: dict[str, MetaVictims]) -> None:
    request = extender_serving_wire.preemption_request(body)
    assert (request.pod.uid, request.victims) == (UID, victims)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"Pod":%b}' % POD, "NodeNameToMetaVictims: expected an object, found none"),
        (META % (POD, b"[]"), "NodeNameToMetaVictims: Expected `object"),
        (META % (POD, b'{"n":{"Pods":[{"UID":7}]}}'), r"NodeNameToMetaVictims\[n\]: Expected `str`"),
        (META % (b"null", b"{}"), "Pod: expected an object"),
    ],
    ids=["no victims", "a list", "a UID that is a number", "no pod"],
)
def test_malformed_victims_are_refused(body: bytes, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        extender_serving_wire.preemption_request(body)


MANY = b",".join([b'"n"'] * (extender_serving_wire._MOST_NODES + 1))
TOO_LARGE = {
    "names": (
        extender_serving_wire.nodes_request,
        b'{"Pod":%b,"NodeNames":[%b]}' % (POD, MANY),
        "NodeNames: expected at most",
    ),
    "a pod": (
        extender_serving_wire.nodes_request,
        b'{"Pod":{"metadata":{"name":"%b"}},"NodeNames":["n"]}'
        % (b"x" * extender_serving_wire._LONGEST_POD_BYTES),
        "Pod: expected at most",
    ),
    "victims on a node": (
        extender_serving_wire.preemption_request,
        META % (POD, b'{"n":{"Pods":[],"x":"%b"}}' % (b"x" * extender_serving_wire._LONGEST_VICTIMS_BYTES)),
        r"NodeNameToMetaVictims\[n\]: expected at most",
    ),
}


@pytest.mark.parametrize(("read", "body", "problem"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_input_that_takes_long_to_decode_in_one_piece_is_refused(
    read: Callable[[bytes], Any], body: bytes, problem: str
) -> None:
    with pytest.raises(RequestError, match=problem):
        read(body)


def test_a_binding_is_decoded() -> None:
    body = b'{"PodName":"web","PodNamespace":"shop","PodUID":"u","Node":"n"}\n'
    assert extender_serving_wire.binding_request(body) == BindingRequest("shop", "web", "u", "n")
    assert extender_serving_wire.binding_request(body.lower()).key == "shop/web"


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_an_incomplete_binding_is_refused(missing: str) -> None:
    whole: dict[str, Any] = {"PodName": "web", "PodNamespace": "shop", "PodUID": "u", "Node": "n"}
    for absent in ("", None):
        with pytest.raises(RequestError, match=f"{missing}: expected text, found none"):
            extender_serving_wire.binding_request(json.dumps({**whole, missing: absent}).encode())


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=5),
    lambda more: st.lists(more, max_size=3) | st.dictionaries(st.sampled_from(["Pod", "NodeNames", "x"]), more),
    max_leaves=6).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_bytes_are_refused_with_our_own_error(body: bytes) -> None:
    for read in (
        extender_serving_wire.nodes_request,
        extender_serving_wire.preemption_request,
        extender_serving_wire.binding_request,
    ):
        with pytest.raises(RequestError):
            read(body)  # type: ignore[operator]


def test_our_own_client_can_decode_the_responses() -> None:
    answer = FilterAnswer(("b",), {"a": "no licence"}, {"c": "no such node"})
    assert (
        extender_wire.filter_answer(
            extender_serving_wire.filter_result(answer), ["a", "b", "c"], names_only=True
        )
        == answer
    )
    assert extender_wire.priorities_answer(
        extender_serving_wire.priorities_result([("b", 7), ("a", 0)]), 4
    ) == [
        ("b", 7),
        ("a", 0),
    ]
    victims = {"n": MetaVictims(("u", "v"), 1)}
    assert extender_wire.preemption_answer(extender_serving_wire.preemption_result(victims)) == victims
    extender_wire.binding_answer(extender_serving_wire.binding_result())


def test_failures_use_the_error_field_that_kube_scheduler_shows() -> None:
    for answer, read in (
        (
            extender_serving_wire.failed_filter_result("why"),
            lambda body: extender_wire.filter_answer(body, [], names_only=True),
        ),
        (extender_serving_wire.binding_result("why"), extender_wire.binding_answer),
    ):
        with pytest.raises(extender_wire.ExtenderError, match=r"^why$"):
            read(answer)


def test_responses_use_the_field_names_of_go() -> None:
    assert json.loads(extender_serving_wire.filter_result(FilterAnswer(("b",), {"a": "no"}))) == {
        "Nodes": None,
        "NodeNames": ["b"],
        "FailedNodes": {"a": "no"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert json.loads(extender_serving_wire.preemption_result({"n": MetaVictims(("u",), 1)})) == {
        "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
    }
