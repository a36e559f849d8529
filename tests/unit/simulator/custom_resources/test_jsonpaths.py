"""The JSONPaths of custom resource definitions."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.simulator.kinds.custom_resource_definitions import found_at

OBJ = {
    "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
    "spec": {"size": 3, "ports": [{"port": 80}, {"port": 443}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Stale", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param(".spec.size", [3], id="field"),
        pytest.param(".spec.absent.deeper", [], id="nowhere"),
        pytest.param(".spec.ports[1].port", [443], id="index"),
        pytest.param(".spec.ports[-1].port", [443], id="index from the end"),
        pytest.param(".spec.ports[9].port", [], id="index beyond the end"),
        pytest.param(".spec.ports[*].port", [80, 443], id="every item"),
        pytest.param(r".metadata.labels.app\.kubernetes\.io/name", ["web"], id="dots in a key"),
        pytest.param(".metadata.labels['app.kubernetes.io/name']", ["web"], id="quoted key"),
        pytest.param('.status.conditions[?(@.type=="Ready")].status', ["True"], id="filter"),
        pytest.param('.status.conditions[?(@.type != "Ready")].status', ["False"], id="filter that excludes"),
        pytest.param(".spec.ports[?(@.port==80)].port", [80], id="filter by number"),
    ],
)
def test_a_path_selects_its_field(path: str, found: list[Any]):
    assert found_at(OBJ, path) == found


def test_an_invalid_path_is_reported_from_its_position():
    with pytest.raises(ValueError, match=r"cannot be understood from '\[\(1\)\]' on"):
        found_at(OBJ, ".spec[(1)]")
