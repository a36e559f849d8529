"""Expected values are those of csi-translation-lib's own tests, and of its rules applied by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from plugins.volumes.csi_migration import (
    in_tree_plugin,
    in_tree_plugin_named,
    inline_handle,
    translated,
    volume_handle,
)
from scheduler.objects.decode import typed_object
from scheduler.objects.storage import PersistentVolume
from scheduler.testing.samples import volume
from tests.support.builders import pod

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = (f"failure-domain.beta.kubernetes.io/{what}" for what in ("zone", "region"))
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
GCE = "projects/UNSPECIFIED"


def persistent(labels: dict[str, str] | None = None, **source: Any) -> PersistentVolume:
    return typed_object(volume("pv", labels=labels, csi=None, **source), PersistentVolume)


def inline(**source: Any) -> Any:
    return pod("p", volumes=[{"name": "v", **source}]).pod.spec.volumes[0]


@pytest.mark.parametrize(
    ("source", "plugin", "driver", "is_migrated"),
    [
        ("gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", True),
        ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", True),
        ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", True),
        ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com", True),
        ("portworxVolume", "kubernetes.io/portworx-volume", "pxd.portworx.com", True),
        ("azureFile", "kubernetes.io/azure-file", "file.csi.azure.com", False),
        ("vsphereVolume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", False),
    ],
)
def test_each_in_tree_plugin_has_its_driver(source: str, plugin: str, driver: str, is_migrated: bool):
    found = in_tree_plugin(inline(**{source: {}}))

    assert found is not None
    assert found == in_tree_plugin(persistent(**{source: {}}).spec) == in_tree_plugin_named(plugin)
    assert (found.name, found.driver, found.is_migrated) == (plugin, driver, is_migrated)


@pytest.mark.parametrize("source", ["emptyDir", "iscsi", "rbd", "csi", "nfs"])
def test_other_sources_have_no_driver(source: str):
    assert in_tree_plugin(inline(**{source: {}})) is None
    assert in_tree_plugin_named("kubernetes.io/no-provisioner") is None


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        pytest.param({}, f"{GCE}/zones/UNSPECIFIED/disks/d", id="no label"),
        pytest.param({ZONE: ""}, f"{GCE}/zones/UNSPECIFIED/disks/d", id="an empty label"),
        pytest.param({ZONE: "us-east1-a"}, f"{GCE}/zones/us-east1-a/disks/d", id="a zone"),
        pytest.param(
            {ZONE: "x", BETA_ZONE: "y"}, f"{GCE}/zones/y/disks/d", id="the beta label takes precedence"
        ),
        pytest.param({ZONE: "x", BETA_ZONE: ""}, f"{GCE}/zones/x/disks/d", id="unless it is empty"),
        pytest.param(
            {ZONE: "us-east1-a__us-east1-c"}, f"{GCE}/regions/us-east1/disks/d", id="zones of one region"
        ),
    ],
)
def test_the_handle_of_a_gce_disk_includes_its_zone(labels: dict[str, str], handle: str):
    assert volume_handle(persistent(labels, gcePersistentDisk={"pdName": "d"})) == handle
    assert inline_handle(inline(gcePersistentDisk={"pdName": "d"})) == f"{GCE}/zones/UNSPECIFIED/disks/d"


@pytest.mark.parametrize(
    ("source", "handle"),
    [
        pytest.param({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "vol-1", id="a plain id"),
        pytest.param({"awsElasticBlockStore": {"volumeID": "anything"}}, "anything", id="not looked at"),
        pytest.param({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}}, "vol-1", id="a URL"),
        pytest.param({"awsElasticBlockStore": {"volumeID": "aws:///vol-1/"}}, "vol-1", id="without a zone"),
        pytest.param({"awsElasticBlockStore": {"volumeID": "aws://z/vol%2D1?a#b"}}, "vol-1", id="escaped"),
        pytest.param({"azureDisk": {"diskURI": "/a/b"}}, "/a/b", id="an azure disk"),
        pytest.param({"azureDisk": {"diskURI": "/a/b", "kind": "managed"}}, "/a/b", id="a managed one"),
        pytest.param({"cinder": {"volumeID": "c"}}, "c", id="cinder"),
        pytest.param({"portworxVolume": {"volumeID": "p"}}, "p", id="portworx"),
    ],
)
def test_the_handle_of_other_disks_has_no_zone(source: dict[str, Any], handle: str):
    assert volume_handle(persistent({ZONE: "a"}, **source)) == handle
    assert inline_handle(inline(**source)) == handle


@pytest.mark.parametrize(
    ("source", "labels", "problem"),
    [
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://z/disk-1"}},
            {},
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://z/disk-1)",
            id="no id of a volume",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://vol-1"}},
            {},
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://vol-1)",
            id="a URL without a path",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://z/vol-%zz1"}},
            {},
            "failed to translate Kubernetes ID to EBS Volume ID Invalid disk name (aws://z/vol-%zz1): "
            'parse "aws://z/vol-%zz1": invalid URL escape "%zz"',
            id="no URL",
        ),
        pytest.param(
            {"azureDisk": {"diskURI": "u", "kind": "Dedicated"}},
            {},
            "kind(Dedicated) is not supported in csi migration",
            id="not a managed disk",
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d"}},
            {ZONE: "us-a__us-b"},
            "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: us-a",
            id="zones without a region",
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d"}},
            {ZONE: "us-east1-a__us-west1-a"},
            "failed to get region from zones: multiple or no regions gotten from zones, "
            "got: map[us-east1:{} us-west1:{}]",
            id="two regions",
        ),
    ],
)
def test_an_invalid_volume_has_the_message_of_upstream(
    source: dict[str, Any], labels: dict[str, str], problem: str
):
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        volume_handle(persistent(labels, **source))


def rule(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


@pytest.mark.parametrize(
    ("labels", "terms", "expected"),
    [
        pytest.param({}, None, None, id="no labels"),
        pytest.param({ZONE: "a"}, None, [[rule(EBS_ZONE, "a")]], id="a label"),
        pytest.param({ZONE: "b__ a__"}, None, [[rule(EBS_ZONE, "a", "b")]], id="a label of several"),
        pytest.param({ZONE: " "}, None, None, id="an empty label"),
        pytest.param({BETA_ZONE: "a"}, None, [[rule(EBS_ZONE, "a")]], id="the old label"),
        pytest.param({BETA_ZONE: "x", ZONE: "a"}, None, [[rule(EBS_ZONE, "a")]], id="the new label first"),
        pytest.param(
            {ZONE: "x"},
            [[rule(ZONE, "a"), rule("k", "v")]],
            [[rule(EBS_ZONE, "a"), rule("k", "v")]],
            id="a rule takes precedence over the label",
        ),
        pytest.param(
            {ZONE: "a"},
            [[rule("k", "v")], [rule("k", "w")]],
            [[rule("k", "v"), rule(EBS_ZONE, "a")], [rule("k", "w"), rule(EBS_ZONE, "a")]],
            id="a label and other rules",
        ),
        pytest.param(
            {ZONE: "a"},
            [[rule(BETA_ZONE, "b"), rule(BETA_REGION, "r")]],
            [[rule(EBS_ZONE, "b"), rule(REGION, "r")]],
            id="old rules get new names",
        ),
        pytest.param(
            {},
            [[rule(ZONE, "a"), rule(BETA_REGION, "r")]],
            [[rule(EBS_ZONE, "a"), rule(BETA_REGION, "r")]],
            id="an old region beside a new zone stays",
        ),
    ],
)
def test_zones_use_the_label_of_the_driver(
    labels: dict[str, str], terms: list[list[Any]] | None, expected: list[list[Any]] | None
):
    affinity = (
        {} if terms is None else {"required": {"nodeSelectorTerms": [{"matchExpressions": t} for t in terms]}}
    )
    before = persistent(
        labels, awsElasticBlockStore={"volumeID": "vol-1"}, nodeAffinity=affinity if terms else None
    )
    plugin = in_tree_plugin(before.spec)
    assert plugin is not None

    after = translated(before, plugin)

    assert after.spec.csi is not None
    assert (after.spec.csi.driver, after.spec.csi.volume_handle) == ("ebs.csi.aws.com", "vol-1")
    assert after.spec.aws_elastic_block_store is None
    required = after.spec.node_affinity.required if after.spec.node_affinity else None
    found = required and [
        [
            {"key": each.key, "operator": each.operator, "values": list(each.values)}
            for each in term.match_expressions
        ]
        for term in required.node_selector_terms
    ]
    assert found == expected


def test_azure_disks_and_portworx_volumes_keep_their_affinity():
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule(ZONE, "a")]}]}}
    for source in ({"azureDisk": {"diskURI": "u"}}, {"portworxVolume": {"volumeID": "p"}}):
        before = persistent({ZONE: "b"}, nodeAffinity=affinity, **source)
        plugin = in_tree_plugin(before.spec)
        assert plugin is not None

        assert translated(before, plugin).spec.node_affinity == before.spec.node_affinity
