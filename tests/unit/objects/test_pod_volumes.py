from __future__ import annotations

from typing import Any

import pytest

from scheduler.objects.pod_volumes import CLAIM, EPHEMERAL_CLAIM, PodClaim, StorageUse
from tests.support.builders import pod

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
            [("RBD", ("m", "p", "i"), True), ("RBD", ("n", "p", "i"), True)],
            id="an image, once for each monitor",
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
