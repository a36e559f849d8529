"""Node preferences as they are written, and what the limits of node sets allow."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.node_preference.plugin import NodePreferenceArgs
from plugins.node_preference.preferences import (
    Preference,
    PreferenceArgs,
    Refusal,
    SetCounts,
    read_annotation,
    read_preference,
)
from scheduler.configuration.profile_plugins import decode_args
from scheduler.errors import ConfigurationError
from tests.unit.plugins.node_preference.worlds import ON_DEMAND, SPOT


def preference(*sets: dict[str, Any], **fields: Any) -> Preference:
    return read_preference(msgspec.convert({"sets": sets, **fields}, PreferenceArgs))


def refusals(pods: list[int], *sets: dict[str, Any], replicas: int = 10) -> list[str]:
    return [each.name for each in SetCounts(preference(*sets), replicas, pods).refusals]


class TestMaximum:
    @pytest.mark.parametrize(
        ("most", "pods", "replicas", "takes"),
        [
            pytest.param(3, 2, 10, True, id="below a number"),
            pytest.param(3, 3, 10, False, id="at a number"),
            pytest.param("30%", 2, 10, True, id="below a percentage"),
            pytest.param("30%", 3, 10, False, id="at a percentage"),
            pytest.param("30%", 2, 9, False, id="a percentage is rounded down"),
            pytest.param("30%", 0, 3, False, id="a percentage of too few replicas"),
            pytest.param("100%", 9, 10, True, id="all replicas"),
            pytest.param("100%", 10, 10, False, id="more than all replicas"),
            pytest.param(0, 0, 10, False, id="no pods at all"),
        ],
    )
    def test_a_set_takes_pods_up_to_its_maximum(
        self, most: int | str, pods: int, replicas: int, *, takes: bool
    ):
        found = refusals([pods, 0], {**SPOT, "maxReplicas": most}, replicas=replicas)

        assert found == ["NONE" if takes else "MAXIMUM", "NONE"]


class TestMinimum:
    def test_other_sets_take_pods_while_enough_replicas_remain(self):
        sets = SPOT, {**ON_DEMAND, "minReplicas": 2}

        assert refusals([7, 0, 0], *sets) == ["NONE", "NONE", "NONE"]
        assert refusals([8, 0, 0], *sets) == ["MINIMUM", "NONE", "MINIMUM"]
        assert refusals([8, 1, 0], *sets) == ["MINIMUM", "NONE", "MINIMUM"]
        assert refusals([7, 2, 0], *sets) == ["NONE", "NONE", "NONE"]

    def test_a_percentage_is_rounded_up(self):
        sets = SPOT, {**ON_DEMAND, "minReplicas": "25%"}

        assert refusals([7, 0, 0], *sets) == ["MINIMUM", "NONE", "MINIMUM"], "3 of 10"
        assert refusals([6, 0, 0], *sets) == ["NONE", "NONE", "NONE"]

    def test_the_minimum_outweighs_the_maximum_of_few_replicas(self):
        sets = {**SPOT, "minReplicas": "20%", "maxReplicas": "40%"}, ON_DEMAND

        assert refusals([0, 0, 0], *sets, replicas=1) == ["NONE", "MINIMUM", "MINIMUM"]
        assert refusals([1, 0, 0], *sets, replicas=2) == ["MAXIMUM", "NONE", "NONE"]

    def test_several_minimums_count_together(self):
        sets = SPOT, {**ON_DEMAND, "minReplicas": 2}, {"name": "burst", "minReplicas": 1}

        assert refusals([7, 0, 0, 0], *sets) == ["MINIMUM", "NONE", "NONE", "MINIMUM"]
        assert refusals([7, 2, 0, 0], *sets) == ["MINIMUM", "MINIMUM", "NONE", "MINIMUM"]

    def test_with_more_pods_than_replicas_only_sets_below_their_minimum_take_pods(self):
        assert refusals([12, 0, 0], SPOT, {**ON_DEMAND, "minReplicas": 2}) == ["MINIMUM", "NONE", "MINIMUM"]

    def test_the_minimums_exceed_the_remaining_replicas_by_a_number_of_pods(self):
        sets = preference(SPOT, {**ON_DEMAND, "minReplicas": 3})

        assert SetCounts(sets, 10, [7, 0, 0]).too_few == 1
        assert SetCounts(sets, 10, [8, 0, 0]).too_few == 2
        assert SetCounts(sets, 10, [6, 0, 0]).too_few == 0


@given(
    limits=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=3),
    replicas=st.integers(0, 8),
    data=st.data(),
)
def test_pods_that_are_placed_one_by_one_meet_all_limits(
    limits: list[tuple[int, int]], replicas: int, data: st.DataObject
):
    """If the limits can be met at all, no order of placements ends in a pod that no set takes."""
    sets = [
        {
            "name": f"s{number}",
            "matchLabels": {"a": str(number)},
            "minReplicas": least,
            "maxReplicas": least + more,
        }
        for number, (least, more) in enumerate(limits)
    ]
    if sum(least for least, _ in limits) > replicas:
        return
    pods = [0] * (len(sets) + 1)
    found = preference(*sets)
    for _ in range(replicas):
        taking = [
            number
            for number, refusal in enumerate(SetCounts(found, replicas, pods).refusals)
            if refusal is Refusal.NONE
        ]
        assert taking
        pods[data.draw(st.sampled_from(taking))] += 1

    for number, (least, more) in enumerate(limits):
        assert least <= pods[number] <= least + more


@pytest.mark.parametrize(("pods", "change"), list(product(range(5), (-1, 1))))
def test_a_change_of_the_pods_of_a_set_counts_as_if_it_was_counted(pods: int, change: int):
    sets = preference({**SPOT, "maxReplicas": 3}, {**ON_DEMAND, "minReplicas": 2})
    if pods + change < 0:
        return
    for number in range(3):
        there = [pods, pods, pods]
        after = [*there[:number], pods + change, *there[number + 1 :]]

        assert SetCounts(sets, 8, there).refusal(number, change) is SetCounts(sets, 8, after).refusal(number)


class TestArguments:
    @pytest.mark.parametrize(
        ("args", "problem"),
        [
            pytest.param({"sets": []}, "preferences[0].sets: 1 to 16 sets are expected, was 0", id="no sets"),
            pytest.param(
                {"sets": [{**SPOT, "maxReplicas": "130%"}]},
                "preferences[0].sets[0].maxReplicas: a number of replicas from 0, or a percentage from 0% to 100%, "
                'is expected, was "130%"',
                id="more than all",
            ),
            pytest.param(
                {"sets": [{**SPOT, "minReplicas": -1}]},
                "preferences[0].sets[0].minReplicas: a number of replicas from 0, or a percentage from 0% to 100%, "
                "is expected, was -1",
                id="less than none",
            ),
            pytest.param(
                {"sets": [{**SPOT, "minReplicas": "40%", "maxReplicas": "30%"}]},
                "preferences[0].sets[0].minReplicas: at most the maxReplicas 30% is expected, was 40%",
                id="a minimum above the maximum",
            ),
            pytest.param(
                {"sets": [{**SPOT, "minReplicas": "60%"}, {**ON_DEMAND, "minReplicas": "50%"}]},
                "preferences[0].sets: a sum of minReplicas up to 100% is expected, was 110%",
                id="minimums of more than all",
            ),
            pytest.param(
                {"sets": [SPOT, {**ON_DEMAND, "name": "spot"}]},
                'preferences[0].sets[1].name: another name is expected, was "spot" before',
                id="a name twice",
            ),
            pytest.param(
                {"sets": [{**SPOT, "name": "a name"}]},
                'preferences[0].sets[0].name: a text as the value of a label is expected, was "a name"',
                id="a name that is none",
            ),
            pytest.param(
                {"sets": [{"name": "all"}, SPOT]},
                "preferences[0].sets[1]: no node is in this set, because preferences[0].sets[0] matches all nodes",
                id="a set without nodes",
            ),
            pytest.param(
                {"sets": [{"matchExpressions": [{"key": "capacity", "operator": "In"}]}]},
                "preferences[0].sets[0].matchExpressions[0].values: In needs a value",
                id="a requirement without a value",
            ),
            pytest.param(
                {"sets": [{"matchLabel": {"capacity": "spot"}}]},
                'preferences[0].sets[0].matchLabel: unknown field, did you mean "matchLabels"?',
                id="an unknown field",
            ),
            pytest.param(
                {"sets": [SPOT], "podSelector": {"matchLabels": {"a b": "c"}}},
                "preferences[0].podSelector.matchLabels: must be a label's key, was 'a b'",
                id="a selector of pods",
            ),
            pytest.param(
                {"sets": [{**SPOT, "name": "2"}, {"matchLabels": {"capacity": "on-demand"}}]},
                'preferences[0].sets[1].name: another name is expected, was "2" before',
                id="the number of a set that is the name of another one",
            ),
            pytest.param(
                {"sets": [{"matchLabels": {"capacity": "-spot"}}]},
                'preferences[0].sets[0].matchLabels.capacity: Invalid value: "-spot": a valid label must be an empty string or '
                "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
                "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
                "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                id="a value of a label",
            ),
            pytest.param(
                {"sets": [SPOT], "whenUnsatisfiable": "Never"},
                'preferences[0].whenUnsatisfiable: must be one of "DoNotSchedule", "ScheduleAnyway", was "Never"',
                id="an unknown action",
            ),
        ],
    )
    def test_an_error_names_its_field(self, args: dict[str, Any], problem: str):
        with pytest.raises(ConfigurationError) as caught:
            decode_args(NodePreferenceArgs, {"preferences": [args]}, plugin="NodePreference", path="args")

        assert f"args.{problem}" in [f"{each.path}: {each.problem}" for each in caught.value.errors]

    def test_the_example_of_each_field_is_valid(self):
        expression = {"key": "disk", "operator": "NotIn", "values": ["hdd"]}
        found = preference(
            {**SPOT, "matchExpressions": [expression], "minReplicas": 1, "maxReplicas": "50%"},
            {"maxReplicas": 0},
            whenUnsatisfiable="ScheduleAnyway",
        )

        assert [each.name for each in found.sets] == ["spot", "2"]
        assert not found.is_hard
        assert found.set_of({"capacity": "spot"}) == 0
        assert found.set_of({"capacity": "spot", "disk": "hdd"}) == 1


class TestAnnotation:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            pytest.param("spot", "JSON is malformed", id="no JSON"),
            pytest.param(
                '{"sets": [{"maxReplica": 3}]}', "unknown field `maxReplica`", id="an unknown field"
            ),
            pytest.param(
                '{"sets": [{"matchExpressions": [{"key": "a", "operator": "Exists", "value": "b"}]}]}',
                "unknown field `value`",
                id="an unknown field of a requirement",
            ),
            pytest.param('{"sets": [{"maxReplicas": true}]}', "$.sets[0].maxReplicas", id="another type"),
            pytest.param(
                '{"sets": [{"maxReplicas": "x"}]}', "sets[0].maxReplicas: a number", id="an invalid limit"
            ),
            pytest.param(" " * 8193, "at most 8192 characters are expected, was 8193", id="too long"),
            pytest.param('{"sets": ' + "[" * 8000, "", id="too deep"),
        ],
    )
    def test_an_error_is_described(self, text: str, problem: str):
        found = read_annotation(text)

        assert isinstance(found, str)
        assert problem in found
        assert len(found) < 300

    def test_an_error_that_quotes_the_text_has_no_line_breaks(self):
        found = read_annotation('{"sets": [], "a\\nb": 1}')

        assert isinstance(found, str)
        assert "\n" not in found

    def test_equal_texts_share_one_preference(self):
        text = '{"sets": [{"name": "a"}]}'

        assert read_annotation(text) is read_annotation(str(text))
        assert read_annotation(text) == preference({"name": "a"})
        assert hash(read_annotation(text)) == hash(preference({"name": "a"}))
