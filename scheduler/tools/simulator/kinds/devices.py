"""DeviceClasses, DeviceTaintRules, and ResourceSlices, in which drivers publish devices, with the rules of devices.

Source:
    kube-apiserver v1.36, pkg/apis/resource/validation/validation.go.
    kube-apiserver v1.36, pkg/registry/resource/{deviceclass,devicetaintrule,resourceslice}/strategy.go and
    pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import canonical_quantity, parse_quantity
from scheduler.objects.resource_names import is_extended_resource_name
from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from scheduler.tools.simulator.apimachinery.objects import json_text
from scheduler.tools.simulator.apimachinery.selectors import validate_node_selector
from scheduler.tools.simulator.apimachinery.strategy import (
    SeveralVersions,
    Strategy,
    dns_subdomain,
    validate_dns_label,
    validate_label_name,
    validate_label_value,
)
from scheduler.tools.simulator.kinds.node_allocatable import default_node_use, validate_node_use
from scheduler.tools.simulator.kinds.persistent_volumes import immutable, validate_driver_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.objects.quantity import Quantity
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

_LONGEST_ID: Final = 32
_LONGEST_EXPRESSION: Final = 10 * 1024
_MOST_SELECTORS: Final = 32
_MOST_CONDITIONS: Final = 4
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_C_IDENTIFIER_RULE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    "'[A-Za-z_][A-Za-z0-9_]*')"
)


def validate_subdomain(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of a name that must be a DNS subdomain."""
    if problem := dns_subdomain(name):
        yield invalid_value(path, f'"{name}"', problem)


