"""The errors that cross the borders between our packages.

Expected outcomes of scheduling are never exceptions: they are values, `framework.Status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SchedulerError(Exception):
    """The root of every error raised on purpose here."""


class ObjectError(SchedulerError):
    """An API object that cannot be understood.

    Attributes:
        kind: as in `Pod`.
        key: `namespace/name`, or `name` for what has no namespace; `?` when not even that could be read.
        path: the field at fault, as in `spec.containers[0].resources.requests.cpu`.
        problem: what was expected and what was found.
        found: the object as untyped JSON; None where it is not even that.
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


class PluginLoadError(SchedulerError):
    """A plugin that was not taken; nothing of it is registered."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(shown_text(f"plugin {where}: {problem}"))


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of a configuration: the field's path, and what was expected and found there."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class ConfigurationError(SchedulerError):
    """Everything that is wrong with a configuration, all at once."""

    def __init__(self, errors: Sequence[FieldError], source: str = "") -> None:
        self.errors = tuple(errors)
        self.source = source
        head = f"{source}: " if source else ""
        super().__init__("\n".join(f"{head}{error}" for error in self.errors))


class UnreadError(ConfigurationError):
    """What a configuration needs could not be read; nothing is wrong with it otherwise, so it may be taken later."""


_UNCLEAR: Final = frozenset({0, 500, 502, 503, 504})
_TOO_MANY_REQUESTS: Final = 429


class ApiError(SchedulerError):
    """The API server refused a request, or could not be asked.

    Attributes:
        status: the HTTP status; 0 when there was no answer, so that the request may or may not have
            taken effect.
        reason: the Status object's reason, as in `Conflict`; "" without one.
        retry_after_seconds: what the server asked for, if it did.
    """

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
        """Whether the request may have taken effect: a proxy answers 502 and 503 also after it passed the request on."""
        return self.status in _UNCLEAR

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.is_unclear or self.status == _TOO_MANY_REQUESTS

    def pause_seconds(self, least: float) -> float:
        """Return how long to wait before the request is sent again: `least`, or what the server asked for if that is longer."""
        return max(least, self.retry_after_seconds or 0.0)


class NotLeadingError(ApiError):
    """A request that was not sent, for only the leader may write: certain to have had no effect."""

    def __init__(self, lease: str) -> None:
        super().__init__(
            412, "NotLeading", f"not leading any more: lease {lease} is not held, nothing was sent"
        )


class LeadershipLostError(SchedulerError):
    """The lease could not be renewed in time: somebody else may be at work by now."""

    def __init__(self) -> None:
        super().__init__("leaderelection lost")
