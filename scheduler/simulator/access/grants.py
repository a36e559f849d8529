"""Record of grants that were used, and of rejected requests, to find roles that are wider than needed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.simulator.access.rbac_rules import Permission, allows, permissions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.simulator.access.attributes import Attributes
    from scheduler.simulator.access.rbac import BoundRule, Rbac
    from scheduler.simulator.access.users import User


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A permission, and the role that grants it.

    Attributes:
        role: `ClusterRole/view`, or with a namespace `Role/default/reader`.
        permission: the smallest part of a rule.
    """

    role: str
    permission: Permission


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that authorization rejected.

    Attributes:
        user: name of the user.
        deed: attributes of the request.
        message: message of the error.
    """

    user: str
    deed: Attributes
    message: str


class Grants:
    """The record of a server.

    Every grant that allows a request counts as used, in all roles that have it; reviews use nothing.

    Attributes:
        refused: the last rejected requests, oldest first.
    """

    def __init__(self, rbac: Rbac, limit: int) -> None:
        self._rbac = rbac
        self._used: dict[str, set[Grant]] = {}  # user name -> grants
        self.refused: deque[Refusal] = deque(maxlen=limit)

    def used(self, user: str = "") -> set[Grant]:
        """Return the used grants of one user or of all users."""
        if user:
            return set(self._used.get(user, ()))
        return set().union(*self._used.values())

    def unused(self, role: str, user: str = "") -> list[Permission]:
        """Return the permissions of a role that no request, or none of this user, has used.

        Args:
            role: as in `Grant.role`.
            user: a name; "" for all users.

        Raises:
            StatusError: 404, there is no such role.
        """
        used = {grant.permission for grant in self.used(user) if grant.role == role}
        allowed = {one for rule in self._rbac.rules_of(role) for one in permissions(rule)}
        return sorted(allowed - used)

    def refused_to(self, user: str) -> list[Refusal]:
        """Return the rejected requests of one user."""
        return [refusal for refusal in self.refused if refusal.user == user]

    def clear(self) -> None:
        """Delete the record."""
        self._used.clear()
        self.refused.clear()

    def use(self, user: User, deed: Attributes, rules: Iterable[BoundRule]) -> None:
        """Record the rules that allowed a request."""
        used = self._used.setdefault(user.name, set())
        for bound in rules:
            used.update(
                Grant(bound.role, permission)
                for permission in permissions(bound.rule)
                if allows(permission.rule(), deed)
            )

    def refuse(self, user: User, deed: Attributes, message: str) -> None:
        """Record a rejected request."""
        self.refused.append(Refusal(user.name, deed, message))
