"""The arguments and the queueing hints of VolumeBinding."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.volume_binding.plugin import VolumeBindingArgs
from scheduler.configuration.load import parse
from scheduler.framework import ActionType, EventResource
from scheduler.testing.samples import claim, csi_driver, csi_node, storage_capacity, storage_class
from tests.support.builders import pod
from tests.unit.plugins.plugin_calls import faults, requeues
from tests.unit.plugins.volume_binding.small_cluster import DRIVER, ZONE, Stage, ephemeral, using


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
        pytest.param({"shape": [{"utilization": 0, "score": 10}]}, [], id="a shape"),
        pytest.param({"shape": []}, [], id="an empty shape is the default one"),
        pytest.param(
            {"shape": [{"utilization": 50, "score": 11}, {"utilization": 50, "score": 0}]},
            [
                "shape[1].utilization: must rise from point to point, was 50, then 50",
                "shape[0].score: must be 0 to 10, was 11",
            ],
            id="an invalid shape",
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


INLINE = pod("web", volumes=[{"name": "v", "csi": {"driver": DRIVER}}])
WEB = using("data")
EBS = ["kubernetes.io/aws-ebs"]


def room(capacity: str | None, **more: Any) -> Any:
    return storage_capacity("room", "made", capacity, **more)


HINTS = [
    pytest.param(EventResource.STORAGE_CLASS, WEB, None, storage_class("made"), True, id="a new class"),
    pytest.param(
        EventResource.STORAGE_CLASS,
        WEB,
        storage_class("made", topologies=[{ZONE: ["a"]}]),
        storage_class("made", topologies=[{ZONE: ["a", "b"]}]),
        True,
        id="a class allows other places",
    ),
    pytest.param(
        EventResource.STORAGE_CLASS,
        WEB,
        {**storage_class("made"), "allowedTopologies": None},
        {**storage_class("made"), "parameters": {"x": "y"}},
        False,
        id="a class that allows the same places",
    ),
    pytest.param(
        EventResource.PERSISTENT_VOLUME_CLAIM, WEB, None, claim("data"), True, id="a new claim of the pod"
    ),
    pytest.param(
        EventResource.PERSISTENT_VOLUME_CLAIM, WEB, claim("data"), claim("data"), True, id="its claim changed"
    ),
    pytest.param(
        EventResource.PERSISTENT_VOLUME_CLAIM,
        ephemeral(),
        None,
        claim("web-scratch"),
        True,
        id="a new claim of its ephemeral volume",
    ),
    pytest.param(EventResource.PERSISTENT_VOLUME_CLAIM, WEB, None, claim("other"), False, id="another claim"),
    pytest.param(
        EventResource.PERSISTENT_VOLUME_CLAIM,
        WEB,
        None,
        claim("data", namespace="other"),
        False,
        id="a claim of another namespace",
    ),
    pytest.param(EventResource.CSI_NODE, WEB, None, csi_node("n1", {}), True, id="new drivers of a node"),
    pytest.param(
        EventResource.CSI_NODE,
        WEB,
        csi_node("n1", {}),
        csi_node("n1", {}, migrated=EBS),
        True,
        id="a driver took over a plugin's work",
    ),
    pytest.param(
        EventResource.CSI_NODE,
        WEB,
        csi_node("n1", {DRIVER: 1}, migrated=EBS),
        csi_node("n1", {DRIVER: 9}, migrated=EBS),
        False,
        id="a driver can attach more",
    ),
    pytest.param(
        EventResource.CSI_DRIVER,
        INLINE,
        csi_driver(),
        csi_driver(storage_capacity=False),
        True,
        id="the driver of an inline volume stops reporting capacity",
    ),
    pytest.param(
        EventResource.CSI_DRIVER,
        INLINE,
        csi_driver(),
        csi_driver(storage_capacity=None),
        True,
        id="the driver of an inline volume drops the setting",
    ),
    pytest.param(
        EventResource.CSI_DRIVER,
        INLINE,
        csi_driver(storage_capacity=False),
        csi_driver(),
        False,
        id="a driver starts reporting",
    ),
    pytest.param(
        EventResource.CSI_DRIVER,
        INLINE,
        csi_driver("other"),
        csi_driver("other", storage_capacity=False),
        False,
        id="another driver",
    ),
    pytest.param(
        EventResource.CSI_DRIVER,
        WEB,
        csi_driver(),
        csi_driver(storage_capacity=False),
        False,
        id="the driver of a claim's class, which upstream does not think of",
    ),
    pytest.param(EventResource.CSI_STORAGE_CAPACITY, WEB, None, room("0"), True, id="new capacity"),
    pytest.param(EventResource.CSI_STORAGE_CAPACITY, WEB, room("1Gi"), room("2Gi"), True, id="more capacity"),
    pytest.param(
        EventResource.CSI_STORAGE_CAPACITY, WEB, room("2Gi"), room("1Gi"), False, id="less capacity"
    ),
    pytest.param(
        EventResource.CSI_STORAGE_CAPACITY,
        WEB,
        room("1Gi"),
        room("1073741824"),
        False,
        id="the same capacity",
    ),
    pytest.param(EventResource.CSI_STORAGE_CAPACITY, WEB, room(None), room("0"), True, id="the first amount"),
    pytest.param(
        EventResource.CSI_STORAGE_CAPACITY, WEB, room("1Gi"), room(None), False, id="no amount any longer"
    ),
    pytest.param(
        EventResource.CSI_STORAGE_CAPACITY,
        WEB,
        room("1Gi", maximumVolumeSize="1Gi"),
        room("9Gi", maximumVolumeSize="1Gi"),
        False,
        id="more capacity, but in small volumes",
    ),
]


@pytest.mark.parametrize(("resource", "waiting", "old", "new", "helps"), HINTS)
def test_an_event_requeues_the_pods_that_it_may_help(
    resource: Any, waiting: Any, old: Any, new: Any, helps: bool
):
    assert requeues(Stage().plugin, resource, waiting, old, new) is helps


def test_the_events_are_those_of_upstream():
    both = ActionType.ADD | ActionType.UPDATE
    registered = {each.event.resource: each.event.action for each in Stage().plugin.events()}

    assert registered == {
        EventResource.STORAGE_CLASS: both,
        EventResource.PERSISTENT_VOLUME_CLAIM: both,
        EventResource.PERSISTENT_VOLUME: both,
        EventResource.NODE: ActionType.ADD | ActionType.UPDATE_NODE_LABEL,
        EventResource.CSI_NODE: both,
        EventResource.CSI_DRIVER: ActionType.UPDATE,
        EventResource.CSI_STORAGE_CAPACITY: both,
    }
    hints = {each.event.resource for each in Stage().plugin.events() if each.hint is None}
    assert hints == {EventResource.PERSISTENT_VOLUME, EventResource.NODE}


@pytest.mark.parametrize(("resource", "waiting", "old", "new", "helps"), HINTS)
def test_an_irrelevant_event_calls_no_hint(
    resource: EventResource, waiting: Any, old: Any, new: Any, helps: bool
):
    (registration,) = [each for each in Stage().plugin.events() if each.event.resource is resource]
    assert registration.pod_key is not None
    assert registration.event_keys is not None

    brought = registration.event_keys(old, new)

    if helps:
        assert brought is None or (
            registration.waits_for_keys is not None
            and set(brought) & set(registration.waits_for_keys(waiting) or ())
        )
    elif resource not in {EventResource.PERSISTENT_VOLUME_CLAIM, EventResource.CSI_DRIVER}:
        assert brought == ()
