"""Errors of the server: an exception with a metav1.Status, and a constructor for each reason.

The messages are kube-apiserver's own, because clients match some of them.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.tools.simulator.apimachinery.causes import Cause
    from scheduler.tools.simulator.apimachinery.kinds import Kind

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(SchedulerError):
    """An error response.

    Attributes:
        code: the HTTP status.
        reason: for example `NotFound`; "" if upstream has none.
        message: its message.
        details: metav1.StatusDetails; None if upstream has none.
        continue_token: token to continue an interrupted list.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        continue_token: str = "",
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continue_token = continue_token
        super().__init__(message)

    @property
    def retry_after_seconds(self) -> int | None:
        return (self.details or {}).get("retryAfterSeconds")

    def body(self) -> dict[str, Any]:
        """Return the metav1.Status."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = dict(self.details)
        status["code"] = self.code
        return status


def success(code: int = HTTPStatus.OK, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the metav1.Status of a success without an object."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = dict(details)
    if code != HTTPStatus.OK:
        status["code"] = int(code)
    return status


def details_of(kind: Kind, name: str = "", *, as_kind: bool = False, **more: Any) -> dict[str, Any]:
    """Return metav1.StatusDetails; validation errors name the Kind, all others the resource."""
    return _details(kind.group, kind.kind if as_kind else kind.resource, name) | more


def _details(group: str, kind: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {field: value for field, value in details.items() if value}


def not_found(kind: Kind, name: str) -> StatusError:
    """Return 404: there is no such object."""
    message = f'{kind.group_resource} "{name}" not found'
    return StatusError(404, "NotFound", message, details_of(kind, name))


def already_exists(kind: Kind, name: str) -> StatusError:
    """Return 409: an object of that name exists."""
    message = f'{kind.group_resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details_of(kind, name))


def conflict(kind: Kind, name: str, problem: str = MODIFIED, *, subresource: str = "") -> StatusError:
    """Return 409: the object is not as the request requires."""
    resource = f"{kind.group_resource}/{subresource}" if subresource else kind.group_resource
    details = details_of(kind, name)
    if subresource:
        details["kind"] = f"{kind.resource}/{subresource}"
    message = f'Operation cannot be fulfilled on {resource} "{name}": {problem}'
    return StatusError(409, "Conflict", message, details)


def conflict_of_kind(kind: Kind, name: str, problem: str) -> StatusError:
    """Return 409 in the form of deletions: with the kind, where all others have the resource."""
    where = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    message = f'Operation cannot be fulfilled on {where} "{name}": {problem}'
    return StatusError(409, "Conflict", message, details_of(kind, name, as_kind=True))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """Return 422: the object is invalid; all errors are reported at once."""
    where = f"{kind}.{group}" if group else kind
    problems = [f"{cause.field}: {cause.message}" for cause in causes]
    text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [cause.body() for cause in causes]
    return StatusError(422, "Invalid", f'{where} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> StatusError:
    """Return 400: the request is malformed."""
    return StatusError(400, "BadRequest", message)


def cannot_decode(kind: Kind, problem: str) -> StatusError:
    """Return 400: the body is not an object of that kind."""
    where = f'{kind.kind} in version "{kind.version}"'
    return bad_request(f"{where} cannot be handled as a {kind.kind}: {problem}")


def forbidden(kind: Kind, name: str, problem: str, causes: Sequence[Cause] = ()) -> StatusError:
    """Return 403: rejected by admission or authorization."""
    return forbidden_resource(kind.group, kind.resource, name, problem, causes)


def forbidden_resource(
    group: str, resource: str, name: str, problem: str, causes: Sequence[Cause] = ()
) -> StatusError:
    """Return 403 for a kind given by group and resource."""
    details = _details(group, resource, name)
    if causes:
        details["causes"] = [cause.body() for cause in causes]
    where = f"{resource}.{group}" if group else resource
    named = f' "{name}"' if name else ""
    return StatusError(403, "Forbidden", f"{where}{named} is forbidden: {problem}", details)


def expired(message: str, continue_token: str = "") -> StatusError:
    """Return 410: the requested version is no longer kept."""
    return StatusError(410, "Expired", message, continue_token=continue_token)


def too_large_version(asked: int, current: int, retry_after_seconds: int = 1) -> StatusError:
    """Return 504: the requested version does not exist yet; 0 seconds omit the time of the retry."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    retry = {"retryAfterSeconds": retry_after_seconds} if retry_after_seconds else {}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, {"causes": causes, **retry})


def too_large_request(limit: int) -> StatusError:
    """Return the error for a body of more bytes than the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", {})


def method_not_allowed() -> StatusError:
    """Return 405: the path exists, but does not support the verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unprocessable_patch() -> StatusError:
    """Return 422: the patch cannot be applied to the object."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})
