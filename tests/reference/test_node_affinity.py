"""NodeAffinity as a loop over one node, from reading node_affinity.go and the helpers it calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from scheduler.framework import CycleState, PreFilterResult, Status
from scheduler.snapshot import nodes_required
from scheduler.testing.fakes import FakeTimeSlice
from tests.reference.go import default_normalize_score
from tests.reference.one_node import PASSES, filtered, scored
from tests.support.builders import pod
from tests.support.clusters import (
    Cluster,
    many_node_selector_terms,
    node_affinities,
    wild_clusters,
    wild_pods,
)

if TYPE_CHECKING:
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class ParseError(Exception):
    pass


def go_int(text: str) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    number = int(text)
    return number if -(2**63) <= number <= 2**63 - 1 else None


def check_expression(expression: dict) -> None:
    """labels/selector.go, NewRequirement."""
    key, operator, values = expression["key"], expression["operator"], expression["values"]
    parts = key.split("/")
    if len(parts) > 2 or (len(parts) == 2 and not DOMAIN.fullmatch(parts[0])):
        raise ParseError
    if not NAME.fullmatch(parts[-1]) or len(parts[-1]) > 63:
        raise ParseError
    if any(value and not NAME.fullmatch(value) for value in values):
        raise ParseError
    if operator in {"In", "NotIn"}:
        if not values:
            raise ParseError
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            raise ParseError
    elif operator in {"Gt", "Lt"}:
        if len(values) != 1 or go_int(values[0]) is None:
            raise ParseError
    else:
        raise ParseError


def expression_matches(expression: dict, labels: dict[str, str]) -> bool:
    """labels/selector.go, Requirement.Matches."""
    key, operator, values = expression["key"], expression["operator"], expression["values"]
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels or go_int(labels[key]) is None:
        return False
    bound = go_int(values[0])
    return go_int(labels[key]) > bound if operator == "Gt" else go_int(labels[key]) < bound


def term_matches(term: dict, node: NodeObject) -> bool:
    """nodeaffinity.go, newNodeSelectorTerm and nodeSelectorTerm.match."""
    expressions, fields = term["matchExpressions"], term["matchFields"]
    for expression in expressions:
        check_expression(expression)
    for field in fields:
        if field["operator"] not in {"In", "NotIn"} or len(field["values"]) != 1:
            raise ParseError
    for expression in expressions:
        if not expression_matches(expression, dict(node.labels)):
            return False
    for field in fields:
        value = node.name if field["key"] == "metadata.name" else ""
        if (value == field["values"][0]) != (field["operator"] == "In"):
            return False
    return True


def selector_matches(selector: dict, node: NodeObject) -> bool:
    """nodeaffinity.go, LazyErrorNodeSelector.Match."""
    for term in selector["nodeSelectorTerms"]:
        if not term["matchExpressions"] and not term["matchFields"]:
            continue
        try:
            if term_matches(term, node):
                return True
        except ParseError:
            continue
    return False


def affinity_of(pod: PodInfo) -> dict[str, Any]:
    return pod.object["spec"].get("affinity", {}).get("nodeAffinity", {})


def required_matches(pod: PodInfo, node: NodeObject) -> bool:
    for key, value in pod.object["spec"]["nodeSelector"].items():
        if node.labels.get(key) != value:
            return False
    affinity = affinity_of(pod)
    return REQUIRED not in affinity or selector_matches(affinity[REQUIRED], node)


def preferred_score(terms: list[dict], node: NodeObject) -> int:
    """nodeaffinity.go, PreferredSchedulingTerms.Score."""
    score = 0
    for term in terms:
        preference = term["preference"]
        if term["weight"] == 0 or not (preference["matchExpressions"] or preference["matchFields"]):
            continue
        if term_matches(preference, node):
            score += term["weight"]
    return score


def narrowed(pod: PodInfo) -> set[str] | None:
    """node_affinity.go, PreFilter: the only nodes the pod can go to; None is all."""
    names: set[str] = set()
    terms = affinity_of(pod).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    for term in terms:
        of_term = None
        for field in term["matchFields"]:
            if field["key"] == "metadata.name" and field["operator"] == "In":
                values = set(field["values"])
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names |= of_term
    return names if terms else None


@pytest.fixture(params=["at once", "in steps"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge terms all at once or in steps, whatever their number."""
    monkeypatch.setattr("plugins.node_affinity._MOST_BYTES", -1 if request.param == "in steps" else 1 << 30)


