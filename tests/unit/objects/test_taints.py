from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.objects.v1 import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Taint,
    Toleration,
    Tolerations,
)
from tests.reference.taints import covers

TAINT = Taint(key="gpu", value="a100", effect=NO_SCHEDULE)

TAINTS = st.builds(
    Taint,
    key=st.sampled_from(["gpu", "disk"]),
    value=st.sampled_from(["", "a100"]),
    effect=st.sampled_from([NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE]),
)
TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", "gpu", "disk"]),
    operator=st.sampled_from(["", "Equal", "Exists", "Lt", "Gt", "exists"]),
    value=st.sampled_from(["", "a100"]),
    effect=st.sampled_from(["", NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE]),
)


@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param(
            Toleration(key="gpu", operator="Equal", value="a100", effect=NO_SCHEDULE), id="the same"
        ),
        pytest.param(Toleration(key="gpu", value="a100", effect=NO_SCHEDULE), id="no operator means Equal"),
        pytest.param(
            Toleration(key="gpu", operator="Equal", value="a100"), id="no effect means every effect"
        ),
        pytest.param(Toleration(key="gpu", operator="Exists"), id="Exists takes every value"),
        pytest.param(
            Toleration(key="gpu", operator="Exists", value="h100"), id="Exists does not look at the value"
        ),
        pytest.param(Toleration(operator="Exists"), id="no key with Exists means every taint"),
        pytest.param(Toleration(operator="Equal", value="a100"), id="no key means every key"),
    ],
)
def test_the_tolerations_that_cover_a_taint(toleration: Toleration):
    assert Tolerations([toleration]).cover(TAINT)


@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param(Toleration(key="disk", operator="Exists"), id="another key"),
        pytest.param(Toleration(key="gpu", operator="Exists", effect=NO_EXECUTE), id="another effect"),
        pytest.param(Toleration(key="gpu", operator="Equal", value="h100"), id="another value"),
        pytest.param(Toleration(key="gpu"), id="Equal without a value"),
        pytest.param(Toleration(key="gpu", operator="Lt", value="9"), id="Lt, whose feature is off"),
        pytest.param(Toleration(key="gpu", operator="Gt", value="1"), id="Gt, whose feature is off"),
        pytest.param(Toleration(key="gpu", operator="In", value="a100"), id="an unknown operator"),
        pytest.param(Toleration(key="gpu", operator="exists"), id="an operator in the wrong case"),
        pytest.param(Toleration(key="GPU", operator="Exists"), id="a key in the wrong case"),
    ],
)
def test_the_tolerations_that_do_not_cover_a_taint(toleration: Toleration):
    assert not Tolerations([toleration]).cover(TAINT)


@pytest.mark.parametrize("operator", ["Lt", "Gt"])
def test_numeric_operators_cover_no_taint(operator: str):
    taint = Taint(key="sla", value="5", effect=NO_SCHEDULE)
    limit = "9" if operator == "Lt" else "1"
    assert not Tolerations([Toleration(key="sla", operator=operator, value=limit)]).cover(taint)


def test_an_empty_toleration_covers_taints_without_a_value():
    assert Tolerations([Toleration()]).cover(Taint(key="any", effect=NO_EXECUTE))
    assert not Tolerations([Toleration()]).cover(TAINT)


def test_one_toleration_of_many_is_enough():
    others = Toleration(key="disk", operator="Exists")
    assert Tolerations([others, Toleration(key="gpu", operator="Exists")]).cover(TAINT)
    assert not Tolerations([others]).cover(TAINT)
    assert not Tolerations([]).cover(TAINT)


@settings(derandomize=True, max_examples=500)
@given(taint=TAINTS, tolerations=st.lists(TOLERATIONS, max_size=3))
def test_the_rule_equals_its_table(taint: Taint, tolerations: list[Toleration]):
    assert Tolerations(tolerations).cover(taint) is any(
        covers(toleration, taint) for toleration in tolerations
    )
