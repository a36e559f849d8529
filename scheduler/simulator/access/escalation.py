"""Nobody grants what they do not have.

Source:
    kube-apiserver v1.36, pkg/registry/rbac/*/policybased/storage.go, escalation_check.go and validation/rule.go.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from scheduler.simulator.access.attributes import Attributes
from scheduler.simulator.access.rbac import EVERYTHING, ROLE_RESOURCES, Rbac
from scheduler.simulator.access.rbac_rules import compact, described, missing, quoted
from scheduler.simulator.access.users import MASTERS
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.kinds.roles import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.simulator.access.grants import Grants
    from scheduler.simulator.access.rbac_rules import Rule
    from scheduler.simulator.access.users import User
    from scheduler.simulator.apimachinery.objects import Object


class EscalationGuard:
    """Looks at roles and bindings while somebody's request is answered; else, everything may be written."""

    def __init__(self, rbac: Rbac, grants: Grants) -> None:
        self._rbac = rbac
        self._grants = grants
        self._user: User | None = None

    @contextmanager
    def asking(self, user: User) -> Iterator[None]:
        """Let nothing be granted in the block that a user does not have."""
        self._user = user
        try:
            yield
        finally:
            self._user = None

    def check_role(self, resource: str, role: Object, name: str) -> None:
        """Refuse a role with more rules than its author has."""
        user, metadata = self._user, role["metadata"]
        if user is None or MASTERS in user.groups:
            return
        namespace = metadata.get("namespace", "")
        deed = Attributes("escalate", GROUP, resource, "", namespace, name)
        if self._may(user, deed):
            return
        problem = self._problem(user, namespace, role.get("rules") or ())
        if not problem and "aggregationRule" in role and self._problem(user, namespace, EVERYTHING):
            problem = "must have cluster-admin privileges to use the aggregationRule"
        if problem:
            raise self._refused(user, deed, resource, metadata.get("name", ""), problem)

    def check_binding(self, resource: str, binding: Object) -> None:
        """Refuse a binding to a role with more rules than its author has."""
        user, metadata, reference = self._user, binding["metadata"], binding.get("roleRef", {})
        if user is None or MASTERS in user.groups or reference.get("kind") not in ROLE_RESOURCES:
            return
        namespace = metadata.get("namespace", "")
        role_resource = ROLE_RESOURCES[reference["kind"]]
        deed = Attributes("bind", GROUP, role_resource, "", namespace, reference.get("name", ""))
        if self._may(user, deed):
            return
        problem = self._problem(user, namespace, self._rbac.rules_behind(reference, namespace))
        if problem:
            raise self._refused(user, deed, resource, metadata.get("name", ""), problem)

    def _may(self, user: User, deed: Attributes) -> bool:
        decision = self._rbac.decide(user, deed)
        if decision.allowed:
            self._grants.use(user, deed, decision.rules)
        return decision.allowed

    def _problem(self, user: User, namespace: str, rules: Sequence[Rule]) -> str:
        """Return what a user lacks of some rules, in words; "" for nothing."""
        held, problems = self._rbac.rules(user, namespace)
        lacking = missing(held, rules)
        if not lacking:
            return ""
        shown = sorted({described(rule) for rule in compact(lacking)})
        told = (
            f'user "{user.name}" (groups={quoted(user.groups)}) is attempting to grant RBAC permissions not '
            "currently held:\n" + "\n".join(shown)
        )
        return f"{told}; resolution errors: [{', '.join(problems)}]" if problems else told

    def _refused(self, user: User, deed: Attributes, resource: str, name: str, problem: str) -> StatusError:
        details = {"name": name, "group": GROUP, "kind": resource}
        message = f'{resource}.{GROUP} "{name}" is forbidden: {problem}'
        self._grants.refuse(user, deed, message)
        return StatusError(403, "Forbidden", message, details)
