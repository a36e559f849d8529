"""The syntax of labels, and selectors as rules: their matches and their errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    SelectorError,
    SelectorRequirement,
    are_label_keys,
    are_label_values,
    is_label_key,
    is_label_value,
    node_rules,
    parse_int64,
    parse_label_selector,
    parse_node_term,
    required_node_affinity,
)
from tests.support.counted_labels import lines_run

LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
"""Upstream's rule of a label value, in full."""
LONG = "v" * 63


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        ("app", True),
        ("App_1.x-y", True),
        ("example.com/app", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("a." * 126 + "a/b", True),
        ("a." * 127 + "a/b", False),
        ("", False),
        ("-app", False),
        ("app-", False),
        ("an app", False),
        ("größe", False),
        ("/app", False),
        ("example.com/", False),
        ("Example.com/app", False),
        ("a/b/c", False),
        ("app\n", False),
    ],
)
def test_label_keys(key: str, valid: bool):
    assert is_label_key(key) is valid
    assert are_label_keys([key]) is are_label_keys(["app", key, "example.com/app"]) is valid


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("", True),
        ("v1.2_x-y", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-", False),
        ("ü", False),
        ("a\n", False),
    ],
)
def test_label_values(value: str, valid: bool):
    assert is_label_value(value) is valid
    assert are_label_values([value]) is are_label_values(["v", value, ""]) is valid


_TEXTS = st.lists(st.text("aZ9-_./\n\x00é", max_size=4), max_size=4)


@given(_TEXTS)
def test_many_keys_and_values_are_valid_if_each_of_them_is(texts: list[str]):
    assert are_label_keys(texts) is all(map(is_label_key, texts))
    assert are_label_values(texts) is all(map(is_label_value, texts))


def test_labels_and_values_of_a_selector_are_checked_all_at_once():
    labels = {f"example.com/key-{number}": str(number) for number in range(1000)}
    values = tuple(map(str, range(1000)))

    assert lines_run(lambda: parse_label_selector(LabelSelector(match_labels=labels))) < 4000
    many = LabelSelector(match_expressions=(SelectorRequirement("key", "In", values),))
    assert lines_run(lambda: parse_label_selector(many)) < 100
    absent = tuple(SelectorRequirement(key, "DoesNotExist") for key in labels)
    assert lines_run(lambda: parse_label_selector(LabelSelector(match_expressions=absent))) < 12_000


@pytest.mark.parametrize(
    ("operator", "values", "value", "admitted"),
    [
        ("In", ["a", "b"], "b", True),
        ("In", ["a"], "c", False),
        ("In", ["a"], None, False),
        ("In", [""], "", True),
        ("NotIn", ["a"], "a", False),
        ("NotIn", ["a"], "c", True),
        ("NotIn", ["a"], None, True),
        ("Exists", [], "", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], "", False),
        ("DoesNotExist", [], None, True),
        ("Gt", ["9"], "10", True),
        ("Gt", ["9"], "9", False),
        ("Gt", ["9"], None, False),
        ("Gt", ["9"], "ten", False),
        ("Lt", ["10"], "9", True),
        ("Lt", ["10"], "-9", True),
        ("Lt", ["10"], "10", False),
        ("Lt", ["10"], "", False),
    ],
)
def test_the_values_that_a_requirement_matches(
    operator: str, values: list[str], value: str | None, admitted: bool
):
    written = SelectorRequirement("k", operator, tuple(values))

    requirement = parse_node_term(NodeSelectorTerm((written,))).labels[0]

    assert requirement.admits(value) is admitted


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("-007", -7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("0" * 5000 + "1", 1),
        ("1" * 5000, None),
        ("", None),
        ("+", None),
        ("1_0", None),
        (" 1", None),
        ("٣", None),
        ("1.0", None),
        ("0x1", None),
    ],
)
def test_numbers_are_parsed_as_in_go(text: str, number: int | None):
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    ("written", "faults"),
    [
        pytest.param(
            ("a key", "In", ["v"]), ["matchExpressions[0].key: must be a label's key, was 'a key'"], id="key"
        ),
        pytest.param(
            ("k", "In", ["v", "-v"]),
            [f'matchExpressions[0].values[1][k]: Invalid value: "-v": {LABEL_VALUE}'],
            id="value",
        ),
        pytest.param(
            ("k", "In", [f"{LONG}-"]),
            [
                f'matchExpressions[0].values[0][k]: Invalid value: "{LONG}-": must be no more than 63 characters; {LABEL_VALUE}'
            ],
            id="long value",
        ),
        pytest.param(("k", "In", []), ["matchExpressions[0].values: In needs a value"], id="In nothing"),
        pytest.param(
            ("k", "Exists", ["v"]), ["matchExpressions[0].values: Exists takes no values, was 1"], id="Exists"
        ),
        pytest.param(
            ("k", "Gt", ["1", "2"]), ["matchExpressions[0].values: Gt needs one value, was 2"], id="Gt two"
        ),
        pytest.param(
            ("k", "Lt", ["x"]),
            [
                "matchExpressions[0].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
            ],
            id="Lt a word",
        ),
        pytest.param(
            ("k", "Gt", ["-5"]),
            [f'matchExpressions[0].values[0][k]: Invalid value: "-5": {LABEL_VALUE}'],
            id="Gt a negative number",
        ),
        pytest.param(
            ("k", "Lt", ["-x"]),
            [
                "matchExpressions[0].values[0]: Invalid value: \"-x\": for 'Gt', 'Lt' operators, the value must be an integer",
                f'matchExpressions[0].values[0][k]: Invalid value: "-x": {LABEL_VALUE}',
            ],
            id="Lt neither a number nor a label's value",
        ),
        pytest.param(
            ("/k", "Is", ["v"]),
            [
                "matchExpressions[0].key: must be a label's key, was '/k'",
                "matchExpressions[0].operator: must be one of In, NotIn, Exists, DoesNotExist, Gt, Lt, was 'Is'",
            ],
            id="all that is wrong at once",
        ),
    ],
)
def test_an_invalid_requirement_is_refused_with_its_path(
    written: tuple[str, str, list[str]], faults: list[str]
):
    key, operator, values = written
    term = NodeSelectorTerm((SelectorRequirement(key, operator, tuple(values)),))

    with pytest.raises(SelectorError) as caught:
        parse_node_term(term)

    assert [str(fault) for fault in caught.value.faults] == faults


