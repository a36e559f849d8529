from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import ObjectError
from scheduler.kube.client.store import Store
from scheduler.kube.client.wire import ObjectIdentity, decode_identity


def raw(name: str, version: int, *, uid: str = "u", bad: bool = False) -> bytes:
    return json.dumps(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"{name}-{uid}",
                "resourceVersion": str(version),
            },
            "bad": bad,
        }
    ).encode()


def decode(content: bytes) -> str:
    """Return `name@version of uid`, or raise."""
    found = json.loads(content)
    metadata = found["metadata"]
    if found["bad"]:
        raise ObjectError("Thing", metadata["name"], "bad", "expected false, found true")
    return f"{metadata['uid']}@{metadata['resourceVersion']}"


class Told:
    """Records its notifications, and fails on request."""

    def __init__(self) -> None:
        self.all: list[tuple[str, ...]] = []
        self.fails = False

    def on_add(self, obj: str) -> None:
        self._note("add", obj)

    def on_update(self, old: str, new: str) -> None:
        self._note("update", old, new)

    def on_delete(self, old: str) -> None:
        self._note("delete", old)

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        self._note("undecodable", identity.key, identity.uid, error.path)

    def _note(self, *words: str) -> None:
        self.all.append(words)
        if self.fails:
            raise ValueError("handler is broken")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def store(told: Told) -> Store[str]:
    return Store("Thing", decode, told)


def put(store: Store[str], *arguments: Any, **options: Any) -> None:
    content = raw(*arguments, **options)
    store.put(decode_identity(content), content)


def delete(store: Store[str], *arguments: Any, **options: Any) -> None:
    store.delete(decode_identity(raw(*arguments, **options)))


def test_a_new_object_is_added_and_its_next_version_updates_it(store: Store[str], told: Told):
    put(store, "a", 1)
    put(store, "a", 2)

    assert told.all == [("add", "a-u@1"), ("update", "a-u@1", "a-u@2")]
    assert store.objects == {"ns/a": "a-u@2"}


def test_a_repeated_version_is_handled_once(store: Store[str], told: Told):
    put(store, "a", 1)
    put(store, "a", 1)

    assert told.all == [("add", "a-u@1")]


def test_a_deleted_object_is_reported_with_its_last_version(store: Store[str], told: Told):
    put(store, "a", 1)
    delete(store, "a", 2)
    delete(store, "a", 2)

    assert told.all == [("add", "a-u@1"), ("delete", "a-u@1")]
    assert store.objects == {}


def test_an_object_recreated_under_its_name_is_deleted_and_added(store: Store[str], told: Told):
    put(store, "a", 1)
    put(store, "a", 2, uid="v")

    assert told.all == [("add", "a-u@1"), ("delete", "a-u@1"), ("add", "a-v@2")]


def test_the_deletion_of_a_predecessor_does_not_remove_its_successor(store: Store[str]):
    put(store, "a", 2, uid="v")
    delete(store, "a", 1)

    assert store.objects == {"ns/a": "a-v@2"}


def test_uid_and_version_of_an_object_are_stored_once(told: Told):
    def version_of(obj: str) -> tuple[str, str]:
        decoded.append(tuple(obj.split("@")))
        return decoded[-1]

    decoded: list[Any] = []
    store = Store("Thing", decode, told, version_of=version_of)
    for version in (1, 2):
        put(store, "a", version)
        assert store.versions["ns/a"] == ("a-u", str(version))
        assert store.versions["ns/a"] is decoded[-1]


def test_a_full_list_reports_only_the_differences(store: Store[str], told: Told):
    for name in ("same", "changed", "gone"):
        put(store, name, 1)
    told.all.clear()

    store.begin_replace()
    put(store, "same", 1)
    put(store, "changed", 2)
    put(store, "new", 3)
    store.end_replace()

    assert told.all == [("update", "changed-u@1", "changed-u@2"), ("add", "new-u@3"), ("delete", "gone-u@1")]


def test_an_interrupted_full_list_deletes_nothing(store: Store[str]):
    put(store, "a", 1)
    put(store, "b", 1)
    store.begin_replace()
    put(store, "a", 1)

    store.begin_replace()
    put(store, "a", 1)
    put(store, "b", 1)
    store.end_replace()

    assert set(store.objects) == {"ns/a", "ns/b"}


