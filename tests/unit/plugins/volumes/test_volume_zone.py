from __future__ import annotations

from typing import Any

import pytest

from plugins.volumes.volume_zone import VolumeZone
from scheduler.framework import SKIP, ActionType, EventResource
from scheduler.testing.samples import claim, mounted, storage_class, volume
from tests.support.builders import node, pod
from tests.unit.plugins.plugin_calls import requeues
from tests.unit.plugins.volumes.clusters import cluster_of, judged

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = (f"failure-domain.beta.kubernetes.io/{what}" for what in ("zone", "region"))
REFUSED = "UnschedulableAndUnresolvable: node(s) had no available volume zone"

WANTS = pod("p", volumes=mounted("data"))
BOUND = claim("data", "pv")


@pytest.mark.parametrize(
    ("of_volume", "of_node", "refused"),
    [
        pytest.param({ZONE: "a"}, {ZONE: "a"}, False, id="the same zone"),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, True, id="another zone"),
        pytest.param({ZONE: "a"}, {}, False, id="a node without labels, as in a cluster of one zone"),
        pytest.param({ZONE: "a"}, {REGION: "r"}, True, id="a node with a region only"),
        pytest.param({ZONE: "a__b"}, {ZONE: "b"}, False, id="one of several zones"),
        pytest.param({ZONE: " a __b"}, {ZONE: "a"}, False, id="spaces around it"),
        pytest.param({ZONE: "a__"}, {ZONE: "b"}, False, id="a list with an empty entry is ignored"),
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, True, id="zone right, region wrong"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "a"}, False, id="an old label finds the new one"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "b"}, True, id="the beta label with another zone"),
        pytest.param({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, True, id="unless the old one is there"),
        pytest.param({ZONE: "a"}, {BETA_ZONE: "a"}, True, id="a new label does not find the old one"),
        pytest.param({BETA_REGION: "r"}, {REGION: "r"}, False, id="an old region"),
        pytest.param({ZONE: "a"}, {ZONE: ""}, True, id="a node with an empty label"),
    ],
)
def test_a_node_outside_the_zone_of_the_volume_is_rejected(of_volume: Any, of_node: Any, refused: bool):
    table = cluster_of(BOUND, volume("pv", labels=of_volume), nodes=(node("n", labels=of_node),))

    found = judged(VolumeZone(), WANTS, table)

    assert (found == {"n": REFUSED}) is refused
    assert refused or found in ({}, SKIP)


def test_all_volumes_of_a_pod_count():
    table = cluster_of(
        claim("one", "in-a"), volume("in-a", labels={ZONE: "a"}),
        claim("two", "in-b"), volume("in-b", labels={ZONE: "b"}),
        nodes=(node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"})),
    )  # fmt: skip

    assert judged(VolumeZone(), pod("p", volumes=mounted("one", "two")), table) == {
        "a": REFUSED,
        "b": REFUSED,
    }
    assert judged(VolumeZone(), pod("p", volumes=mounted("two")), table) == {"a": REFUSED}


@pytest.mark.parametrize(
    ("volumes", "objects"),
    [
        pytest.param([], [], id="no volumes"),
        pytest.param([{"name": "v", "ephemeral": {}}], [], id="a claim that is created for it"),
        pytest.param(mounted("data"), [BOUND, volume("pv")], id="a volume without labels"),
        pytest.param(
            mounted("data"),
            [claim("data", class_name="late"), storage_class("late")],
            id="bound when it is placed",
        ),
        pytest.param(
            mounted("data"),
            [
                claim(
                    "data",
                    class_name="early",
                    annotations={"volume.beta.kubernetes.io/storage-class": "late"},
                ),
                storage_class("late"),
                storage_class("early", mode="Immediate"),
            ],
            id="the class of the old annotation",
        ),
    ],
)
def test_a_pod_without_zonal_volumes_is_skipped(volumes: Any, objects: list[Any]):
    assert judged(VolumeZone(), pod("p", volumes=volumes), cluster_of(*objects)) is SKIP


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param([], 'persistentvolumeclaim "data" not found', id="no claim"),
        pytest.param([BOUND], 'persistentvolume "pv" not found', id="no volume"),
        pytest.param(
            [claim("data")], "PersistentVolumeClaim had no pv name and storageClass name", id="neither"
        ),
        pytest.param(
            [claim("data", class_name="c")], 'storageclass.storage.k8s.io "c" not found', id="no class"
        ),
        pytest.param(
            [claim("data", class_name="c"), storage_class("c", mode=None)],
            'VolumeBindingMode not set for StorageClass "c"',
            id="a class without a binding mode",
        ),
        pytest.param(
            [claim("data", class_name="c"), storage_class("c", mode="Immediate")],
            "PersistentVolume had no name",
            id="to be bound before",
        ),
    ],
)
def test_a_pod_with_volumes_that_are_not_ready_is_rejected(objects: list[Any], reason: str):
    assert judged(VolumeZone(), WANTS, cluster_of(*objects)) == f"UnschedulableAndUnresolvable: {reason}"


