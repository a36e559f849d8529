"""ResourceClaims and their templates: requests of devices, allocations, and reservations.

Source:
    kube-apiserver v1.36, pkg/registry/resource/resourceclaim/strategy.go and pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from scheduler.objects.created_pods import alternatives_of, default_claim_spec
from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from scheduler.tools.simulator.apimachinery.objects import is_terminating, json_text
from scheduler.tools.simulator.apimachinery.selectors import validate_node_selector
from scheduler.tools.simulator.apimachinery.strategy import Strategy, validate_dns_label
from scheduler.tools.simulator.kinds.devices import (
    duplicates,
    validate_binding_conditions,
    validate_fully_qualified,
    validate_opaque,
    validate_pool_name,
    validate_selectors,
    validate_subdomain,
)
from scheduler.tools.simulator.kinds.persistent_volumes import immutable, validate_driver_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.tools.simulator.apimachinery.kinds import Kinds
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

_MOST: Final = 32
_MOST_ALTERNATIVES: Final = 8
_MOST_CONSUMERS: Final = 256
_LONGEST_EXPRESSION: Final = 10 * 1024
_MODES: Final = ("All", "ExactCount")
_SOURCES: Final = ("FromClaim", "FromClass")
_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ONE_OF: Final = "exactly one of `exactly` or `firstAvailable` is required"
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


StatusGuard = Callable[["Object", "Object"], "Iterable[Cause]"]
"""Returns the changes of a claim's status that its author may not make; arguments are the new and the old claim."""


class ResourceClaimStrategy(Strategy):
    """The rules of ResourceClaims.

    Attributes:
        guard: checks what authors write into the status; None allows everything.
    """

    guard: StatusGuard | None = None
    has_status = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        default_claim_spec(obj["spec"])

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        """Remove the status of devices that are no longer allocated."""
        super().prepare_part_update(subresource, obj, old, cluster)
        gone = _allocated(old["status"]) - _allocated(obj["status"])
        kept = [one for one in obj["status"].get("devices", ()) if _device_id(one) not in gone]
        obj["status"].pop("devices", None)
        if kept:
            obj["status"]["devices"] = kept

    def validate(self, obj: Object) -> Iterator[Cause]:
        return _validate_spec(obj["spec"], "spec")

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        return immutable(obj, old, "spec")

    def validate_part_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        if self.guard:
            yield from self.guard(obj, old)
        yield from _validate_status(obj, old)


class ResourceClaimTemplateStrategy(Strategy):
    """The rules of ResourceClaimTemplates."""

    returns_deleted = True

    def default(self, obj: Object) -> None:
        default_claim_spec(obj["spec"]["spec"])

    def validate(self, obj: Object) -> Iterator[Cause]:
        return _validate_spec(obj["spec"]["spec"], "spec.spec")

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        return immutable(obj, old, "spec")


def put_status_guard(kinds: Kinds, guard: StatusGuard) -> None:
    """Set the guard for the status of claims."""
    for kind in kinds:
        if isinstance(kind.strategy, ResourceClaimStrategy):
            kind.strategy.guard = guard


def _names(spec: Object) -> Mapping[str, set[str]]:
    """Return the requests of a claim with their subrequests."""
    return {
        request.get("name", ""): {one.get("name", "") for one in alternatives_of(request)}
        for request in spec["devices"].get("requests", ())
    }


def _validate_spec(spec: Object, path: str) -> Iterator[Cause]:
    devices, path = spec["devices"], f"{path}.devices"
    known = _names(spec)
    for field in ("requests", "constraints", "config"):
        count = len(devices.get(field, ()))
        if count > _MOST:
            yield too_many(f"{path}.{field}", count, _MOST)
            return
    requests = devices.get("requests", ())
    for index, request in enumerate(requests):
        where = f"{path}.requests[{index}]"
        yield from _validate_request(request, where)
    yield from duplicates([request.get("name", "") for request in requests], f"{path}.requests")
    for index, constraint in enumerate(devices.get("constraints", ())):
        where = f"{path}.constraints[{index}]"
        yield from _validate_references(constraint.get("requests", ()), f"{where}.requests", known)
        for field in ("matchAttribute", "distinctAttribute"):
            if field in constraint:
                yield from validate_fully_qualified(constraint[field], f"{where}.{field}")
                break
        else:
            problem = 'exactly one of "matchAttribute" or "distinctAttribute" is required'
            yield required(where, f"{problem}, but multiple fields are set")
    for index, request in enumerate(requests):
        where = f"{path}.requests[{index}]"
        yield from _validate_derived(request, where, devices.get("constraints", ()))
    for index, config in enumerate(devices.get("config", ())):
        where = f"{path}.config[{index}]"
        yield from _validate_references(config.get("requests", ()), f"{where}.requests", known)
        yield from validate_opaque(config, where)


