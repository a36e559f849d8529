"""Who asks, and whether they may.

Without tokens and without RBAC, whoever comes is the one user there is, and may do everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from scheduler.simulator.attributes import attributes_of, refusal
from scheduler.simulator.impersonation import impersonated
from scheduler.simulator.rbac import EVERYTHING, Decision
from scheduler.simulator.status import StatusError
from scheduler.simulator.users import NOBODY

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from scheduler.simulator.attributes import Attributes
    from scheduler.simulator.authentication import Tokens
    from scheduler.simulator.grants import Grants
    from scheduler.simulator.rbac_rules import Rule
    from scheduler.simulator.request_info import RequestInfo
    from scheduler.simulator.users import User

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


class Access:
    """Authentication and authorization of requests."""

    def __init__(
        self, tokens: Tokens, authorizer: Authorizer, grants: Grants, default_user: User | None
    ) -> None:
        """Set up.

        Args:
            tokens: whose they are.
            authorizer: who may do what.
            grants: where it is written down.
            default_user: who everybody is who shows no token of somebody; None for nobody.
        """
        self._tokens = tokens
        self._authorizer = authorizer
        self._grants = grants
        self._default_user = default_user

    def identify(self, headers: CIMultiDictProxy[str]) -> User:
        """Return who asks: who they are impersonated to be, if they may.

        Raises:
            StatusError: 401, a wrong token; 403, they may not be somebody else.
        """
        user = self._user(headers.get("Authorization", ""))
        wanted = impersonated(headers)
        if wanted is None:
            return user
        for deed in wanted.deeds:
            self._require(user, deed)
        return wanted.user

    def authorize(self, user: User, info: RequestInfo) -> None:
        """Let a request pass, or not.

        Raises:
            StatusError: 403, the user may not do this.
        """
        self._require(user, attributes_of(info))

    def _user(self, authorization: str) -> User:
        if not authorization:
            return self._default_user or NOBODY
        scheme, _, token = authorization.partition(" ")
        found = self._tokens.user_of(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            found = self._default_user
        if found is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return found

    def _require(self, user: User, deed: Attributes) -> None:
        decision = self._authorizer.decide(user, deed)
        if decision.allowed:
            self._grants.use(user, deed, decision.rules)
            return
        error = refusal(user, deed, decision.reason)
        self._grants.refuse(user, deed, error.message)
        raise error
