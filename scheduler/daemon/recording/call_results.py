"""Converts answers of external calls to recordable values and back: values, and the errors that callers expect."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from scheduler.errors import ApiError, NotLeadingError, ObjectError, SchedulerError
from scheduler.extensions.extenders.wire import ExtenderError
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import PodInfo

_MESSAGES: Final = {
    error.__name__: error for error in (SchedulerError, ExtenderError, OSError, TimeoutError, ValueError)
}
"""Errors with a message as their only argument."""


def packed(value: Any) -> Any:
    """Return an answer as a recordable value; None for an object that is never read."""
    if isinstance(value, PodInfo):
        return value.pod
    return value if isinstance(value, (bytes, bool, dict)) else None


def unpacked(value: Any, kind: type[object]) -> Any:
    """Return a recorded answer of a kind."""
    if kind is PodInfo:
        return None if value is None else decode_pod(msgspec.json.encode(value))
    return value


def packed_error(error: BaseException) -> tuple[Any, ...]:
    """Return an error as a recordable value."""
    match error:
        case NotLeadingError():
            return ("NotLeadingError", error.message)
        case ApiError():
            return ("ApiError", error.status, error.reason, error.message, error.retry_after_seconds)
        case ObjectError():
            return ("ObjectError", error.kind, error.key, error.path, error.problem)
    known = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _MESSAGES), "")
    return (known, str(error)) if known else ("", repr(error))


def unpacked_error(said: tuple[Any, ...]) -> Exception:
    """Return a recorded error; an unknown one becomes a RuntimeError."""
    name, *rest = said
    match name:
        case "ApiError":
            status, reason, message, seconds = rest
            return ApiError(status, reason, message, retry_after_seconds=seconds)
        case "NotLeadingError":
            error = NotLeadingError("")
            error.message = rest[0]
            error.args = (rest[0],)
            return error
        case "ObjectError":
            return ObjectError(*rest)
    return _MESSAGES.get(name, RuntimeError)(rest[0])