@pytest.mark.parametrize("values", [[], ["a", "b"]], ids=["none", "two"])
def test_a_field_is_compared_with_one_value(values: list[str]):
    term = NodeSelectorTerm(match_fields=(SelectorRequirement("metadata.name", "In", tuple(values)),))

    with pytest.raises(SelectorError, match=r"at\.matchFields\[0\]\.values: must have one element"):
        parse_node_term(term, "at")


def test_label_selectors_have_no_gt():
    selector = LabelSelector(match_expressions=(SelectorRequirement("k", "Gt", ("1",)),))

    with pytest.raises(
        SelectorError, match="operator: must be one of In, NotIn, Exists, DoesNotExist, was 'Gt'"
    ):
        parse_label_selector(selector)


def test_a_label_selector_requires_labels_and_expressions():
    rule = parse_label_selector(
        LabelSelector({"app": "web"}, (SelectorRequirement("tier", "NotIn", ("canary",)),))
    )

    assert rule.matches({"app": "web"})
    assert rule.matches({"app": "web", "tier": "stable"})
    assert not rule.matches({"app": "web", "tier": "canary"})
    assert not rule.matches({"app": "db"})


def test_a_missing_label_selector_matches_nothing_and_an_empty_one_everything():
    assert not parse_label_selector(None).matches({})
    assert parse_label_selector(LabelSelector()).matches({})


def test_fields_other_than_the_name_are_empty():
    def term(key: str, operator: str, value: str) -> NodeSelectorTerm:
        return NodeSelectorTerm(match_fields=(SelectorRequirement(key, operator, (value,)),))

    assert parse_node_term(term("metadata.name", "In", "n1")).matches("n1", {})
    assert not parse_node_term(term("metadata.name", "NotIn", "n1")).matches("n1", {})
    assert parse_node_term(term("metadata.uid", "In", "")).matches("n1", {})
    assert not parse_node_term(term("metadata.uid", "In", "n1")).matches("n1", {})


def test_empty_and_invalid_terms_match_nothing_and_do_not_affect_others():
    good = NodeSelectorTerm((SelectorRequirement("zone", "In", ("a",)),))
    faulty = NodeSelectorTerm((SelectorRequirement("zone", "Weird"),))

    rules = node_rules(NodeSelector((NodeSelectorTerm(), faulty, good)))

    assert rules == (parse_node_term(good),)


def test_required_affinity_without_terms_matches_nothing():
    from scheduler.objects.selectors import NodeAffinity

    none = required_node_affinity({}, NodeAffinity(NodeSelector()))
    free = required_node_affinity({}, NodeAffinity())

    assert not none.matches("n", {})
    assert free.matches("n", {})


def test_node_selectors_accept_any_values():
    affinity = required_node_affinity({"zone": "not a label value!"}, None)

    assert affinity.labels == (Requirement("zone", Operator.IN, frozenset({"not a label value!"})),)
    assert affinity.matches("n", {"zone": "not a label value!"})


VALUES = ["a", "b", "c", "0", "3", "7", "12"]


@given(
    st.sampled_from(["In", "NotIn", "Gt", "Lt", "Exists", "DoesNotExist"]),
    st.lists(st.frozensets(st.sampled_from(VALUES), min_size=5), min_size=1, max_size=3).map(
        lambda some: some * 17
    ),
    st.sampled_from([None, *VALUES]),
)
def test_very_many_requirements_for_a_label_match_as_each_does(
    operator: str, sets: list[frozenset[str]], value: str | None
):
    def values(some: frozenset[str]) -> tuple[str, ...]:
        if operator in {"Gt", "Lt"}:
            return (min(some & {"0", "3", "7", "12"}),)
        return tuple(some) if operator in {"In", "NotIn"} else ()

    written = [SelectorRequirement("k", operator, values(some)) for some in sets]
    labels = {} if value is None else {"k": value}
    one_by_one = [
        parse_node_term(NodeSelectorTerm((requirement,))).matches("n", labels) for requirement in written
    ]

    all_at_once = parse_node_term(NodeSelectorTerm(tuple(written)))
    any_of_them = node_rules(NodeSelector(tuple(NodeSelectorTerm((each,)) for each in written)))

    assert len(all_at_once.labels) == len(any_of_them) == 1
    assert all_at_once.matches("n", labels) == all(one_by_one)
    assert any_of_them[0].matches("n", labels) == any(one_by_one)
