"""Attributes of a request, from its method, path and query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.simulator.apimachinery.kinds import Place
from scheduler.simulator.apimachinery.selectors import selector_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.simulator.apimachinery.kinds import Kind, Kinds
    from scheduler.simulator.apimachinery.selectors import Selector

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


@dataclass(slots=True)
class RequestInfo:
    """A request, for authorization, faults and handlers.

    Attributes:
        method: HTTP method.
        path: path without the query.
        query: query parameters.
        verb: as in RBAC: `get`, `list`, `watch`, `create`, ...; for other paths, the method in lower case.
        group: API group; "" for core, and for paths that are no resource.
        version: version of the group; "" for paths that are no resource.
        resource: plural in the path; "" for paths that are no resource.
        namespace: namespace; "" for the whole cluster.
        name: name of the object.
        subresource: for example `status`.
        kind: the served kind; None if there is none.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    kind: Kind | None = None

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)

    def flag(self, name: str) -> bool:
        """Return whether a parameter is true, in any of Go's notations."""
        return self.query.get(name, "") in _TRUE

    def place(self, kind: Kind) -> Place:
        """Return the place of a kind that it reads or writes."""
        return Place(kind, self.namespace, self.name, self.subresource)

    def selector(self, kind: Kind) -> Selector:
        """Return the selector of the request.

        Raises:
            StatusError: 400, the selectors are invalid for the kind.
        """
        labels, fields = self.query.get("labelSelector", ""), self.query.get("fieldSelector", "")
        return selector_of(kind, namespace=self.namespace, labels=labels, fields=fields)


def request_info(method: str, path: str, query: Mapping[str, str], kinds: Kinds) -> RequestInfo:
    """Parse a request; path and query are percent-decoded."""
    info = RequestInfo(method, path, query, verb=method.lower())
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["api"] and len(steps) > 2:
        info.version, rest = steps[1], steps[2:]
    elif steps[:1] == ["apis"] and len(steps) > 3:
        info.group, info.version, rest = steps[1], steps[2], steps[3:]
    else:
        return info
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        info.namespace, rest = rest[1], rest[2:]
    info.resource = rest[0]
    info.name = rest[1] if len(rest) > 1 else ""
    info.subresource = "/".join(rest[2:])
    if info.resource == "namespaces" and not info.group:
        info.namespace = ""
    info.kind = kinds.at(info.group, info.version, info.resource)
    info.verb = _verb(info)
    return info


def _verb(info: RequestInfo) -> str:
    if info.method in {"GET", "HEAD"}:
        if info.flag("watch"):
            return "watch"
        return "get" if info.name else "list"
    if info.method == "DELETE":
        return "delete" if info.name else "deletecollection"
    return _VERBS.get(info.method, info.method.lower())


def accepted_types(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the media types of an Accept header, with their parameters."""
    for wanted in accept.split(","):
        media_type, *parameters = [part.strip() for part in wanted.split(";")]
        yield media_type, dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)


def boolean_or_none(value: Any) -> bool | None:
    """Read a parameter that may be absent."""
    return None if value is None else value in _TRUE
