"""Authentication and authorization of all requests: impersonation, escalation, and the record of used rights.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation.
    kube-apiserver v1.36, pkg/registry/rbac/*/policybased/storage.go, escalation_check.go and validation/rule.go.
    kube-apiserver v1.36, pkg/registry/resource/utils.go, AuthorizedForBinding and AuthorizedForDeviceStatus.
"""

from __future__ import annotations

import secrets
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec

from scheduler.tools.simulator.access.authentication import ServiceAccountTokens, Tokens
from scheduler.tools.simulator.access.rbac import (
    ANONYMOUS,
    AUTHENTICATED,
    EVERYTHING,
    MASTERS,
    NOBODY,
    ROLE_RESOURCES,
    UNAUTHENTICATED,
    AllowKnown,
    Attributes,
    Authorizer,
    Permission,
    Rbac,
    User,
    allows,
    attributes_of,
    compact,
    described,
    missing,
    permissions,
    quoted,
    refusal,
    service_account_groups,
    service_account_of,
)
from scheduler.tools.simulator.access.reviews import Reviews, create_token
from scheduler.tools.simulator.api.handlers import Answer, Api, Request
from scheduler.tools.simulator.apimachinery.causes import Cause, forbidden_field
from scheduler.tools.simulator.apimachinery.kinds import REVIEW_VERBS
from scheduler.tools.simulator.apimachinery.status import StatusError, method_not_allowed
from scheduler.tools.simulator.kinds.resource_claims import put_status_guard
from scheduler.tools.simulator.kinds.roles import GROUP, put_guard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.tools.simulator.access.rbac import BoundRule, Rule
    from scheduler.tools.simulator.api.requests import RequestInfo
    from scheduler.tools.simulator.apimachinery.kinds import Kinds
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.registry import Registry

_GROUP: Final = "authentication.k8s.io"
_EXTRA: Final = "impersonate-extra-"


@dataclass(frozen=True, slots=True)
class Impersonation:
    """A user to impersonate, and the rights that this requires."""

    user: User
    deeds: Sequence[Attributes]


def impersonated(headers: Mapping[str, Sequence[str]]) -> Impersonation | None:
    """Return the impersonation of a request; None if there is none.

    Raises:
        StatusError: 500, as upstream: groups or other fields without a user.
    """
    name, uid = (_first(headers, f"impersonate-{field}") for field in ("user", "uid"))
    groups = tuple(headers.get("impersonate-group", ()))
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            problem = "Internal error occurred: requested groups, uid or extra without impersonating a user"
            raise StatusError(500, "InternalError", problem, {})
        return None
    wanted = User(name, uid, groups, extra)
    return Impersonation(_with_usual_groups(wanted), list(_deeds(wanted)))


def _first(headers: Mapping[str, Sequence[str]], name: str) -> str:
    return next(iter(headers.get(name, ())), "")


