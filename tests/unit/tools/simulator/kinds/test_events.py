from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.unit.tools.simulator.a_store import AStore

NEW = {
    "metadata": {"name": "e", "namespace": "default"},
    "eventTime": "2026-11-21T01:00:00.000001Z",
    "reportingController": "custom-scheduler",
    "reportingInstance": "custom-scheduler-x",
    "action": "Binding",
    "reason": "Scheduled",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
    "note": "Successfully assigned",
    "type": "Normal",
}
EVENTS = "events.events.k8s.io"


def test_an_event_is_one_object_in_two_versions(store: AStore):
    store.create(EVENTS, NEW)

    core = store.get("events", "e")

    assert (core["message"], core["involvedObject"]["name"]) == ("Successfully assigned", "web")
    assert core["reportingComponent"] == "custom-scheduler"
    seen = store.get(EVENTS, "e")
    assert {name: seen[name] for name in NEW if name != "metadata"} == {
        name: value for name, value in NEW.items() if name != "metadata"
    }
    assert len(store.list("events")) == len(store.list(EVENTS)) == 1


def test_a_core_event_has_its_deprecated_fields(store: AStore):
    involved = {"kind": "Pod", "namespace": "default", "name": "web"}
    store.create(
        "events",
        {
            "metadata": {"name": "c"},
            "involvedObject": involved,
            "message": "m",
            "count": 3,
            "source": {"component": "kubelet"},
        },
    )

    seen = store.get(EVENTS, "c")

    assert (seen["note"], seen["deprecatedCount"], seen["deprecatedSource"]) == (
        "m",
        3,
        {"component": "kubelet"},
    )
    assert "reportingController" not in seen


def test_a_series_is_added_by_a_patch(store: AStore):
    store.create(EVENTS, NEW)

    patched = store.patch(EVENTS, "e", {"series": {"count": 2, "lastObservedTime": "2026-11-21T01:00:05Z"}})

    assert patched["series"] == {"count": 2, "lastObservedTime": "2026-11-21T01:00:05.000000Z"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"eventTime": None}, "eventTime", id="no time"),
        pytest.param({"reportingController": ""}, "reportingController", id="no controller"),
        pytest.param({"reportingInstance": ""}, "reportingInstance", id="no instance"),
        pytest.param({"action": ""}, "action", id="no action"),
        pytest.param({"reason": "r" * 129}, "reason", id="a long reason"),
        pytest.param({"note": "n" * 1025}, "message", id="a long note"),
        pytest.param({"type": "Bad"}, "type", id="another type"),
        pytest.param({"deprecatedCount": 1}, "count", id="a count"),
        pytest.param(
            {"series": {"count": 1, "lastObservedTime": NEW["eventTime"]}},
            "series.count",
            id="a series of one",
        ),
    ],
)
def test_an_invalid_event_is_refused(change: Any, field: str):
    with pytest.raises(StatusError) as caught:
        AStore().create(EVENTS, {**NEW, **change})

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.details["kind"] == "Event"
    assert field in {cause["field"] for cause in caught.value.details["causes"]}


def test_the_content_of_an_event_is_immutable(store: AStore):
    store.create(EVENTS, NEW)

    with pytest.raises(StatusError) as caught:
        store.patch(EVENTS, "e", {"note": "something else"})

    assert caught.value.details["causes"][0]["field"] == "note"
