"""Limits of pods."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resources import pod_limits
from tests.support.builders import pod


def container(name: str, restart_policy: str = "", **limits: str) -> dict[str, Any]:
    # Requests that a wrong implementation would take for limits.
    found: dict[str, Any] = {"name": name, "resources": {"limits": limits, "requests": {"cpu": "77"}}}
    return {**found, "restartPolicy": restart_policy} if restart_policy else found


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        pytest.param({"containers": [container("a")]}, {}, id="none"),
        pytest.param(
            {"containers": [container("a", cpu="1", memory="1Gi"), container("b", cpu="500m")]},
            {"cpu": "1500m", "memory": "1Gi"},
            id="containers add up, those without a limit for nothing",
        ),
        pytest.param(
            {"containers": [container("a", cpu="1")], "initContainers": [container("i", cpu="3")]},
            {"cpu": "3"},
            id="an init container that may use more",
        ),
        pytest.param(
            {
                "containers": [container("a", cpu="1")],
                "initContainers": [container("s", "Always", cpu="2"), container("i", cpu="2")],
            },
            {"cpu": "4"},
            id="a sidecar stays beside the init containers after it",
        ),
        pytest.param(
            {"containers": [container("a", cpu="1")], "overhead": {"cpu": "250m", "memory": "10Mi"}},
            {"cpu": "1250m"},
            id="overhead is added where there is a limit",
        ),
        pytest.param(
            {"containers": [container("a", cpu="0")], "overhead": {"cpu": "1"}},
            {"cpu": "0"},
            id="a limit of zero stays",
        ),
        pytest.param(
            {
                "containers": [container("a", cpu="1", memory="1Gi")],
                "resources": {"limits": {"cpu": "8", "example.com/gpu": "1"}},
            },
            {"cpu": "8", "memory": "1Gi"},
            id="the pod's own limit takes precedence, where a pod can have one",
        ),
    ],
)
def test_limits_of_a_pod(spec: dict[str, Any], limits: dict[str, str]) -> None:
    assert pod_limits(pod("web", **spec).pod) == {
        name: parse_quantity(quantity) for name, quantity in limits.items()
    }
