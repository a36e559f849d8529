"""Authorization by roles and bindings or, without RBAC, full access for all authenticated users.

Source:
    kube-apiserver v1.36, pkg/registry/rbac/validation/rule.go and plugin/pkg/auth/authorizer/rbac/rbac.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.simulator.access.rbac_rules import Rule, allows
from scheduler.simulator.access.users import MASTERS, NOBODY, User, service_account_name
from scheduler.simulator.apimachinery.status import StatusError, not_found
from scheduler.simulator.kinds.roles import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.simulator.access.attributes import Attributes
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.registry import Registry

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


class Rbac:
    """Decides by the roles and bindings of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def decide(self, user: User, deed: Attributes) -> AccessDecision:
        if MASTERS in user.groups:
            return AccessDecision(allowed=True)
        bound, problems = self.bound_rules(user, deed.namespace)
        serving = tuple(one for one in bound if allows(one.rule, deed))
        if serving:
            return AccessDecision(True, f"RBAC: allowed by {serving[0].source}", serving)
        return AccessDecision(False, f"RBAC: {_together(problems)}" if problems else "")

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        if MASTERS in user.groups:
            return list(EVERYTHING), []
        bound, problems = self.bound_rules(user, namespace)
        return [one.rule for one in bound], problems

    def bound_rules(self, user: User, namespace: str) -> tuple[list[BoundRule], list[str]]:
        """Return the rules that apply to a user in a namespace, and errors about missing roles."""
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
