"""Validation of the resources of containers and nodes, and of containers' claims.

Source:
    kube-apiserver v1.36, pkg/apis/core/validation/validation.go, validateResourceRequirements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import (
    is_extended_resource_name,
    is_hugepage_resource_name,
    is_native_resource,
)
from scheduler.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
)
from scheduler.simulator.apimachinery.metadata import dns_label, qualified_name_problems
from scheduler.simulator.apimachinery.objects import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.simulator.apimachinery.objects import Object

_COMPUTE: Final = frozenset({"cpu", "memory"})
_OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED: Final = frozenset(
    names(
        "pods resourcequotas services replicationcontrollers secrets configmaps persistentvolumeclaims "
        "services.nodeports services.loadbalancers"
    )
)
_STANDARD: Final = frozenset(
    {
        *_OF_CONTAINERS,
        *_COUNTED,
        "storage",
        "requests.storage",
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _OF_CONTAINERS),
    }
)


def validate_resources(resources: Object, path: str, claims: AbstractSet[str]) -> Iterator[Cause]:
    """Yield the errors of the resources of a container.

    Args:
        resources: the `resources` field.
        path: its path.
        claims: names of the pod's claims.
    """
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for field, quantities in (("limits", limits), ("requests", requests)):
        for name, text in quantities.items():
            where = f"{path}.{field}[{name}]"
            yield from _validate_name(name, where)
            yield from validate_amount(name, text, where)
            yield from _validate_huge_pages(name, text, where)
    yield from _compare(requests, limits, path)
    asked = {*limits, *requests}
    if any(map(is_hugepage_resource_name, asked)) and not asked & _COMPUTE:
        yield forbidden_field(path, "HugePages require cpu or memory")
    yield from _validate_claims(resources.get("claims", ()), f"{path}.claims", claims)


def validate_amount(name: str, text: str, path: str) -> Iterator[Cause]:
    """Yield the errors of an amount of a resource."""
    quantity = parse_quantity(text)
    if quantity.unscaled < 0:
        yield invalid_value(path, f'"{text}"', "must be greater than or equal to 0")
    if (name in _COUNTED or is_extended_resource_name(name)) and quantity.milli_value() % 1000:
        yield invalid_value(path, f'"{text}"', "must be an integer")


def _validate_name(name: str, path: str) -> Iterator[Cause]:
    problems = list(qualified_name_problems(name))
    own = not name.rpartition("/")[1]
    if not problems and own and name not in _STANDARD and not is_hugepage_resource_name(name):
        problems.append("must be a standard resource type or fully qualified")
    if own and name not in _OF_CONTAINERS and not is_hugepage_resource_name(name):
        problems.append("must be a standard resource for containers")
    elif not own and not is_native_resource(name) and not is_extended_resource_name(name):
        problems.append("doesn't follow extended resource name standard")
    for problem in problems:
        yield invalid_value(path, f'"{name}"', problem)


def _validate_huge_pages(name: str, text: str, path: str) -> Iterator[Cause]:
    if not is_hugepage_resource_name(name):
        return
    try:
        page = parse_quantity(name.removeprefix("hugepages-")).value()
    except ValueError as error:
        yield invalid_value(path, f'"{text}"', str(error))
        return
    if page <= 0 or parse_quantity(text).value() % page:
        yield invalid_value(path, f'"{text}"', f"{text} is not positive integer multiple of {name}")


def _compare(requests: Mapping[str, str], limits: Mapping[str, str], path: str) -> Iterator[Cause]:
    """Yield the errors of requests compared with limits."""
    for name, text in requests.items():
        overcommits = is_native_resource(name) and not is_hugepage_resource_name(name)
        limit = limits.get(name)
        if limit is None:
            if not overcommits:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
            continue
        asked, allowed = parse_quantity(text), parse_quantity(limit)
        if not overcommits and asked != allowed:
            yield invalid_value(f"{path}.requests", f'"{text}"', f"must be equal to {name} limit of {limit}")
        elif overcommits and asked > allowed:
            problem = f"must be less than or equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", f'"{text}"', problem)


def _validate_claims(uses: Sequence[Object], path: str, claims: AbstractSet[str]) -> Iterator[Cause]:
    """Yield the errors of a container's references to its pod's claims."""
    seen: set[str] = set()
    for index, use in enumerate(uses):
        where, name, request = f"{path}[{index}]", use.get("name", ""), use.get("request", "")
        if not name:
            yield required(where)
            continue
        if name in seen:
            yield duplicate(where, name)
        else:
            key = f"{name}/{request}" if request else name
            if request and (problem := dns_label(request)):
                yield invalid_value(f"{where}.request", f'"{request}"', problem)
            if key in seen:
                yield duplicate(where, key)
            elif not request:
                overlaps = [one for one in seen if one.startswith(f"{name}/")]
                yield from (duplicate(where, name) for _ in overlaps)
            seen.add(key)
        if name not in claims:
            there = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            problem = f'Not found: "{name}": must be one of the names in pod.spec.resourceClaims{there}'
            yield Cause("FieldValueNotFound", where, problem)
