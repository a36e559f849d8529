"""Which nodes can have a pod's volumes, and the reasons of rejections."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.volume_binding.node_volumes import REASONS, NodeRefusal
from scheduler.framework import SKIP, Code, Status
from scheduler.testing.fakes import FakeFeatures
from scheduler.testing.samples import (
    claim,
    csi_driver,
    csi_node,
    only_on,
    storage_capacity,
    storage_class,
    volume,
)
from tests.support.builders import node, pod
from tests.unit.plugins.volume_binding.small_cluster import HOST, LOCAL, ZONE, Stage, ephemeral, using

HOPELESS = "UnschedulableAndUnresolvable"
NOT_REACHED, NO_VOLUME, NO_ROOM, GONE = (REASONS[each] for each in NodeRefusal)
LOCAL_CLASS = storage_class("local", provisioner=LOCAL)


def available(name: str, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    fields = {"capacity": {"storage": size}, "storageClassName": "local", **spec}
    return volume(name, phase="Available", **fields)


def unbound(name: str, size: str = "1Gi", class_name: str = "local", **spec: Any) -> dict[str, Any]:
    return claim(name, class_name=class_name, storage=size, **spec)


def changed(obj: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def test_the_reasons_are_those_of_upstream():
    assert (NOT_REACHED, NO_VOLUME, NO_ROOM, GONE) == (
        "node(s) didn't match PersistentVolume's node affinity",
        "node(s) didn't find available persistent volumes to bind",
        "node(s) did not have enough free storage",
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    )


@pytest.mark.parametrize(
    "waiting",
    [
        pytest.param(pod("web"), id="no volumes"),
        pytest.param(pod("web", volumes=[{"name": "v", "emptyDir": {}}]), id="volumes without claims"),
        pytest.param(
            pod("web", volumes=[{"name": "v", "csi": {"driver": "secrets.example.com"}}]), id="inline volumes"
        ),
    ],
)
def test_pods_without_claims_are_skipped_and_identical(waiting: Any):
    stage = Stage()

    assert stage.pre_filter(waiting) is SKIP
    assert stage.plugin.signature(waiting) == ()
    assert stage.plugin.signature(using("data")) is None


LOST = claim("data", "pv") | {"status": {"phase": "Lost"}}
PRE_FILTER = [
    pytest.param(using("data"), [], 'persistentvolumeclaim "data" not found', id="no claim"),
    pytest.param(
        ephemeral(),
        [],
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "web-scratch"',
        id="no claim yet of an ephemeral volume",
    ),
    pytest.param(
        ephemeral(),
        [claim("web-scratch")],
        "PVC default/web-scratch was not created for pod default/web (pod is not owner)",
        id="a claim of another owner under the name of an ephemeral volume",
    ),
    pytest.param(
        using("data"),
        [LOST],
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
        id="a lost claim",
    ),
    pytest.param(
        using("data"),
        [changed(claim("data", "pv"), deletionTimestamp="2026-01-01T00:00:00Z"), volume("pv")],
        'persistentvolumeclaim "data" is being deleted',
        id="a claim that is being deleted",
    ),
    pytest.param(
        using("data"),
        [claim("data", class_name="early"), storage_class("early", mode="Immediate")],
        "pod has unbound immediate PersistentVolumeClaims",
        id="a claim that is to be bound at once",
    ),
    pytest.param(
        using("data"),
        [claim("data", class_name="nowhere")],
        "pod has unbound immediate PersistentVolumeClaims",
        id="a class that is not there",
    ),
    pytest.param(
        using("data"), [claim("data")], "pod has unbound immediate PersistentVolumeClaims", id="no class"
    ),
    pytest.param(
        using("data"),
        [unbound("data", volumeName="pv"), LOCAL_CLASS],
        "pod has unbound immediate PersistentVolumeClaims",
        id="a claim that names its volume and has it not yet",
    ),
    pytest.param(
        using("first", "second"),
        [claim("first"), LOST],
        'persistentvolumeclaim "second" not found',
        id="the first fault counts, and faults of claims before their modes",
    ),
]


@pytest.mark.parametrize(("waiting", "objects", "message"), PRE_FILTER)
def test_a_pod_with_claims_that_are_not_ready_is_rejected(waiting: Any, objects: Any, message: str):
    assert Stage(*objects).pre_filter(waiting) == Status.unschedulable(message, resolvable=False)


def test_a_class_without_a_binding_mode_is_an_error():
    status = Stage(unbound("data"), storage_class("local", mode=None)).pre_filter(using("data"))

    assert status is not None
    assert status.code is Code.ERROR
    assert status.message == 'VolumeBindingMode not set for StorageClass "local"'


# Bound claims.

TWO_TERMS = (
    only_on(HOST, "n1")["required"]["nodeSelectorTerms"]
    + only_on(HOST, "n3")["required"]["nodeSelectorTerms"]
)
REACHED = [
    pytest.param({}, {"n1", "n2", "n3"}, id="no affinity"),
    pytest.param({"nodeAffinity": {}}, {"n1", "n2", "n3"}, id="an affinity that requires nothing"),
    pytest.param({"nodeAffinity": only_on(HOST, "n2")}, {"n2"}, id="one host"),
    pytest.param({"nodeAffinity": only_on(ZONE, "a", "b")}, {"n1", "n2"}, id="some zones"),
    pytest.param({"nodeAffinity": only_on(ZONE, "c")}, set(), id="a zone without nodes"),
    pytest.param(
        {"nodeAffinity": {"required": {"nodeSelectorTerms": TWO_TERMS}}}, {"n1", "n3"}, id="any of two terms"
    ),
    pytest.param({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}, set(), id="no terms"),
    pytest.param({"nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}}, set(), id="an empty term"),
    pytest.param(
        {
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                    ]
                }
            }
        },
        {"n1", "n2", "n3"},
        id="fields of nodes, which are not looked at",
    ),
    pytest.param(
        {
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": ZONE, "operator": "Near", "values": ["a"]}]},
                        {"matchExpressions": [{"key": ZONE, "operator": "DoesNotExist"}]},
                    ]
                }
            }
        },
        {"n3"},
        id="a term that is none, beside one that is",
    ),
]


@pytest.mark.parametrize(("spec", "expected"), REACHED)
def test_a_bound_volume_is_reached_from_the_nodes_of_its_affinity(spec: Any, expected: set[str]):
    stage = Stage(claim("data", "pv"), volume("pv", **spec))

    assert stage.feasible(using("data")) == expected
    assert set(stage.refusals(using("data")).values()) <= {(HOPELESS, (NOT_REACHED,))}


def test_a_claim_with_a_deleted_volume_rejects_the_other_nodes():
    stage = Stage(claim("zonal", "pv"), volume("pv", nodeAffinity=only_on(ZONE, "a")), claim("gone", "none"))

    assert stage.refusals(using("zonal", "gone")) == {
        "n1": (HOPELESS, (GONE,)),
        "n2": (HOPELESS, (NOT_REACHED,)),
        "n3": (HOPELESS, (NOT_REACHED,)),
    }


EBS = "kubernetes.io/aws-ebs"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def ebs_volume(volume_id: str = "vol-1", name: str = "pv") -> dict[str, Any]:
    source = {"awsElasticBlockStore": {"volumeID": volume_id}}
    return volume(name, csi=None, nodeAffinity=only_on(ZONE, "a"), **source)


def test_a_migrated_volume_uses_the_labels_of_its_driver():
    stage = Stage(claim("data", "pv"), ebs_volume())
    stage.table.add_node(node("n4", labels={EBS_ZONE: "a"}))
    assert stage.feasible(using("data")) == {"n1"}

    stage.show(*(csi_node(name, {}, migrated=["kubernetes.io/gce-pd", EBS]) for name in ("n1", "n4", "gone")))

    assert stage.feasible(using("data")) == {"n4"}


def test_where_a_volume_is_migrated_follows_csi_nodes_and_nodes():
    stage = Stage(claim("data", "pv"), ebs_volume(), csi_node("n1", {}, migrated=[EBS]))
    stage.table.add_node(node("n4", labels={EBS_ZONE: "a"}))
    assert stage.feasible(using("data")) == set()

    stage.show(csi_node("n1", {}))
    assert stage.feasible(using("data")) == {"n1"}

    stage.show(csi_node("n5", {}, migrated=[EBS]))
    assert stage.feasible(using("data")) == {"n1"}
    stage.table.add_node(node("n5", labels={EBS_ZONE: "a"}))
    assert stage.feasible(using("data")) == {"n1", "n5"}

    stage.table.remove_node("n5")
    stage.table.add_node(node("not-migrated", labels={EBS_ZONE: "a"}))
    assert stage.feasible(using("data")) == {"n1"}


def test_an_untranslatable_volume_is_an_error_only_on_nodes_of_the_driver():
    stage = Stage(claim("data", "pv"), ebs_volume("aws://nonsense"), csi_node("n1", {}, migrated=[EBS]))
    refusals = stage.refusals(using("data"))

    assert refusals["n1"][0] == "Error"
    assert refusals["n1"][1][0].startswith("could not translate pv: failed to translate Kubernetes ID")
    assert stage.metrics.calls == [("scheduler_volume_scheduling_stage_error_total", ("predicate",), 1.0)]
    assert refusals["n2"] == (HOPELESS, (NOT_REACHED,))


def test_the_first_of_two_such_volumes_is_reported():
    stage = Stage(
        claim("data", "pv"),
        ebs_volume("aws://first"),
        claim("more", "pv-2"),
        ebs_volume("aws://second", "pv-2"),
        csi_node("n1", {}, migrated=[EBS]),
    )

    assert "aws://first" in stage.refusals(using("data", "more"))["n1"][1][0]


# Claims that are bound to an existing volume.

FITS = [
    pytest.param({}, {}, True, id="identical"),
    pytest.param({}, {"size": "2Gi"}, True, id="a larger one"),
    pytest.param({"size": "1001M"}, {"size": "1G"}, False, id="a smaller one"),
    pytest.param({"size": "1Gi"}, {"size": "1073741824"}, True, id="the same in other words"),
    pytest.param({"size": "1000m"}, {"size": "999m"}, False, id="less than a byte too small"),
    pytest.param({"modes": ["ReadWriteMany"]}, {}, False, id="lacks a mode"),
    pytest.param({}, {"accessModes": ["ReadWriteMany", "ReadWriteOnce"]}, True, id="has more modes"),
    pytest.param({"volumeMode": "Block"}, {}, False, id="a block device is wanted"),
    pytest.param({"volumeMode": "Filesystem"}, {}, True, id="a file system, by default"),
    pytest.param({"volumeAttributesClassName": "gold"}, {}, False, id="other attributes are wanted"),
    pytest.param({}, {"volumeAttributesClassName": "gold"}, False, id="it has other attributes"),
    pytest.param({"volumeAttributesClassName": ""}, {}, True, id="no attributes are wanted"),
    pytest.param({"selector": {"matchLabels": {"tier": "x"}}}, {}, False, id="labels it has not"),
    pytest.param(
        {"selector": {"matchLabels": {"tier": "x"}}}, {"labels": {"tier": "x"}}, True, id="labels it has"
    ),
    pytest.param({"selector": {}}, {}, True, id="an empty selector"),
    pytest.param({}, {"storageClassName": "other"}, False, id="of another class"),
    pytest.param({}, {"phase": "Released"}, False, id="not available"),
    pytest.param(
        {}, {"claimRef": {"namespace": "default", "name": "other"}}, False, id="held for another claim"
    ),
    pytest.param({}, {"claimRef": {}}, False, id="held without a claim name"),
]


@pytest.mark.parametrize(("asked", "offered", "expected"), FITS)
def test_a_claim_gets_a_volume_that_fits(asked: Any, offered: Any, expected: bool):
    size, fields = offered.get("size", "1Gi"), {key: offered[key] for key in offered if key != "size"}
    offer = {"capacity": {"storage": size}, "storageClassName": "local", "phase": "Available", **fields}
    stage = Stage(unbound("data", **asked), LOCAL_CLASS, volume("pv", **offer))

    if expected:
        assert stage.on(using("data"), "n1") == (["data -> pv"], [])
    else:
        assert stage.refusals(using("data"))["n1"] == (HOPELESS, (NO_VOLUME,))


def test_a_terminating_volume_is_not_chosen():
    going = changed(available("pv"), deletionTimestamp="2026-01-01T00:00:00Z")

    assert not Stage(unbound("data"), LOCAL_CLASS, going).feasible(using("data"))


def test_each_node_gets_the_smallest_volume_that_it_reaches():
    stage = Stage(
        unbound("data"),
        LOCAL_CLASS,
        available("everywhere", "5Gi"),
        available("in-zone-a", "3Gi", nodeAffinity=only_on(ZONE, "a")),
        available("on-n1-large", "4Gi", nodeAffinity=only_on(HOST, "n1")),
        available("on-n2", "2Gi", nodeAffinity=only_on(HOST, "n2")),
        available("on-n3-b", nodeAffinity=only_on(HOST, "n3")),
        available("on-n3-a", nodeAffinity=only_on(HOST, "n3")),
    )

    assert [stage.on(using("data"), name)[0] for name in ("n1", "n2", "n3")] == [
        ["data -> in-zone-a"],
        ["data -> on-n2"],
        ["data -> on-n3-a"],
    ]


def test_claims_of_one_pod_never_take_the_same_volume():
    stage = Stage(
        unbound("large", "2Gi"),
        unbound("small", "1Gi"),
        LOCAL_CLASS,
        *(available(f"n1-{size}", size, nodeAffinity=only_on(HOST, "n1")) for size in ("1Gi", "3Gi")),
        *(available(f"n2-{size}", size, nodeAffinity=only_on(HOST, "n2")) for size in ("2Gi", "4Gi")),
        available("n3", "2Gi", nodeAffinity=only_on(HOST, "n3")),
    )
    waiting = using("large", "small")

    assert stage.on(waiting, "n1")[0] == ["small -> n1-1Gi", "large -> n1-3Gi"]
    assert stage.on(waiting, "n2")[0] == ["small -> n2-2Gi", "large -> n2-4Gi"]
    assert stage.refusals(waiting) == {"n3": (HOPELESS, (NO_VOLUME,))}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_several_claims_need_as_many_volumes_on_one_node(count: int):
    claims = [f"c{number}" for number in range(count)]
    stage = Stage(
        *(unbound(name) for name in claims),
        LOCAL_CLASS,
        *(available(f"a{n}", nodeAffinity=only_on(HOST, "n1")) for n in range(3)),
        available("b", nodeAffinity=only_on(ZONE, "b")),
        available("anywhere", "9Gi"),
    )
    expected = {"n1": 4, "n2": 2, "n3": 1}

    assert stage.feasible(using(*claims)) == {name for name, most in expected.items() if most >= count}


HELD = {"namespace": "default", "name": "data"}


@pytest.mark.parametrize(
    ("reference", "is_taken"),
    [
        pytest.param(HELD, True, id="by name"),
        pytest.param({**HELD, "uid": "uid-of-claim-data"}, True, id="by its uid"),
        pytest.param({**HELD, "uid": "of-its-predecessor"}, False, id="for a claim of that name before"),
        pytest.param({**HELD, "namespace": "other"}, False, id="for one of another namespace"),
    ],
)
def test_a_volume_held_for_the_claim_is_chosen_before_a_smaller_one(reference: Any, is_taken: bool):
    held = available("held", "5Gi", claimRef=reference, accessModes=["ReadWriteMany"])
    stage = Stage(unbound("data"), LOCAL_CLASS, held, available("small"))

    assert stage.on(using("data"), "n1")[0] == [f"data -> {'held' if is_taken else 'small'}"]


def test_an_unreachable_held_volume_excludes_all_others():
    held = available("held", claimRef=HELD, nodeAffinity=only_on(HOST, "n1"))
    stage = Stage(unbound("data"), LOCAL_CLASS, held, available("small"))

    assert stage.feasible(using("data")) == {"n1"}


def test_a_pod_that_names_a_claim_twice_needs_two_volumes_as_upstream():
    held = available("held", claimRef=HELD)
    stage = Stage(unbound("data"), LOCAL_CLASS, held, available("on-n1", nodeAffinity=only_on(HOST, "n1")))

    assert stage.on(using("data", "data"), "n1")[0] == ["data -> held", "data -> on-n1"]
    assert stage.feasible(using("data", "data")) == {"n1"}


def test_an_invalid_selector_is_an_error_on_every_node():
    broken = unbound("data", selector={"matchExpressions": [{"key": "tier", "operator": "Near"}]})
    refusals = Stage(broken, LOCAL_CLASS).refusals(using("data"))

    assert {code for code, _ in refusals.values()} == {"Error"}
    assert refusals["n1"][1][0].startswith("error creating internal label selector for claim: default/data: ")


# Claims whose volume is provisioned.


def test_a_volume_is_provisioned_if_the_class_permits_it_and_none_is_available():
    made = storage_class("made", topologies=[{ZONE: ["a", "c"]}, {HOST: ["n3"], ZONE: ["a"]}])
    stage = Stage(
        unbound("data", class_name="made"),
        made,
        available("ready", storageClassName="made", nodeAffinity=only_on(HOST, "n3")),
    )

    assert stage.on(using("data"), "n1") == ([], ["data"])
    assert stage.on(using("data"), "n3") == (["data -> ready"], [])
    assert stage.refusals(using("data")) == {"n2": (HOPELESS, (NO_VOLUME,))}


@pytest.mark.parametrize(
    ("topologies", "expected"),
    [
        pytest.param([], {"n1", "n2", "n3"}, id="none"),
        pytest.param([{}], set(), id="an empty term"),
        pytest.param([{ZONE: []}], set(), id="one without values"),
        pytest.param([{"not a key": ["a"]}, {ZONE: ["a"]}], {"n1"}, id="one that is none beside one that is"),
    ],
)
def test_special_topologies_of_a_class(topologies: Any, expected: set[str]):
    stage = Stage(unbound("data", class_name="made"), storage_class("made", topologies=topologies))

    assert stage.feasible(using("data")) == expected


@pytest.mark.parametrize("provisioner", ["", LOCAL])
def test_a_class_without_a_provisioner_provisions_no_volumes(provisioner: str):
    stage = Stage(unbound("data"), storage_class("local", provisioner=provisioner))

    assert stage.refusals(using("data"))["n1"] == (HOPELESS, (NO_VOLUME,))


def test_a_claim_with_a_selected_node_goes_there_without_an_available_volume():
    selected = {"volume.kubernetes.io/selected-node": "n2"}
    stage = Stage(
        unbound("data", class_name="made", annotations=selected),
        storage_class("made"),
        available("ready", storageClassName="made"),
        claim("zonal", "pv"),
        volume("pv", nodeAffinity=only_on(ZONE, "a", "b")),
    )

    assert stage.on(using("data"), "n2") == ([], ["data"])
    assert stage.refusals(using("zonal", "data")) == {
        "n1": (HOPELESS, (NO_VOLUME,)),
        "n3": (HOPELESS, (NOT_REACHED, NO_VOLUME)),
    }


def test_claims_with_different_selected_nodes_are_rejected():
    nodes = {"a": "n1", "b": "n2"}
    claims = [
        unbound(name, class_name="made", annotations={"volume.kubernetes.io/selected-node": where})
        for name, where in nodes.items()
    ]

    assert not Stage(*claims, storage_class("made")).feasible(using("a", "b"))


ROOM = {"labels": {ZONE: "a"}}
CAPACITIES = [
    pytest.param([], set(), id="no reports"),
    pytest.param([("5Gi", ROOM)], {"n1"}, id="enough in a zone"),
    pytest.param([("4Gi", ROOM)], set(), id="too little"),
    pytest.param([("9Gi", {**ROOM, "maximumVolumeSize": "4Gi"})], set(), id="enough, but not in one piece"),
    pytest.param([("1Gi", {**ROOM, "maximumVolumeSize": "5Gi"})], {"n1"}, id="the largest piece counts"),
    pytest.param([(None, ROOM)], set(), id="no amount"),
    pytest.param([("9Gi", {})], set(), id="of no topology"),
    pytest.param([("9Gi", {"labels": {}})], {"n1", "n2", "n3"}, id="of any topology"),
    pytest.param([("1Gi", ROOM), ("9Gi", {"labels": {HOST: "n1"}})], {"n1"}, id="any one is enough"),
    pytest.param(
        [("9Gi", {"nodeTopology": {"matchExpressions": [{"key": ZONE, "operator": "DoesNotExist"}]}})],
        {"n3"},
        id="of nodes without a zone",
    ),
    pytest.param(
        [("9Gi", {"nodeTopology": {"matchExpressions": [{"key": ZONE, "operator": "Near"}]}})],
        set(),
        id="of a topology that is none",
    ),
]


@pytest.mark.parametrize(("capacities", "expected"), CAPACITIES)
def test_the_capacity_that_a_driver_reports_must_suffice(capacities: Any, expected: set[str]):
    stage = Stage(
        unbound("data", "5Gi", class_name="made"),
        storage_class("made"),
        csi_driver(),
        storage_capacity("of-another-class", "other", "99Gi", labels={}),
        *(
            storage_capacity(f"room-{number}", "made", capacity, **more)
            for number, (capacity, more) in enumerate(capacities)
        ),
    )

    assert stage.feasible(using("data")) == expected
    assert set(stage.refusals(using("data")).values()) <= {(HOPELESS, (NO_ROOM,))}


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([], id="no driver"),
        pytest.param([csi_driver(storage_capacity=False)], id="a driver that reports no capacity"),
        pytest.param([csi_driver(storage_capacity=None)], id="a driver without the setting"),
    ],
)
def test_capacity_is_not_checked_for_drivers_that_report_none(objects: Any):
    stage = Stage(unbound("data", class_name="made"), storage_class("made"), *objects)

    assert stage.feasible(using("data")) == {"n1", "n2", "n3"}


def test_a_claim_without_a_size_needs_no_capacity():
    anything = unbound("data", class_name="made")
    del anything["spec"]["resources"]["requests"]["storage"]

    assert stage_with_driver(anything).feasible(using("data")) == {"n1", "n2", "n3"}


def stage_with_driver(*objects: dict[str, Any]) -> Stage:
    return Stage(storage_class("made"), csi_driver(), *objects)


def test_changed_capacity_is_visible_to_the_next_pod():
    stage = stage_with_driver(unbound("data", "5Gi", class_name="made"))
    for capacity, expected in (("4Gi", set[str]()), ("5Gi", {"n1"}), ("1Gi", set[str]()), ("6Gi", {"n1"})):
        stage.show(storage_capacity("room", "made", capacity, labels={ZONE: "a"}))
        assert stage.feasible(using("data")) == expected
    del stage.table.watch_kind("storage.k8s.io/v1/csistoragecapacities")["kube-system/room"]

    assert not stage.feasible(using("data"))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        pytest.param("", set(), id="a claim without a class"),
        pytest.param("gold", {"n1", "n2", "n3"}, id="a claim with one"),
    ],
)
def test_without_the_gate_claims_may_have_no_attributes_class(attributes: str, expected: set[str]):
    stage = Stage(
        unbound("data", volumeAttributesClassName=attributes),
        LOCAL_CLASS,
        available("pv"),
        features=FakeFeatures("1.34", VolumeAttributesClass=False),
    )
    message = (
        "unsupported volumeAttributesClassName is set on claim default/data when the feature-gate "
        "VolumeAttributesClass is disabled"
    )

    assert stage.refusals(using("data")) == dict.fromkeys(expected, ("Error", (message,)))


# Results without nodes.


def test_a_cluster_without_nodes_has_no_rejections():
    stage = Stage(unbound("data"), LOCAL_CLASS, available("pv"))
    for name in ("n1", "n2", "n3"):
        stage.table.remove_node(name)

    assert stage.refusals(using("data")) == {}
