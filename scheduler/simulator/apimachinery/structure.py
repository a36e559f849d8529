"""The structure of the built-in kinds: which fields there are, and of which type.

A real API server decodes bodies into Go structs: unknown fields are dropped (or refused, when asked to be
strict), wrong types are refused, and what equals the zero value is mostly left out when written again. The
structs' fields are taken from kubernetes_asyncio's models, so every kind it knows can be served.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339, rfc3339_micro
from scheduler.objects.canonical_quantity import canonical_quantity
from scheduler.simulator.apimachinery.objects import names

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object


_QUANTITY_MAPS = names(
    "allocatable allocatedResources capacity consumedCapacity default defaultRequest hard limits max "
    "maxLimitRequestRatio min overhead podFixed requests used"
)
_QUANTITIES = names("allocationMultiplier divisor maximumVolumeSize sizeLimit")
_QUANTITIES_OF: Final = {
    "V1CSIStorageCapacity": names("capacity"),
    "V1CapacityRequestPolicy": names("default validValues"),
    "V1CapacityRequestPolicyRange": names("max min step"),
    "V1Counter": names("value"),
    "V1DeviceCapacity": names("value"),
    "V2MetricTarget": names("averageValue value"),
    "V2MetricValueStatus": names("averageValue value"),
}  # model -> fields whose names mean other things elsewhere
_MICRO_TIMES = names("eventTime renewTime acquireTime lastObservedTime")

# Go leaves out zero values of fields that are no pointers. Text is seldom a pointer, booleans and numbers
# often are, so the exceptions are named for the first and the rule for the others.
_TEXT_KEPT_WHEN_EMPTY = names(
    "architecture bootID containerRuntimeVersion holderIdentity image imageID kernelVersion "
    "kubeProxyVersion kubeletVersion machineID operatingSystem osImage reportingComponent "
    "reportingInstance runtimeClassName storageClassName systemUUID volumeAttributesClassName"
)
_FALSE_LEFT_OUT = names(
    "exclusiveMaximum exclusiveMinimum hostIPC hostNetwork hostPID nullable paused "
    "publishNotReadyAddresses readOnly stdin stdinOnce tty uniqueItems unschedulable"
)
_ZERO_LEFT_OUT = names(
    "availableReplicas count deprecatedCount failureThreshold fullyLabeledReplicas generation "
    "hostPort initialDelaySeconds minReadySeconds nodePort observedGeneration periodSeconds "
    "readyReplicas successThreshold terminatingReplicas timeoutSeconds unavailableReplicas "
    "updatedReplicas"
)

_KEPT_WHEN_EMPTY: Final = frozenset(
    {
        ("V1Condition", "message"),
        ("V1Condition", "reason"),
        ("V1Device", "nodeName"),
        ("V1DeviceAttribute", "string"),
        ("V1HostPathVolumeSource", "type"),
        ("V1ResourceSliceSpec", "nodeName"),
        ("V1VolumeAttachmentSource", "persistentVolumeName"),
        ("V1VolumeNodeResources", "count"),
        ("DiscoveryV1EndpointPort", "name"),
    }
)  # fields that are left out elsewhere

_LEFT_OUT: Final = object()
_Reader = Callable[[Any, list[str]], Any]


class StructureError(ValueError):
    """A value of the wrong type; `path` is the field's, as far as it was followed."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.path = ""
        super().__init__(problem)

    def inside(self, step: str) -> StructureError:
        """Return the error as seen from one level up."""
        self.path = _joined(step, self.path)
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


