"""Users, and their authorization by roles and bindings or, without RBAC, full access.

Source:
    kube-apiserver v1.36, plugin/pkg/auth/authorizer/rbac/rbac.go, pkg/apis/rbac/v1/evaluation_helpers.go;
    staging/src/k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go.
    kube-apiserver v1.36, pkg/registry/rbac/validation/rule.go and plugin/pkg/auth/authorizer/rbac/rbac.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.tools.simulator.apimachinery.status import StatusError, not_found
from scheduler.tools.simulator.kinds.roles import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.tools.simulator.api.requests import RequestInfo
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.registry import Registry

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


@dataclass(frozen=True, slots=True)
class Attributes:
    """An action that authorization allows or denies.

    Attributes:
        verb: verb, as in RBAC.
        group: API group; "" for core.
        resource: the plural; "" for a path.
        subresource: for example `status`.
        namespace: namespace; "" for the whole cluster.
        name: name of the object; "" for all.
        path: path of a request that is not for a resource.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def whole_resource(self) -> str:
        """The resource as in rules: `pods/binding`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(info: RequestInfo) -> Attributes:
    """Return the attributes of a request.

    A list or watch of one name has that name, and a namespace has itself as its namespace.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/request/requestinfo.go.
    """
    if not info.is_resource:
        return Attributes(info.verb, path=info.path)
    name, namespace = info.name, info.namespace
    if not name:
        name = _selected_name(info.query.get("fieldSelector", ""))
    if (info.group, info.resource) == ("", "namespaces"):
        namespace = info.name
    return Attributes(info.verb, info.group, info.resource, info.subresource, namespace, name)


def refusal(user: User, deed: Attributes, reason: str = "") -> StatusError:
    """Return the 403 error with upstream's message.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
    """
    because = f": {reason}" if reason else ""
    if not deed.resource:
        problem = f'User "{user.name}" cannot {deed.verb} path "{deed.path}"'
        return StatusError(403, "Forbidden", f"forbidden: {problem}{because}", {})
    where = f'in the namespace "{deed.namespace}"' if deed.namespace else "at the cluster scope"
    problem = (
        f'User "{user.name}" cannot {deed.verb} resource "{deed.whole_resource}" in API group '
        f'"{deed.group}" {where}{because}'
    )
    details = {"name": deed.name} if deed.name else {}
    if deed.group:
        details["group"] = deed.group
    details["kind"] = deed.resource
    shown = f"{deed.resource}.{deed.group}" if deed.group else deed.resource
    named = f' "{deed.name}"' if deed.name else ""
    return StatusError(403, "Forbidden", f"{shown}{named} is forbidden: {problem}", details)


def _selected_name(field_selector: str) -> str:
    """Return the name that a field selector selects; "" if it selects no single one."""
    for requirement in field_selector.split(","):
        field, sign, value = requirement.partition("=")
        if field == "metadata.name" and sign:
            return value.removeprefix("=")
    return ""


Rule = dict[str, Any]
"""rbac.authorization.k8s.io/v1 PolicyRule."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """The smallest part of a rule: one verb on one resource or path.

    Attributes:
        verb: a verb, or `*`.
        group: group of the resource, or `*`.
        resource: a resource, `*` or `*/scale`; "" for a path.
        name: name of the object; "" for all.
        path: a path, which may end in `*`.
    """

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    path: str = ""

    def rule(self) -> Rule:
        """Return a rule with this permission only."""
        if self.path:
            return {"verbs": [self.verb], "nonResourceURLs": [self.path]}
        rule: Rule = {"verbs": [self.verb], "apiGroups": [self.group], "resources": [self.resource]}
        return rule | ({"resourceNames": [self.name]} if self.name else {})


def permissions(rule: Mapping[str, Any]) -> Iterator[Permission]:
    """Yield the permissions of a rule."""
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield Permission(verb, group, resource, name)
    for path in rule.get("nonResourceURLs") or ():
        for verb in rule.get("verbs") or ():
            yield Permission(verb, path=path)


def allows(rule: Mapping[str, Any], deed: Attributes) -> bool:
    """Return whether a rule allows an action."""
    return covers(rule, Permission(deed.verb, deed.group, deed.whole_resource, deed.name, deed.path))


def covers(rule: Mapping[str, Any], wanted: Permission) -> bool:
    """Return whether a rule covers a permission; wildcards in the permission are literal."""
    if not _has(rule, "verbs", wanted.verb):
        return False
    if not wanted.resource:
        return any(_path_covers(path, wanted.path) for path in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _has(rule, "apiGroups", wanted.group)
        and any(_resource_covers(one, wanted.resource) for one in rule.get("resources") or ())
        and (not names or wanted.name in names)
    )


def missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Permission]:
    """Return the permissions of rules that the held rules do not cover."""
    return [
        permission
        for rule in wanted
        for permission in permissions(rule)
        if not any(covers(own, permission) for own in held)
    ]


def compact(lacking: Iterable[Permission]) -> list[Rule]:
    """Return permissions as rules, with the verbs of one resource together."""
    rules: dict[tuple[str, ...], Rule] = {}
    for permission in lacking:
        place: tuple[str, ...] = (permission.group, permission.resource, permission.name)
        key = (permission.verb, permission.path) if permission.path else place
        rule = rules.setdefault(key, permission.rule() | {"verbs": []})
        if permission.verb not in rule["verbs"]:
            rule["verbs"].append(permission.verb)
    return list(rules.values())


def described(rule: Rule) -> str:
    """Return a rule as one line, as in upstream's errors."""
    fields = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("ResourceNames", "resourceNames"),
        ("Verbs", "verbs"),
    )
    shown = [f"{title}:{quoted(rule[field])}" for title, field in fields if rule.get(field)]
    return "{" + ", ".join(shown) + "}"


