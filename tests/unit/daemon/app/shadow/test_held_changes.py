"""Changes of several kinds are ordered as they happened."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.daemon.app.shadow.observed_changes import HOLD_SECONDS, HeldChanges
from scheduler.kube.client.store import Store
from scheduler.kube.client.wire import ObjectIdentity
from tests.support.manual_clock import ManualClock
from tests.unit.daemon.app.shadow.changes import Turned


class Noting(Turned):
    def __init__(self) -> None:
        self.made: list[tuple[Any, Any]] = []

    def change(self, old: Any, new: Any) -> None:
        self.made.append((old, new))


class Kind:
    """A watch of one kind."""

    def __init__(self, arrivals: HeldChanges) -> None:
        self.handler = Noting()
        self._store: Store[Any] = Store("Thing", msgspec.json.decode, arrivals.held(self.handler))

    def put(self, name: str, version: int) -> None:
        obj = {"metadata": {"name": name, "resourceVersion": str(version)}}
        self._store.put(_identity(name, version), msgspec.json.encode(obj))

    def delete(self, name: str, version: int) -> None:
        self._store.delete(_identity(name, version))

    def list_nothing(self) -> None:
        self._store.begin_replace()
        self._store.end_replace()


def _identity(name: str, version: int) -> ObjectIdentity:
    return ObjectIdentity(name=name, uid=name, resource_version=str(version))


def opened() -> tuple[ManualClock, HeldChanges, Kind, Kind]:
    clock = ManualClock()
    arrivals = HeldChanges("theirs", clock)
    arrivals.is_open = True
    return clock, arrivals, Kind(arrivals), Kind(arrivals)


def test_before_the_start_changes_are_applied_at_once() -> None:
    _, arrivals, one, _ = opened()
    arrivals.is_open = False
    one.put("a", 1)

    assert len(one.handler.made) == 1
    assert not len(arrivals)


def test_changes_and_deletions_are_ordered_by_version() -> None:
    clock, arrivals, one, other = opened()
    one.put("a", 3)
    one.put("b", 8)
    one.delete("a", 9)
    other.put("c", 4)
    other.put("d", 10)

    clock.advance(HOLD_SECONDS)

    assert [entry.version for entry in arrivals.due(clock.monotonic())] == [3, 4, 8, 9, 10]
    assert not one.handler.made


def test_recent_changes_are_held() -> None:
    clock, arrivals, one, other = opened()
    one.put("a", 5)
    clock.advance(HOLD_SECONDS / 2)
    other.put("b", 3)
    clock.advance(HOLD_SECONDS / 2)

    assert [entry.version for entry in arrivals.due(clock.monotonic())] == []
    clock.advance(HOLD_SECONDS / 2)
    assert [entry.version for entry in arrivals.due(clock.monotonic())] == [3, 5]


def test_objects_missing_from_a_new_list_are_deleted_after_known_changes() -> None:
    _, arrivals, one, other = opened()
    one.put("a", 5)
    other.put("b", 9)
    one.list_nothing()

    assert [(entry.version, entry.new is None) for entry in arrivals.rest()] == [
        (5, False),
        (5, True),
        (9, False),
    ]
