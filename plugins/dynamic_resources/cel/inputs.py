"""Which fields of a device an expression reads, as far as its text shows: devices with equal fields have equal results.

Every device has its own serial number, but hardly any expression reads it. So thousands of devices belong to a few
kinds, and an expression is evaluated once for each kind.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from plugins.dynamic_resources.cel.values import parse_version

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from scheduler.objects.dynamic_resources import Device, DeviceAttribute

_TEXT = r"""(?:"[^"\\\n]*"|'[^'\\\n]*')"""
_DOMAIN = rf"\[\s*(?:(?P<domain>{_TEXT})|(?P<own>device\s*\.\s*driver))\s*\]"
_NAME = rf"(?:\s*\.\s*(?:\?\s*)?(?P<name>\w+)\b(?!\s*\()|\s*\[\s*(?:\?\s*)?(?P<quoted>{_TEXT})\s*\])"
_MAP = r"(?<![.\w])device\s*\.\s*(?P<field>attributes|capacity)\s*"
_LOOK_UP = re.compile(rf"{_MAP}{_DOMAIN}{_NAME}")
_CONTAINS = re.compile(rf"(?<![\w\"'])(?P<quoted>{_TEXT})\s+in\s+{_MAP}{_DOMAIN}(?P<name>(?!\s*[.\[]))")
_PLAIN = re.compile(r"(?<![.\w])device\s*\.\s*(?:driver|allowMultipleAllocations)\b(?!\s*[.\[(])")
_START = re.compile(r"[\"'\\]|//|\bdevice\b")
_REST = re.compile(rf"{_TEXT}|(?P<device>\bdevice\b)|(?P<unclear>[\"'\\]|//)")


class DeviceInput(NamedTuple):
    """One field of a device.

    Attributes:
        is_capacity: whether it is a capacity, not an attribute.
        domain: its domain; None is the domain of the device's driver.
        name: its name.
    """

    is_capacity: bool
    domain: str | None
    name: str


def inputs_of(expression: str) -> tuple[DeviceInput, ...] | None:
    """Return the fields that an expression reads, besides the driver and whether a device is shared; None if unknown."""
    if '"""' in expression or "'''" in expression:
        return None
    facts: dict[DeviceInput, None] = {}
    position = 0
    while start := _START.search(expression, position):
        position = start.start()
        found = next(
            (
                each
                for pattern in (_CONTAINS, _LOOK_UP, _PLAIN, _REST)
                if (each := pattern.match(expression, position))
            ),
            None,
        )
        if found is None:
            position += 1
            continue
        position = found.end()
        if found.re is _REST and (found["device"] or found["unclear"]):
            return None  # the whole device, all of a map, or a text that is not simple
        if found.re in {_LOOK_UP, _CONTAINS}:
            domain = None if found["own"] else found["domain"][1:-1]
            name = found["name"] or found["quoted"][1:-1]
            facts[DeviceInput(found["field"] == "capacity", domain, name)] = None
    return tuple(facts)


def values_of(facts: Iterable[DeviceInput], driver: str, device: Device) -> Hashable | None:
    """Return a key of the values of these fields, equal for devices with equal results; None if unknown.

    The device must be `is_clear`.
    """
    values: list[Hashable] = [driver, device.allow_multiple_allocations]
    for is_capacity, domain, name in facts:
        held: Mapping[str, Any] = device.capacity if is_capacity else device.attributes
        full = f"{driver if domain is None else domain}/{name}"
        value = held.get(full)
        if domain is None or domain == driver:
            short = held.get(name)
            if value is not None and short is not None:
                return None  # one name occurs twice, and which one counts depends on the order
            value = short if value is None else value
        if is_capacity and value is not None:
            written = value.value
            values.append(written if isinstance(written, str) else (type(written), repr(written)))
        else:
            values.append(value)
    return tuple(values)


def is_clear(device: Device) -> bool:
    """Return whether expressions can read all attributes of a device, so that none fails because of an unrelated one."""
    return all(map(_is_known, device.attributes.values()))


def _is_known(attribute: DeviceAttribute) -> bool:
    if attribute.version_value is None:
        return (
            attribute.string_value is not None
            or attribute.int_value is not None
            or attribute.bool_value is not None
        )
    return _is_version(attribute.version_value)


@lru_cache(maxsize=1024)
def _is_version(text: str) -> bool:
    try:
        parse_version(text)
    except ValueError:
        return False
    return True
