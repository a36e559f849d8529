"""Validation of conditions (metav1.Condition), as newer kinds have them.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go, ValidateConditions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.causes import (
    Cause,
    duplicate,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from scheduler.simulator.apimachinery.metadata import validate_label_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.simulator.apimachinery.objects import Object

_STATUSES: Final = ("False", "True", "Unknown")
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32 * 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_REASON_RULE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def validate_conditions(conditions: Sequence[Object], path: str) -> Iterator[Cause]:
    """Yield the errors of the conditions in a status; each type may occur once."""
    types: set[str] = set()
    for index, condition in enumerate(conditions):
        where = f"{path}[{index}]"
        if condition["type"] in types:
            yield duplicate(f"{where}.type", condition["type"])
        types.add(condition["type"])
        yield from _validate_condition(condition, where)


def _validate_condition(condition: Object, path: str) -> Iterator[Cause]:
    yield from validate_label_name(condition["type"], f"{path}.type")
    if condition["status"] not in _STATUSES:
        yield not_supported(f"{path}.status", condition["status"], _STATUSES)
    generation = condition.get("observedGeneration", 0)
    if generation < 0:
        problem = "must be greater than or equal to zero"
        yield invalid_value(f"{path}.observedGeneration", str(generation), problem)
    if not condition.get("lastTransitionTime"):
        yield required(f"{path}.lastTransitionTime")
    reason = condition["reason"]
    if not reason:
        yield required(f"{path}.reason")
    elif not _REASON.fullmatch(reason):
        yield invalid_value(f"{path}.reason", f'"{reason}"', _REASON_RULE)
    for field, most in (("reason", _LONGEST_REASON), ("message", _LONGEST_MESSAGE)):
        if len(condition[field].encode()) > most:
            yield too_long(f"{path}.{field}", most)
