"""Events: one storage, served as core/v1 and events.k8s.io/v1, which name the same fields differently.

Source:
    kube-apiserver v1.36, pkg/apis/events/v1/conversion.go and pkg/apis/core/validation/events.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.api_types import api_type
from scheduler.simulator.apimachinery.causes import Cause, invalid_value, required
from scheduler.simulator.apimachinery.objects import names
from scheduler.simulator.apimachinery.strategy import Strategy
from scheduler.simulator.apimachinery.structure import fill_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.objects import Object

_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}  # core/v1 -> events.k8s.io/v1
_CORE_NAMES: Final = {new: core for core, new in _NAMES.items()}
_NEVER_EMPTY: Final = ("reportingComponent", "reportingInstance")
_UNSET_IN_NEW: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
_IMMUTABLE: Final = names(
    "involvedObject reason message source firstTimestamp lastTimestamp count type eventTime action related "
    "reportingComponent reportingInstance"
)
_LONGEST: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}

INVOLVED_FIELDS: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class CoreEventStrategy(Strategy):
    """The rules of events in core/v1: nearly none."""

    create_on_update = True

    def validate(self, obj: Object) -> Iterator[Cause]:
        return _validate_always(obj, "reportingComponent")


class EventStrategy(CoreEventStrategy):
    """The rules of events in events.k8s.io/v1."""

    def default(self, obj: Object) -> None:
        """Add the fields that core/v1 always has, because that is the stored version."""
        fill_in(api_type("v1", "Event"), obj)

    def to_storage(self, obj: Object) -> Object:
        stored = {_CORE_NAMES.get(name, name): value for name, value in obj.items()}
        return stored | {"kind": "Event", "apiVersion": "v1"}

    def from_storage(self, obj: Object) -> Object:
        seen = {
            _NAMES.get(name, name): value
            for name, value in obj.items()
            if value != "" or name not in _NEVER_EMPTY
        }
        return seen | {"apiVersion": "events.k8s.io/v1"}

    def validate(self, obj: Object) -> Iterator[Cause]:
        yield from _validate_always(obj, "reportingController")
        if obj.get("eventTime") is None:
            yield required("eventTime")
        if obj.get("type") not in {"Normal", "Warning"}:
            yield invalid_value("type", '""', f"has invalid value: {obj.get('type', '')}")
        for name in _UNSET_IN_NEW:
            if obj.get(name):
                yield invalid_value(name, '""', "needs to be unset")
        yield from _validate_series(obj)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from _validate_always(obj, "reportingController")
        if obj.get("series") != old.get("series"):
            yield from _validate_series(obj)
        for name in _IMMUTABLE:
            if obj.get(name) != old.get(name):
                yield invalid_value(_NAMES.get(name, name), f'"{obj.get(name)}"', "field is immutable")


def _validate_always(obj: Object, reporting_field: str) -> Iterator[Cause]:
    """Yield the errors of an event in either version.

    Source:
        kube-apiserver v1.36, pkg/apis/core/validation/events.go, legacyValidateEvent.
    """
    namespace = obj["metadata"].get("namespace", "")
    involved = obj["involvedObject"].get("namespace", "")
    mismatch = invalid_value("involvedObject.namespace", f'"{involved}"', "does not match event.namespace")
    if obj.get("eventTime") is None:
        if namespace != involved and not (not involved and namespace == "default"):
            yield mismatch
        return
    if not involved and namespace not in {"default", "kube-system"}:
        yield mismatch
    if not obj.get("reportingComponent"):
        yield required(reporting_field)
    for name in ("reportingInstance", "action", "reason", "message"):
        text = obj.get(name, "")
        if not text and name != "message":
            yield required(name)
        elif len(text.encode()) > _LONGEST[name]:
            yield invalid_value(name, '""', f"can have at most {_LONGEST[name]} characters")


def _validate_series(obj: Object) -> Iterator[Cause]:
    series = obj.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield invalid_value("series.count", '""', "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")
