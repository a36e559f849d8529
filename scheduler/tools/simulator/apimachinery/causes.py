"""Validation errors of single fields, with kube-apiserver's messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Cause:
    """One error of one field (metav1.StatusCause).

    Attributes:
        reason: for example `FieldValueInvalid`.
        field: for example `spec.containers[0].name`.
        message: the error.
    """

    reason: str
    field: str
    message: str

    def body(self) -> dict[str, str]:
        """Return the metav1.StatusCause."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(field: str, detail: str = "") -> Cause:
    """Return the error of a required field."""
    return Cause("FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value")


def invalid_value(field: str, shown: str, detail: str) -> Cause:
    """Return the error of an invalid value; `shown` is the value as Go prints it, quoted if it is a string."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown}: {detail}")


def forbidden_field(field: str, detail: str) -> Cause:
    """Return the error of a field that may not be set, or not now."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def not_supported(field: str, value: str, supported: Iterable[str]) -> Cause:
    """Return the error of a value that is not supported."""
    listed = ", ".join(f'"{one}"' for one in supported)
    return Cause("FieldValueNotSupported", field, f'Unsupported value: "{value}": supported values: {listed}')


def not_found(field: str, value: str) -> Cause:
    """Return the error of a reference to something that does not exist."""
    return Cause("FieldValueNotFound", field, f'Not found: "{value}"')


def duplicate(field: str, value: str) -> Cause:
    """Return the error of a duplicate value."""
    return Cause("FieldValueDuplicate", field, f'Duplicate value: "{value}"')


def too_long(field: str, most: int) -> Cause:
    """Return the error of a string with too many bytes."""
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {most} bytes")


def too_many(field: str, count: int, most: int) -> Cause:
    """Return the error of a list with too many items."""
    items = "item" if most == 1 else "items"
    return Cause("FieldValueTooMany", field, f"Too many: {count}: must have at most {most} {items}")
