from __future__ import annotations

import pytest

from scheduler.snapshot import ClusterTable, Objects, ObjectStore

WEB = {"metadata": {"name": "web"}}
DB = {"metadata": {"name": "db"}}


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore()


def test_objects_are_found_by_key_and_by_namespace(store: ObjectStore):
    store.update({"shop/web": WEB, "bank/db": DB, "red": {}})

    assert store == {"shop/web": WEB, "bank/db": DB, "red": {}}
    assert store.in_namespace("shop") == {"shop/web": WEB}
    assert store.in_namespace("") == {"red": {}}
    assert store.in_namespace("elsewhere") == {}


def test_an_object_that_goes_leaves_its_namespace_too(store: ObjectStore):
    store.update({"shop/web": WEB, "shop/db": DB})

    assert store.pop("shop/web") is WEB
    assert store.in_namespace("shop") == {"shop/db": DB}
    del store["shop/db"]

    assert store == {}
    assert store.in_namespace("shop") == {}


def test_what_is_not_there_is_missed_as_in_a_dict(store: ObjectStore):
    with pytest.raises(KeyError):
        del store["shop/web"]
    assert store.pop("shop/web", None) is None
    assert store.get("shop/web") is None
    assert store.version("shop") == 0


def test_a_version_is_another_after_each_change_of_its_namespace_and_of_no_other(store: ObjectStore):
    store["bank/db"] = DB
    bank = store.version("bank")
    versions = [store.version("shop")]
    for change in (
        lambda: store.update({"shop/web": WEB}),
        lambda: store.update({"shop/web": DB}),
        lambda: store.update({"shop/db": DB}),
        lambda: store.pop("shop/db"),
        lambda: store.pop("shop/web"),
    ):
        change()
        versions.append(store.version("shop"))
        assert store.version("bank") == bank

    assert len(set(versions[:-1])) == len(versions) - 1
    assert versions[-1] == 0


def test_a_namespace_that_was_empty_does_not_get_an_old_version(store: ObjectStore):
    store["shop/web"] = WEB
    first = store.version("shop")
    del store["shop/web"]
    store["shop/web"] = DB

    assert store.version("shop") not in {0, first}


def test_a_snapshot_of_some_rows_or_with_other_pods_reads_the_same_store():
    table = ClusterTable()
    store = table.watch_kind("v1/services")
    snapshot = table.snapshot()

    assert isinstance(snapshot.objects("v1/services"), Objects)
    for each in (snapshot, snapshot.take(snapshot.all_rows), snapshot.overlay()):
        assert each.objects("v1/services") is store
