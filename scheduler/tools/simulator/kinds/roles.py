"""Roles and their bindings: defaults, validation, and prevention of privilege escalation.

Source:
    kube-apiserver v1.36, pkg/apis/rbac/v1/defaults.go, pkg/apis/rbac/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.apimachinery.causes import Cause, invalid_value, not_supported, required
from scheduler.tools.simulator.apimachinery.objects import json_text
from scheduler.tools.simulator.apimachinery.strategy import Cluster, Strategy, dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.tools.simulator.apimachinery.kinds import Kinds
    from scheduler.tools.simulator.apimachinery.objects import Object

GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECT_GROUPS: Final = {"ServiceAccount": "", "User": GROUP, "Group": GROUP}


def path_segment(name: str) -> str:
    """Return the error of a name that must be a path segment, as of roles, which may contain colons; "" for none."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    found = [sign for sign in ("/", "%") if sign in name]
    return f"may not contain '{found[0]}'" if found else ""


Guard = Callable[[str, "Object", str], None]
"""Checks what an author grants. Arguments: the resource, the new object, and the name in the request ("" for a new one).
Raises StatusError: 403 if it is not allowed, 404 for a binding to a missing role.
"""


class _RbacStrategy(Strategy):
    """The rules that roles and bindings share.

    Attributes:
        guard: checks what authors may grant; None allows everything.
    """

    name_rule = staticmethod(path_segment)
    create_on_update = True
    guard: Guard | None = None

    def __init__(self, resource: str) -> None:
        self.resource = resource

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        if self.guard is not None:
            self.guard(self.resource, obj, "")

    def admit_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        if self.guard is not None and _without_bookkeeping(obj) != _without_bookkeeping(old):
            self.guard(self.resource, obj, old["metadata"]["name"])


class RoleStrategy(_RbacStrategy):
    """The rules of Roles and ClusterRoles."""

    def default(self, obj: Object) -> None:
        obj.setdefault("rules", None)  # as Go encodes it

    def validate(self, obj: Object) -> Iterator[Cause]:
        for place, rule in enumerate(obj.get("rules") or ()):
            yield from _rule_causes(rule, f"rules[{place}]", namespaced=self.resource == "roles")
        aggregation = obj.get("aggregationRule")
        if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            yield required("aggregationRule.clusterRoleSelectors", detail)


class BindingStrategy(_RbacStrategy):
    """The rules of RoleBindings and ClusterRoleBindings."""

    def default(self, obj: Object) -> None:
        obj["roleRef"]["apiGroup"] = obj["roleRef"].get("apiGroup") or GROUP
        for subject in obj.get("subjects", ()):
            group = subject.get("apiGroup") or _SUBJECT_GROUPS.get(subject.get("kind", ""), "")
            if group:
                subject["apiGroup"] = group

    def validate(self, obj: Object) -> Iterator[Cause]:
        namespaced = self.resource == "rolebindings"
        yield from _reference_causes(obj["roleRef"], namespaced=namespaced)
        for place, subject in enumerate(obj.get("subjects", ())):
            yield from _subject_causes(subject, f"subjects[{place}]", namespaced=namespaced)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from self.validate(obj)
        if obj["roleRef"] != old["roleRef"]:
            yield invalid_value("roleRef", json_text(obj["roleRef"]), "cannot change roleRef")


def put_guard(kinds: Kinds, guard: Guard) -> None:
    """Set the guard for roles and bindings."""
    for kind in kinds:
        if isinstance(kind.strategy, _RbacStrategy):
            kind.strategy.guard = guard


def _without_bookkeeping(obj: Object) -> Object:
    """Return an object without the fields of garbage collection."""
    dropped = {"ownerReferences", "finalizers", "resourceVersion", "managedFields"}
    metadata = {name: value for name, value in obj["metadata"].items() if name not in dropped}
    return {**obj, "metadata": metadata}


def _rule_causes(rule: Object, field: str, *, namespaced: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield required(f"{field}.verbs", "verbs must contain at least one value")
    if rule.get("nonResourceURLs"):
        shown = json_text(rule["nonResourceURLs"])
        where = f"{field}.nonResourceURLs"
        if namespaced:
            yield invalid_value(where, shown, "namespaced rules cannot apply to non-resource URLs")
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            yield invalid_value(
                where, shown, "rules cannot apply to both regular resources and non-resource URLs"
            )
        return
    if not rule.get("apiGroups"):
        yield required(f"{field}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{field}.resources", "resource rules must supply at least one resource")


def _reference_causes(reference: Object, *, namespaced: bool) -> Iterator[Cause]:
    if reference["apiGroup"] != GROUP:
        yield not_supported("roleRef.apiGroup", reference["apiGroup"], [GROUP])
    kinds = ["ClusterRole", "Role"] if namespaced else ["ClusterRole"]
    if reference.get("kind", "") not in kinds:
        yield not_supported("roleRef.kind", reference.get("kind", ""), kinds)
    name = reference.get("name", "")
    problem = path_segment(name)
    if not name:
        yield required("roleRef.name")
    elif problem:
        yield invalid_value("roleRef.name", f'"{name}"', problem)


def _subject_causes(subject: Object, field: str, *, namespaced: bool) -> Iterator[Cause]:
    kind, name, group = (subject.get(part, "") for part in ("kind", "name", "apiGroup"))
    if not name:
        yield required(f"{field}.name")
    if kind not in _SUBJECT_GROUPS:
        yield not_supported(f"{field}.kind", kind, sorted(_SUBJECT_GROUPS))
        return
    problem = dns_subdomain(name) if name and kind == "ServiceAccount" else ""
    if problem:
        yield invalid_value(f"{field}.name", f'"{name}"', problem)
    if group != _SUBJECT_GROUPS[kind]:
        yield not_supported(f"{field}.apiGroup", group, [_SUBJECT_GROUPS[kind]])
    if kind == "ServiceAccount" and not namespaced and not subject.get("namespace"):
        yield required(f"{field}.namespace")