def quoted(texts: Iterable[str]) -> str:
    """Return texts as Go's %q prints a slice."""
    return "[" + " ".join(f'"{text}"' for text in texts) + "]"


def _has(rule: Mapping[str, Any], field: str, wanted: str) -> bool:
    values = rule.get(field) or ()
    return "*" in values or wanted in values


def _resource_covers(own: str, wanted: str) -> bool:
    """Return whether `pods`, `pods/binding`, `*/binding` or `*` covers a resource."""
    if own in {"*", wanted}:
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and own == f"*/{subresource}"


def _path_covers(own: str, wanted: str) -> bool:
    return own == wanted or (own.endswith("*") and wanted.startswith(own.rstrip("*")))


EVERYTHING: Final[list[Rule]] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
"""The rights of system:masters, regardless of roles."""

_PUBLIC: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})

ROLE_RESOURCES: Final = {"Role": "roles", "ClusterRole": "clusterroles"}


@dataclass(frozen=True, slots=True)
class BoundRule:
    """A rule that applies to a user.

    Attributes:
        rule: the PolicyRule.
        role: `ClusterRole/view`, or with a namespace `Role/default/reader`.
        source: the binding, in upstream's notation.
    """

    rule: Rule
    role: str
    source: str


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The result of authorization.

    Attributes:
        allowed: whether the request is allowed.
        reason: the reason; may be "".
        rules: the rules that allow it.
    """

    allowed: bool
    reason: str = ""
    rules: tuple[BoundRule, ...] = ()


class Authorizer(Protocol):
    """Decides about requests."""

    def decide(self, user: User, deed: Attributes) -> AccessDecision:
        """Return whether a user may do something."""
        ...

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """Return the rules of a user in a namespace, and errors about rules that could not be found."""
        ...


class AllowKnown:
    """Allows everything to authenticated users, and the public paths to all others."""

    def decide(self, user: User, deed: Attributes) -> AccessDecision:
        return AccessDecision(user != NOBODY or deed.path.rstrip("/") in _PUBLIC)

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        return list(EVERYTHING), []


_OBJECTS: Final = tuple(
    f"{kind}.{GROUP}" for kind in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
)
_CACHED_USERS: Final = 1000


class Rbac:
    """Decides by the roles and bindings of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._objects: list[list[Object]] = []
        self._bound: dict[tuple[str, tuple[str, ...], str], tuple[list[BoundRule], list[str]]] = {}

    def decide(self, user: User, deed: Attributes) -> AccessDecision:
        if MASTERS in user.groups:
            return AccessDecision(allowed=True)
        bound, problems = self.bound_rules(user, deed.namespace)
        wanted = Permission(deed.verb, deed.group, deed.whole_resource, deed.name, deed.path)
        serving = tuple(one for one in bound if covers(one.rule, wanted))
        if serving:
            return AccessDecision(True, f"RBAC: allowed by {serving[0].source}", serving)
        return AccessDecision(False, f"RBAC: {_together(problems)}" if problems else "")

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        if MASTERS in user.groups:
            return list(EVERYTHING), []
        bound, problems = self.bound_rules(user, namespace)
        return [one.rule for one in bound], problems

    def bound_rules(self, user: User, namespace: str) -> tuple[list[BoundRule], list[str]]:
        """Return the rules that apply to a user in a namespace, and errors about missing roles.

        They are cached until a role or a binding changes. A stored object is never changed, but replaced.
        """
        objects = [self._registry.each(kind) for kind in _OBJECTS]
        if objects != self._objects or len(self._bound) >= _CACHED_USERS:
            self._objects, self._bound = objects, {}
        key = (user.name, user.groups, namespace)
        if key not in self._bound:
            self._bound[key] = self._find_bound_rules(user, namespace)
        return self._bound[key]

    def _find_bound_rules(self, user: User, namespace: str) -> tuple[list[BoundRule], list[str]]:
        found: list[BoundRule] = []
        problems: list[str] = []
        for binding in self._bindings(namespace):
            where = binding["metadata"].get("namespace", "")
            subject = next((one for one in binding.get("subjects", ()) if _is(user, one, where)), None)
            if subject is None:
                continue
            reference = binding["roleRef"]
            try:
                rules = self.rules_behind(reference, where)
            except StatusError as error:
                problems.append(error.message)
                continue
            role, source = _role_key(reference, where), _source(binding, subject, where)
            found += [BoundRule(rule, role, source) for rule in rules]
        return found, problems

    def rules_behind(self, reference: Mapping[str, Any], namespace: str) -> Sequence[Rule]:
        """Return the rules of the role of a binding.

        Raises:
            StatusError: 404, there is no such role.
        """
        kind = self._registry.kinds.named(f"{ROLE_RESOURCES[reference['kind']]}.{GROUP}")
        role = self._registry.find(
            kind.group_resource, reference["name"], namespace if kind.namespaced else ""
        )
        if role is None:
            raise not_found(kind, reference["name"])
        rules: Sequence[Rule] = role.get("rules") or ()
        return rules

    def rules_of(self, role: str) -> Sequence[Rule]:
        """Return the rules of a role named as in `BoundRule.role`.

        Raises:
            StatusError: 404, there is no such role.
        """
        kind, *place = role.split("/")
        return self.rules_behind({"kind": kind, "name": place[-1]}, place[0] if len(place) > 1 else "")

    def _bindings(self, namespace: str) -> Iterator[Object]:
        yield from self._registry.each(f"clusterrolebindings.{GROUP}")
        if namespace:
            for binding in self._registry.each(f"rolebindings.{GROUP}"):
                if binding["metadata"]["namespace"] == namespace:
                    yield binding


def _is(user: User, subject: Mapping[str, Any], namespace: str) -> bool:
    """Say whether a subject of a binding is, or includes, a user."""
    match subject["kind"]:
        case "User":
            return bool(user.name == subject["name"])
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            where = subject.get("namespace") or namespace
            return bool(where) and user.name == service_account_name(where, subject["name"])
    return False


def _role_key(reference: Mapping[str, Any], namespace: str) -> str:
    steps = [reference["kind"], namespace, reference["name"]]
    return "/".join(steps if reference["kind"] == "Role" else steps[::2])


def _source(binding: Object, subject: Mapping[str, Any], namespace: str) -> str:
    metadata, reference = binding["metadata"], binding["roleRef"]
    name = f"{metadata['name']}/{namespace}" if namespace else metadata["name"]
    whom = subject["name"]
    if subject["kind"] == "ServiceAccount":
        whom = f"{whom}/{subject.get('namespace') or namespace}"
    return f'{binding["kind"]} "{name}" of {reference["kind"]} "{reference["name"]}" to {subject["kind"]} "{whom}"'


def _together(problems: Sequence[str]) -> str:
    """Return messages as Go prints several errors."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