def validate_pool_name(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of the name of a pool: DNS subdomains separated by slashes."""
    if not name:
        yield required(path)
        return
    for part in name.split("/"):
        yield from validate_subdomain(part, path)


def validate_qualified(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of the name of an attribute or capacity, which may have a domain."""
    domain, slash, own = name.rpartition("/")
    if "/" in domain:
        return  # as upstream, which checks only one slash
    if slash and not domain:
        yield invalid_value(path, '""', "the domain must not be empty")
    elif slash:
        yield from validate_driver_name(domain, path)
    if slash and not own:
        yield invalid_value(path, '""', "the name must not be empty")
        return
    if len(own) > _LONGEST_ID:
        yield too_long(path, _LONGEST_ID)
    if not _C_IDENTIFIER.fullmatch(own):
        yield invalid_value(path, f'"{own}"', _C_IDENTIFIER_RULE)


def validate_fully_qualified(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of the name of an attribute that must have a domain."""
    yield from validate_qualified(name, path)
    if "/" not in name:
        problem = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid_value(path, f'"{name}"', problem)


def duplicates(keys: Sequence[str], path: str) -> Iterator[Cause]:
    """Yield the items of a list whose key occurs before."""
    for index, key in enumerate(keys):
        if key in keys[:index]:
            yield duplicate(f"{path}[{index}]", key)


def validate_binding_conditions(holder: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of the binding conditions of a device."""
    wanted = holder.get("bindingConditions", [])
    failures = holder.get("bindingFailureConditions", [])
    for field, names in (("bindingConditions", wanted), ("bindingFailureConditions", failures)):
        if len(names) > _MOST_CONDITIONS:
            yield too_many(f"{path}.{field}", len(names), _MOST_CONDITIONS)
        for index, name in enumerate(names):
            yield from validate_label_name(name, f"{path}.{field}[{index}]")
        yield from duplicates(names, f"{path}.{field}")
    for index, name in enumerate(failures):
        if name in wanted:
            problem = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid_value(f"{path}.bindingFailureConditions[{index}]", f'"{name}"', problem)
    if failures and not wanted:
        problem = "bindingConditions are required to use bindingFailureConditions"
        yield invalid_value(f"{path}.bindingConditions", "null", problem)
    if wanted and not failures:
        problem = "bindingFailureConditions are required to use bindingConditions"
        yield invalid_value(f"{path}.bindingFailureConditions", "null", problem)


def validate_selectors(selectors: Sequence[Object], path: str) -> Iterator[Cause]:
    """Yield the errors of selectors of devices."""
    if len(selectors) > _MOST_SELECTORS:
        yield too_many(path, len(selectors), _MOST_SELECTORS)
        return
    for index, selector in enumerate(selectors):
        if "cel" not in selector:
            yield required(f"{path}[{index}].cel")
        elif len(selector["cel"].get("expression", "")) > _LONGEST_EXPRESSION:
            yield too_long(f"{path}[{index}].cel.expression", _LONGEST_EXPRESSION)


def validate_opaque(config: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of parameters for a driver."""
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from validate_driver_name(opaque.get("driver", ""), f"{path}.opaque.driver")
    parameters = opaque.get("parameters")
    if parameters is None:
        yield required(f"{path}.opaque.parameters")
    elif not isinstance(parameters, dict):
        yield invalid_value(f"{path}.opaque.parameters", '"<value omitted>"', "must be a valid JSON object")


_MOST_DEVICES: Final = 128
_MOST_DEVICES_WITH_MORE: Final = 64
_MOST_ATTRIBUTES: Final = 32
_MOST_TAINTS: Final = 16
_LONGEST_VALUE: Final = 64
_MOST_VALUES: Final = 10
_OPERATIONS: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_DEVICE_PLACES: Final = _PLACES[:3]
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_ONE_DEVICE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_NUMBER = r"(0|[1-9]\d*)"
_PRE_RELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMANTIC_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?",
    re.ASCII,
)


class DeviceClassStrategy(Strategy):
    """The rules of DeviceClasses."""

    has_generation = True
    returns_deleted = True

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        yield from validate_selectors(spec.get("selectors", ()), "spec.selectors")
        for index, config in enumerate(spec.get("config", ())):
            yield from validate_opaque(config, f"spec.config[{index}]")
        name = spec.get("extendedResourceName")
        if name is not None and not is_extended_resource_name(name):
            problem = "must be a valid extended resource name"
            yield invalid_value("spec.extendedResourceName", f'"{name}"', problem)


class ResourceSliceStrategy(Strategy):
    """The rules of ResourceSlices.

    Args:
        fractions: whether ranges of capacity are computed in thousandths if a bound has a fraction.
    """

    has_generation = True
    returns_deleted = True

    def __init__(self, *, fractions: bool) -> None:
        self._fractions = fractions

    def default(self, obj: Object) -> None:
        for device in obj["spec"].get("devices", ()):
            default_node_use(device)

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        _time_taints(obj["spec"], cluster)

    def admit_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        _time_taints(obj["spec"], cluster)

    def validate(self, obj: Object) -> Iterator[Cause]:
        return _validate_slice(obj["spec"], fractions=self._fractions)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        spec, before = obj["spec"], old["spec"]
        yield from self.validate(obj)
        yield from immutable(spec["pool"], before["pool"], "name", "spec.pool.name")
        yield from immutable(spec, before, "driver", "spec.driver")
        yield from immutable(spec, before, "nodeName", "spec.nodeName")


class DeviceTaintRuleStrategy(SeveralVersions):
    """The rules of DeviceTaintRules."""

    has_generation = True
    has_status = True

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        obj["spec"]["taint"].setdefault("timeAdded", cluster.timestamp())

    def admit_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        taint, before = obj["spec"]["taint"], old["spec"]["taint"]
        if taint.get("effect") != before.get("effect") and taint.get("timeAdded") == before.get("timeAdded"):
            taint["timeAdded"] = cluster.timestamp()
        taint.setdefault("timeAdded", cluster.timestamp())

    def validate(self, obj: Object) -> Iterator[Cause]:
        selector, path = obj["spec"].get("deviceSelector", {}), "spec.deviceSelector"
        if "driver" in selector:
            yield from validate_driver_name(selector["driver"], f"{path}.driver")
        if "pool" in selector:
            yield from validate_pool_name(selector["pool"], f"{path}.pool")
        if "device" in selector:
            yield from validate_dns_label(selector["device"], f"{path}.device")
        yield from _validate_taint(obj["spec"]["taint"], "spec.taint")


def _time_taints(spec: Object, cluster: Cluster) -> None:
    """Set the time of new taints."""
    for device in spec.get("devices", ()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", cluster.timestamp())


def _validate_slice(spec: Object, *, fractions: bool) -> Iterator[Cause]:
    yield from validate_driver_name(spec["driver"], "spec.driver")
    pool = spec["pool"]
    yield from validate_pool_name(pool["name"], "spec.pool.name")
    if pool["resourceSliceCount"] <= 0:
        shown = str(pool["resourceSliceCount"])
        yield invalid_value("spec.pool.resourceSliceCount", shown, "must be greater than zero")
    if pool["generation"] < 0:
        shown = str(pool["generation"])
        yield invalid_value("spec.pool.generation", shown, "must be greater than or equal to zero")
    yield from _validate_places(spec, "spec", _PLACES, _ONE_PLACE)
    terms = spec.get("nodeSelector", {}).get("nodeSelectorTerms", [{}])
    if len(terms) != 1:
        problem = "must have exactly one node selector term"
        yield invalid_value("spec.nodeSelector.nodeSelectorTerms", json_text(terms), problem)
    if "sharedCounters" in spec and "devices" in spec:
        yield invalid_value("spec", '""', "only one of `sharedCounters` or `devices` is allowed")
    devices = spec.get("devices", ())
    has_more = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = _MOST_DEVICES_WITH_MORE if has_more else _MOST_DEVICES
    if len(devices) > most:
        yield too_many("spec.devices", len(devices), most)
        return
    per_device = bool(spec.get("perDeviceNodeSelection"))
    for index, device in enumerate(devices):
        path = f"spec.devices[{index}]"
        yield from _validate_device(device, path, per_device=per_device)
        for name, amount in device.get("capacity", {}).items():
            if "requestPolicy" in amount and device.get("allowMultipleAllocations"):
                where = f"{path}.capacity[{name}].requestPolicy"
                yield from _validate_policy(
                    amount["requestPolicy"], amount["value"], where, fractions=fractions
                )
    yield from duplicates([device.get("name", "") for device in devices], "spec.devices")
    yield from _validate_counter_sets(spec.get("sharedCounters", ()))
    yield from _validate_skipped(spec.get("skipNodeOperations", ()), "spec.skipNodeOperations")


def _validate_places(holder: Object, path: str, places: Sequence[str], problem: str) -> Iterator[Cause]:
    """Yield the errors of the node selection of devices, which must be given in exactly one way."""
    found = []
    for field in places:
        if field not in holder:
            continue
        value = holder[field]
        if field == "nodeName" and not value:
            detail = (
                "must be either unset or set to a non-empty string" if path == "spec" else "must not be empty"
            )
            yield invalid_value(f"{path}.nodeName", '""', detail)
            continue
        if value is False:
            yield invalid_value(f"{path}.{field}", "false", "must be either unset or set to true")
            continue
        found.append(f"`{field}`")
        if field == "nodeName" and (fault := dns_subdomain(value)):
            yield invalid_value(f"{path}.nodeName", f'"{value}"', fault)
        if field == "nodeSelector":
            yield from validate_node_selector(value, f"{path}.nodeSelector")
    if not found:
        yield required(path, problem)
    elif len(found) > 1:
        several = problem if path != "spec" else f"{problem}, but multiple fields are set"
        yield invalid_value(path, f'"{{{", ".join(found)}}}"', several)


def _validate_device(device: Object, path: str, *, per_device: bool) -> Iterator[Cause]:
    yield from validate_dns_label(device.get("name", ""), f"{path}.name")
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    count = len(attributes) + len(capacity)
    if count > _MOST_ATTRIBUTES:
        problem = f"the total number of attributes and capacities must not exceed {_MOST_ATTRIBUTES}"
        yield invalid_value(path, str(count), problem)
    for name, attribute in attributes.items():
        yield from validate_qualified(name, f"{path}.attributes")
        yield from _validate_attribute(attribute, f"{path}.attributes[{name}]")
    for name, amount in capacity.items():
        yield from validate_qualified(name, f"{path}.capacity")
        if "requestPolicy" in amount and not device.get("allowMultipleAllocations"):
            problem = "allowMultipleAllocations must be true"
            yield forbidden_field(f"{path}.capacity[{name}].requestPolicy", problem)
    taints = device.get("taints", ())
    if len(taints) > _MOST_TAINTS:
        yield too_many(f"{path}.taints", len(taints), _MOST_TAINTS)
    for index, taint in enumerate(taints):
        yield from _validate_taint(taint, f"{path}.taints[{index}]")
    if per_device:
        yield from _validate_places(device, path, _DEVICE_PLACES, _ONE_DEVICE_PLACE)
    elif any(field in device for field in _DEVICE_PLACES):
        problem = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true"
        yield invalid_value(path, "null", f"{problem} in the ResourceSlice spec")
    yield from validate_binding_conditions(device, path)
    yield from validate_node_use(device, path)


def _validate_attribute(attribute: Object, path: str) -> Iterator[Cause]:
    if len(attribute) != 1:
        shown = json_text(attribute) if attribute else '""'
        yield invalid_value(path, shown, "exactly one value must be specified")
    for where, text in _texts(attribute, "string", path):
        if len(text) > _LONGEST_VALUE:
            yield too_long(where, _LONGEST_VALUE)
    for where, text in _texts(attribute, "version", path):
        if not _SEMANTIC_VERSION.fullmatch(text):
            problem = "must be a string compatible with semver.org spec 2.0.0"
            yield invalid_value(where, f'"{text}"', problem)


def _texts(attribute: Object, field: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of an attribute's value, or of its values."""
    if field in attribute:
        yield f"{path}.{field}", attribute[field]
    for index, text in enumerate(attribute.get(f"{field}s", ())):
        yield f"{path}.{field}s[{index}]", text


def _validate_policy(policy: Object, capacity: str, path: str, *, fractions: bool) -> Iterator[Cause]:
    """Yield the errors of the amounts of a shared capacity that may be requested.

    Source:
        kube-apiserver v1.36, pkg/apis/resource/validation/validation.go, validateRequestPolicy.
    """
    values, valid, default = policy.get("validValues", ()), policy.get("validRange"), policy.get("default")
    if values and valid is not None:
        problem = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden_field(path, problem)
        return
    field = "validValues" if values else "validRange"
    if not values and valid is None:
        return
    if default is None:
        yield required(f"{path}.default", f"required when {field} is defined")
    elif values:
        yield from _validate_values(values, default, capacity, f"{path}.{field}")
    elif valid is not None:
        yield from _validate_range(valid, default, capacity, f"{path}.{field}", fractions=fractions)


def _validate_values(values: Sequence[str], default: str, capacity: str, path: str) -> Iterator[Cause]:
    amounts = [parse_quantity(value) for value in values]
    for index, (before, amount) in enumerate(pairwise(amounts), start=1):
        if before > amount:
            yield invalid_value(
                f"{path}[{index}]", f'"{values[index]}"', "values must be sorted in ascending order"
            )
    if len(values) > _MOST_VALUES:
        yield too_many(path, len(values), _MOST_VALUES)
    for index, amount in enumerate(amounts):
        if amount > parse_quantity(capacity):
            problem = f"option is larger than capacity value: {capacity}"
            yield invalid_value(f"{path}[{index}]", f'"{values[index]}"', problem)
    yield from duplicates(values, path)
    if parse_quantity(default) not in amounts:
        yield invalid_value(path, f'"{default}"', "default value is not valid according to the requestPolicy")


def _validate_range(
    valid: Object, default: str, capacity: str, path: str, *, fractions: bool
) -> Iterator[Cause]:
    least, most = valid.get("min"), valid.get("max")
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    bounds = [
        ("min", least, capacity, least, f"min is larger than capacity value: {capacity}"),
        ("min", least, default, default, f"default is less than min: {least}"),
    ]
    if most is not None:
        bounds += [
            ("max", least, most, least, f"min is larger than max: {most}"),
            ("max", most, capacity, most, f"max is larger than capacity value: {capacity}"),
            ("max", default, most, default, f"default is more than max: {most}"),
        ]
    for field, small, large, shown, problem in bounds:
        if parse_quantity(small) > parse_quantity(large):
            yield invalid_value(f"{path}.{field}", f'"{shown}"', problem)
    if "step" in valid:
        yield from _validate_step(valid, default, capacity, f"{path}.step", fractions=fractions)


def _validate_step(
    valid: Object, default: str, capacity: str, path: str, *, fractions: bool
) -> Iterator[Cause]:
    least, step, most = valid["min"], valid["step"], valid.get("max")
    added = parse_quantity(least) + parse_quantity(step)
    if added > parse_quantity(capacity):
        problem = f"one step {_written(added, least)} is larger than capacity value: {capacity}"
        yield invalid_value(path, f'"{step}"', problem)
    written = [least, step, *([] if most is None else [most])]
    in_milli = fractions and any(parse_quantity(each).milli_value() % 1000 for each in written)
    width = _units(step, in_milli=in_milli)
    for value in (default, *written[2:]):
        if width and (_units(value, in_milli=in_milli) - _units(least, in_milli=in_milli)) % width:
            problem = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid_value(path, f'"{value}"', problem)


def _written(quantity: Quantity, like: str) -> str:
    """Return a quantity in the notation of another: binary or decimal."""
    number = quantity.value()
    if like.endswith("i") and not number % 1024:
        return canonical_quantity(f"{number // 1024}Ki")
    return canonical_quantity(f"{quantity.nanos}n")


def _units(text: str, *, in_milli: bool) -> int:
    quantity = parse_quantity(text)
    return quantity.milli_value() if in_milli else quantity.value()


def _validate_skipped(operations: Sequence[str], path: str) -> Iterator[Cause]:
    """Yield the errors of the operations of a driver that nodes skip.

    Source:
        KEP-5945, the rules of `skipNodeOperations`; the text of the last error is ours.
    """
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}[{index}]", operation, _OPERATIONS)
    yield from duplicates(operations, path)
    if "NodePrepareResources" in operations and not {"*", "NodeUnprepareResources"} & {*operations}:
        problem = 'must contain "NodeUnprepareResources" or "*" if it contains "NodePrepareResources"'
        yield invalid_value(path, json_text(list(operations)), problem)


def _validate_taint(taint: Object, path: str) -> Iterator[Cause]:
    yield from validate_label_name(taint.get("key", ""), f"{path}.key")
    yield from validate_label_value(taint.get("value", ""), f"{path}.value")
    effect = taint.get("effect", "")
    if not effect:
        yield required(f"{path}.effect")
    elif effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)


def _validate_counter_sets(counter_sets: Sequence[Object]) -> Iterator[Cause]:
    for index, counters in enumerate(counter_sets):
        path = f"spec.sharedCounters[{index}]"
        yield from validate_dns_label(counters.get("name", ""), f"{path}.name")
        if not counters.get("counters"):
            yield required(f"{path}.counters")
    yield from duplicates([counters.get("name", "") for counters in counter_sets], "spec.sharedCounters")
