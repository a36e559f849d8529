"""Request handlers: all verbs except watches.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.configuration.feature_gates import DEFAULT_VERSION
from scheduler.tools.simulator.api.discovery import CONTENT_TYPE as AGGREGATED
from scheduler.tools.simulator.api.discovery import (
    OPENAPI_V2_PROTOBUF,
    aggregated_discovery,
    api_group,
    api_groups,
    api_resources,
    api_versions,
    openapi_document,
    openapi_v2_protobuf,
    version_document,
    wants_aggregated,
)
from scheduler.tools.simulator.api.lists_and_watches import (
    Presentation,
    check_list_options,
    list_page,
    negotiate,
)
from scheduler.tools.simulator.api.requests import delete_options, eviction_options, read_body, read_patch
from scheduler.tools.simulator.apimachinery.causes import forbidden_field, required
from scheduler.tools.simulator.apimachinery.patch_types import APPLY_PATCH
from scheduler.tools.simulator.apimachinery.status import (
    StatusError,
    bad_request,
    details_of,
    invalid,
    method_not_allowed,
    success,
)
from scheduler.tools.simulator.apimachinery.structure import WriteOptions
from scheduler.tools.simulator.registry.deletion import delete, delete_collection, evict
from scheduler.tools.simulator.registry.store import bind, patch_scale, scale_of, update_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.tools.simulator.api.requests import RequestInfo
    from scheduler.tools.simulator.apimachinery.kinds import Kind
    from scheduler.tools.simulator.registry.registry import Registry
    from scheduler.tools.simulator.storage import Entry

JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_CREATED_ONLY: Final = frozenset({"binding", "eviction"})
_INSIDE_CONTAINERS: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})
_LONGEST_MANAGER: Final = 128
_HEALTH: Final = ("/healthz", "/livez", "/readyz")


@dataclass(slots=True)
class Request:
    """A request with its body.

    Attributes:
        info: its attributes.
        body: its body.
        content_type: content type of the body; "" if absent.
        accept: its Accept header.
        user_agent: its User-Agent header.
    """

    info: RequestInfo
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    user_agent: str = ""


@dataclass(slots=True)
class Answer:
    """A response."""

    code: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


def answer_of_error(error: StatusError) -> Answer:
    """Return the response for an error."""
    answer = Answer(error.code, msgspec.json.encode(error.body()))
    if error.retry_after_seconds is not None:
        answer.headers["Retry-After"] = str(error.retry_after_seconds)
    return answer


class Api:
    """The API of a registry."""

    def __init__(self, registry: Registry, address: str, version: str = DEFAULT_VERSION) -> None:
        """Set up; `address` is the server's own address for clients, `version` its Kubernetes version."""
        self._registry = registry
        self._version = version
        self._address = address
        self._by_verb: Mapping[str, Callable[[Kind, Request], Answer]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def answer(self, request: Request) -> Answer:
        """Answer a request; errors are answers too."""
        try:
            if not request.info.is_resource:
                return self._answer_path(request.info, request.accept)
            return self._answer_resource(request)
        except StatusError as error:
            return answer_of_error(error)

    def presentation(self, request: Request) -> Presentation:
        """Return the form in which the client wants to see a kind.

        Raises:
            StatusError: 404, the kind is not served; 406, no such form.
        """
        kind = self.kind(request.info)
        include = request.info.query.get("includeObject", "")
        return negotiate(kind, request.accept, self._registry.clock, include)

    @staticmethod
    def kind(info: RequestInfo) -> Kind:
        """Return the kind of a request.

        Raises:
            StatusError: 404, it is not served; 405, the verb is not allowed.
        """
        kind = info.kind
        if kind is None:
            raise _no_such_resource()
        if info.namespace and not kind.namespaced:
            raise _no_such_resource()
        if kind.resource == "pods" and info.subresource in _INSIDE_CONTAINERS:
            raise StatusError(
                501,
                "",
                f"pods/{info.subresource} is not implemented: this is a simulated cluster, containers are not run "
                "here",
            )
        if info.subresource and info.subresource not in kind.subresources:
            raise _no_such_resource()
        if kind.namespaced and not info.namespace:
            if info.name:
                raise _no_such_resource()
            if info.verb not in {"list", "watch"}:
                raise method_not_allowed()
        return kind

    def _answer_path(self, info: RequestInfo, accept: str) -> Answer:
        """Answer a request for a path: discovery, health, version."""
        path = info.path.rstrip("/")
        if path in _HEALTH or path.rpartition("/")[0] in _HEALTH:
            return Answer(HTTPStatus.OK, b"ok", _TEXT)
        found = self._discovered(path)
        if found is None:
            return Answer(HTTPStatus.NOT_FOUND, b"404 page not found\n", _TEXT)
        if info.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        if path == "/openapi/v2" and OPENAPI_V2_PROTOBUF in accept:
            return Answer(HTTPStatus.OK, openapi_v2_protobuf(), OPENAPI_V2_PROTOBUF.replace("@", "."))
        if path in {"/api", "/apis"} and wants_aggregated(accept):
            groups = aggregated_discovery(self._registry.kinds, core=path == "/api")
            return Answer(HTTPStatus.OK, msgspec.json.encode(groups), AGGREGATED)
        return Answer(HTTPStatus.OK, msgspec.json.encode(found))

    def _discovered(self, path: str) -> Mapping[str, Any] | None:
        """Return the document at a path; None if there is none."""
        kinds = self._registry.kinds
        match path.split("/")[1:]:
            case ["version"]:
                found: Mapping[str, Any] | None = version_document(self._version)
            case ["api"]:
                found = api_versions(self._address)
            case ["apis"]:
                found = api_groups(kinds)
            case ["api", version]:
                found = api_resources(kinds, "", version)
            case ["apis", group]:
                found = api_group(kinds, group)
            case ["apis", group, version]:
                found = api_resources(kinds, group, version)
            case ["openapi", *place]:
                found = openapi_document(kinds, place)
            case _:
                found = None
        return found

    def _answer_resource(self, request: Request) -> Answer:
        info = request.info
        if (info.group, info.resource, info.verb) == ("", "bindings", "create") and info.namespace:
            binding = read_body(request.body, request.content_type, "Binding")
            name = str((binding.get("metadata") or {}).get("name", ""))
            return self._bind(info.namespace, name, binding, _write_options(request))
        kind = self.kind(info)
        answer = self._by_verb.get(info.verb)
        if answer is None or (info.verb == "deletecollection" and info.verb not in kind.verbs):
            raise method_not_allowed()
        return answer(kind, request)

    def _get(self, kind: Kind, request: Request) -> Answer:
        info = request.info
        if info.subresource not in {"", "status", "scale", "resize"}:
            raise method_not_allowed()
        entry = self._registry.get(info.place(kind))
        if info.subresource == "scale":
            return Answer(HTTPStatus.OK, msgspec.json.encode(scale_of(kind, entry.object)))
        return Answer(HTTPStatus.OK, self.presentation(request).one(entry))

    def _list(self, kind: Kind, request: Request) -> Answer:
        info = request.info
        check_list_options(info.query)
        presentation = self.presentation(request)
        page = list_page(self._registry, kind, info.selector(kind), info.query)
        return Answer(HTTPStatus.OK, presentation.many(page.entries, page.metadata))

    def _create(self, kind: Kind, request: Request) -> Answer:
        info = request.info
        if info.subresource == "binding":
            binding = read_body(request.body, request.content_type, "Binding")
            return self._bind(info.namespace, info.name, binding, _write_options(request))
        if info.subresource == "eviction":
            return self._evict(request)
        if info.name:
            raise method_not_allowed()
        presentation = self.presentation(request)
        options = _write_options(request)
        body = read_body(request.body, request.content_type, kind.kind)
        entry = self._registry.create(info.place(kind), body, options)
        return _written(HTTPStatus.CREATED, presentation.one(entry), options)

    def _bind(self, namespace: str, name: str, binding: Any, options: WriteOptions) -> Answer:
        bind(self._registry, namespace, name, binding, options)
        return Answer(HTTPStatus.CREATED, msgspec.json.encode(success(HTTPStatus.CREATED)))

    def _evict(self, request: Request) -> Answer:
        info = request.info
        eviction = read_body(request.body, request.content_type, "Eviction")
        write = _write_options(request)
        options = eviction_options(eviction)
        write.dry_run |= options.dry_run
        evict(self._registry, info.namespace, info.name, eviction, options, write)
        return Answer(HTTPStatus.CREATED, msgspec.json.encode(success(HTTPStatus.CREATED)))

    def _update(self, kind: Kind, request: Request) -> Answer:
        info, options = request.info, _write_options(request)
        if not info.name or info.subresource in _CREATED_ONLY:
            raise method_not_allowed()
        presentation = self.presentation(request)
        if info.subresource == "scale":
            body = read_body(request.body, request.content_type, "Scale")
            entry = update_scale(self._registry, info.place(kind), body, options)
            return _written(HTTPStatus.OK, msgspec.json.encode(scale_of(kind, entry.object)), options)
        body = read_body(request.body, request.content_type, kind.kind)
        entry, created = self._registry.update(info.place(kind), body, options)
        code = HTTPStatus.CREATED if created else HTTPStatus.OK
        return _written(code, presentation.one(entry), options)

    def _patch(self, kind: Kind, request: Request) -> Answer:
        info, options = request.info, _write_options(request)
        if not info.name or info.subresource in {*_CREATED_ONLY, "finalize"}:
            raise method_not_allowed()
        presentation = self.presentation(request)
        patch_type, patch = read_patch(request.body, request.content_type)
        _check_patch_options(info, patch_type)
        if info.subresource == "scale":
            entry = patch_scale(self._registry, info.place(kind), patch, patch_type, options)
            return _written(HTTPStatus.OK, msgspec.json.encode(scale_of(kind, entry.object)), options)
        is_new = self._registry.entry(info.place(kind)) is None
        entry = self._registry.patch(info.place(kind), patch, patch_type, options)
        code = HTTPStatus.CREATED if is_new else HTTPStatus.OK
        return _written(code, presentation.one(entry), options)

    def _delete(self, kind: Kind, request: Request) -> Answer:
        info = request.info
        if info.subresource:
            raise method_not_allowed()
        options = delete_options(request.body, request.content_type, info.query)
        presentation = self.presentation(request)
        entry, gone = delete(self._registry, info.place(kind), options, _write_options(request))
        if gone and not kind.strategy.returns_deleted:
            details = details_of(kind, entry.name, uid=entry.object["metadata"]["uid"])
            return Answer(HTTPStatus.OK, msgspec.json.encode(success(details=details)))
        return Answer(HTTPStatus.OK, presentation.one(entry))

    def _delete_collection(self, kind: Kind, request: Request) -> Answer:
        info = request.info
        options = delete_options(request.body, request.content_type, info.query)
        presentation = self.presentation(request)
        version = self._registry.versions.current
        entries: list[Entry] = delete_collection(
            self._registry, kind, info.selector(kind), options, _write_options(request)
        )
        return Answer(HTTPStatus.OK, presentation.many(entries, {"resourceVersion": str(version)}))


def _write_options(request: Request) -> WriteOptions:
    info = request.info
    dry_run = info.query.get("dryRun", "")
    if dry_run not in {"", "All"}:
        raise bad_request(f'Invalid value: "{dry_run}": dryRun must be All')
    validation = info.query.get("fieldValidation") or "Warn"
    if validation not in {"Strict", "Warn", "Ignore"}:
        raise bad_request(f'Invalid value: "{validation}": fieldValidation must be Ignore, Warn or Strict')
    return WriteOptions(
        dry_run=bool(dry_run),
        field_validation=validation,
        manager=info.query.get("fieldManager") or _name_in(request.user_agent) or "unknown",
        force=info.flag("force"),
    )


def _name_in(user_agent: str) -> str:
    """Return the client's name in its User-Agent, without version: the default fieldManager."""
    name = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return name.encode()[:_LONGEST_MANAGER].decode(errors="ignore")


def _check_patch_options(info: RequestInfo, patch_type: str) -> None:
    """Reject an apply without fieldManager, and `force` without apply.

    Raises:
        StatusError: 422.
    """
    causes = []
    if patch_type == APPLY_PATCH and not info.query.get("fieldManager"):
        causes.append(required("fieldManager", "is required for apply patch"))
    if patch_type != APPLY_PATCH and info.flag("force"):
        causes.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if causes:
        raise invalid("meta.k8s.io", "PatchOptions", "", causes)


def _written(code: int, body: bytes, options: WriteOptions) -> Answer:
    answer = Answer(code, body)
    if options.warnings:
        quoted = [warning.replace("\\", "\\\\").replace('"', '\\"') for warning in options.warnings]
        answer.headers["Warning"] = ", ".join(f'299 - "{text}"' for text in quoted)
    return answer


def _no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})
