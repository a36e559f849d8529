from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.tools.simulator.access.rbac import Attributes, allows, compact, described, missing, permissions

PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/status"]}
SCALE = {"verbs": ["update"], "apiGroups": ["*"], "resources": ["*/scale"]}
NAMED = {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a", "b"]}
PATHS = {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/healthz/*"]}
ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


@pytest.mark.parametrize(
    ("rule", "deed", "expected"),
    [
        pytest.param(PODS, Attributes("get", "", "pods"), True, id="as it is written"),
        pytest.param(PODS, Attributes("watch", "", "pods"), False, id="another verb"),
        pytest.param(PODS, Attributes("get", "apps", "pods"), False, id="another group"),
        pytest.param(PODS, Attributes("get", "", "pods", "status"), True, id="a subresource that is named"),
        pytest.param(PODS, Attributes("get", "", "pods", "log"), False, id="a subresource is not its resource"),
        pytest.param(SCALE, Attributes("update", "apps", "deployments", "scale"), True, id="a subresource of any"),
        pytest.param(SCALE, Attributes("update", "apps", "deployments"), False, id="but not the resource itself"),
        pytest.param(NAMED, Attributes("patch", "", "configmaps", name="b"), True, id="a name of several"),
        pytest.param(NAMED, Attributes("get", "", "configmaps", name="c"), False, id="another name"),
        pytest.param(NAMED, Attributes("create", "", "configmaps"), False, id="no name where names are required"),
        pytest.param(PATHS, Attributes("get", path="/metrics"), True, id="a path"),
        pytest.param(PATHS, Attributes("get", path="/metrics/slis"), False, id="a path below one"),
        pytest.param(PATHS, Attributes("get", path="/healthz/ping"), True, id="a path below a star"),
        pytest.param(PATHS, Attributes("get", path="/healthz"), False, id="the star wants the slash"),
        pytest.param(PATHS, Attributes("post", path="/metrics"), False, id="another verb on a path"),
        pytest.param(ALL, Attributes("bind", "x.io", "things", "part", "ns", "n"), True, id="everything"),
        pytest.param(ALL, Attributes("get", path="/metrics"), False, id="but no path"),
    ],
)  # fmt: skip
def test_a_rule_permits_exactly_its_requests(rule: dict[str, Any], deed: Attributes, expected: bool):
    assert allows(rule, deed) is expected


def some(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)


VERBS, GROUPS, NAMES = ("get", "list"), ("", "apps"), ("", "a", "b")
RESOURCES = ("pods", "pods/scale", "nodes")
rules = st.fixed_dictionaries(
    {
        "verbs": some(*VERBS, "*"),
        "apiGroups": some(*GROUPS, "*"),
        "resources": some(*RESOURCES, "*/scale", "*"),
    },
    optional={"resourceNames": some("a", "b")},
)


def deeds() -> list[Attributes]:
    return [
        Attributes(verb, group, *resource.partition("/")[::2], name=name)
        for verb, group, resource, name in product(VERBS, GROUPS, RESOURCES, NAMES)
    ]


@given(st.lists(rules, max_size=3), st.lists(rules, max_size=2))
def test_a_user_without_missing_rules_may_do_all_that_they_permit(held: list[Any], wanted: list[Any]):
    if missing(held, wanted):
        return
    for deed in deeds():
        if any(allows(rule, deed) for rule in wanted):
            assert any(allows(rule, deed) for rule in held), deed


@given(rules)
def test_the_smallest_parts_of_a_rule_together_permit_the_same(rule: Any):
    parts = [part.rule() for part in permissions(rule)]
    for deed in deeds():
        assert allows(rule, deed) == any(allows(part, deed) for part in parts)


def test_missing_permissions_are_grouped_by_resource():
    lacking = missing([PODS], [PODS | {"verbs": ["get", "watch", "delete"]}, PATHS])

    assert [described(rule) for rule in compact(lacking)] == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}',
        '{APIGroups:[""], Resources:["pods/status"], Verbs:["watch" "delete"]}',
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}',
        '{NonResourceURLs:["/healthz/*"], Verbs:["get"]}',
    ]
