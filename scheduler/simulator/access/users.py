"""Users."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ANONYMOUS: Final = "system:anonymous"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"

_SERVICE_ACCOUNT: Final = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")


@dataclass(frozen=True, slots=True)
class User:
    """A user.

    Attributes:
        name: for example `system:serviceaccount:default:web`.
        uid: uid; "" for none.
        groups: groups, in order.
        extra: extra attributes.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def info(self) -> dict[str, Any]:
        """Return the authentication.k8s.io/v1 UserInfo."""
        found: dict[str, Any] = {"username": self.name}
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(values) for key, values in self.extra.items()}
        return found

    def authenticated(self) -> User:
        """Return the user with the group of authenticated users."""
        if AUTHENTICATED in self.groups:
            return self
        return User(self.name, self.uid, (*self.groups, AUTHENTICATED), self.extra)


NOBODY: Final = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


def service_account_name(namespace: str, name: str) -> str:
    """Return the user name of a ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{name}"


def service_account_of(user: str) -> tuple[str, str] | None:
    """Return the namespace and name of a user's ServiceAccount; None for other users."""
    match = _SERVICE_ACCOUNT.fullmatch(user)
    return None if match is None else (match[1], match[2])


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of every ServiceAccount of a namespace."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
