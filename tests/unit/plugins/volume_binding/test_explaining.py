"""The explanations of rejections by VolumeBinding."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.samples import (
    DRIVER,
    claim,
    csi_driver,
    only_on,
    storage_capacity,
    storage_class,
    volume,
)
from tests.unit.plugins.volume_binding.small_cluster import HOST, LOCAL, ZONE, Stage, ephemeral, using


def told(stage: Stage, waiting: Any, node: str | None) -> list[str]:
    snapshot = stage.table.snapshot()
    row = None if node is None else snapshot.row_of(node)
    return list(stage.plugin.why(waiting, snapshot, None if row is None else snapshot.node_info(row)))


def available(name: str, **spec: Any) -> dict[str, Any]:
    return volume(name, phase="Available", **{"storageClassName": "local", **spec})


STAYS = "what would help: free capacity on a node with such labels, since the volume cannot move"


def test_a_bound_volume_elsewhere_is_named_with_the_different_labels():
    stage = Stage(claim("data", "pv"), volume("pv", nodeAffinity=only_on(ZONE, "b", "c")))

    assert told(stage, using("data"), "n1") == [
        f"claim data is bound to volume pv, which is only for nodes with {ZONE} in (b, c); this node has {ZONE}=a",
        STAYS,
    ]
    assert told(stage, using("data"), "n2") == []
    assert told(stage, using("data"), "n3")[0].endswith(f"; this node has no {ZONE}")


def test_only_rejecting_claims_of_several_are_named():
    stage = Stage(
        claim("near", "v1"), volume("v1"), claim("far", "v2"), volume("v2", nodeAffinity=only_on(ZONE, "b"))
    )

    (what, _) = told(stage, using("near", "far"), "n1")
    assert what.startswith("claim far is bound to volume v2")


def test_a_deleted_bound_volume_is_named():
    assert told(Stage(claim("data", "pv")), using("data"), "n1") == [
        "claim data is bound to volume pv, which does not exist"
    ]


def test_unsuitable_volumes_are_listed_with_their_problems():
    others = {"namespace": "default", "name": "other", "uid": "u"}
    former = {"namespace": "default", "name": "data", "uid": "former"}
    stage = Stage(
        storage_class("local", provisioner=LOCAL),
        claim("data", class_name="local", storage="10Gi", selector={"matchLabels": {"disk": "fast"}}),
        available("small", nodeAffinity=only_on(HOST, "n1"), capacity={"storage": "5Gi"}),
        available("tiny", capacity={"storage": "5Gi"}),
        available("read", capacity={"storage": "10Gi"}, accessModes=["ReadOnlyMany"]),
        available("raw", capacity={"storage": "10Gi"}, volumeMode="Block"),
        available("slow", capacity={"storage": "10Gi"}),
        available("held", claimRef=others),
        available("kept", claimRef=former),
        volume("used", phase="Released", storageClassName="local", capacity={"storage": "10Gi"}),
        available("far", nodeAffinity=only_on(ZONE, "b")),
        available("foreign", storageClassName="other"),
    )
    assert told(stage, using("data"), "n2") == [
        'claim data needs a ReadWriteOnce volume of 10Gi or more; of the 9 volumes of class "local":',
        "  far has only 1Gi",
        "  held is taken, by claim default/other",
        "  kept is taken, by a deleted claim default/data",
        "  raw is of another volumeMode or VolumeAttributesClass than a ReadWriteOnce volume of 10Gi or more",
        "  read is not ReadWriteOnce",
        "  slow lacks the labels of the claim's selector",
        "  tiny has only 5Gi",
        "  used is not Available but Released",
        f"  small is only for nodes with {HOST} in (n1)",
        'what would help: such a volume of class "local" that this node reaches; its class has no provisioner',
    ]


def test_a_volume_taken_by_another_claim_of_the_pod_is_named():
    stage = Stage(
        storage_class("local", provisioner=LOCAL),
        claim("one", class_name="local"), claim("two", class_name="local"), available("only"),
    )  # fmt: skip

    assert told(stage, using("one", "two"), "n1")[1] == "  only is taken by another claim of this pod"


def test_a_class_without_volumes_is_reported():
    stage = Stage(storage_class("local", provisioner=LOCAL), claim("data", class_name="local"))

    assert told(stage, using("data"), "n1")[0] == (
        "claim data needs a ReadWriteOnce volume of 1Gi or more; there is none"
    )


def test_a_class_that_provisions_elsewhere_has_its_topologies_listed():
    stage = Stage(storage_class("slow", topologies=[{ZONE: ["b"]}]), claim("data", class_name="slow"))

    assert told(stage, using("data"), "n1")[1:] == [
        f'claim data: class "slow" provisions volumes only for nodes with {ZONE} in (b); this node has {ZONE}=a',
        "what would help: these labels of the node among the class's allowedTopologies",
    ]
    assert told(stage, using("data"), "n2") == []


@pytest.mark.parametrize(
    ("capacities", "what"),
    [
        pytest.param(
            [], "nothing about this node (none of 0 CSIStorageCapacity objects is for it)", id="none"
        ),
        pytest.param(
            [storage_capacity("b", "fast", "20Gi", labels={ZONE: "b"})],
            "nothing about this node (none of 1 CSIStorageCapacity objects is for it)",
            id="of other nodes",
        ),
        pytest.param(
            [
                storage_capacity("a", "fast", "5Gi", labels={ZONE: "a"}),
                storage_capacity("c", "fast", "2Gi", labels={ZONE: "a"}),
            ],
            "5Gi at most on this node (CSIStorageCapacity a), and 10Gi are requested",
            id="too little",
        ),
        pytest.param(
            [storage_capacity("a", "fast", "50Gi", labels={ZONE: "a"}, maximumVolumeSize="6Gi")],
            "6Gi at most on this node (CSIStorageCapacity a), and 10Gi are requested",
            id="too little for one volume",
        ),
        pytest.param(
            [storage_capacity("a", "fast", None, labels={ZONE: "a"})],
            "storage for this node, but not how much",
            id="an unknown amount",
        ),
    ],
)
def test_a_full_driver_is_reported_with_its_capacity(capacities: list[Any], what: str):
    stage = Stage(
        storage_class("fast"), csi_driver(), claim("data", class_name="fast", storage="10Gi"), *capacities
    )

    assert told(stage, using("data"), "n1")[1:] == [
        f'claim data: driver {DRIVER} reports of class "fast" {what}',
        "what would help: 10Gi free in a CSIStorageCapacity for this node, or a volume of that size",
    ]


def test_a_claim_that_can_be_provisioned_is_not_listed_beside_one_that_cannot():
    stage = Stage(
        storage_class("slow", topologies=[{ZONE: ["b"]}]), storage_class("any"),
        claim("bad", class_name="slow"), claim("good", class_name="any"),
    )  # fmt: skip

    assert not any("good" in line for line in told(stage, using("bad", "good"), "n1"))


def test_a_claim_with_capacity_is_not_listed_beside_one_without():
    stage = Stage(
        storage_class("full"), storage_class("free"), csi_driver(),
        storage_capacity("f", "free", "5Gi", labels={ZONE: "a"}),
        claim("bad", class_name="full"), claim("good", class_name="free"),
    )  # fmt: skip

    said = told(stage, using("bad", "good"), "n1")
    assert any("bad" in line for line in said)
    assert not any("good" in line for line in said)


def test_a_claim_provisioned_for_another_node_names_it():
    selected = {"volume.kubernetes.io/selected-node": "n2"}
    stage = Stage(storage_class("any"), claim("data", class_name="any", annotations=selected))

    assert told(stage, using("data"), "n1") == [
        "claim data: its volume is to be provisioned for node n2 (annotation volume.kubernetes.io/selected-node)"
    ]
    assert told(stage, using("data"), "n2") == []


@pytest.mark.parametrize(
    ("objects", "lines"),
    [
        pytest.param(
            [],
            [
                'volume v0: persistentvolumeclaim "data" not found',
                "what would help: a PersistentVolumeClaim data in namespace default",
            ],
            id="no such claim",
        ),
        pytest.param(
            [claim("data")],
            [
                "claim data has no volume yet, and is of no class",
                "what would help: a volume for it: a ReadWriteOnce volume of 1Gi or more",
            ],
            id="no class",
        ),
        pytest.param(
            [claim("data", class_name="nope")],
            [
                'claim data has no volume yet, and is of class "nope", which does not exist',
                'what would help: a StorageClass "nope", or a volume for it: a ReadWriteOnce volume of 1Gi or more',
            ],
            id="no such class",
        ),
        pytest.param(
            [claim("data", class_name="now"), storage_class("now", mode="Immediate")],
            [
                (
                    'claim data has no volume yet; its class "now" binds it before the pod has a node, by the '
                    f"provisioner {DRIVER}"
                )
            ],
            id="not provisioned yet",
        ),
        pytest.param(
            [claim("data", class_name="now"), storage_class("now", mode="Immediate", provisioner=LOCAL)],
            [
                (
                    'claim data has no volume yet; its class "now" binds it before the pod has a node, by '
                    "an administrator who creates volumes manually"
                )
            ],
            id="no provisioner",
        ),
        pytest.param(
            [claim("data", class_name="odd"), storage_class("odd", mode=None)],
            ['claim data: its class "odd" has no volumeBindingMode'],
            id="a class without a mode",
        ),
        pytest.param(
            [claim("data", volumeName="pv")],
            ["claim data names volume pv, which does not exist"],
            id="it names a volume that is not there",
        ),
        pytest.param(
            [claim("data", volumeName="pv"), volume("pv", claimRef={"namespace": "x", "name": "y"})],
            ["claim data names volume pv, which is bound to claim x/y"],
            id="it names a volume of others",
        ),
        pytest.param(
            [claim("data", volumeName="pv"), volume("pv")],
            ["claim data names volume pv; the volume controller has not bound them yet"],
            id="it names a volume",
        ),
    ],
)
def test_errors_of_claims_for_every_node(objects: list[Any], lines: list[str]):
    stage = Stage(*objects)

    assert told(stage, using("data"), None) == lines
    assert told(stage, using("data"), "n1") == lines, "so it is when it has become so since"


def test_an_ephemeral_volume_is_reported_with_its_own_name():
    assert told(Stage(), ephemeral(), None) == [
        'volume scratch: waiting for ephemeral volume controller to create the persistentvolumeclaim "web-scratch"'
    ]


def test_a_pod_with_valid_claims_has_no_reasons():
    stage = Stage(claim("data", "pv"), volume("pv"))

    assert told(stage, using("data"), None) == []
    assert told(stage, using("data"), "n1") == []
