"""Storage objects, and the volumes of pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.errors import ObjectError
from scheduler.objects.decode import STRUCTS, decode_object, typed_object
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.storage import (
    CLAIM,
    EPHEMERAL_CLAIM,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PodClaim,
    StorageClass,
    StorageUse,
    VolumeAttachment,
)
from scheduler.testing.samples import claim, csi_node, storage_class, volume, volume_attachment
from tests.support.builders import pod

OLD_CLASS = {"volume.beta.kubernetes.io/storage-class": "old"}


def test_a_claim_has_its_volume_modes_and_request():
    found = typed_object(claim("data", "pv", class_name="c", storage="1.5Gi"), PersistentVolumeClaim)

    assert (found.metadata.namespace, found.metadata.name) == ("default", "data")
    assert (found.spec.volume_name, found.spec.access_modes) == ("pv", ("ReadWriteOnce",))
    assert found.spec.resources.requests.quantity == parse_quantity("1536Mi")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"class_name": "c"}, "c", id="in the spec"),
        pytest.param(
            {"class_name": "c", "annotations": OLD_CLASS}, "old", id="the old annotation takes precedence"
        ),
        pytest.param(
            {"class_name": "c", "annotations": dict.fromkeys(OLD_CLASS, "")}, "", id="also if it is empty"
        ),
    ],
)
def test_the_storage_class_of_a_claim(fields: Any, name: str):
    assert typed_object(claim("data", **fields), PersistentVolumeClaim).class_name == name


def test_the_storage_class_of_a_volume():
    plain = typed_object(volume("pv", storageClassName="c"), PersistentVolume)
    old = typed_object(
        {"metadata": {"name": "pv", "annotations": OLD_CLASS}, "spec": {"storageClassName": "c"}},
        PersistentVolume,
    )

    assert (plain.class_name, old.class_name) == ("c", "old")


def test_an_unset_amount_differs_from_zero():
    found = typed_object({"metadata": {"name": "c"}, "capacity": "5Gi"}, CSIStorageCapacity)

    assert found.largest_volume == parse_quantity("5Gi")
    larger = typed_object({"capacity": "5Gi", "maximumVolumeSize": "1Gi"}, CSIStorageCapacity)
    assert larger.largest_volume == parse_quantity("1Gi")
    assert CSIStorageCapacity().largest_volume is None
    assert PersistentVolume().spec.capacity.storage is None
    assert PersistentVolume().spec.capacity.quantity == parse_quantity("0")


def test_limits_exist_only_for_drivers_that_set_one():
    found = typed_object(csi_node("n", {"a": 3, "b": None, "c": 0}), CSINode)

    assert found.limits == {"a": 3, "c": 0}


def test_missing_and_null_are_the_same():
    attachment = volume_attachment("a", node="n", volume=None)
    attachment["spec"]["source"]["persistentVolumeName"] = None

    assert typed_object(attachment, VolumeAttachment).spec.source.persistent_volume_name is None
    assert typed_object(storage_class("c", mode=None), StorageClass).volume_binding_mode is None
    drivers = {"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "d", "allocatable": None}]}}
    assert typed_object(drivers, CSINode).limits == {}


@pytest.mark.parametrize(
    ("kind", "found", "expected"),
    [
        pytest.param(
            "v1/persistentvolumeclaims",
            claim("data", storage="much"),
            "PersistentVolumeClaim default/data: spec.resources.requests: "
            "storage: 'much' is not a quantity: expected a number and a suffix, as in 100m, 1.5Gi or 2e3",
            id="a claim for no amount",
        ),
        pytest.param(
            "v1/persistentvolumeclaims",
            claim("data", volumeName=7),
            "PersistentVolumeClaim default/data: spec.volumeName: expected `str`, got `int`",
            id="a claim of a number",
        ),
        pytest.param(
            "v1/persistentvolumes",
            volume("pv", csi="disk"),
            "PersistentVolume pv: spec.csi: expected `object | null`, got `str`",
            id="a volume of text",
        ),
        pytest.param(
            "storage.k8s.io/v1/csinodes",
            csi_node("n", {"d": "many"}),  # type: ignore[dict-item]
            "CSINode n: spec.drivers[0].allocatable.count: expected `int | null`, got `str`",
            id="a limit that is no number",
        ),
        pytest.param(
            "storage.k8s.io/v1/csistoragecapacities",
            {"metadata": {"name": "c", "namespace": "ns"}, "capacity": "1 GB"},
            "CSIStorageCapacity ns/c: capacity: '1 GB' is not a quantity: "
            "expected a number and a suffix, as in 100m, 1.5Gi or 2e3",
            id="a capacity that is none",
        ),
    ],
)
def test_an_undecodable_object_is_named_with_its_field(kind: str, found: Any, expected: str):
    with pytest.raises(ObjectError) as caught:
        decode_object(msgspec.json.encode(found), STRUCTS[kind])
    assert str(caught.value) == expected


def test_a_decodable_object_is_returned_unchanged():
    whole = {**claim("data"), "more": [None]}

    assert decode_object(msgspec.json.encode(whole), PersistentVolumeClaim) == whole


FILES = {"name": "tmp", "emptyDir": {}}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "db"}}
SCRATCH = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


def test_claims_are_in_the_order_of_the_volumes_with_repeats():
    found = pod("web", namespace="shop", volumes=[FILES, SCRATCH, DATA, {**DATA, "name": "again"}])

    assert found.claims == (
        PodClaim("shop/web-scratch", "web-scratch", True, "scratch"),
        PodClaim("shop/db", "db", False, "data"),
        PodClaim("shop/db", "db", False, "again"),
    )


def test_a_pod_without_volumes_has_no_claims_and_no_volume_state():
    plain = pod("web")

    assert plain.claims == plain.storage_volumes == ()
    assert not any("volumes" in kept or "claims" in kept for kept in vars(plain))


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        pytest.param(DATA, [(CLAIM, "default/db", False)], id="a claim"),
        pytest.param(SCRATCH, [(EPHEMERAL_CLAIM, "default/p-scratch", False)], id="an ephemeral claim"),
        pytest.param(FILES, [], id="files"),
        pytest.param({"azureDisk": {"diskURI": "d"}}, [], id="a disk that any pods share"),
        pytest.param(
            {"rbd": {"monitors": ["m", "n"], "pool": "p", "image": "i", "readOnly": True}},
            [("RBD", ("p", "i"), True)],
            id="an image, without its monitors",
        ),
    ],
)
def test_the_storage_uses_of_a_pod_are_its_attached_volumes(source: Any, uses: list[Any]):
    found = pod("p", volumes=[{"name": "v", **source}]).storage_uses

    assert found == {StorageUse(*use) for use in uses}


@pytest.mark.parametrize(
    ("volumes", "same"),
    [
        pytest.param([FILES, DATA], True, id="other files"),
        pytest.param([DATA, DATA], False, id="another claim"),
        pytest.param([], False, id="none"),
    ],
)
def test_pods_with_the_same_attached_volumes_have_equal_storage(volumes: list[Any], same: bool):
    assert pod("p", volumes=[DATA]).takes_the_same_as(pod("p", volumes=volumes)) is same
