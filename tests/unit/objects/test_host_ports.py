"""Host ports of pods, and conflicts between them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.objects.host_ports import HostPort, conflicts_with
from tests.support.builders import pod

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
