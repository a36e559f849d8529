"""Which evictions violate a disruption budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.preemption import disruption_budgets
from plugins.preemption.disruption_budgets import DisruptionBudgets, Evictions, split
from scheduler.objects.selectors import LabelSelector, Requirement, parse_label_selector
from scheduler.snapshot import ObjectStore
from tests.support.builders import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PODS = [pod(name, node="n", labels={"app": "db"}) for name in ("a", "b", "c")]


def budget(
    allowed: int = 1, *, namespace: str = "default", selector: Any = None, **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "db"}} if selector is None else selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def violating(*budgets: dict[str, Any]) -> list[str]:
    store, reader = ObjectStore(), DisruptionBudgets()
    reader.look_at(store)
    for number, each in enumerate(budgets):
        store[f"{each['metadata']['namespace']}/{number}"] = each
    broken, others = split(PODS, reader)
    assert sorted(each.name for each in broken + others) == ["a", "b", "c"]
    return [each.name for each in broken]


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        pytest.param(budget(0), ["a", "b", "c"], id="none may go"),
        pytest.param(budget(1), ["b", "c"], id="one may go"),
        pytest.param(budget(0, namespace="other"), [], id="another namespace"),
        pytest.param(budget(0, selector={}), [], id="an empty selector"),
        pytest.param({**budget(0), "spec": {}}, [], id="no selector"),
        pytest.param(
            budget(0, selector={"matchExpressions": [{"key": "app", "operator": "What"}]}), [], id="no rule"
        ),
        pytest.param(budget(1, disruptedPods={"a": "2026-03-01T08:00:00Z"}), ["c"], id="one counted already"),
        pytest.param({**budget(), "status": {}}, ["a", "b", "c"], id="no status yet"),
    ],
)
def test_pods_beyond_the_limit_of_a_budget_violate_it(found: dict[str, Any], broken: list[str]) -> None:
    assert violating(found) == broken


def test_the_tightest_of_several_budgets_counts() -> None:
    assert violating(budget(2), budget(1)) == ["b", "c"]


def test_a_changed_budget_is_read_again() -> None:
    store, reader = ObjectStore(), DisruptionBudgets()
    reader.look_at(store)
    broken = []
    for allowed in (0, 3, 1):
        store["default/b"] = budget(allowed)
        broken.append(len(split(PODS, reader)[0]))
    del store["default/b"]

    assert [*broken, len(split(PODS, reader)[0])] == [3, 0, 2, 0]


class Reading:
    """Counts the budgets that are read, with time for a limited number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        read = disruption_budgets._read

        def counted(found: Mapping[str, Any]) -> Any:
            self.read += 1
            return read(found)

        monkeypatch.setattr(disruption_budgets, "_read", counted)

    def has_time_for(self, count: int) -> Callable[[], bool]:
        end = self.read + count
        return lambda: self.read < end


def test_very_many_budgets_are_read_in_slices_and_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, store, reader = Reading(monkeypatch), ObjectStore(), DisruptionBudgets()
    for number in range(100):
        store[f"{'xyz'[number % 3]}/{number}"] = budget(0, namespace="xyz"[number % 3])

    ends = [reader.read(store, reading.has_time_for(7)) for _ in range(15)]

    assert ends == [False] * 14 + [True]
    assert reading.read == 100
    there = reader.of("x")
    assert there is not None
    assert len(there.protecting(pod("p", namespace="x", labels={"app": "db"}))) == 34
    assert reading.read == 100


def test_only_changed_budgets_of_very_many_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, store, reader = Reading(monkeypatch), ObjectStore(), DisruptionBudgets()
    for number in range(100):
        store[f"default/{number}"] = budget(number)
    reader.look_at(store)
    there = reader.of("default")
    assert there is not None
    assert len(there.protecting(PODS[0])) == 100
    reading.read = 0

    store["default/7"] = budget(0, selector={"matchLabels": {"app": "other"}})
    del store["default/8"]

    assert reader.of("default") is there
    assert sorted(there.allowed.cells[there.protecting(PODS[0])]) == [*range(7), *range(9, 100)]
    assert reading.read == 1


