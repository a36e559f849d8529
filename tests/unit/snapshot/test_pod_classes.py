from __future__ import annotations

import pytest

from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorRequirement, parse_label_selector
from scheduler.snapshot.pod_counts import PodClasses
from tests.support.builders import pod


def rule(*expressions: SelectorRequirement, **labels: str) -> LabelRule:
    return parse_label_selector(LabelSelector(match_labels=labels, match_expressions=expressions))


def found(classes: PodClasses, wanted: LabelRule) -> list[tuple[dict[str, str], dict[int, int]]]:
    return [
        (dict(each.labels), {row: int(classes.rows.pods.cells[entry]) for row, entry in each.rows.items()})
        for each in classes.candidates(wanted)
    ]


@pytest.fixture
def classes() -> PodClasses:
    classes = PodClasses()
    for row, app in ((0, "web"), (2, "web"), (2, "web"), (1, "db"), (1, "")):
        classes.count(row, pod("p", labels={"app": app} if app else {}), 1)
    return classes


@pytest.mark.parametrize(
    ("wanted", "apps"),
    [
        pytest.param(rule(app="web"), ["web"], id="a value"),
        pytest.param(rule(SelectorRequirement("app", "In", ("db", "web"))), ["db", "web"], id="two values"),
        pytest.param(rule(app="mail"), [], id="a value that no pod has"),
        pytest.param(
            rule(SelectorRequirement("app", "NotIn", ("db",))), ["", "db", "web"], id="no value named"
        ),
        pytest.param(rule(), ["", "db", "web"], id="nothing demanded"),
        pytest.param(LabelRule(None), [], id="a rule for nothing"),
    ],
)
def test_a_rule_with_values_is_compared_only_with_pods_that_have_one_of_them(
    classes: PodClasses, wanted: LabelRule, apps: list[str]
):
    assert sorted(labels.get("app", "") for labels, _ in found(classes, wanted)) == apps


def test_identical_pods_are_one_class_with_a_count_per_row(classes: PodClasses):
    assert found(classes, rule(app="web")) == [({"app": "web"}, {0: 1, 2: 2})]


def test_nothing_is_kept_of_removed_pods(classes: PodClasses):
    for row in (0, 2, 2):
        classes.count(row, pod("p", labels={"app": "web"}), -1)

    assert found(classes, rule(app="web")) == []
    assert [labels for labels, _ in found(classes, rule())] == [{"app": "db"}, {}]
