"""Authentication and authorization of all requests, and the requests about these."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from scheduler.simulator.access.attributes import attributes_of, refusal
from scheduler.simulator.access.authentication import Tokens
from scheduler.simulator.access.claim_status import ClaimStatusGuard
from scheduler.simulator.access.escalation import EscalationGuard
from scheduler.simulator.access.grants import Grants
from scheduler.simulator.access.impersonation import impersonated
from scheduler.simulator.access.rbac import AllowKnown, Authorizer, Rbac
from scheduler.simulator.access.reviews import Reviews
from scheduler.simulator.access.service_account_tokens import ServiceAccountTokens
from scheduler.simulator.access.token_requests import create_token
from scheduler.simulator.access.users import MASTERS, NOBODY, User
from scheduler.simulator.api.handlers import Answer, Api, Request
from scheduler.simulator.apimachinery.kinds import REVIEW_VERBS
from scheduler.simulator.apimachinery.status import StatusError, method_not_allowed
from scheduler.simulator.kinds.resource_claims import put_status_guard
from scheduler.simulator.kinds.roles import put_guard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDictProxy

    from scheduler.simulator.access.attributes import Attributes
    from scheduler.simulator.api.request_info import RequestInfo
    from scheduler.simulator.registry.registry import Registry


class Security:
    """Authenticates and authorizes requests, and answers those that depend on the user.

    Attributes:
        token: token of the owner, who may do everything; None if the server is open.
        grants: the record of used grants and rejected requests.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        token: str | None,
        owner: str,
        users: Mapping[str, User],
        rbac: bool,
        is_open: bool,
        kept_refusals: int,
    ) -> None:
        """Set up.

        Args:
            registry: the objects.
            token: token of the owner; generated if empty.
            owner: name of the owner.
            users: the other tokens: token -> user.
            rbac: whether roles and bindings decide.
            is_open: whether no token is required: every client is the owner.
            kept_refusals: number of rejected requests that `grants` keeps.
        """
        self.token = None if is_open else token or secrets.token_urlsafe(32)
        user = User(owner, groups=(MASTERS,)).authenticated()
        own = {self.token: user} if self.token else {}
        self._registry = registry
        self._tokens = Tokens({**users, **own}, ServiceAccountTokens(registry))
        roles = Rbac(registry)
        self._authorizer: Authorizer = roles if rbac else AllowKnown()
        self.grants = Grants(roles, kept_refusals)
        self._default_user = user if is_open else None
        self._reviews = Reviews(self._tokens, self._authorizer)
        self._guard = EscalationGuard(roles, self.grants)
        self._claims = ClaimStatusGuard(self._authorizer, self.grants)
        if rbac:
            put_guard(registry.kinds, self._guard.check)
            put_status_guard(registry.kinds, self._claims.check)

    def identify(self, headers: CIMultiDictProxy[str]) -> User:
        """Return the user of a request, or the user to impersonate.

        Raises:
            StatusError: 401, the token is invalid; 403, impersonation is not allowed.
        """
        user = self._user(headers.get("Authorization", ""))
        wanted = impersonated(headers)
        if wanted is None:
            return user
        for deed in wanted.deeds:
            self._require(user, deed)
        return wanted.user

    def authorize(self, user: User, info: RequestInfo) -> None:
        """Authorize a request.

        Raises:
            StatusError: 403, the user may not do this.
        """
        self._require(user, attributes_of(info))

    def answer(self, api: Api, request: Request, user: User) -> Answer:
        """Answer any request but a watch: reviews and token requests here, all others by the API for the user.

        Raises:
            StatusError: a review or token request is rejected; other rejections are answers.
        """
        info = request.info
        if is_review(info):
            created = self._reviews.answer(api.kind(info), request, user)
        elif (info.group, info.resource, info.subresource) == ("", "serviceaccounts", "token"):
            api.kind(info)
            if info.verb != "create":
                raise method_not_allowed()
            created = create_token(self._registry, self._tokens.accounts, request)
        else:
            with self._guard.asking(user), self._claims.asking(user, info.verb):
                return api.answer(request)
        return Answer(HTTPStatus.CREATED, msgspec.json.encode(created))

    def _user(self, authorization: str) -> User:
        if not authorization:
            return self._default_user or NOBODY
        scheme, _, token = authorization.partition(" ")
        known = self._tokens.user_of(token.strip()) if scheme.lower() == "bearer" else None
        user = known or self._default_user
        if user is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return user

    def _require(self, user: User, deed: Attributes) -> None:
        decision = self._authorizer.decide(user, deed)
        if decision.allowed:
            self.grants.use(user, deed, decision.rules)
            return
        error = refusal(user, deed, decision.reason)
        self.grants.refuse(user, deed, error.message)
        raise error


def is_review(info: RequestInfo) -> bool:
    """Return whether a request is for a review, which is only created and not stored."""
    return info.kind is not None and info.kind.verbs == REVIEW_VERBS
