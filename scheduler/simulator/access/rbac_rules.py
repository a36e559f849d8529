"""What one RBAC rule allows, and what it covers of another.

Source:
    kube-apiserver v1.36, plugin/pkg/auth/authorizer/rbac/rbac.go, pkg/apis/rbac/v1/evaluation_helpers.go;
    staging/src/k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.simulator.access.attributes import Attributes

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
