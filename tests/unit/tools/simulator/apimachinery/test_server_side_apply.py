"""Server-side apply: owners, conflicts, and the removal of fields that are no longer applied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.objects.api_types import api_type
from scheduler.tools.simulator.apimachinery.kinds import Place
from scheduler.tools.simulator.apimachinery.patch_types import APPLY_PATCH
from scheduler.tools.simulator.apimachinery.server_side_apply import (
    decoded,
    encoded,
    fields_of,
    merged,
    shown,
    type_shape,
)
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.structure import WriteOptions
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore, deployment, node
from tests.unit.tools.simulator.definitions import definition, running, widget

Object = dict[str, Any]


def apply(store: AStore, resource: str, obj: Object, manager: str = "me", *, force: bool = False) -> Object:
    kind = store.registry.kinds.named(resource)
    options = WriteOptions(manager=manager, force=force)
    namespace = "default" if kind.namespaced else ""
    name = obj["metadata"]["name"]
    return store.registry.patch(Place(kind, namespace, name), obj, APPLY_PATCH, options).object


def update(store: AStore, resource: str, name: str, patch: Object) -> Object:
    kind = store.registry.kinds.named(resource)
    options = WriteOptions(manager="hand")
    media_type = "application/merge-patch+json"
    return store.registry.patch(Place(kind, "default", name), patch, media_type, options).object


def config(**data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def owned(obj: Object) -> dict[tuple[str, str], set[str]]:
    return {
        (one["manager"], one["operation"]): {shown(path) for path in decoded(one["fieldsV1"])}
        for one in obj["metadata"]["managedFields"]
    }


def test_applying_a_missing_object_creates_it_with_its_owner():
    made = apply(AStore(), "configmaps", config(a="1"))

    assert made["data"] == {"a": "1"}
    (entry,) = made["metadata"]["managedFields"]
    assert {
        name: entry[name] for name in ("manager", "operation", "apiVersion", "fieldsType", "fieldsV1")
    } == {
        "manager": "me",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }


def test_applying_the_same_again_writes_nothing(store: AStore):
    first = apply(store, "configmaps", config(a="1"))
    store.clock.advance(60)
    again = apply(store, "configmaps", config(a="1"))

    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_fields_no_longer_applied_are_removed_unless_another_owner_has_them(store: AStore):
    apply(store, "configmaps", config(a="1", b="2"))
    apply(store, "configmaps", config(b="2"), "other")
    left = apply(store, "configmaps", config(c="3"))

    assert left["data"] == {"b": "2", "c": "3"}
    assert owned(left) == {("me", "Apply"): {".data.c"}, ("other", "Apply"): {".data.b"}}


def test_another_value_for_a_foreign_field_is_a_conflict_and_changes_nothing(store: AStore):
    apply(store, "configmaps", config(a="1"))
    with raises(
        StatusError,
        code=409,
        message='Apply failed with 1 conflict: conflict with "me": .data.a',
        details={
            "causes": [
                {"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": ".data.a"}
            ]
        },
    ):
        apply(store, "configmaps", config(a="2"), "other")
    assert store.get("configmaps", "c")["data"] == {"a": "1"}


def test_several_conflicts_are_listed_by_manager(store: AStore):
    apply(store, "configmaps", config(a="1", b="1"))
    update(store, "configmaps", "c", {"data": {"b": "2"}})
    with raises(
        StatusError,
        message='Apply failed with 2 conflicts: conflicts with "hand" using v1:\n- .data.b\nconflicts with "me":\n- .data.a',
    ):
        apply(store, "configmaps", config(a="3", b="3"), "other")


def test_force_takes_ownership_of_the_field(store: AStore):
    apply(store, "configmaps", config(a="1", b="1"))
    forced = apply(store, "configmaps", config(a="2"), "other", force=True)

    assert forced["data"] == {"a": "2", "b": "1"}
    assert owned(forced) == {("me", "Apply"): {".data.b"}, ("other", "Apply"): {".data.a"}}


def test_equal_values_are_shared_without_a_conflict(store: AStore):
    apply(store, "configmaps", config(a="1"))
    shared = apply(store, "configmaps", config(a="1"), "other")

    assert set(owned(shared)) == {("me", "Apply"), ("other", "Apply")}


def test_an_update_takes_ownership_of_its_changes(store: AStore):
    apply(store, "configmaps", config(a="1", b="1"))
    written = update(store, "configmaps", "c", {"data": {"a": "2"}})

    assert owned(written) == {("me", "Apply"): {".data.b"}, ("hand", "Update"): {".data.a"}}


def test_scaling_takes_ownership_of_the_replicas(store: AStore):
    apply(store, "deployments", deployment("web", 2) | {"apiVersion": "apps/v1", "kind": "Deployment"})
    store.scale("deployments", "web", 5)
    with pytest.raises(
        StatusError, match=r'conflict with "simulator" with subresource "scale" using apps/v1: .spec.replicas'
    ):
        apply(store, "deployments", deployment("web", 3))


def test_fields_from_before_the_first_apply_have_a_common_owner(store: AStore):
    store.create("configmaps", config(a="1"))
    with pytest.raises(StatusError, match=r'conflict with "before-first-apply" using v1: \.data\.a'):
        apply(store, "configmaps", config(a="2"))


def test_fields_that_kubectl_applied_before_cause_no_conflict(store: AStore):
    last = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}'
    made = config(a="1")
    made["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": last}
    store.create("configmaps", made)

    assert apply(store, "configmaps", config(a="2"))["data"] == {"a": "2"}


def with_env(**values: str) -> Object:
    made = deployment("web", 1) | {"apiVersion": "apps/v1", "kind": "Deployment"}
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": value} for name, value in values.items()]
    return made


def env(obj: Object) -> dict[str, str]:
    (container,) = obj["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"]}


def test_items_of_lists_are_owned_by_their_keys(store: AStore):
    apply(store, "deployments", with_env(A="1", B="2"))
    both = with_env(C="3")
    del both["spec"]["replicas"], both["spec"]["template"]["spec"]["containers"][0]["image"]
    added = apply(store, "deployments", both, "other")
    assert env(added) == {"A": "1", "B": "2", "C": "3"}

    assert env(apply(store, "deployments", with_env(A="1"))) == {"A": "1", "C": "3"}
    clash = '.spec.template.spec.containers[name="c"].env[name="A"].value'
    with pytest.raises(StatusError) as caught:
        apply(store, "deployments", with_env(A="9"), "third")
    assert clash in caught.value.message


def test_ports_of_a_container_are_distinguished_by_their_protocol():
    shape = type_shape(api_type("v1", "Container"))
    live = {"ports": [{"containerPort": 53, "protocol": "TCP"}]}

    assert merged(live, {"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "name": "a"}]}, shape) == {
        "ports": [
            {"containerPort": 53, "protocol": "TCP", "name": "a"},
            {"containerPort": 53, "protocol": "UDP"},
        ]
    }  # fmt: skip


def test_taints_of_a_node_are_owned_as_a_whole(store: AStore):
    store.create("nodes", node("n1"))
    taints = [{"key": "a", "effect": "NoSchedule"}]
    applied = apply(store, "nodes", {"metadata": {"name": "n1"}, "spec": {"taints": taints}})

    assert owned(applied)[("me", "Apply")] == {".spec.taints"}


def test_a_configuration_with_managed_fields_is_refused():
    made = config(a="1")
    made["metadata"]["managedFields"] = [{"manager": "x"}]
    with pytest.raises(StatusError, match=r"metadata\.managedFields must be nil"):
        apply(AStore(), "configmaps", made)


async def test_custom_resources_are_applied_by_their_schema(store: AStore):
    items = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}
    parts = {
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    spec = {"type": "object", "properties": {"parts": parts}}
    async with running(store, controllers=False):
        store.create(
            "customresourcedefinitions", definition(schema={"type": "object", "properties": {"spec": spec}})
        )
        await asyncio.sleep(0.01)
        apply(store, "widgets", widget("w", spec={"parts": [{"name": "a", "size": 1}]}))
        both = apply(store, "widgets", widget("w", spec={"parts": [{"name": "b", "size": 2}]}), "other")
        left = apply(store, "widgets", widget("w", spec={"parts": []}))

        assert [one["name"] for one in both["spec"]["parts"]] == ["a", "b"]
        assert left["spec"]["parts"] == [{"name": "b", "size": 2}]


NAMES = st.sampled_from(["a", "b", "c"])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "image": NAMES,
            "env": st.lists(
                st.fixed_dictionaries({"name": NAMES}, optional={"value": NAMES}),
                unique_by=lambda one: one["name"],
            ),
            "args": st.lists(NAMES),
        },
    ),
    unique_by=lambda one: one["name"],
)
SPECS = st.fixed_dictionaries(
    {}, optional={"containers": CONTAINERS, "nodeName": NAMES, "nodeSelector": st.dictionaries(NAMES, NAMES)}
)
SHAPE = type_shape(api_type("v1", "PodSpec"))


def test_a_map_may_be_owned_as_a_whole():
    spec = {"nodeSelector": {"disk": "ssd"}, "overhead": {"cpu": "1"}}

    assert set(fields_of(spec, SHAPE)) == {("f:nodeSelector",), ("f:overhead", "f:cpu")}


@given(SPECS)
def test_a_set_of_fields_is_written_and_read_unchanged(spec: Object):
    paths = set(fields_of(spec, SHAPE)) - {()}

    assert decoded(encoded(paths)) == paths


@given(SPECS, SPECS)
def test_a_merged_object_has_all_applied_and_all_other_fields(live: Object, applied: Object):
    result = fields_of(merged(live, applied, SHAPE), SHAPE)
    # Lists and maps that are applied empty add nothing to what there is.
    wanted = {path: value for path, value in fields_of(applied, SHAPE).items() if value not in ([], {})}
    before = fields_of(live, SHAPE)

    assert {path: result.get(path) for path in wanted} == wanted
    related = {
        path
        for path in before
        for other in wanted
        if path[: len(other)] == other or other[: len(path)] == path
    }
    assert {path for path, value in before.items() if value not in ([], {})} - related <= set(result)
