"""Reviews of tokens and rights, and requests for tokens: objects that are answered, but not stored.

Source:
    kube-apiserver v1.36, pkg/registry/authentication, pkg/registry/authorization and
    pkg/apis/authorization/validation/validation.go.
    kube-apiserver v1.36, pkg/registry/core/serviceaccount/storage/token.go,
    pkg/apis/authentication/validation/validation.go.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339
from scheduler.tools.simulator.access.authentication import BOUND_RESOURCES, TokenError
from scheduler.tools.simulator.access.rbac import Attributes, User
from scheduler.tools.simulator.api.requests import read_body
from scheduler.tools.simulator.apimachinery.causes import Cause, invalid_value
from scheduler.tools.simulator.apimachinery.kinds import Kind, Place
from scheduler.tools.simulator.apimachinery.status import (
    StatusError,
    bad_request,
    invalid,
    method_not_allowed,
)
from scheduler.tools.simulator.apimachinery.strategy import Strategy
from scheduler.tools.simulator.apimachinery.structure import WriteOptions, read_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scheduler.tools.simulator.access.authentication import ServiceAccountTokens, Tokens
    from scheduler.tools.simulator.access.rbac import Authorizer
    from scheduler.tools.simulator.api.handlers import Request
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.registry import Registry

_AUTHORIZATION: Final = "authorization.k8s.io"
_RULE_FIELDS: Final = ("verbs", "apiGroups", "resources", "resourceNames")


class Reviews:
    """Answers reviews."""

    def __init__(self, tokens: Tokens, authorizer: Authorizer) -> None:
        self._tokens = tokens
        self._authorizer = authorizer
        self._answers: Mapping[str, Callable[[Object, User, str], Object]] = {
            "TokenReview": self._token,
            "SelfSubjectReview": self._self,
            "SubjectAccessReview": self._access,
            "LocalSubjectAccessReview": self._access,
            "SelfSubjectAccessReview": self._access,
            "SelfSubjectRulesReview": self._rules,
        }

    def answer(self, kind: Kind, request: Request, user: User) -> Object:
        """Return a review of a kind with its answer for the user.

        Raises:
            StatusError: 400, 405 or 422.
        """
        info = request.info
        if info.verb != "create" or info.name:
            raise method_not_allowed()
        body = read_body(request.body, request.content_type, kind.kind)
        review = read_object(kind, body, WriteOptions())
        if kind.kind != "SelfSubjectReview":
            review.setdefault("spec", {})
        return review | {"status": self._answers[kind.kind](review, user, info.namespace)}

    def _token(self, review: Object, _: User, __: str) -> Object:
        token, audiences = review["spec"].get("token", ""), review["spec"].get("audiences", ())
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        try:
            user, meant = self._tokens.review(token, audiences)
        except TokenError as error:
            return {"user": {}, "error": str(error)}
        return {"authenticated": True, "user": user.info(), "audiences": meant}

    def _self(self, _: Object, user: User, __: str) -> Object:
        return {"userInfo": user.info()}

    def _access(self, review: Object, user: User, namespace: str) -> Object:
        spec, kind = review["spec"], review["kind"]
        causes = list(_attribute_causes(spec))
        if kind != "SelfSubjectAccessReview":
            causes += _subject_causes(spec)
            user = _subject(spec)
        if kind == "LocalSubjectAccessReview":
            causes += _place_causes(spec, namespace)
        if causes:
            raise invalid(_AUTHORIZATION, kind, "", causes)
        decision = self._authorizer.decide(user, _deed(spec))
        return {"allowed": decision.allowed} | ({"reason": decision.reason} if decision.reason else {})

    def _rules(self, review: Object, user: User, _: str) -> Object:
        namespace = review["spec"].get("namespace", "")
        if not namespace:
            raise bad_request("no namespace on request")
        rules, problems = self._authorizer.rules(user, namespace)
        answer: Object = {
            "resourceRules": [
                {field: rule[field] for field in _RULE_FIELDS if rule.get(field)}
                for rule in rules
                if rule.get("resources")
            ],
            "nonResourceRules": [
                {field: rule[field] for field in ("verbs", "nonResourceURLs")}
                for rule in rules
                if rule.get("nonResourceURLs")
            ],
            "incomplete": bool(problems),
        }
        return answer | ({"evaluationError": ", ".join(problems)} if problems else {})


def _subject(spec: Object) -> User:
    extra = {key.lower(): tuple(values) for key, values in spec.get("extra", {}).items()}
    return User(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups", ())), extra)


def _deed(spec: Object) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return Attributes(path.get("verb", ""), path=path.get("path", ""))
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(spec["resourceAttributes"].get(field, "") for field in fields))


def _attribute_causes(spec: Object) -> Iterator[Cause]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        yield invalid_value("spec.nonResourceAttributes", "{}", detail)
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_value("spec.resourceAttributes", "null", detail)


def _subject_causes(spec: Object) -> Iterator[Cause]:
    if not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", '""', "at least one of user or group must be specified")


def _place_causes(spec: Object, namespace: str) -> Iterator[Cause]:
    asked = (spec.get("resourceAttributes") or {}).get("namespace", "")
    if "resourceAttributes" in spec and asked != namespace:
        field = "spec.resourceAttributes.namespace"
        yield invalid_value(field, f'"{asked}"', "must match metadata.namespace")
    if "nonResourceAttributes" in spec:
        yield invalid_value("spec.nonResourceAttributes", "{}", "disallowed on this kind of request")


_TOKEN_REQUEST: Final = Kind("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest", True, Strategy())
_USUAL_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 600
_MOST_SECONDS: Final = 1 << 32


def create_token(registry: Registry, tokens: ServiceAccountTokens, request: Request) -> Object:
    """Return a TokenRequest with its token.

    Raises:
        StatusError: 400, 404, 409 or 422.
    """
    namespace, name = request.info.namespace, request.info.name
    body = read_body(request.body, request.content_type, "TokenRequest")
    asked = read_object(_TOKEN_REQUEST, body, WriteOptions())
    spec: Object = asked.get("spec") or {}
    metadata = {key: value for key, value in asked["metadata"].items() if key in {"name", "namespace"}}
    if metadata.setdefault("name", name) != name or metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("name and namespace of the TokenRequest must be those on the URL")
    seconds = spec.setdefault("expirationSeconds", _USUAL_SECONDS)
    causes = list(_causes(seconds))
    if causes:
        raise invalid("authentication.k8s.io", "TokenRequest", name, causes)
    account = registry.get(Place(registry.kinds.named("serviceaccounts"), namespace, name)).object
    audiences = spec["audiences"] = list(spec.get("audiences") or tokens.audiences)
    bound_to = None
    if spec.get("boundObjectRef"):
        bound_to = _bound(registry, spec["boundObjectRef"], namespace, name)
    token = tokens.issue(account, audiences=audiences, seconds=seconds, bound_to=bound_to)
    now = registry.clock.utc_now()
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {**metadata, "creationTimestamp": rfc3339(now)},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": rfc3339(now + timedelta(seconds=seconds))},
    }


def _causes(seconds: int) -> Iterator[Cause]:
    field = "spec.expirationSeconds"
    if seconds < _LEAST_SECONDS:
        yield invalid_value(field, str(seconds), "may not specify a duration less than 10 minutes")
    if seconds > _MOST_SECONDS:
        yield invalid_value(field, str(seconds), "may not specify a duration larger than 2^32 seconds")


def _bound(
    registry: Registry, reference: Mapping[str, Any], namespace: str, account: str
) -> tuple[str, Object]:
    """Return the kind and the object that a token is bound to."""
    kind, name, uid = (reference.get(field, "") for field in ("kind", "name", "uid"))
    if kind not in BOUND_RESOURCES or reference.get("apiVersion", "v1") != "v1":
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        where = f"{group}/{version}" if group else f"/{version}"
        raise bad_request(f"cannot bind token to object of type {where}, Kind={kind}")
    resource = registry.kinds.named(BOUND_RESOURCES[kind])
    obj = registry.get(Place(resource, namespace if resource.namespaced else "", name)).object
    if kind == "Pod":
        runs_as = obj["spec"].get("serviceAccountName", "")
        if runs_as != account:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with serviceaccount "{runs_as}"'
            )
    present = obj["metadata"]["uid"]
    if uid not in {"", present}:
        raise StatusError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on {kind} "{name}": the UID in the bound object reference ({uid}) does '
            f"not match the UID in record ({present}). The object might have been deleted and then recreated",
            {"name": name, "kind": kind},
        )
    return kind, obj