def _validate_derived(request: Object, path: str, constraints: Sequence[Object]) -> Iterator[Cause]:
    """Yield the errors of the attributes that a request and its alternatives compute for constraints.

    Source:
        KEP-6080, the API of `derivedAttributes`; the texts of the errors are ours.
    """
    name = request.get("name", "")
    asked = [({name}, f"{path}.exactly", request["exactly"])] if "exactly" in request else []
    for index, one in enumerate(alternatives_of(request)):
        asked.append(({name, f"{name}/{one.get('name', '')}"}, f"{path}.firstAvailable[{index}]", one))
    for names, holder, one in asked:
        attributes, where = one.get("derivedAttributes", ()), f"{holder}.derivedAttributes"
        if len(attributes) > _MOST:
            yield too_many(where, len(attributes), _MOST)
            continue
        compared = {
            constraint.get(field)
            for constraint in constraints
            for field in ("matchAttribute", "distinctAttribute")
            if not constraint.get("requests") or names & set(constraint["requests"])
        }
        for index, attribute in enumerate(attributes):
            yield from _validate_derived_attribute(attribute, f"{where}[{index}]", compared)
        yield from duplicates([attribute.get("name", "") for attribute in attributes], where)


def _validate_derived_attribute(attribute: Object, path: str, compared: set[str | None]) -> Iterator[Cause]:
    name, expression = attribute.get("name", ""), attribute.get("expression", "")
    if not name:
        yield required(f"{path}.name")
    else:
        yield from validate_fully_qualified(name, f"{path}.name")
        if name not in compared:
            problem = "must be used by a constraint that applies to the request"
            yield invalid_value(f"{path}.name", f'"{name}"', problem)
    if not expression:
        yield required(f"{path}.expression")
    elif len(expression) > _LONGEST_EXPRESSION:
        yield too_long(f"{path}.expression", _LONGEST_EXPRESSION)


def _validate_request(request: Object, path: str) -> Iterator[Cause]:
    yield from validate_dns_label(request.get("name", ""), f"{path}.name")
    alternatives = alternatives_of(request)
    if alternatives and "exactly" in request:
        yield invalid_value(path, "null", f"{_ONE_OF}, but multiple fields are set")
    elif "exactly" in request:
        yield from _validate_asked(request["exactly"], f"{path}.exactly")
    elif alternatives:
        if len(alternatives) > _MOST_ALTERNATIVES:
            yield too_many(f"{path}.firstAvailable", len(alternatives), _MOST_ALTERNATIVES)
            return
        for index, one in enumerate(alternatives):
            where = f"{path}.firstAvailable[{index}]"
            yield from validate_dns_label(one.get("name", ""), f"{where}.name")
            yield from _validate_asked(one, where)
        yield from duplicates([one.get("name", "") for one in alternatives], f"{path}.firstAvailable")
    else:
        yield required(path, _ONE_OF)


def _validate_asked(asked: Object, path: str) -> Iterator[Cause]:
    class_ = asked.get("deviceClassName", "")
    if not class_:
        yield required(f"{path}.deviceClassName")
    else:
        yield from validate_subdomain(class_, f"{path}.deviceClassName")
    yield from validate_selectors(asked.get("selectors", ()), f"{path}.selectors")
    mode, count = asked["allocationMode"], asked.get("count", 0)
    if mode not in _MODES:
        yield not_supported(f"{path}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        problem = "must not be specified when allocationMode is 'All'"
        yield invalid_value(f"{path}.count", str(count), problem)
    elif mode == "ExactCount" and count <= 0:
        yield invalid_value(f"{path}.count", str(count), "must be greater than zero")
    for index, toleration in enumerate(asked.get("tolerations", ())):
        yield from _validate_toleration(toleration, f"{path}.tolerations[{index}]")


def _validate_toleration(toleration: Object, path: str) -> Iterator[Cause]:
    operator = toleration["operator"]
    if operator == "Exists":
        if toleration.get("value"):
            shown = f'"{toleration["value"]}"'
            yield invalid_value(f"{path}.value", shown, "must be empty for operator `Exists`")
    elif operator != "Equal":
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    effect = toleration.get("effect", "")
    if effect and effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)


