from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import ObjectError
from scheduler.snapshot import ClusterTable, Index, Objects, ObjectStore

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


def test_a_removed_object_leaves_its_namespace_too(store: ObjectStore):
    store.update({"shop/web": WEB, "shop/db": DB})

    assert store.pop("shop/web") is WEB
    assert store.in_namespace("shop") == {"shop/db": DB}
    del store["shop/db"]

    assert store == {}
    assert store.in_namespace("shop") == {}


def test_missing_objects_behave_as_in_a_dict(store: ObjectStore):
    with pytest.raises(KeyError):
        del store["shop/web"]
    assert store.pop("shop/web", None) is None
    assert store.get("shop/web") is None
    assert store.version("shop") == 0


def test_a_version_changes_with_each_change_of_its_namespace_only(store: ObjectStore):
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


def test_a_namespace_that_was_empty_does_not_repeat_an_old_version(store: ObjectStore):
    store["shop/web"] = WEB
    first = store.version("shop")
    del store["shop/web"]
    store["shop/web"] = DB

    assert store.version("shop") not in {0, first}


def test_derived_snapshots_read_the_same_store():
    table = ClusterTable()
    store = table.watch_kind("v1/services")
    snapshot = table.snapshot()

    assert isinstance(snapshot.objects("v1/services"), Objects)
    for each in (snapshot, snapshot.take(snapshot.all_rows), snapshot.overlay()):
        assert each.objects("v1/services") is store


class Volume(msgspec.Struct, rename="camel"):
    """The fields that these tests read."""

    size: str = ""


BY_SIZE = Index(Volume, lambda volume: (volume.size,) if volume.size else ())


def version(number: int, size: str) -> dict[str, Any]:
    return {"metadata": {"name": "pv", "resourceVersion": str(number)}, "size": size}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["shown", "deleted", "assumed", "restored"]),
            st.sampled_from(["a", "b"]),
            st.integers(1, 6),
            st.sampled_from(["", "small", "large"]),
        ),
        max_size=30,
    )
)
def test_an_assumed_object_is_visible_until_a_newer_one_arrives(story: list[tuple[str, str, int, str]]):
    store = ObjectStore()
    shown: dict[str, dict[str, Any]] = {}
    assumed: dict[str, dict[str, Any]] = {}
    store.indexed(BY_SIZE, "small")
    for happened, key, number, size in story:
        obj = version(number, size)
        before, changes = dict(store), store.changes
        match happened:
            case "shown":
                store[key] = shown[key] = obj
                if key in assumed and (
                    obj == assumed[key] or number > int(assumed[key]["metadata"]["resourceVersion"])
                ):
                    del assumed[key]
            case "deleted" if key in store:
                del store[key]
                shown.pop(key, None)
                assumed.pop(key, None)
            case "assumed":
                store.assume(key, obj)
                if key not in shown or (
                    number >= int(shown[key]["metadata"]["resourceVersion"]) and obj != shown[key]
                ):
                    assumed[key] = obj
                else:
                    assumed.pop(key, None)
            case "restored":
                store.restore(key)
                assumed.pop(key, None)

        expected = {**shown, **assumed}
        assert dict(store) == expected
        assert {key: store.typed(Volume, key) for key in store} == {
            key: Volume(obj["size"]) for key, obj in expected.items()
        }
        for each in ("small", "large"):
            assert store.indexed(BY_SIZE, each).keys() == {
                key for key, obj in expected.items() if obj["size"] == each
            }
        differing = {key for key in before.keys() | expected.keys() if before.get(key) != expected.get(key)}
        changed = store.changed_since(changes)
        assert changed is not None
        assert differing <= changed


def test_a_read_since_too_old_changes_returns_none(store: ObjectStore):
    for _ in range(5000):
        store["pv"] = WEB

    assert store.changed_since(store.changes) == set()
    assert store.changed_since(store.changes - 1) == {"pv"}
    assert store.changed_since(0) is None


def test_changes_are_read_in_their_order(store: ObjectStore):
    names = [f"pv{number}" for number in range(20)]
    before = store.changes
    for name in reversed(names):
        store[name] = WEB

    assert list(store.changed_since(before) or ()) == names[::-1]


def test_an_undecodable_object_is_named(store: ObjectStore):
    store["pv"] = {"metadata": {"name": "pv"}, "size": 5}

    with pytest.raises(ObjectError, match=r"Volume pv: size: expected `str`, got `int`"):
        store.typed(Volume, "pv")


def test_a_companion_is_created_once_for_all_readers(store: ObjectStore):
    first = store.companion(list, lambda: [1])
    store["shop/web"] = WEB
    store.clear()

    assert store.companion(list, lambda: [2]) is first
    assert store.companion(dict, dict) == {}
    assert ObjectStore().companion(list, lambda: [2]) == [2]
