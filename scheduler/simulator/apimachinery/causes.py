"""What is wrong with one field of an object, in kube-apiserver's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault of one field (metav1.StatusCause).

    Attributes:
        reason: as in `FieldValueInvalid`.
        field: as in `spec.containers[0].name`.
        message: what is wrong with it.
    """

    reason: str
    field: str
    message: str

    def body(self) -> dict[str, str]:
        """Return the metav1.StatusCause."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(field: str, detail: str = "") -> Cause:
    """Say that a field must be there."""
    return Cause("FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value")


def invalid_value(field: str, shown: str, detail: str) -> Cause:
    """Say that a field's value will not do; `shown` is the value as Go prints it, in quotes if text."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown}: {detail}")


def forbidden_field(field: str, detail: str) -> Cause:
    """Say that a field may not be set, or not now."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def not_supported(field: str, value: str, supported: Iterable[str]) -> Cause:
    """Say that a field's value is none of those there are."""
    listed = ", ".join(f'"{one}"' for one in supported)
    return Cause("FieldValueNotSupported", field, f'Unsupported value: "{value}": supported values: {listed}')


def duplicate(field: str, value: str) -> Cause:
    """Say that a field's value is that of another one, which it may not be."""
    return Cause("FieldValueDuplicate", field, f'Duplicate value: "{value}"')


def too_long(field: str, most: int) -> Cause:
    """Say that a text has more bytes than it may have."""
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {most} bytes")


def too_many(field: str, count: int, most: int) -> Cause:
    """Say that a list has more items than it may have."""
    items = "item" if most == 1 else "items"
    return Cause("FieldValueTooMany", field, f"Too many: {count}: must have at most {most} {items}")
