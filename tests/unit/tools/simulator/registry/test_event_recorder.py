"""Events are counted, combined and limited as clients of a real cluster do it."""

from __future__ import annotations

from typing import Any

from tests.unit.tools.simulator.a_store import AStore, pod


def recorded(store: AStore, reason: str, message: str, **options: Any) -> None:
    """Record an event about the pod p, which is created if it does not exist."""
    found = store.find("pods", "p") or store.create("pods", pod("p"))
    store.events.record(found, reason, message, component="c", **options)


def counts(store: AStore) -> dict[str, int]:
    """Return the message of each event and its count, in the order of creation."""
    return {one["message"]: one["count"] for one in store.list("events")}


def test_an_event_has_the_fields_that_kubectl_describe_shows() -> None:
    store = AStore(normal_events=True)

    recorded(store, "Started", "Container started", host="n1", field_path="spec.containers{c}")

    (event,) = store.list("events")
    found = store.get("pods", "p")
    assert event["involvedObject"] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "p",
        "uid": found["metadata"]["uid"],
        "fieldPath": "spec.containers{c}",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Started", "Container started")
    assert event["source"] == {"component": "c", "host": "n1"}
    assert event["metadata"]["name"].startswith("p.")


def test_a_repeated_event_is_counted_and_keeps_its_first_time() -> None:
    store = AStore()
    for _ in range(3):
        recorded(store, "BackOff", "again", warning=True)
        store.clock.advance(60)

    (event,) = store.list("events")
    assert event["count"] == 3
    assert event["firstTimestamp"] < event["lastTimestamp"]


def test_the_same_message_about_two_containers_is_two_events() -> None:
    store = AStore(normal_events=True)
    for container in ("a", "b"):
        recorded(store, "Started", "Container started", field_path=f"spec.containers{{{container}}}")

    assert len(store.list("events")) == 2


def test_the_tenth_message_of_a_reason_and_later_ones_share_one_event() -> None:
    store = AStore(normal_events=True)
    for number in range(12):
        recorded(store, "SuccessfulCreate", f"Created pod: {number}")

    assert counts(store) == {f"Created pod: {number}": 1 for number in range(9)} | {
        "(combined from similar events): Created pod: 11": 3
    }


def test_ten_minutes_after_the_last_event_messages_have_own_events_again() -> None:
    store = AStore(normal_events=True)
    for number in range(10):
        recorded(store, "SuccessfulCreate", f"Created pod: {number}")
    store.clock.advance(601)
    recorded(store, "SuccessfulCreate", "Created pod: late")

    assert counts(store)["Created pod: late"] == 1


def test_after_25_events_about_an_object_one_is_written_every_five_minutes() -> None:
    store = AStore()
    for number in range(40):
        recorded(store, f"Reason{number}", "failed", warning=True)
    assert len(store.list("events")) == 25

    store.clock.advance(299)
    recorded(store, "Early", "failed", warning=True)
    assert len(store.list("events")) == 25

    store.clock.advance(1)
    for number in range(2):
        recorded(store, f"Late{number}", "failed", warning=True)
    assert len(store.list("events")) == 26


def test_normal_events_are_recorded_only_on_request() -> None:
    store = AStore()
    recorded(store, "SuccessfulCreate", "Created pod: a")
    recorded(store, "FailedCreate", "Error creating: no", warning=True)

    assert [one["reason"] for one in store.list("events")] == ["FailedCreate"]


def test_an_event_that_a_user_deleted_is_recorded_anew() -> None:
    store = AStore()
    recorded(store, "BackOff", "again", warning=True)
    recorded(store, "BackOff", "again", warning=True)
    (event,) = store.list("events")
    store.delete("events", event["metadata"]["name"])
    recorded(store, "BackOff", "again", warning=True)

    assert counts(store) == {"again": 1}


def test_a_terminating_namespace_gets_no_events() -> None:
    store = AStore()
    store.create("namespaces", {"metadata": {"name": "old"}})
    found = store.create("pods", pod("p"), namespace="old")
    store.delete("namespaces", "old")

    store.events.record(found, "FailedCreate", "no", component="c", warning=True)

    assert store.list("events") == []


def test_an_event_about_an_object_with_the_longest_name_has_a_valid_name() -> None:
    store = AStore()
    found = store.create("pods", pod("p" * 235 + "." + "p" * 17))

    store.events.record(found, "FailedCreate", "no", component="c", warning=True)

    (event,) = store.list("events")
    assert len(event["metadata"]["name"]) <= 253


def test_events_in_the_same_second_have_names_of_their_own() -> None:
    store = AStore()
    for number in range(20):
        recorded(store, f"Reason{number}", "failed", warning=True)

    assert len({one["metadata"]["name"] for one in store.list("events")}) == 20


def test_the_memory_of_the_recorder_is_bounded() -> None:
    store = AStore()
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "p"}}
    for number in range(5000):
        found = {**obj, "metadata": {**obj["metadata"], "uid": str(number)}}
        store.events.record(found, "FailedCreate", "no", component="c", warning=True)

    assert len(store.events._histories) == 4096
