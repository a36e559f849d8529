"""Terms are found by the words of a pod, as if each term were matched separately; large terms are indexed without loops."""

from __future__ import annotations

from itertools import chain, combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.objects.pod_affinity import AffinityTerm
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorRequirement, parse_label_selector
from scheduler.snapshot import term_columns
from scheduler.snapshot.term_columns import TermColumns, conditions
from tests.support.counted_labels import lines_run

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "1", "2"])
LABELS = st.dictionaries(KEYS, VALUES)
EXPRESSIONS = st.one_of(
    st.builds(
        SelectorRequirement,
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(SelectorRequirement, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)
RULES = st.builds(LabelSelector, LABELS, st.lists(EXPRESSIONS, max_size=4).map(tuple)).map(
    parse_label_selector
)
NAMESPACES = st.sampled_from(["x", "y"])
TERMS = st.builds(
    AffinityTerm,
    st.frozensets(NAMESPACES),
    st.one_of(st.just(LabelRule(None)), RULES),
    st.one_of(st.just(LabelRule(None)), RULES),
    st.just("zone"),
)


def found(
    columns: TermColumns, namespace: str, labels: Mapping[str, str], of_namespace: Mapping[str, str]
) -> list[int]:
    few, many = columns.candidates(namespace, labels)
    candidates = np.concatenate([np.array(few, dtype=np.int32), *many])
    return columns.meaning(candidates, namespace, labels, of_namespace).tolist()


def term(**selector: object) -> AffinityTerm:
    rule = parse_label_selector(LabelSelector(**selector))  # type: ignore[arg-type]
    return AffinityTerm(frozenset("x"), LabelRule(None), rule, "zone")


TWO_VALUES = term(match_labels={"a": "1"}, match_expressions=(SelectorRequirement("a", "In", ("2",)),))


@example([TWO_VALUES], "x", {"a": "2"}, {})
@given(st.lists(TERMS, min_size=1, max_size=6), NAMESPACES, LABELS, LABELS)
def test_terms_are_found_as_they_match(
    terms: list[AffinityTerm], namespace: str, labels: dict[str, str], of_namespace: dict[str, str]
) -> None:
    columns = TermColumns()
    numbers = [[columns.add(needs) for needs in conditions(term)] for term in terms]

    matching = found(columns, namespace, labels, of_namespace)

    for term, own in zip(terms, numbers, strict=True):
        matches = term.matches(namespace, labels, of_namespace)
        assert len(set(own).intersection(matching)) == matches, "a pod meets one of the alternatives"


ABOUT_ONE_LABEL = [
    *[SelectorRequirement("a", operator) for operator in ("Exists", "DoesNotExist")],
    *[SelectorRequirement("a", "In", values) for values in (("1",), ("1", "2"), ("2", "3"))],
    *[SelectorRequirement("a", "NotIn", values) for values in (("1",), ("1", "3"))],
]


@pytest.mark.parametrize("is_of_namespace", [False, True])
def test_requirements_about_one_label_are_met_together(*, is_of_namespace: bool) -> None:
    columns = TermColumns()
    found_by: dict[int, LabelRule] = {}
    named = () if is_of_namespace else ("x",)
    for some in chain.from_iterable(combinations_with_replacement(ABOUT_ONE_LABEL, n) for n in (1, 2, 3)):
        for labels in ({}, {"a": "1"}):
            rule = parse_label_selector(LabelSelector(labels, some))
            rules = (rule, parse_label_selector(LabelSelector()))
            of_namespace, of_pod = rules if is_of_namespace else (LabelRule(None), rule)
            for needs in conditions(AffinityTerm(frozenset(named), of_namespace, of_pod, "zone")):
                found_by[columns.add(needs)] = rule

    for labels in ({}, {"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "4"}, {"b": "1"}):
        matching = found(columns, "y", {}, labels) if is_of_namespace else found(columns, "x", labels, {})
        expected = [number for number, rule in found_by.items() if rule.matches(labels)]
        assert expected
        assert set(expected) == set(matching).intersection(found_by)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 32, 33])
@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_all_values_of_a_requirement_count(operator: str, count: int) -> None:
    columns = TermColumns()
    one = term(match_expressions=(SelectorRequirement("a", operator, tuple(map(str, range(count)))),))
    (number,) = [columns.add(needs) for needs in conditions(one)]

    for value in range(count + 1):
        is_named = value < count
        assert found(columns, "x", {"a": str(value)}, {}) == [number] * (is_named == (operator == "In"))


def test_a_pod_with_many_labels_is_looked_up_as_any_other_in_few_operations() -> None:
    columns = TermColumns()
    selectors = [
        LabelSelector({"a0": "v"}),
        LabelSelector({"a0": "w"}),
        LabelSelector({}, (SelectorRequirement("a1", "Exists"),)),
        LabelSelector({}, (SelectorRequirement("b1", "Exists"),)),
        LabelSelector({}, (SelectorRequirement("a2", "NotIn", ("v",)),)),
        LabelSelector({}, (SelectorRequirement("b2", "DoesNotExist"),)),
    ]
    everything = parse_label_selector(LabelSelector())
    of_red = parse_label_selector(LabelSelector({"team": "red"}))
    terms = {}
    for rule in map(parse_label_selector, selectors):
        for names, namespaces in (
            (["x", *"0123456789abcdefghijklmnopqrstuvw"], LabelRule(None)),
            ("", everything),
            ("", of_red),
        ):
            one = AffinityTerm(frozenset(names), namespaces, rule, "zone")
            terms[columns.add(next(conditions(one)))] = one
    many, others = ({f"{letter}{number}": "v" for number in range(300)} for letter in "ab")
    red, blue = {"team": "red"}, {"team": "blue"}

    for who in (("x", many, red), ("y", many, red), ("y", others, red), ("y", others, blue)):
        expected = [number for number, one in terms.items() if one.matches(*who)]
        assert sorted(found(columns, *who)) == expected
        assert lines_run(lambda who=who: columns.candidates(*who[:2])) < 150  # type: ignore[misc]


def test_runs_of_hashes_that_are_large_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_columns, "_MOST_UNSORTED", 1)
    monkeypatch.setattr(term_columns, "_MOST_MERGED", 64)
    columns = TermColumns()
    terms = [term(match_labels={f"k{number}-{place}": "" for place in range(40)}) for number in range(20)]
    numbers = [columns.add(needs) for each in terms for needs in conditions(each)]

    lengths = [len(run.numbers) for run in columns._wanted._runs]

    assert sum(lengths) == 20 * 39
    assert 64 <= max(lengths) < 4 * 64
    assert found(columns, "x", dict(terms[7].rule.labels), {}) == [numbers[7]]


MANY = [str(number) for number in range(1000)]


@pytest.mark.parametrize(
    ("selector", "lines"),
    [
        ({"match_labels": dict.fromkeys(MANY, "v")}, 200),
        ({"match_expressions": (SelectorRequirement("k", "In", tuple(MANY)),)}, 200),
        ({"match_expressions": (SelectorRequirement("k", "NotIn", tuple(MANY)),)}, 200),
        ({"match_expressions": tuple(SelectorRequirement(key, "In", ("v",)) for key in MANY)}, 200),
        ({"match_expressions": tuple(SelectorRequirement(key, "Exists") for key in MANY)}, 7_000),
        ({"match_expressions": tuple(SelectorRequirement(key, "NotIn", ("v",)) for key in MANY)}, 14_000),
    ],
    ids=["labels", "values", "other values", "labels as expressions", "keys", "other labels"],
)
def test_a_large_term_is_indexed_and_removed_with_few_operations(
    selector: dict[str, object], lines: int
) -> None:
    large, columns = term(**selector), TermColumns()

    def index() -> None:
        for needs in conditions(large):
            columns.remove([(columns.add(needs), needs.places)])

    assert lines_run(index) < lines
