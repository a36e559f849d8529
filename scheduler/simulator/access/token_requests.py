"""`serviceaccounts/NAME/token`: the request of `kubectl create token`.

Source:
    kube-apiserver v1.36, pkg/registry/core/serviceaccount/storage/token.go,
    pkg/apis/authentication/validation/validation.go.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339
from scheduler.simulator.access.service_account_tokens import BOUND_RESOURCES
from scheduler.simulator.api.body import read_body
from scheduler.simulator.apimachinery.causes import Cause, invalid_value
from scheduler.simulator.apimachinery.decoding import WriteOptions, read_object
from scheduler.simulator.apimachinery.kinds import Kind, Place
from scheduler.simulator.apimachinery.status import StatusError, bad_request, invalid
from scheduler.simulator.apimachinery.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.simulator.access.service_account_tokens import ServiceAccountTokens
    from scheduler.simulator.api.handlers import Request
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.registry import Registry

_TOKEN_REQUEST: Final = Kind("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest", True, Strategy())
_USUAL_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 600
_MOST_SECONDS: Final = 1 << 32


def create_token(registry: Registry, tokens: ServiceAccountTokens, request: Request) -> Object:
    """Return a TokenRequest with its token.

    Raises:
        StatusError: 400, 404, 409 or 422.
    """
    namespace, name = request.info.namespace, request.info.name
    body = read_body(request.body, request.content_type, "TokenRequest")
    asked = read_object(_TOKEN_REQUEST, body, WriteOptions())
    spec: Object = asked.get("spec") or {}
    metadata = {key: value for key, value in asked["metadata"].items() if key in {"name", "namespace"}}
    if metadata.setdefault("name", name) != name or metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("name and namespace of the TokenRequest must be those on the URL")
    seconds = spec.setdefault("expirationSeconds", _USUAL_SECONDS)
    causes = list(_causes(seconds))
    if causes:
        raise invalid("authentication.k8s.io", "TokenRequest", name, causes)
    account = registry.get(Place(registry.kinds.named("serviceaccounts"), namespace, name)).object
    audiences = spec["audiences"] = list(spec.get("audiences") or tokens.audiences)
    bound_to = None
    if spec.get("boundObjectRef"):
        bound_to = _bound(registry, spec["boundObjectRef"], namespace, name)
    token = tokens.issue(account, audiences=audiences, seconds=seconds, bound_to=bound_to)
    now = registry.clock.utc_now()
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {**metadata, "creationTimestamp": rfc3339(now)},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": rfc3339(now + timedelta(seconds=seconds))},
    }


def _causes(seconds: int) -> Iterator[Cause]:
    field = "spec.expirationSeconds"
    if seconds < _LEAST_SECONDS:
        yield invalid_value(field, str(seconds), "may not specify a duration less than 10 minutes")
    if seconds > _MOST_SECONDS:
        yield invalid_value(field, str(seconds), "may not specify a duration larger than 2^32 seconds")


def _bound(
    registry: Registry, reference: Mapping[str, Any], namespace: str, account: str
) -> tuple[str, Object]:
    """Return the kind and the object that a token is bound to."""
    kind, name, uid = (reference.get(field, "") for field in ("kind", "name", "uid"))
    if kind not in BOUND_RESOURCES or reference.get("apiVersion", "v1") != "v1":
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        where = f"{group}/{version}" if group else f"/{version}"
        raise bad_request(f"cannot bind token to object of type {where}, Kind={kind}")
    resource = registry.kinds.named(BOUND_RESOURCES[kind])
    obj = registry.get(Place(resource, namespace if resource.namespaced else "", name)).object
    if kind == "Pod":
        runs_as = obj["spec"].get("serviceAccountName", "")
        if runs_as != account:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with serviceaccount "{runs_as}"'
            )
    present = obj["metadata"]["uid"]
    if uid not in {"", present}:
        raise StatusError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on {kind} "{name}": the UID in the bound object reference ({uid}) does '
            f"not match the UID in record ({present}). The object might have been deleted and then recreated",
            {"name": name, "kind": kind},
        )
    return kind, obj
