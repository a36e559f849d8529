"""Reviews of tokens and rights: objects that are created and answered, but not stored.

Source:
    kube-apiserver v1.36, pkg/registry/authentication, pkg/registry/authorization and
    pkg/apis/authorization/validation/validation.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.access.attributes import Attributes
from scheduler.simulator.access.service_account_tokens import TokenError
from scheduler.simulator.access.users import User
from scheduler.simulator.api.body import read_body
from scheduler.simulator.apimachinery.causes import Cause, invalid_value
from scheduler.simulator.apimachinery.decoding import WriteOptions, read_object
from scheduler.simulator.apimachinery.status import bad_request, invalid, method_not_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scheduler.simulator.access.authentication import Tokens
    from scheduler.simulator.access.rbac import Authorizer
    from scheduler.simulator.api.handlers import Request
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object

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
