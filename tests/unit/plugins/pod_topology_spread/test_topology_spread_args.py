"""The arguments and the score of PodTopologySpread."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.pod_topology_spread.plugin import SYSTEM_CONSTRAINTS, PodTopologySpread, PodTopologySpreadArgs
from plugins.pod_topology_spread.scoring import go_log, go_round
from scheduler.configuration.profile_plugins import decode_args
from scheduler.errors import ConfigurationError
from tests.unit.plugins.plugin_calls import faults, made

ACTIONS = 'supported values: "DoNotSchedule", "ScheduleAnyway"'
FORBIDDEN = "Forbidden: constraint must not define a selector, as they deduced for each pod"
GOOD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def problems(*constraints: dict[str, Any], **args: Any) -> list[str]:
    given = {"defaultingType": "List", **args}
    return faults(PodTopologySpreadArgs, defaultConstraints=list(constraints), **given)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, [], id="a good one"),
        pytest.param(
            {"maxSkew": 0},
            ["defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)"],
            id="no skew",
        ),
        pytest.param(
            {"topologyKey": ""},
            ["defaultConstraints[0].topologyKey: Required value: can not be empty"],
            id="no key",
        ),
        pytest.param(
            {"topologyKey": "a key"},
            ['defaultConstraints[0].topologyKey: Invalid value: "a key": must be a label\'s key'],
            id="a key that is none",
        ),
        pytest.param(
            {"whenUnsatisfiable": ""},
            ["defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty"],
            id="no action",
        ),
        pytest.param(
            {"whenUnsatisfiable": "Maybe"},
            [f'defaultConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe": {ACTIONS}'],
            id="an unknown action",
        ),
        pytest.param(
            {"labelSelector": {}},
            [f"defaultConstraints[0].labelSelector: {FORBIDDEN}"],
            id="a selector",
        ),
    ],
)
def test_a_default_constraint_is_validated_as_in_upstream(fields: dict[str, Any], expected: list[str]):
    assert problems({**GOOD, **fields}) == expected


def test_a_key_may_be_used_once_for_each_action():
    anyway = {**GOOD, "whenUnsatisfiable": "ScheduleAnyway"}

    assert problems(GOOD, anyway) == []
    assert problems(GOOD, anyway, {**GOOD, "maxSkew": 2}) == [
        'defaultConstraints[2]: Duplicate value: "{zone, DoNotSchedule}"'
    ]


def test_system_constraints_exclude_a_list():
    assert problems(GOOD, defaultingType="System") == [
        'defaultingType: Invalid value: "System": when .defaultConstraints are not empty'
    ]
    assert problems(GOOD, defaultingType="") == problems(GOOD, defaultingType="System")
    assert problems(defaultingType="Lists") == [
        'defaultingType: Unsupported value: "Lists": supported values: "System", "List"'
    ]


@pytest.mark.parametrize("given", [{}, {"defaultingType": ""}, {"defaultingType": "System"}])
def test_system_constraints_are_the_default(given: dict[str, str]):
    args = decode_args(PodTopologySpreadArgs, given, plugin="PodTopologySpread", path="args")

    assert args.constraints == SYSTEM_CONSTRAINTS
    assert [(each.topology_key, each.when_unsatisfiable, each.max_skew) for each in args.constraints] == [
        ("kubernetes.io/hostname", "ScheduleAnyway", 3),
        ("topology.kubernetes.io/zone", "ScheduleAnyway", 5),
    ]


def test_unknown_fields_of_a_constraint_are_refused_with_their_paths():
    given = {"defaultingType": "List", "defaultConstraints": [{**GOOD, "maxSkews": 2}]}

    with pytest.raises(ConfigurationError, match=r"args.defaultConstraints\[0\].maxSkews: unknown field"):
        decode_args(PodTopologySpreadArgs, given, plugin="PodTopologySpread", path="args")


def test_objects_are_watched_only_for_system_constraints():
    watched = {"v1/services", "v1/replicationcontrollers", "apps/v1/replicasets", "apps/v1/statefulsets"}

    assert made(PodTopologySpread).needs.kinds == watched
    assert made(PodTopologySpread, defaultingType="List", defaultConstraints=[GOOD]).needs.kinds == watched
    assert made(PodTopologySpread, defaultingType="List").needs.kinds == frozenset()


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        pytest.param(0.5, 1.0, id="half"),
        pytest.param(2.5, 3.0, id="half of an even number"),
        pytest.param(-2.5, -3.0, id="half below zero"),
        pytest.param(0.49999999999999994, 0.0, id="just less than half"),
        pytest.param(4503599627370497.5, 4503599627370498.0, id="half of a large number"),
        pytest.param(-0.4, 0.0, id="nearly zero"),
    ],
)
def test_halves_are_rounded_away_from_zero(number: float, rounded: float):
    assert go_round(np.array([number])).tolist() == [rounded]


@given(st.integers(2, 10**6))
def test_the_logarithm_is_exact_up_to_the_last_digit(number: int):
    assert abs(go_log(number) - math.log(number)) <= math.ulp(math.log(number))


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        pytest.param(4, "3ff62e42fefa39ef", id="a power of two"),
        pytest.param(3, "3ff193ea7aad030a", id="three, where the nearest number ends in b"),
        pytest.param(14, "40051cca16d7bba8", id="fourteen, where the nearest number ends in 7"),
    ],
)
def test_the_last_digit_equals_that_of_the_series(number: int, bits: str):
    assert np.float64(go_log(number)).view(np.uint64) == int(bits, 16)
