"""Versioned objects: history and watches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.tools.simulator.apimachinery.selectors import Selector
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.storage import Storage, Versions
from tests.support.errors import raises

EVERYTHING = Selector()
RED = Selector("", (lambda obj: obj["metadata"].get("colour") == "red",))


def a_storage(history: int = 100) -> Storage:
    return Storage(Versions(), history)


def put(storage: Storage, name: str, colour: str = "", namespace: str = "ns") -> int:
    obj = {"metadata": {"name": name, "colour": colour}}
    return storage.put(f"{namespace}/{name}", namespace, name, obj).version


def names(storage: Storage, selector: Selector = EVERYTHING) -> list[str]:
    return [entry.name for entry in storage.entries(selector)]


def events(storage: Storage, selector: Selector, after: int) -> list[tuple[str, str, int]]:
    watch, past = storage.watch(selector, lambda: None, after=after)
    storage.unwatch(watch)
    return [(type_, entry.name, entry.version) for type_, entry in past]


def test_a_listing_is_ordered_by_key():
    storage = a_storage()
    for name in ("b", "a", "c"):
        put(storage, name)

    assert names(storage) == ["a", "b", "c"]


def test_a_namespace_is_not_a_prefix_of_another():
    storage = a_storage()
    put(storage, "x", namespace="team")
    put(storage, "y", namespace="team-a")
    put(storage, "z", namespace="team0")

    assert names(storage, Selector("team")) == ["x"]


def test_every_change_has_its_own_version():
    storage = a_storage()
    first, second = put(storage, "a"), put(storage, "a")
    removed = storage.remove("ns/a")

    assert first < second < removed.version
    assert removed.object["metadata"]["resourceVersion"] == str(removed.version)


def test_a_watch_resumes_after_a_version():
    storage = a_storage()
    seen = put(storage, "a")
    added, modified = put(storage, "b"), put(storage, "b")
    deleted = storage.remove("ns/a").version

    assert events(storage, EVERYTHING, seen) == [
        ("ADDED", "b", added),
        ("MODIFIED", "b", modified),
        ("DELETED", "a", deleted),
    ]


def test_an_object_that_leaves_a_selector_arrives_as_deleted():
    storage = a_storage()
    seen = put(storage, "a", "red")
    left = put(storage, "a", "blue")

    watch, past = storage.watch(RED, lambda: None, after=seen)
    storage.unwatch(watch)

    ((type_, entry),) = past
    assert (type_, entry.version) == ("DELETED", left)
    assert entry.object["metadata"] == {"name": "a", "colour": "red", "resourceVersion": str(left)}


def test_an_object_that_enters_a_selector_arrives_as_added():
    storage = a_storage()
    seen = put(storage, "a", "blue")
    entered = put(storage, "a", "red")

    assert events(storage, RED, seen) == [("ADDED", "a", entered)]


def test_an_object_that_never_matched_is_not_delivered():
    storage = a_storage()
    put(storage, "a", "blue")
    put(storage, "a", "green")
    storage.remove("ns/a")

    assert events(storage, RED, 0) == []


def test_history_is_bounded_and_earlier_versions_are_expired():
    storage = a_storage(history=2)
    versions = [put(storage, "a") for _ in range(4)]

    assert [version for _, _, version in events(storage, EVERYTHING, versions[1])] == versions[2:]
    with raises(
        StatusError,
        code=410,
        reason="Expired",
        message=f"too old resource version: {versions[0]} ({versions[1]})",
    ):
        storage.watch(EVERYTHING, lambda: None, after=versions[0])


def test_after_a_compaction_only_the_current_version_can_be_resumed():
    storage = a_storage()
    past, present = put(storage, "a"), put(storage, "b")
    storage.compact()

    assert events(storage, EVERYTHING, present) == []
    with pytest.raises(StatusError):
        storage.watch(EVERYTHING, lambda: None, after=past)
    with pytest.raises(StatusError):
        storage.entries_at(past, EVERYTHING)


def test_a_watch_wakes_its_reader_once_for_many_events():
    storage = a_storage()
    woken: list[None] = []
    watch, _ = storage.watch(EVERYTHING, lambda: woken.append(None))
    put(storage, "a")
    put(storage, "b")

    assert len(woken) == 1
    assert [entry.name for _, entry in watch.take()] == ["a", "b"]
    put(storage, "c")
    assert len(woken) == 2


def test_a_watcher_that_is_too_slow_is_closed():
    storage = a_storage(history=3)
    watch, _ = storage.watch(EVERYTHING, lambda: None)
    for _ in range(4):
        put(storage, "a")

    assert not watch.is_open


# Name, colour; None removes.
STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["red", "blue", None])), max_size=25)


def replay(storage: Storage, steps: list[tuple[str, str | None]]) -> dict[int, dict[str, str]]:
    """Carry out steps; returns what there was at each version: name -> colour."""
    there: dict[str, str] = {}
    at: dict[int, dict[str, str]] = {0: {}}
    for name, colour in steps:
        if colour is None:
            if there.pop(name, None) is None:
                continue
            version = storage.remove(f"ns/{name}").version
        else:
            version = put(storage, name, colour)
            there[name] = colour
        at[version] = dict(there)
    return at


@given(STEPS)
def test_earlier_versions_are_listed_unchanged(steps: Any):
    storage = a_storage()

    for version, there in replay(storage, steps).items():
        listed = storage.entries_at(version, EVERYTHING)
        assert {entry.name: entry.object["metadata"]["colour"] for entry in listed} == there


@given(STEPS, st.integers(0, 25))
def test_a_list_and_the_following_watch_give_the_current_state(steps: Any, cut: int):
    storage = a_storage()
    at = replay(storage, steps)
    version = list(at)[min(cut, len(at) - 1)]

    for selector in (EVERYTHING, RED):
        seen = {entry.name for entry in storage.entries_at(version, selector)}
        for type_, name, _ in events(storage, selector, version):
            if type_ == "DELETED":
                seen.remove(name)
            elif type_ == "ADDED":
                assert name not in seen
                seen.add(name)
            else:
                assert name in seen
        assert seen == set(names(storage, selector))


def test_a_backup_is_restored_with_its_history():
    storage = a_storage()
    first = put(storage, "a", "red")
    put(storage, "b")
    backup = storage.backup()
    put(storage, "a", "blue")
    storage.remove("ns/b")
    put(storage, "c")
    storage.restore(backup)

    assert names(storage) == ["a", "b"]
    assert names(storage, RED) == ["a"]
    assert events(storage, EVERYTHING, first) == [("ADDED", "b", first + 1)]


def test_a_watcher_in_the_process_gets_a_restore_as_changes():
    storage = a_storage()
    for name in ("kept", "changed", "gone", "replaced"):
        storage.put(
            f"ns/{name}", "ns", name, {"metadata": {"name": name, "uid": f"first-{name}", "colour": ""}}
        )
    backup = storage.backup()
    put(storage, "changed", "blue")
    storage.remove("ns/gone")
    put(storage, "replaced")
    put(storage, "new")
    storage.put("ns/changed", "ns", "changed", {"metadata": {"name": "changed", "uid": "first-changed"}})
    watch, _ = storage.watch(EVERYTHING, lambda: None)
    storage.restore(backup)

    reported = [(type_, entry.name, entry.object["metadata"].get("uid")) for type_, entry in watch.take()]
    assert reported == [
        ("DELETED", "replaced", None),
        ("DELETED", "new", None),
        ("MODIFIED", "changed", "first-changed"),
        ("ADDED", "gone", "first-gone"),
        ("ADDED", "replaced", "first-replaced"),
    ]
