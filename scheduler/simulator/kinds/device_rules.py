"""Validation of names of devices, pools and attributes, and of selectors and parameters of devices.

Source:
    kube-apiserver v1.36, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
)
from scheduler.simulator.apimachinery.metadata import dns_label, dns_subdomain, validate_label_name
from scheduler.simulator.kinds.persistent_volumes import validate_driver_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.simulator.apimachinery.objects import Object

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


def validate_label(name: str, path: str) -> Iterator[Cause]:
    """Yield the errors of the name of a request, or of another required DNS label."""
    if not name:
        yield required(path)
    elif problem := dns_label(name):
        yield invalid_value(path, f'"{name}"', problem)


validate_device_name = validate_label


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