def _extra(headers: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for header, values in headers.items():
        if header.startswith(_EXTRA):
            key = unquote(header[len(_EXTRA) :].lower())
            extra[key] = (*extra.get(key, ()), *values)
    return extra


def _deeds(wanted: User) -> Iterator[Attributes]:
    """Yield the rights that the impersonation of a user requires."""
    account = service_account_of(wanted.name)
    if account is None:
        yield Attributes("impersonate", resource="users", name=wanted.name)
    else:
        namespace, name = account
        yield Attributes("impersonate", resource="serviceaccounts", namespace=namespace, name=name)
    for group in wanted.groups:
        yield Attributes("impersonate", resource="groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes("impersonate", _GROUP, "userextras", key, name=value)
    if wanted.uid:
        yield Attributes("impersonate", _GROUP, "uids", name=wanted.uid)


def _with_usual_groups(wanted: User) -> User:
    """Return a user with the groups that authentication adds."""
    groups, account = wanted.groups, service_account_of(wanted.name)
    if account is not None and not groups:
        groups = service_account_groups(account[0])
    if UNAUTHENTICATED not in groups:
        usual = UNAUTHENTICATED if wanted.name == ANONYMOUS else AUTHENTICATED
        groups = groups if usual in groups else (*groups, usual)
    return User(wanted.name, wanted.uid, groups, wanted.extra)


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

    def judge(self, authorizer: Authorizer, user: User, deed: Attributes) -> StatusError | None:
        """Record the decision about a request, and return the error of a rejected one."""
        decision = authorizer.decide(user, deed)
        if decision.allowed:
            self.use(user, deed, decision.rules)
            return None
        error = refusal(user, deed, decision.reason)
        self.refuse(user, deed, error.message)
        return error

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


class EscalationGuard:
    """Checks roles and bindings while a user's request is handled; otherwise, all changes are allowed."""

    def __init__(self, rbac: Rbac, grants: Grants) -> None:
        self._rbac = rbac
        self._grants = grants
        self._user: User | None = None

    @contextmanager
    def asking(self, user: User) -> Iterator[None]:
        """Check roles and bindings in the block with the rights of a user."""
        self._user = user
        try:
            yield
        finally:
            self._user = None

    def check(self, resource: str, obj: Object, name: str) -> None:
        """Reject a role, or a binding to a role, with more rights than its author has; see `roles.Guard`."""
        user = self._user
        if user is None or MASTERS in user.groups:
            return
        namespace = obj["metadata"].get("namespace", "")
        if resource in ROLE_RESOURCES.values():
            deed = Attributes("escalate", GROUP, resource, "", namespace, name)
            problem = "" if self._may(user, deed) else self._role_problem(user, namespace, obj)
        else:
            reference = obj.get("roleRef", {})
            role_resource = ROLE_RESOURCES.get(reference.get("kind"))
            if role_resource is None:
                return
            deed = Attributes("bind", GROUP, role_resource, "", namespace, reference.get("name", ""))
            if self._may(user, deed):
                return
            problem = self._problem(user, namespace, self._rbac.rules_behind(reference, namespace))
        if problem:
            raise self._refused(user, deed, resource, obj["metadata"].get("name", ""), problem)

    def _role_problem(self, user: User, namespace: str, role: Object) -> str:
        problem = self._problem(user, namespace, role.get("rules") or ())
        if not problem and "aggregationRule" in role and self._problem(user, namespace, EVERYTHING):
            return "must have cluster-admin privileges to use the aggregationRule"
        return problem

    def _may(self, user: User, deed: Attributes) -> bool:
        decision = self._rbac.decide(user, deed)
        if decision.allowed:
            self._grants.use(user, deed, decision.rules)
        return decision.allowed

    def _problem(self, user: User, namespace: str, rules: Sequence[Rule]) -> str:
        """Return a message about rules that a user lacks; "" for none."""
        held, problems = self._rbac.rules(user, namespace)
        lacking = missing(held, rules)
        if not lacking:
            return ""
        shown = sorted({described(rule) for rule in compact(lacking)})
        message = (
            f'user "{user.name}" (groups={quoted(user.groups)}) is attempting to grant RBAC permissions not '
            "currently held:\n" + "\n".join(shown)
        )
        return f"{message}; resolution errors: [{', '.join(problems)}]" if problems else message

    def _refused(self, user: User, deed: Attributes, resource: str, name: str, problem: str) -> StatusError:
        details = {"name": name, "group": GROUP, "kind": resource}
        message = f'{resource}.{GROUP} "{name}" is forbidden: {problem}'
        self._grants.refuse(user, deed, message)
        return StatusError(403, "Forbidden", message, details)


_RESOURCE_GROUP: Final = "resource.k8s.io"
_CLAIMS: Final = "resourceclaims"


class ClaimStatusGuard:
    """Checks the status of claims while a user's request is handled; otherwise, all changes are allowed."""

    def __init__(self, authorizer: Authorizer, grants: Grants) -> None:
        self._authorizer = authorizer
        self._grants = grants
        self._author: tuple[User, str] | None = None

    @contextmanager
    def asking(self, user: User, verb: str) -> Iterator[None]:
        """Check changes in the block with the rights of a user for a verb."""
        self._author = (user, verb)
        try:
            yield
        finally:
            self._author = None

    def check(self, obj: Object, old: Object) -> Iterator[Cause]:
        """Yield the changes of a claim's status that its author may not make."""
        if self._author is None:
            return
        user, verb = self._author
        status, before = obj["status"], old["status"]
        if any(status.get(field) != before.get(field) for field in ("allocation", "reservedFor")):
            deed = Attributes(verb, _RESOURCE_GROUP, _CLAIMS, "binding")
            if error := self._grants.judge(self._authorizer, user, deed):
                what = "status.allocation or status.reservedFor"
                message = (
                    f'changing {what} requires resource="resourceclaims/binding", verb="{verb}" permission'
                )
                yield forbidden_field("status.allocation", f"{message}: {error.message}")
        if "allocation" not in status:
            return
        for driver in sorted(_changed_drivers(status, before)):
            namespace = obj["metadata"]["namespace"]
            deed = Attributes(f"arbitrary-node:{verb}", _RESOURCE_GROUP, _CLAIMS, "driver", namespace, driver)
            if error := self._grants.judge(self._authorizer, user, deed):
                message = (
                    f'changing status.devices requires resource="resourceclaims/driver", verb="[{deed.verb}]"'
                )
                yield forbidden_field("status.devices", f"{message} permission: {error.message}")


def _changed_drivers(status: Object, before: Object) -> set[str]:
    """Return the drivers of the devices whose status changed."""
    present, past = status.get("devices", []), before.get("devices", [])
    differing = [*(one for one in present if one not in past), *(one for one in past if one not in present)]
    return {one.get("driver", "") for one in differing}


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
            kept_refusals: number of rejected requests that `Grants` keeps.
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
        self._rbac = rbac
        self.guard(registry.kinds)

    def guard(self, kinds: Kinds) -> None:
        """Set the checks of RBAC for writes of these kinds."""
        if self._rbac:
            put_guard(kinds, self._guard.check)
            put_status_guard(kinds, self._claims.check)

    def identify(self, headers: Mapping[str, Sequence[str]]) -> User:
        """Return the user of a request with these headers, by names in lower case, or the user to impersonate.

        Raises:
            StatusError: 401, the token is invalid; 403, impersonation is not allowed.
        """
        user = self._user(_first(headers, "authorization"))
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
        if error := self.grants.judge(self._authorizer, user, deed):
            raise error


def is_review(info: RequestInfo) -> bool:
    """Return whether a request is for a review, which is only created and not stored."""
    return info.kind is not None and info.kind.verbs == REVIEW_VERBS
