"""The arguments of VolumeBinding."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.volume_binding.plugin import VolumeBindingArgs
from scheduler.configuration.load import parse
from tests.unit.plugins.plugin_calls import faults


def test_a_pod_waits_at_most_ten_minutes_for_its_volumes():
    assert VolumeBindingArgs().bind_timeout_seconds == 600


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"bindTimeoutSeconds": 0}, [], id="no waiting"),
        pytest.param(
            {"bindTimeoutSeconds": -1},
            [
                "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"
            ],
            id="a negative time",
        ),
        pytest.param(
            {"shape": [{"utilization": 0, "score": 10}]},
            [
                "shape: unexpected field `shape`, remove it: the feature gate StorageCapacityScoring is off",
            ],
            id="a shape, for which a gate has to be on",
        ),
        pytest.param({"shape": None}, [], id="no shape"),
    ],
)
def test_invalid_arguments(given: dict[str, Any], expected: list[str]):
    assert faults(VolumeBindingArgs, **given) == expected


def test_a_configuration_may_set_them():
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: VolumeBinding
    args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: VolumeBindingArgs, bindTimeoutSeconds: 30}
"""
    (profile,) = parse(text).settings.profiles
    (given,) = [config.args for config in profile.plugin_config if config.name == "VolumeBinding"]

    assert given["bindTimeoutSeconds"] == 30
