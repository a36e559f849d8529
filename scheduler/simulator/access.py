"""Who asks, and whether they may.

There is one token, whose owner may do everything; without one, only what every cluster shows to all.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.simulator.status import StatusError

if TYPE_CHECKING:
    from scheduler.simulator.request_info import RequestInfo

ANONYMOUS: Final = "system:anonymous"
_PUBLIC: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})


@dataclass(frozen=True, slots=True)
class User:
    """Who asks."""

    name: str


class Access:
    """Authentication and authorization."""

    def __init__(self, token: str | None, user: str) -> None:
        """Set up.

        Args:
            token: what a request must bear to be its user's; None takes every request for the user's.
            user: the name behind the token.
        """
        self._token = token
        self._user = User(user)

    def check(self, info: RequestInfo, authorization: str | None) -> User:
        """Return who asks.

        Raises:
            StatusError: 401, a wrong token; 403, they may not do this.
        """
        if self._token is None:
            return self._user
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer" and hmac.compare_digest(
                token.strip().encode(), self._token.encode()
            ):
                return self._user
            raise StatusError(401, "Unauthorized", "Unauthorized")
        if info.path.rstrip("/") in _PUBLIC:
            return User(ANONYMOUS)
        raise _forbidden(info, ANONYMOUS)


def _forbidden(info: RequestInfo, user: str) -> StatusError:
    """Return a refusal in the words of upstream's authorization."""
    if not info.is_resource:
        problem = f'User "{user}" cannot {info.verb} path "{info.path}"'
        return StatusError(403, "Forbidden", f"forbidden: {problem}", {})
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    problem = f'User "{user}" cannot {info.verb} resource "{resource}" in API group "{info.group}" {where}'
    details = {"name": info.name} if info.name else {}
    if info.group:
        details["group"] = info.group
    details["kind"] = info.resource
    shown = f"{info.resource}.{info.group}" if info.group else info.resource
    named = f' "{info.name}"' if info.name else ""
    return StatusError(403, "Forbidden", f"{shown}{named} is forbidden: {problem}", details)