@pytest.mark.usefixtures("way")
@given(wild_clusters("labels"), wild_pods("labels"), st.one_of(st.none(), node_affinities))
def test_the_filter_agrees_with_the_reference_loop(cluster: Cluster, pod: PodInfo, added: dict | None):
    args = msgspec.convert({"addedAffinity": added}, NodeAffinityArgs)
    enforced = (added or {}).get(REQUIRED)
    assume(not list(args.faults()))  # such a configuration is refused

    found = filtered(NodeAffinity(args=args, time_slice=FakeTimeSlice()), pod, cluster.snapshot())

    if found == "Skip":
        assert REQUIRED not in affinity_of(pod)
        assert not pod.object["spec"]["nodeSelector"]
        assert enforced is None
    elif found == "pod affinity terms conflict":
        assert narrowed(pod) == set()
    else:
        assert narrowed(pod) != set()
        expected = []
        for node in cluster.nodes:
            verdict = PASSES
            if enforced is not None and not selector_matches(enforced, node):
                verdict = (
                    "UnschedulableAndUnresolvable",
                    ("node(s) didn't match scheduler-enforced node affinity",),
                )
            elif not required_matches(pod, node):
                verdict = (
                    "UnschedulableAndUnresolvable",
                    ("node(s) didn't match Pod's node affinity/selector",),
                )
            expected.append(verdict)
        assert found == expected


@given(wild_pods("labels"))
def test_pre_filter_narrows_to_the_nodes_of_the_reference_loop(pod: PodInfo):
    answer = NodeAffinity(args=NodeAffinityArgs(), time_slice=FakeTimeSlice()).pre_filter(
        CycleState(), pod, Cluster([]).snapshot()
    )

    if isinstance(answer, PreFilterResult):
        assert answer.node_names == narrowed(pod)
    elif isinstance(answer, Status) and answer.is_rejected:
        assert narrowed(pod) == set()
    else:
        assert narrowed(pod) is None


@pytest.mark.usefixtures("way")
@given(wild_clusters("labels"), wild_pods("labels"))
def test_the_score_is_that_of_the_reference_loop(cluster: Cluster, pod: PodInfo):
    terms = affinity_of(pod).get(PREFERRED, [])
    try:
        scores = [preferred_score(terms, node) for node in cluster.nodes]
    except ParseError:
        scores = None

    found = scored(NodeAffinity(args=NodeAffinityArgs(), time_slice=FakeTimeSlice()), pod, cluster.snapshot())

    if not terms:
        assert found == "Skip"
    elif scores is None:
        assert found == "Error"
    elif cluster.nodes:  # without nodes the loop looks at no term
        assert found == default_normalize_score(scores, reverse=False)


@given(wild_clusters("labels"), many_node_selector_terms)
def test_very_many_terms_match_as_each_term_does(cluster: Cluster, terms: list[dict]):
    required = pod(
        "many", nodeSelector={}, affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    )
    snapshot = cluster.snapshot()
    expected = [required_matches(required, node) for node in cluster.nodes]

    assert nodes_required(snapshot, required.required_node_affinity).tolist() == expected
    affinity = required.required_node_affinity
    assert [affinity.matches(node.name, node.labels) for node in cluster.nodes] == expected


@pytest.mark.usefixtures("way")
@given(wild_clusters("labels"), st.data())
def test_very_many_preferences_score_as_each_of_them_does(cluster: Cluster, data: st.DataObject):
    terms = []
    for term in data.draw(many_node_selector_terms):
        try:
            for node in cluster.nodes:
                term_matches(term, node)
        except ParseError:
            continue
        terms.append({"weight": data.draw(st.integers(0, 100)), "preference": term})
    assume(cluster.nodes and terms)

    preferring = pod("many", affinity={"nodeAffinity": {PREFERRED: terms}})

    scores = [preferred_score(terms, node) for node in cluster.nodes]
    expected = default_normalize_score(scores, reverse=False)
    assert (
        scored(
            NodeAffinity(args=NodeAffinityArgs(), time_slice=FakeTimeSlice()), preferring, cluster.snapshot()
        )
        == expected
    )
