"""Prevents privilege escalation: users can only grant rights that they have.

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
