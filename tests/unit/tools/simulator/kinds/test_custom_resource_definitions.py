"""CustomResourceDefinitions and their kinds, on a store without HTTP; and their JSONPaths."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.kinds import Place
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.custom_resources import version_rank
from scheduler.tools.simulator.kinds.custom_resource_definitions import found_at
from tests.support.errors import raises
from tests.unit.tools.simulator.a_store import AStore
from tests.unit.tools.simulator.definitions import anything, definition, running, widget, with_spec

OBJ = {
    "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
    "spec": {"size": 3, "ports": [{"port": 80}, {"port": 443}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Stale", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param(".spec.size", [3], id="field"),
        pytest.param(".spec.absent.deeper", [], id="nowhere"),
        pytest.param(".spec.ports[1].port", [443], id="index"),
        pytest.param(".spec.ports[-1].port", [443], id="index from the end"),
        pytest.param(".spec.ports[9].port", [], id="index beyond the end"),
        pytest.param(".spec.ports[*].port", [80, 443], id="every item"),
        pytest.param(r".metadata.labels.app\.kubernetes\.io/name", ["web"], id="dots in a key"),
        pytest.param(".metadata.labels['app.kubernetes.io/name']", ["web"], id="quoted key"),
        pytest.param('.status.conditions[?(@.type=="Ready")].status', ["True"], id="filter"),
        pytest.param('.status.conditions[?(@.type != "Ready")].status', ["False"], id="filter that excludes"),
        pytest.param(".spec.ports[?(@.port==80)].port", [80], id="filter by number"),
    ],
)
def test_a_path_selects_its_field(path: str, found: list[Any]):
    assert found_at(OBJ, path) == found


def test_an_invalid_path_is_reported_from_its_position():
    with pytest.raises(ValueError, match=r"cannot be understood from '\[\(1\)\]' on"):
        found_at(OBJ, ".spec[(1)]")


CRD = "customresourcedefinitions"


async def established(store: AStore, **options: Any) -> None:
    store.create(CRD, definition(**options))
    await asyncio.sleep(0.01)


async def test_a_definition_is_established_and_its_kind_served_at_once(store: AStore):
    async with running(store, controllers=False):
        await established(store)

        status = store.get(CRD, "widgets.example.com")["status"]
        assert {one["type"]: one["status"] for one in status["conditions"]} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        assert status["acceptedNames"]["listKind"] == "WidgetList"
        assert store.create("widgets", widget("w"))["metadata"]["generation"] == 1


async def test_custom_resources_are_deleted_with_their_definition_and_watches_end(store: AStore):
    async with running(store, controllers=False):
        await established(store)
        store.create("widgets", widget("w"))
        watch = store.watch("widgets", lambda: None)
        store.delete(CRD, "widgets.example.com")
        await asyncio.sleep(2)

        assert store.find(CRD, "widgets.example.com") is None
        assert [type_ for type_, _ in watch.take()] == ["DELETED"]
        assert not watch.is_open
        with pytest.raises(KeyError):
            store.list("widgets")


async def test_a_finalizer_of_a_custom_resource_delays_its_definition(store: AStore):
    async with running(store, controllers=False):
        await established(store)
        store.create("widgets", widget("w") | {"metadata": {"name": "w", "finalizers": ["example.com/f"]}})
        store.delete(CRD, "widgets.example.com")
        await asyncio.sleep(30)
        conditions = store.get(CRD, "widgets.example.com")["status"]["conditions"]
        assert "Terminating" in {one["type"] for one in conditions}

        store.patch("widgets", "w", {"metadata": {"finalizers": None}})
        await asyncio.sleep(2)
        assert store.find(CRD, "widgets.example.com") is None


async def test_a_second_definition_of_the_same_kind_is_not_accepted(store: AStore):
    async with running(store, controllers=False):
        await established(store)
        other = definition()
        other["metadata"]["name"] = "gadgets.example.com"
        other["spec"]["names"]["plural"] = "gadgets"
        store.create(CRD, other)
        await asyncio.sleep(0.01)

        conditions = store.get(CRD, "gadgets.example.com")["status"]["conditions"]
        assert [(one["type"], one["status"], one["reason"]) for one in conditions] == [
            ("NamesAccepted", "False", "NamesConflict"),
            ("Established", "False", "NotAccepted"),
        ]
        with pytest.raises(KeyError):
            store.list("gadgets")


async def test_a_changed_definition_changes_the_validation(store: AStore):
    async with running(store, controllers=False):
        await established(store, schema=with_spec(size={"type": "integer"}))
        changed = with_spec(size={"type": "integer", "maximum": 3})
        store.patch(CRD, "widgets.example.com", {"spec": definition(schema=changed)["spec"]})
        await asyncio.sleep(0.01)

        with raises(StatusError, code=422):
            store.create("widgets", widget("w", spec={"size": 4}))


async def test_the_status_is_a_subresource_if_the_definition_enables_it(store: AStore):
    async with running(store, controllers=False):
        await established(store, schema=with_spec(size={"type": "integer"}), subresources={"status": {}})
        store.create("widgets", widget("w", spec={"size": 1}, status={"phase": "New"}))
        store.patch("widgets", "w", {"spec": {"size": 2}, "status": {"phase": "Odd"}})
        by_patch = store.get("widgets", "w")
        body = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 3}, "status": {"phase": "Up"}}
        by_status = store.patch("widgets", "w", body, subresource="status")

        assert (by_patch["spec"], by_patch.get("status"), by_patch["metadata"]["generation"]) == (
            {"size": 2},
            None,
            2,
        )
        assert (by_status["spec"], by_status["status"]) == ({"size": 2}, {"phase": "Up"})
        assert "labels" not in by_status["metadata"]
        assert by_status["metadata"]["generation"] == 2


async def test_an_invalid_status_is_refused(store: AStore):
    schema = with_spec()
    schema["properties"]["status"] = {"type": "object", "properties": {"phase": {"type": "string"}}}
    async with running(store, controllers=False):
        await established(store, schema=schema, subresources={"status": {}})
        store.create("widgets", widget("w"))
        with raises(StatusError, code=422):
            store.patch("widgets", "w", {"status": {"phase": 1}}, subresource="status")


async def test_a_custom_resource_is_scaled_as_its_definition_specifies(store: AStore):
    paths = {
        "specReplicasPath": ".spec.pool.size",
        "statusReplicasPath": ".status.count",
        "labelSelectorPath": ".status.selector",
    }
    async with running(store, controllers=False):
        await established(store, subresources={"scale": paths})
        store.create("widgets", widget("w", spec={"pool": {"size": 1, "kept": True}}))
        store.scale("widgets", "w", 5)

        assert store.get("widgets", "w")["spec"] == {"pool": {"size": 5, "kept": True}}


async def test_every_served_version_has_the_same_objects(store: AStore):
    older = {"name": "v1beta1", "served": True, "storage": False, "schema": {"openAPIV3Schema": anything()}}
    made = definition()
    made["spec"]["versions"].append(older)
    async with running(store, controllers=False):
        store.create(CRD, made)
        await asyncio.sleep(0.01)
        kinds = store.registry.kinds
        assert kinds.groups()["example.com"] == ["v1", "v1beta1"]

        store.create("widgets", widget("w", spec={"size": 1}))
        old = kinds.at("example.com", "v1beta1", "widgets")
        assert old is not None
        seen = old.view(store.registry.get(Place(old, "default", "w")).object)
        assert (seen["apiVersion"], seen["spec"]) == ("example.com/v1beta1", {"size": 1})


async def test_a_namespace_is_deleted_with_its_custom_resources(store: AStore):
    store.create("namespaces", {"metadata": {"name": "shop"}})
    async with running(store):
        await established(store)
        store.create("widgets", widget("w"), namespace="shop")
        store.delete("namespaces", "shop")
        await asyncio.sleep(5)

        assert store.find("namespaces", "shop") is None
        assert store.list("widgets") == []


def faulty(**changes: Any) -> dict[str, Any]:
    made = definition()
    made["spec"] |= changes
    return made


@pytest.mark.parametrize(
    ("made", "field"),
    [
        pytest.param(definition() | {"metadata": {"name": "x.example.com"}}, "metadata.name", id="name"),
        pytest.param(faulty(scope="Galaxy"), "spec.scope", id="scope"),
        pytest.param(
            definition(schema={"type": "string"}),
            "spec.versions[0].schema.openAPIV3Schema.type",
            id="no object at the root",
        ),
        pytest.param(
            definition(schema={"type": "object", "properties": {"a": {}}}),
            "spec.versions[0].schema.openAPIV3Schema.properties[a].type",
            id="a field without a type",
        ),
        pytest.param(definition(storage=False), "spec.versions", id="nothing stored"),
        pytest.param(definition(subresources={"scale": {}}), "spec.versions[0].subresources.scale.specReplicasPath", id="scale without paths"),
    ],
)  # fmt: skip
def test_an_invalid_definition_is_refused(made: dict[str, Any], field: str):
    with pytest.raises(StatusError) as caught:
        AStore().create(CRD, made)

    assert caught.value.details is not None
    assert field in {cause["field"] for cause in caught.value.details["causes"]}


def test_protected_groups_need_an_approval():
    made = definition()
    made["spec"]["group"] = "scheduling.k8s.io"
    made["metadata"]["name"] = "widgets.scheduling.k8s.io"
    with pytest.raises(StatusError, match="protected groups must have approval annotation"):
        AStore().create(CRD, made)


def test_versions_are_ordered_as_in_kubernetes():
    versions = ["v1alpha1", "foo1", "v2beta1", "v1", "v10", "v2", "v1beta2"]

    assert sorted(versions, key=version_rank) == ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo1"]