@cache
def structure_of(model: str) -> _Reader:
    """Return what reads an object of one model of kubernetes_asyncio: `V1Pod`, say.

    It takes the object and a list, adds the paths of unknown fields to the list, and returns a copy of the
    object without them and without what Go would leave out.

    Raises:
        StructureError: (when called) a value has the wrong type.
    """
    # Imported when first needed: half a second that readers of this package need not spend.
    from kubernetes_asyncio.client import models

    class_ = getattr(models, model)
    readers: dict[str, _Reader] = {}
    for attribute, type_ in class_.openapi_types.items():
        name = class_.attribute_map[attribute]
        readers[name] = _reader(name, type_, model)

    def read(value: Any, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise StructureError(_mismatch(value, model))
        found: Object = {}
        for name, field in value.items():
            reader = readers.get(name)
            if reader is None:
                unknown.append(name)
                continue
            if field is None:
                continue
            taken = _read_inside(name, reader, field, unknown)
            if taken is not _LEFT_OUT:
                found[name] = taken
        return found

    return read


@cache
def field_model(model: str, field: str) -> str:
    """Return the model of one field, or of the items of one list; "" for what has none.

    Args:
        model: the model the field is in; "" is allowed and leads to "".
        field: its name in JSON.
    """
    if not model:
        return ""
    from kubernetes_asyncio.client import models

    class_ = getattr(models, model)
    types = {class_.attribute_map[attribute]: type_ for attribute, type_ in class_.openapi_types.items()}
    type_: str = types.get(field, "").removeprefix("list[").removesuffix("]")
    return type_ if hasattr(models, type_) else ""


@cache
def field_description(model: str, field: str) -> str:
    """Return what the API's documentation says of a field."""
    from kubernetes_asyncio.client import models

    class_ = getattr(models, model)
    attribute = next(attribute for attribute, name in class_.attribute_map.items() if name == field)
    text = (getattr(class_, attribute).__doc__ or "").split("# noqa: E501")[1]
    return text.strip().replace("  ", "\n\n")  # the generator makes one line of paragraphs


def _read_inside(step: str, reader: _Reader, value: Any, unknown: list[str]) -> Any:
    """Read what is one step further in; paths are as seen from here."""
    known = len(unknown)
    try:
        taken = reader(value, unknown)
    except StructureError as error:
        raise error.inside(step) from None
    if len(unknown) > known:
        unknown[known:] = [_joined(step, path) for path in unknown[known:]]
    return taken


def _joined(step: str, path: str) -> str:
    return f"{step}{path}" if not path or path.startswith("[") else f"{step}.{path}"


def _reader(name: str, type_: str, model: str = "") -> _Reader:
    """Return what reads one field, by the type kubernetes_asyncio states for it."""
    is_quantity = name in _QUANTITIES or name in _QUANTITIES_OF.get(model, ())
    keep_empty = (model, name) in _KEPT_WHEN_EMPTY
    if type_.startswith("list["):
        return _list_reader(_read_quantity if is_quantity else _reader("", type_[5:-1]))
    if type_.startswith("dict("):
        values = type_.split(", ", 1)[1][:-1]
        holds_quantities = name in _QUANTITY_MAPS and values == "str"
        return _map_reader(_read_quantity if holds_quantities else _reader("", values))
    readers: dict[str, _Reader] = {
        "str": _text_reader(keep_empty=keep_empty or not name or name in _TEXT_KEPT_WHEN_EMPTY),
        "datetime": _time_reader(micro=name in _MICRO_TIMES),
        "int": _number_reader(whole=True, keep_zero=keep_empty or name not in _ZERO_LEFT_OUT),
        "float": _number_reader(whole=False, keep_zero=keep_empty or name not in _ZERO_LEFT_OUT),
        "bool": _truth_reader(keep_false=name not in _FALSE_LEFT_OUT),
        "object": lambda value, _: value,
    }
    if is_quantity:
        readers["str"] = _read_quantity
    return readers.get(type_) or _late_reader(type_)


def _late_reader(model: str) -> _Reader:
    """Return what reads a struct; its fields are looked up when it is met, for structs hold themselves."""

    def read(value: Any, unknown: list[str]) -> Any:
        return structure_of(model)(value, unknown)

    return read


def _list_reader(item: _Reader) -> _Reader:
    def read(value: Any, unknown: list[str]) -> Any:
        if not isinstance(value, list):
            raise StructureError(_mismatch(value, "list"))
        found = [_read_inside(f"[{index}]", item, element, unknown) for index, element in enumerate(value)]
        return found or _LEFT_OUT

    return read


def _map_reader(item: _Reader) -> _Reader:
    def read(value: Any, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise StructureError(_mismatch(value, "map"))
        found = {
            key: _read_inside(key, item, "" if element is None else element, unknown)
            for key, element in value.items()
        }
        return found or _LEFT_OUT

    return read


def _text_reader(*, keep_empty: bool) -> _Reader:
    def read(value: Any, _: list[str]) -> Any:
        if not isinstance(value, str):
            raise StructureError(_mismatch(value, "string"))
        return value if value or keep_empty else _LEFT_OUT

    return read


def _read_quantity(value: Any, _: list[str]) -> Any:
    try:
        return canonical_quantity(value)
    except ValueError as error:
        raise StructureError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _number_reader(*, whole: bool, keep_zero: bool) -> _Reader:
    def read(value: Any, _: list[str]) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise StructureError(_mismatch(value, "number"))
        if whole and isinstance(value, float):
            if not value.is_integer():
                raise StructureError(f"json: cannot unmarshal number {value} into Go value of type int64")
            value = int(value)
        return value if value or keep_zero else _LEFT_OUT

    return read


def _truth_reader(*, keep_false: bool) -> _Reader:
    def read(value: Any, _: list[str]) -> Any:
        if not isinstance(value, bool):
            raise StructureError(_mismatch(value, "bool"))
        return value if value or keep_false else _LEFT_OUT

    return read


def _time_reader(*, micro: bool) -> _Reader:
    def read(value: Any, _: list[str]) -> Any:
        if not isinstance(value, str):
            raise StructureError(_mismatch(value, "MicroTime" if micro else "Time"))
        return _canonical_time(value, micro=micro)

    return read


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[-+]\d\d:\d\d)")


@lru_cache(maxsize=4096)
def _canonical_time(text: str, *, micro: bool) -> str:
    """Write a moment as metav1.Time or MicroTime does: UTC, whole seconds or six decimals."""
    if not _RFC3339.fullmatch(text):
        raise StructureError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}"')
    try:
        moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise StructureError(f'parsing time "{text}": {error}') from error
    return rfc3339_micro(moment) if micro else rfc3339(moment)


def _mismatch(value: Any, wanted: str) -> str:
    kinds = ((bool, "bool"), ((int, float), "number"), (str, "string"), (list, "array"), (dict, "object"))
    found = next((name for type_, name in kinds if isinstance(value, type_)), "null")
    return f"json: cannot unmarshal {found} into Go value of type {wanted}"
