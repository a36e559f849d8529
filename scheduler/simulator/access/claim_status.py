"""Authorization of changes to the status of ResourceClaims, beyond the right to update it.

Source:
    kube-apiserver v1.36, pkg/registry/resource/utils.go, AuthorizedForBinding and AuthorizedForDeviceStatus.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from scheduler.simulator.access.attributes import Attributes, refusal
from scheduler.simulator.apimachinery.causes import Cause, forbidden_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.access.grants import Grants
    from scheduler.simulator.access.rbac import Authorizer
    from scheduler.simulator.access.users import User
    from scheduler.simulator.apimachinery.objects import Object

_GROUP: Final = "resource.k8s.io"
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
            deed = Attributes(verb, _GROUP, _CLAIMS, "binding")
            problem = self._problem(user, deed)
            if problem:
                what = "status.allocation or status.reservedFor"
                message = (
                    f'changing {what} requires resource="resourceclaims/binding", verb="{verb}" permission'
                )
                yield forbidden_field("status.allocation", f"{message}: {problem}")
        if "allocation" not in status:
            return
        for driver in sorted(_changed_drivers(status, before)):
            namespace = obj["metadata"]["namespace"]
            deed = Attributes(f"arbitrary-node:{verb}", _GROUP, _CLAIMS, "driver", namespace, driver)
            problem = self._problem(user, deed)
            if problem:
                message = (
                    f'changing status.devices requires resource="resourceclaims/driver", verb="[{deed.verb}]"'
                )
                yield forbidden_field("status.devices", f"{message} permission: {problem}")

    def _problem(self, user: User, deed: Attributes) -> str:
        decision = self._authorizer.decide(user, deed)
        if decision.allowed:
            self._grants.use(user, deed, decision.rules)
            return ""
        message = refusal(user, deed, decision.reason).message
        self._grants.refuse(user, deed, message)
        return message


def _changed_drivers(status: Object, before: Object) -> set[str]:
    """Return the drivers of the devices whose status changed."""
    present, past = status.get("devices", []), before.get("devices", [])
    differing = [*(one for one in present if one not in past), *(one for one in past if one not in present)]
    return {one.get("driver", "") for one in differing}
