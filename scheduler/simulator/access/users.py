"""Who asks."""

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
    """Who asks.

    Attributes:
        name: as in `system:serviceaccount:default:web`.
        uid: "" for who has none.
        groups: in the order they are told.
        extra: what else is known of them.
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
        """Return the user with the group of all who are known."""
        if AUTHENTICATED in self.groups:
            return self
        return User(self.name, self.uid, (*self.groups, AUTHENTICATED), self.extra)


NOBODY: Final = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


def service_account_name(namespace: str, name: str) -> str:
    """Return the user name of a ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{name}"


def service_account_of(user: str) -> tuple[str, str] | None:
    """Return the namespace and the name of the ServiceAccount behind a user name; None for other users."""
    match = _SERVICE_ACCOUNT.fullmatch(user)
    return None if match is None else (match[1], match[2])


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups every ServiceAccount of a namespace is in."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
