"""The attributes of a request for authorization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from scheduler.simulator.access.users import User
    from scheduler.simulator.api.request_info import RequestInfo


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