def test_an_undecodable_object_is_reported_once_per_version(store: Store[str], told: Told):
    put(store, "a", 1, bad=True)
    put(store, "a", 1, bad=True)
    put(store, "a", 2, bad=True)

    assert told.all == [("undecodable", "ns/a", "a-u", "bad")] * 2
    assert store.objects == {}


def test_an_undecodable_version_keeps_the_earlier_one(store: Store[str], told: Told):
    put(store, "a", 1)
    put(store, "a", 2, bad=True)

    assert store.objects == {"ns/a": "a-u@1"}
    assert store.is_outdated("ns/a")
    put(store, "a", 3)
    assert not store.is_outdated("ns/a")
    delete(store, "a", 4)
    assert [words[0] for words in told.all] == ["add", "undecodable", "update", "delete"]


def test_a_version_that_no_longer_decodes_is_outdated_as_well(store: Store[str], told: Told):
    """Read all objects again, as with a decoder that keeps more fields."""
    put(store, "a", 1)
    put(store, "b", 1)
    store.forget_versions()
    assert not store.is_outdated("ns/a")

    put(store, "a", 1, bad=True)
    put(store, "b", 1)
    assert [store.is_outdated(key) for key in ("ns/a", "ns/b")] == [True, False]
    assert told.all[2] == ("undecodable", "ns/a", "a-u", "bad")


def test_an_undecodable_successor_removes_its_predecessor(store: Store[str], told: Told):
    put(store, "a", 1)
    put(store, "a", 2, uid="v", bad=True)

    assert [words[0] for words in told.all] == ["add", "delete", "undecodable"]
    assert store.objects == {}


def test_the_deletion_of_an_undecodable_object_is_not_reported(store: Store[str], told: Told):
    put(store, "a", 1, bad=True)
    delete(store, "a", 2)
    put(store, "a", 3)

    assert [words[0] for words in told.all] == ["undecodable", "add"]


def test_a_decoder_that_raises_counts_as_undecodable(told: Told, caplog: pytest.LogCaptureFixture):
    def broken(content: bytes) -> str:
        raise ZeroDivisionError(content)

    store = Store("Thing", broken, told)
    put(store, "a", 1)

    assert told.all == [("undecodable", "ns/a", "a-u", "")]
    assert caplog.records[0].object == "ns/a"


def test_a_handler_that_raises_is_logged_and_gets_all_later_events(
    store: Store[str], told: Told, caplog: pytest.LogCaptureFixture
):
    told.fails = True
    put(store, "a", 1)
    put(store, "b", 1)
    delete(store, "a", 2)

    assert [words[0] for words in told.all] == ["add", "add", "delete"]
    assert store.objects == {"ns/b": "b-u@1"}
    assert [(record.message, record.object) for record in caplog.records] == [
        ("Event handler failed", "ns/a"),
        ("Event handler failed", "ns/b"),
        ("Event handler failed", "ns/a"),
    ]
    assert all(record.levelno == logging.ERROR for record in caplog.records)


VERSIONS = st.tuples(st.integers(1, 4), st.sampled_from("uv"))
CLUSTERS = st.dictionaries(st.sampled_from("abc"), VERSIONS)


@given(st.lists(CLUSTERS, max_size=6))
def test_the_events_of_the_handler_add_up_to_the_store(clusters: list[dict[str, tuple[int, str]]]):
    told = Told()
    store = Store("Thing", decode, told)
    believed: dict[str, str] = {}  # by uid: the objects from the notifications alone
    for cluster in clusters:
        store.begin_replace()
        for name, (version, uid) in cluster.items():
            put(store, name, version, uid=uid, bad=version == 4)
        store.end_replace()
        for kind, *words in told.all:
            uid = words[0].split("@")[0]
            if kind == "add":
                assert uid not in believed
                believed[uid] = words[0]
            elif kind == "update":
                assert believed[uid] == words[0]
                assert words[1].split("@")[0] == uid
                believed[uid] = words[1]
            elif kind == "delete":
                assert believed.pop(uid) == words[0]
        told.all.clear()

        assert sorted(believed.values()) == sorted(store.objects.values())
        readable = {f"{name}-{uid}@{version}" for name, (version, uid) in cluster.items() if version != 4}
        assert readable <= set(store.objects.values())
        assert {key.split("/")[1] for key in store.objects} <= set(cluster)
