"""Taints, tolerations and host ports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.objects.v1 import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    HostPort,
    Taint,
    Toleration,
    Tolerations,
    conflicts_with,
)
from tests.reference.taints import covers
from tests.support.builders import pod

TAINT = Taint(key="gpu", value="a100", effect=NO_SCHEDULE)

VALUES = ("", "a100", "-3", "5", "40", "05")
TAINTS = st.builds(
    Taint,
    key=st.sampled_from(["gpu", "disk"]),
    value=st.sampled_from(VALUES),
    effect=st.sampled_from([NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE]),
)
TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", "gpu", "disk"]),
    operator=st.sampled_from(["", "Equal", "Exists", "Lt", "Gt", "exists"]),
    value=st.sampled_from(VALUES),
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
    assert Tolerations([toleration]).cover(TAINT, compares=True)


@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param(Toleration(key="disk", operator="Exists"), id="another key"),
        pytest.param(Toleration(key="gpu", operator="Exists", effect=NO_EXECUTE), id="another effect"),
        pytest.param(Toleration(key="gpu", operator="Equal", value="h100"), id="another value"),
        pytest.param(Toleration(key="gpu"), id="Equal without a value"),
        pytest.param(Toleration(key="gpu", operator="Lt", value="9"), id="Lt of a text"),
        pytest.param(Toleration(key="gpu", operator="Gt", value="1"), id="Gt of a text"),
        pytest.param(Toleration(key="gpu", operator="In", value="a100"), id="an unknown operator"),
        pytest.param(Toleration(key="gpu", operator="exists"), id="an operator in the wrong case"),
        pytest.param(Toleration(key="GPU", operator="Exists"), id="a key in the wrong case"),
    ],
)
def test_the_tolerations_that_do_not_cover_a_taint(toleration: Toleration):
    assert not Tolerations([toleration]).cover(TAINT, compares=True)


@pytest.mark.parametrize(
    ("operator", "value", "taint_value", "covered"),
    [
        ("Gt", "3", "5", True),
        ("Gt", "5", "5", False),
        ("Gt", "-7", "-6", True),
        ("Lt", "9", "5", True),
        ("Lt", "5", "5", False),
        ("Lt", "0", "-1", True),
        ("Lt", "9223372036854775807", "-9223372036854775808", True),
        ("Gt", "9223372036854775808", "5", False),
        ("Gt", "3", "9223372036854775808", False),
        ("Gt", "03", "5", False),
        ("Gt", "3", "05", False),
        ("Lt", "9", "-0", False),
        ("Gt", "+3", "5", False),
        ("Gt", "", "5", False),
        ("Gt", "3", "", False),
        ("Gt", "3.5", "5", False),
        ("Lt", "9", "\u0665", False),
    ],
)
def test_numeric_operators_compare_integers(operator: str, value: str, taint_value: str, covered: bool):
    taint = Taint(key="sla", value=taint_value, effect=NO_SCHEDULE)
    tolerations = Tolerations([Toleration(key="sla", operator=operator, value=value)])

    assert tolerations.cover(taint, compares=True) is covered
    assert not tolerations.cover(taint, compares=False)


def test_an_empty_toleration_covers_taints_without_a_value():
    assert Tolerations([Toleration()]).cover(Taint(key="any", effect=NO_EXECUTE), compares=True)
    assert not Tolerations([Toleration()]).cover(TAINT, compares=True)


def test_one_toleration_of_many_is_enough():
    others = Toleration(key="disk", operator="Exists")
    assert Tolerations([others, Toleration(key="gpu", operator="Exists")]).cover(TAINT, compares=True)
    assert not Tolerations([others]).cover(TAINT, compares=True)
    assert not Tolerations([]).cover(TAINT, compares=True)


@settings(derandomize=True, max_examples=500)
@given(taint=TAINTS, tolerations=st.lists(TOLERATIONS, max_size=3), compares=st.booleans())
def test_the_rule_equals_its_table(taint: Taint, tolerations: list[Toleration], compares: bool):
    assert Tolerations(tolerations).cover(taint, compares=compares) is any(
        covers(toleration, taint, compares=compares) for toleration in tolerations
    )


ANY = "0.0.0.0"  # noqa: S104 - what a pod means that names no address


def container(*ports: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "c", "ports": list(ports), **fields}


def test_sidecars_hold_ports_and_init_containers_do_not():
    each = pod(
        "p",
        containers=[container({"hostPort": 80})],
        initContainers=[
            container({"hostPort": 81}),
            container({"hostPort": 82, "protocol": "UDP", "hostIP": "10.0.0.1"}, restartPolicy="Always"),
        ],
    )

    assert each.host_ports == (HostPort("10.0.0.1", "UDP", 82), HostPort(ANY, "TCP", 80))


def test_container_ports_need_no_port_of_the_node():
    assert pod("p", containers=[container({"containerPort": 80}, {"hostPort": 0})]).host_ports == ()


@pytest.mark.parametrize(
    ("wanted", "used", "conflict"),
    [
        pytest.param((ANY, "TCP", 80), (ANY, "TCP", 80), True, id="the same"),
        pytest.param((ANY, "TCP", 80), ("10.0.0.1", "TCP", 80), True, id="all addresses, one used"),
        pytest.param(("10.0.0.1", "TCP", 80), (ANY, "TCP", 80), True, id="one address, all used"),
        pytest.param(("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False, id="another address"),
        pytest.param((ANY, "TCP", 80), (ANY, "UDP", 80), False, id="another protocol"),
        pytest.param((ANY, "TCP", 80), (ANY, "TCP", 81), False, id="another port"),
        pytest.param(("::", "TCP", 80), ("::1", "TCP", 80), False, id="IPv6 has no address for all"),
    ],
)
def test_conflicts(wanted: tuple[str, str, int], used: tuple[str, str, int], conflict: bool):
    assert conflicts_with([HostPort(*wanted)])([HostPort(*used)]) is conflict


def test_each_used_port_is_looked_up_once():
    looked_up = 0

    class Counted(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looked_up
            looked_up += 1
            return super().__hash__()

        __eq__ = str.__eq__

    wanted = [HostPort("0.0.0.0", "TCP", port) for port in range(1, 1001)]  # noqa: S104
    used = [HostPort("0.0.0.0", Counted("TCP"), port) for port in range(2001, 3001)]  # noqa: S104
    assert not conflicts_with(wanted)(used)
    assert looked_up == len(used)