def test_very_many_budgets_are_not_evaluated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store, reader, asked = ObjectStore(), DisruptionBudgets(), []
    for number in range(200):
        expressions = [{"key": f"none-{number}", "operator": "DoesNotExist"}]
        store[f"default/{number}"] = budget(number % 3, selector={"matchExpressions": expressions})
    reader.look_at(store)
    admits = Requirement.admits
    monkeypatch.setattr(Requirement, "admits", lambda *args: asked.append(1) or admits(*args))

    broken, others = split(
        [pod(f"p-{number}", labels={"number": str(number)}) for number in range(50)], reader
    )

    assert (len(broken), len(others)) == (50, 0)
    assert not asked


NAMES, KEYS, VALUES = ("a", "b", "c"), ("app", "tier"), ("x", "y")
selectors = st.lists(
    st.one_of(
        st.builds(
            lambda key, operator, values: {"key": key, "operator": operator, "values": values},
            st.sampled_from(KEYS),
            st.sampled_from(["In", "NotIn"]),
            st.lists(st.sampled_from(VALUES), min_size=1, unique=True),
        ),
        st.builds(
            lambda key, operator: {"key": key, "operator": operator},
            st.sampled_from(KEYS),
            st.sampled_from(["Exists", "DoesNotExist"]),
        ),
    ),
    max_size=3,
)
states = st.dictionaries(
    st.sampled_from(["b1", "b2", "b3", "b4"]),
    st.tuples(selectors, st.integers(0, 2), st.lists(st.sampled_from(NAMES), unique=True)),
)
evicted = st.lists(
    st.tuples(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))),
    max_size=6,
)


@pytest.fixture(params=[0, 64], ids=["many", "few"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disruption_budgets, "_FEW", request.param)


@pytest.mark.usefixtures("few")
@given(st.lists(states, min_size=1, max_size=4), evicted)
def test_incremental_budget_violations_equal_a_full_evaluation(
    story: list[dict[str, Any]], leaving: list[tuple[str, dict[str, str]]]
) -> None:
    store, reader = ObjectStore(), DisruptionBudgets()
    reader.look_at(store)
    pods = [pod(name, labels=labels) for name, labels in leaving]
    for state in story:
        for name in list(store):
            del store[name]
        for name, (expressions, allowed, counted) in state.items():
            status = {
                "disruptionsAllowed": allowed,
                "disruptedPods": dict.fromkeys(counted, "2026-01-01T00:00:00Z"),
            }
            store[f"default/{name}"] = {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"selector": {"matchExpressions": expressions}},
                "status": status,
            }
        left = {name: allowed for name, (_, allowed, _) in state.items()}
        expected = []
        for each in pods:
            protecting = [
                name
                for name, (expressions, _, counted) in state.items()
                if expressions and each.labels and each.name not in counted
                and parse_label_selector(msgspec.convert({"matchExpressions": expressions}, LabelSelector)).matches(each.labels)
            ]  # fmt: skip
            for name in protecting:
                left[name] -= 1
            expected.append(any(left[name] < 0 for name in protecting))

        evictions = Evictions(reader)
        assert [evictions.breaks(each) for each in pods] == expected


def test_a_budget_with_very_many_requirements_is_read_in_steps_that_may_be_interrupted() -> None:
    lacks = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(50_000)]
    objects = ObjectStore()

    def protect(app: str) -> None:
        objects["default/large"] = budget(
            0, selector={"matchLabels": {"app": app}, "matchExpressions": lacks}
        )

    budgets, pods = DisruptionBudgets(), [pod("a", labels={"app": "a"}), pod("b", labels={"app": "b"})]
    protect("a")
    slices = 1
    while not budgets.read(objects, lambda: False):
        slices += 1
        if slices == 3:
            protect("b")  # what was read of the former version no longer counts

    assert slices > 5
    assert split(pods, budgets) == ([pods[1]], [pods[0]])
