"""The errors that packages raise to each other.

Expected results of scheduling are never exceptions: they are values, `framework.Status`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SchedulerError(Exception):
    """Base class of all errors raised on purpose.

    Attributes:
        reason_code: the reason code of an attempt that it ends; "" for that of a failed plugin, or of the scheduler.
    """

    reason_code = ""


def drop_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks of an error and of its causes: they keep the variables of all frames that it passed.

    An owner of the error in one of these frames would be garbage that only the garbage collector frees.
    """
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += each.__cause__, each.__context__


class ObjectError(SchedulerError):
    """An API object that cannot be decoded.

    Attributes:
        kind: kind of the object, as in `Pod`.
        key: `namespace/name`, or `name` for a cluster-scoped object; `?` if the metadata cannot be read
            either.
        path: the invalid field, as in `spec.containers[0].resources.requests.cpu`.
        problem: the expected and the found value.
        found: the object as untyped JSON; None if it is not JSON.
    """

    def __init__(
        self, kind: str, key: str, path: str, problem: str, *, found: Mapping[str, Any] | None = None
    ) -> None:
        self.kind = kind
        self.key = key
        self.path = path
        self.problem = problem
        self.found = found
        super().__init__(f"{kind} {key}: {path}: {problem}" if path else f"{kind} {key}: {problem}")


class AdmissionError(SchedulerError):
    """A new object that the admission of the API server refuses."""


class PluginLoadError(SchedulerError):
    """A plugin that could not be loaded; nothing of it is registered."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(shown_text(f"plugin {where}: {problem}"))


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of a configuration or an object.

    Attributes:
        path: the field's path.
        problem: the expected and the found value.
        plugin: the name or reference of the plugin that could not be loaded; "" for other errors.
        reason: one word, for a condition.
    """

    path: str
    problem: str
    plugin: str = field(default="", compare=False)
    reason: str = "Invalid"

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class ConfigurationError(SchedulerError):
    """A configuration that cannot be used, with every error that was found in it; `source` is its file or object."""

    def __init__(self, errors: Sequence[FieldError], source: str = "") -> None:
        self.errors = tuple(errors)
        self.source = source
        head = f"{source}: " if source else ""
        super().__init__("\n".join(f"{head}{error}" for error in self.errors))


class UnreadError(ConfigurationError):
    """A file that a configuration needs could not be read; there is no other error, so it may be valid later."""


_UNCLEAR: Final = frozenset({0, 500, 502, 503, 504})
_TOO_MANY_REQUESTS: Final = 429
_UNAVAILABLE: Final = 503


class ApiError(SchedulerError):
    """The API server refused a request, or did not answer.

    Attributes:
        status: the HTTP status; 0 without an answer, and then the request may or may not have taken effect.
        reason: the Status object's reason, as in `Conflict`; "" without one.
        message: description of the error.
        retry_after_seconds: the server's Retry-After, None without one.
    """

    reason_code = "ApiError"

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after_seconds: float | None = None
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)

    @property
    def is_unclear(self) -> bool:
        """Whether the request may have taken effect: a proxy may answer 502 and 503 after it forwarded the request."""
        return self.status in _UNCLEAR

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.is_unclear or self.status == _TOO_MANY_REQUESTS

    @property
    def is_deferred(self) -> bool:
        """Whether the server did not begin the request, and asks to send it later: 429, or 503 with Retry-After."""
        is_unavailable = self.status == _UNAVAILABLE and self.retry_after_seconds is not None
        return is_unavailable or self.status == _TOO_MANY_REQUESTS

    def pause_seconds(self, least: float) -> float:
        """Return how long to wait before a retry: `least`, or the server's Retry-After if that is longer."""
        return max(least, self.retry_after_seconds or 0.0)


class NotLeadingError(ApiError):
    """A request that was not sent, because only the leader may write; it certainly had no effect."""

    def __init__(self, lease: str) -> None:
        super().__init__(
            412, "NotLeading", f"not leading any more: lease {lease} is not held, nothing was sent"
        )


class LeadershipLostError(SchedulerError):
    """The lease could not be renewed in time: another scheduler may be active now."""

    def __init__(self) -> None:
        super().__init__("leaderelection lost")
