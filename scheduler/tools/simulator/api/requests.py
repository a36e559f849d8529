"""A request's attributes and body: method, path and query; JSON, YAML or protobuf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.kube.http.request import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from scheduler.objects import protobuf
from scheduler.tools.simulator.apimachinery.kinds import Place
from scheduler.tools.simulator.apimachinery.patch_types import APPLY_PATCH
from scheduler.tools.simulator.apimachinery.selectors import selector_of
from scheduler.tools.simulator.apimachinery.status import StatusError, bad_request
from scheduler.tools.simulator.registry.deletion import DeleteOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.tools.simulator.apimachinery.kinds import Kind, Kinds
    from scheduler.tools.simulator.apimachinery.selectors import Selector

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


_JSON_TYPES: Final = frozenset({"", "application/json", "application/x-www-form-urlencoded"})
_YAML_TYPES: Final = frozenset({"application/yaml"})
_PATCH_TYPES: Final = frozenset({JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH})


def read_body(body: bytes, content_type: str, kind: str) -> dict[str, Any]:
    """Decode an object.

    Args:
        body: the body.
        content_type: its content type.
        kind: expected kind, for the message.

    Raises:
        StatusError: 400 or 415.
    """
    media_type = content_type.partition(";")[0].strip()
    if media_type == protobuf.CONTENT_TYPE:
        return _from_protobuf(body)
    if media_type in _YAML_TYPES:
        body = _from_yaml(body)
    elif media_type not in _JSON_TYPES:
        raise _unsupported(["application/json", "application/yaml"])
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = body.decode(errors="replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
            f"error: {error} ({shown[:200]})"
        ) from error
    if not isinstance(found, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
            "error: json: cannot unmarshal into Go value of type struct"
        )
    return found


def read_patch(body: bytes, content_type: str) -> tuple[str, Any]:
    """Decode a patch.

    Returns:
        The media type and the patch.

    Raises:
        StatusError: 400 or 415.
    """
    media_type = content_type.partition(";")[0].strip()
    if media_type == APPLY_PATCH:
        return media_type, msgspec.json.decode(_from_yaml(body))
    if media_type not in _PATCH_TYPES:
        if media_type.startswith("application/apply-patch"):
            raise _unsupported([*sorted(_PATCH_TYPES), APPLY_PATCH])
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    try:
        return media_type, msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding patch: {error}") from error


def delete_options(body: bytes, content_type: str, query: Mapping[str, str]) -> DeleteOptions:
    """Read DeleteOptions from the body if there is one, else from the query.

    Raises:
        StatusError: 400 or 415.
    """
    found = read_body(body, content_type, "DeleteOptions") if body.strip() else dict(query)
    return _delete_options(found, body, query)


def eviction_options(eviction: Mapping[str, Any]) -> DeleteOptions:
    """Read the deleteOptions of an Eviction.

    Raises:
        StatusError: 400.
    """
    found = eviction.get("deleteOptions") or {}
    if not isinstance(found, dict):
        raise bad_request("Eviction cannot be decoded: deleteOptions is of the wrong type")
    return _delete_options(found, b"", {})


def _delete_options(found: Mapping[str, Any], body: bytes, query: Mapping[str, str]) -> DeleteOptions:
    grace = found.get("gracePeriodSeconds")
    if isinstance(grace, str):
        try:
            grace = int(grace)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{grace}": invalid syntax') from error
    if grace is None and body.strip() and "gracePeriodSeconds" in query:
        grace = delete_options(b"", "", query).grace_period_seconds
    preconditions = found.get("preconditions") or {}
    if (
        not isinstance(preconditions, dict)
        or isinstance(grace, bool)
        or not isinstance(grace, (int, type(None)))
    ):
        raise bad_request("DeleteOptions cannot be decoded: a field is of the wrong type")
    policy = str(found.get("propagationPolicy") or "")
    if found.get("orphanDependents") in {True, "true"}:
        policy = "Orphan"
    return DeleteOptions(
        grace_period_seconds=grace,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        propagation_policy=policy,
        dry_run="All" in (found.get("dryRun") or ()),
    )


def _from_protobuf(body: bytes) -> dict[str, Any]:
    try:
        api_version, kind, content = protobuf.unwrap(body)
        return {"kind": kind, "apiVersion": api_version, **protobuf.decode(api_version, kind, content)}
    except LookupError as error:
        raise StatusError(
            415, "UnsupportedMediaType", f"{error} is known in protobuf here; send JSON"
        ) from error
    except ValueError as error:
        raise bad_request(str(error)) from error


def _from_yaml(body: bytes) -> bytes:
    from scheduler.configuration.manifests import read_documents  # loads the YAML parser

    documents, errors = read_documents(body)
    if errors or len(documents) > 1:
        problem = errors[0] if errors else "more than one document"
        raise bad_request(f"error converting YAML to JSON: {problem}")
    return documents[0]


def _unsupported(accepted: list[str]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
    )
