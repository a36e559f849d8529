from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.selectors import (
    label_rule,
    parse_labels,
    selector_of,
    selector_text,
)
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from tests.support.errors import raises

LABELS = {"app": "web", "tier": "front", "cores": "8"}
KINDS = builtin_kinds()


def matches_labels(selector: str) -> bool:
    return parse_labels(selector).matches(LABELS)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("app=web", True, id="equal"),
        pytest.param("app==web", True, id="equal twice"),
        pytest.param("app = web , tier=front", True, id="spaces and two terms"),
        pytest.param("app=other", False, id="another value"),
        pytest.param("app!=other", True, id="not equal"),
        pytest.param("zone!=a", True, id="a missing label is not equal"),
        pytest.param("app in (web, api)", True, id="in"),
        pytest.param("app in (api)", False, id="not in the list"),
        pytest.param("zone in (a)", False, id="a missing label is in no list"),
        pytest.param("app notin (web)", False, id="notin"),
        pytest.param("zone notin (a)", True, id="a missing label is notin"),
        pytest.param("app", True, id="exists"),
        pytest.param("zone", False, id="does not exist"),
        pytest.param("!zone", True, id="must not exist"),
        pytest.param("!app", False, id="must not exist but does"),
        pytest.param("cores>4", True, id="greater"),
        pytest.param("cores<8", False, id="not less"),
        pytest.param("app>4", False, id="text is no number"),
        pytest.param("app=", False, id="the empty value"),
        pytest.param("zone in (,a)", False, id="the empty value in a list"),
    ],
)
def test_a_label_selector_selects(selector: str, expected: Any):
    assert matches_labels(selector) is expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param("a in ", "unable to parse requirement: found '' expected: '('", id="no list"),
        pytest.param(
            "a in (b", "unable to parse requirement: found '', expected: ',' or ')'", id="open list"
        ),
        pytest.param(
            "a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt", id="?"
        ),
        pytest.param(
            "=b",
            "unable to parse requirement: found '=', expected: !, identifier, or 'end of string'",
            id="no key",
        ),
        pytest.param(
            "a,",
            "unable to parse requirement: found '', expected: identifier after ','",
            id="comma at the end",
        ),
    ],
)
def test_an_invalid_label_selector_is_a_bad_request(selector: str, message: str):
    with raises(StatusError, code=400, reason="BadRequest", message=message):
        parse_labels(selector)


POD = {
    "metadata": {"name": "a", "namespace": "shop"},
    "spec": {"nodeName": "n1", "schedulerName": "custom-scheduler"},
    "status": {"phase": "Pending"},
}
UNBOUND = {"metadata": {"name": "b", "namespace": "shop"}, "spec": {}, "status": {}}


@pytest.mark.parametrize(
    ("selector", "pod", "expected"),
    [
        pytest.param("spec.nodeName=n1", POD, True, id="bound there"),
        pytest.param("spec.nodeName=", UNBOUND, True, id="not bound"),
        pytest.param("spec.nodeName!=", UNBOUND, False, id="bound somewhere"),
        pytest.param("status.phase!=Succeeded,status.phase!=Failed", POD, True, id="not at its end"),
        pytest.param("metadata.name==a,metadata.namespace=shop", POD, True, id="one pod"),
        pytest.param("spec.schedulerName=other", POD, False, id="of another scheduler"),
        pytest.param("spec.hostNetwork=false", POD, True, id="an absent field has its default"),
    ],
)
def test_a_field_selector_selects_pods(selector: str, pod: Any, expected: Any):
    assert selector_of(KINDS.named("pods"), fields=selector).matches("shop", pod) is expected


def test_nodes_are_selected_by_being_unschedulable():
    selector = selector_of(KINDS.named("nodes"), fields="spec.unschedulable=true")

    assert selector.matches("", {"metadata": {}, "spec": {"unschedulable": True}})
    assert not selector.matches("", {"metadata": {}, "spec": {}})


def test_an_escaped_comma_belongs_to_the_value():
    selector = selector_of(KINDS.named("pods"), fields=r"metadata.name=a\,b")

    assert selector.matches("", {"metadata": {"name": "a,b"}})


@pytest.mark.parametrize("selector", ["nope=1", "spec.nodeName", "spec.containers=1"])
def test_unsupported_fields_of_a_kind_are_refused(selector: str):
    with raises(StatusError, code=400):
        selector_of(KINDS.named("pods"), fields=selector)


def test_both_versions_of_events_select_the_same_field_by_their_own_names():
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "web"}}

    for resource, label in (("events", "involvedObject.name"), ("events.events.k8s.io", "regarding.name")):
        assert selector_of(KINDS.named(resource), fields=f"{label}=web").matches("", event)


def test_a_label_selector_object_is_read_and_written():
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["back"]},
            {"key": "cores", "operator": "Exists"},
            {"key": "zone", "operator": "DoesNotExist"},
        ],
    }

    assert label_rule(selector).matches(LABELS)
    assert not label_rule(selector).matches({"app": "web"})
    assert selector_text(selector) == "app=web,cores,tier notin (back),!zone"