def _validate_references(
    references: Sequence[str], path: str, known: Mapping[str, set[str]]
) -> Iterator[Cause]:
    for index, reference in enumerate(references):
        yield from _validate_reference(reference, f"{path}[{index}]", known)
    yield from duplicates(references, path)


def _validate_reference(reference: str, path: str, known: Mapping[str, set[str]]) -> Iterator[Cause]:
    name, slash, rest = reference.partition("/")
    if "/" in rest:
        yield invalid_value(path, f'"{reference}"', _NO_REQUEST)
        return
    for part in (name, rest) if slash else (name,):
        yield from validate_dns_label(part, path)
    if name not in known or (slash and rest not in known[name]):
        yield invalid_value(path, f'"{reference}"', _NO_REQUEST)


def _device_id(device: Object) -> tuple[str, ...]:
    return tuple(device.get(field, "") for field in ("driver", "pool", "device", "shareID"))


def _allocated(status: Object) -> set[tuple[str, ...]]:
    """Return the devices of an allocation."""
    return {_device_id(one) for one in status.get("allocation", {}).get("devices", {}).get("results", ())}


def _validate_status(obj: Object, old: Object) -> Iterator[Cause]:
    """Yield the errors of the status of a claim.

    Source:
        kube-apiserver v1.36, pkg/apis/resource/validation/validation.go, validateResourceClaimStatusUpdate.
    """
    status, before = obj["status"], old["status"]
    consumers = status.get("reservedFor", ())
    if len(consumers) > _MOST_CONSUMERS:
        yield too_many("status.reservedFor", len(consumers), _MOST_CONSUMERS)
    for index, consumer in enumerate(consumers):
        path = f"status.reservedFor[{index}]"
        for field in ("resource", "name", "uid"):
            if not consumer.get(field):
                yield required(f"{path}.{field}")
    yield from duplicates([consumer.get("uid", "") for consumer in consumers], "status.reservedFor")
    devices = _allocated(status)
    for index, device in enumerate(status.get("devices", ())):
        yield from _validate_device_status(device, f"status.devices[{index}]", devices)
    if consumers and "allocation" not in status:
        yield forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set")
    elif is_terminating(obj) and any(one not in before.get("reservedFor", ()) for one in consumers):
        problem = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden_field("status.reservedFor", problem)
    if "allocation" in status and "allocation" in before:
        yield from immutable(status, before, "allocation", "status.allocation")
    elif "allocation" in status:
        yield from _validate_allocation(status["allocation"], "status.allocation", _names(obj["spec"]))


def _validate_device_status(device: Object, path: str, allocated: set[tuple[str, ...]]) -> Iterator[Cause]:
    yield from validate_driver_name(device.get("driver", ""), f"{path}.driver")
    yield from validate_pool_name(device.get("pool", ""), f"{path}.pool")
    yield from validate_dns_label(device.get("device", ""), f"{path}.device")
    if _device_id(device) not in allocated:
        shown = json_text("/".join(_device_id(device)[:3]))
        yield invalid_value(path, shown, "must be an allocated device in the claim")


def _validate_allocation(allocation: Object, path: str, known: Mapping[str, set[str]]) -> Iterator[Cause]:
    devices = allocation.get("devices", {})
    for index, result in enumerate(devices.get("results", ())):
        where = f"{path}.devices.results[{index}]"
        yield from _validate_reference(result.get("request", ""), f"{where}.request", known)
        yield from validate_driver_name(result.get("driver", ""), f"{where}.driver")
        yield from validate_pool_name(result.get("pool", ""), f"{where}.pool")
        yield from validate_dns_label(result.get("device", ""), f"{where}.device")
        yield from validate_binding_conditions(result, where)
    for index, config in enumerate(devices.get("config", ())):
        where = f"{path}.devices.config[{index}]"
        source = config.get("source", "")
        if not source:
            yield required(f"{where}.source")
        elif source not in _SOURCES:
            yield not_supported(f"{where}.source", source, _SOURCES)
        yield from _validate_references(config.get("requests", ()), f"{where}.requests", known)
        yield from validate_opaque(config, where)
    if "nodeSelector" in allocation:
        yield from validate_node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")
