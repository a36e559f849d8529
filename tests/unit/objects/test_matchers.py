"""A rule matches labels if each of its requirements does. The time grows with the number of labels, not of requirements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.label_index import keys_of_rule, matcher
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorRequirement, parse_label_selector
from tests.support.counted_labels import CountedLabels, lines_run

KEYS = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.sampled_from(["", "1", "2"])
EXPRESSIONS = st.one_of(
    st.builds(
        SelectorRequirement,
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(SelectorRequirement, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)


def rule(*expressions: SelectorRequirement) -> LabelRule:
    return parse_label_selector(LabelSelector(match_expressions=expressions))


@given(st.lists(EXPRESSIONS, max_size=24), st.dictionaries(KEYS, VALUES))
def test_a_compiled_rule_matches_as_its_requirements_do(
    written: list[SelectorRequirement], labels: dict[str, str]
) -> None:
    wanted = rule(*written)

    assert matcher(wanted)(labels) is wanted.matches(labels)


def test_each_of_many_labels_must_have_its_value() -> None:
    labels = {f"label-{number}": "1" for number in range(20)}
    matches = matcher(parse_label_selector(LabelSelector(match_labels=labels)))

    assert matches({**labels, "other": "2"})
    assert not matches({**labels, "label-7": "2", "other": "2"})


def test_a_rule_without_requirements_matches_nothing() -> None:
    assert not matcher(LabelRule(None))({"a": "1"})


def test_a_thousand_requirements_read_each_label_at_most_once() -> None:
    labels = CountedLabels(a="1", b="2")
    matches = matcher(
        rule(*(SelectorRequirement(f"absent-{number}", "DoesNotExist") for number in range(1000)))
    )

    assert matches(labels)
    assert labels.reads <= len(labels)


def test_a_thousand_labels_are_read_once_per_requirement() -> None:
    labels = CountedLabels({f"label-{number}": "1" for number in range(1000)})
    matches = matcher(rule(*(SelectorRequirement(f"label-{number}", "Exists") for number in range(20))))

    assert matches(labels)
    assert labels.reads <= 20


def test_the_keys_of_a_rule_are_found_without_the_others() -> None:
    needed = rule(*(SelectorRequirement(f"k{place}", "In", ("v",)) for place in range(1000)))

    assert keys_of_rule(needed) == {("k0", "v")}
    assert lines_run(lambda: keys_of_rule(needed)) < 20


def test_a_rule_with_very_many_values_counts_as_one_for_any_label() -> None:
    values = tuple(map(str, range(2000)))

    assert keys_of_rule(rule(SelectorRequirement("a", "In", values))) is None
    assert keys_of_rule(rule(SelectorRequirement("a", "In", values), SelectorRequirement("b", "Exists"))) == {
        "b"
    }
