"""Who decides who may do what: RBAC, or without it, everybody known may do everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from scheduler.simulator.access.rbac import EVERYTHING, Decision
from scheduler.simulator.access.users import NOBODY

if TYPE_CHECKING:
    from scheduler.simulator.access.attributes import Attributes
    from scheduler.simulator.access.rbac_rules import Rule
    from scheduler.simulator.access.users import User

_PUBLIC: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})


class Authorizer(Protocol):
    """Says who may do what."""

    def decide(self, user: User, deed: Attributes) -> Decision:
        """Say whether a user may do something."""
        ...

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """Return what a user may do in a namespace, and what kept some of it from being found."""
        ...


class AllowKnown:
    """Lets everybody who is known do everything, and the others see what every cluster shows to all."""

    def decide(self, user: User, deed: Attributes) -> Decision:
        return Decision(user != NOBODY or deed.path.rstrip("/") in _PUBLIC)

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        return list(EVERYTHING), []
