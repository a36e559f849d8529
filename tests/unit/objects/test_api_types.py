from __future__ import annotations

import pytest

from scheduler.objects.api_types import META, ApiField, api_type


def field(type_name: str, name: str, api_version: str = "v1") -> ApiField:
    return api_type(api_version, type_name).by_name[name]


def test_a_field_has_its_format_and_merge_rules():
    assert field("ServiceSpec", "ports") == ApiField(
        number=1,
        name="ports",
        container="[]",
        scalar="",
        type_name=("v1", "ServicePort"),
        optional=False,
        in_json_at_zero=False,
        patch_key="port",
        apply_keys=("port", "protocol"),
        whole=False,
    )


@pytest.mark.parametrize(
    ("found", "type_name"),
    [
        pytest.param(field("Event", "series"), ("v1", "EventSeries"), id="its own apiVersion"),
        pytest.param(
            field("Event", "series", "events.k8s.io/v1"), ("events.k8s.io/v1", "EventSeries"), id="not v1's"
        ),
        pytest.param(field("Event", "metadata"), (META, "ObjectMeta"), id="common fields"),
        pytest.param(field("DeploymentSpec", "template", "apps/v1"), ("v1", "PodTemplateSpec"), id="pods"),
        pytest.param(field("ConfigMap", "data"), None, id="none"),
    ],
)
def test_a_type_is_searched_in_three_packages(found: ApiField, type_name: tuple[str, str] | None):
    assert found.type_name == type_name


def test_zero_is_written_behind_a_pointer_and_where_go_writes_it():
    spec = api_type("v1", "PodSpec").by_name

    assert spec["priority"].optional
    assert field("Container", "name").in_json_at_zero
    assert not spec["nodeName"].optional
    assert not spec["nodeName"].in_json_at_zero


def test_the_fields_of_embedded_types_are_inlined():
    volume = api_type("v1", "Volume")

    assert [one.name for one in volume.fields] == ["name", ""]
    assert volume.by_name["emptyDir"].type is api_type("v1", "EmptyDirVolumeSource")


def test_kind_and_api_version_are_fields_of_objects_in_json():
    assert {"kind", "apiVersion"} <= api_type("v1", "PersistentVolumeClaim").by_name.keys()
    assert not {"kind", "apiVersion"} & api_type("v1", "PodTemplateSpec").by_name.keys()


def test_lists_and_maps_may_be_owned_by_item_or_as_a_whole():
    assert field("ObjectMeta", "finalizers").apply_keys == ()
    assert field("PodStatus", "hostIPs").apply_keys is None
    assert field("PodStatus", "hostIPs").patch_key == "ip"
    assert field("PodSpec", "nodeSelector").whole
    assert api_type(META, "LabelSelector").whole


def test_an_unknown_type_is_refused():
    with pytest.raises(LookupError, match="no type Gnome of apps/v1"):
        api_type("apps/v1", "Gnome")