def test_a_volume_without_a_claim_name_rejects_the_pod():
    found = judged(VolumeZone(), pod("p", volumes=mounted("")), cluster_of())

    assert found == "UnschedulableAndUnresolvable: PersistentVolumeClaim had no name"


ADD, UPDATE = ActionType.ADD, ActionType.UPDATE
CLAIM, VOLUME, CLASS = (
    EventResource.PERSISTENT_VOLUME_CLAIM,
    EventResource.PERSISTENT_VOLUME,
    EventResource.STORAGE_CLASS,
)


@pytest.mark.parametrize(
    ("resource", "action", "old", "new", "helps"),
    [
        pytest.param(CLASS, ADD, None, storage_class("c"), True, id="a class that waits for pods"),
        pytest.param(CLASS, ADD, None, storage_class("c", mode="Immediate"), False, id="one that does not"),
        pytest.param(CLASS, ADD, None, storage_class("c", mode=None), False, id="a class without the field"),
        pytest.param(CLAIM, ADD, None, BOUND, True, id="its claim"),
        pytest.param(CLAIM, UPDATE, claim("data"), BOUND, True, id="a change of its claim"),
        pytest.param(CLAIM, ADD, None, claim("other"), False, id="another claim"),
        pytest.param(CLAIM, ADD, None, claim("data", namespace="x"), False, id="of another namespace"),
        pytest.param(VOLUME, ADD, None, volume("any"), True, id="any volume"),
        pytest.param(
            VOLUME,
            UPDATE,
            volume("v", labels={ZONE: "a"}),
            volume("v", labels={ZONE: "b"}),
            True,
            id="it moved",
        ),
        pytest.param(
            VOLUME,
            UPDATE,
            volume("v", labels={ZONE: "a"}),
            volume("v", labels={ZONE: "a", "x": "y"}),
            False,
            id="it has another label",
        ),
        pytest.param(
            VOLUME, UPDATE, volume("v"), volume("v", labels={ZONE: "__"}), False, id="an empty label"
        ),
    ],
)
def test_events_requeue_the_pods_that_they_may_help(
    resource: Any, action: Any, old: Any, new: Any, helps: bool
):
    assert requeues(VolumeZone(), resource, WANTS, old, new, action) is helps


@pytest.mark.parametrize("action", [ADD, ActionType.UPDATE_NODE_LABEL])
def test_new_nodes_and_changed_labels_requeue_pods(action: Any):
    assert requeues(VolumeZone(), EventResource.NODE, WANTS, None, None, action)


def test_pods_without_claims_are_identical():
    assert VolumeZone().signature(pod("p", volumes=[{"name": "t", "projected": {}}])) == ()
    assert VolumeZone().signature(WANTS) is None
