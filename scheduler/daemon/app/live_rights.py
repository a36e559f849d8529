"""Checks the rights of an account on a live cluster with access reviews."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.kube.client.resources import Resource
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.daemon.app.rights import Right
    from scheduler.kube.client.requests import Requests

_SELF = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
_OTHERS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_ACCOUNT_PREFIX = "system:serviceaccount:"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def missing_rights(requests: Requests, rights: Iterable[Right], *, user: str = "") -> list[Right]:
    """Return the rights that a user lacks.

    Args:
        requests: sends requests to the API server.
        rights: the rights to check.
        user: the user; "" for the client itself, which every client may check.

    Raises:
        ApiError: the API server does not answer, or denies the review.
    """
    return [right for right in rights if not await _has(requests, right, user)]


async def _has(requests: Requests, right: Right, user: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec: dict[str, Any] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    review = _SELF
    if user:
        review = _OTHERS
        spec |= {"user": user, "groups": _groups(user)}
    body = {"apiVersion": review.api_version, "kind": review.kind, "spec": spec}
    answer = await requests.send(Request("POST", review.path(), msgspec.json.encode(body)))
    return msgspec.json.decode(answer.body, type=_Review).status.allowed


def _groups(user: str) -> list[str]:
    """Return the groups that the API server would assign to a user."""
    groups = ["system:authenticated"]
    if user.startswith(_ACCOUNT_PREFIX):
        namespace = user.removeprefix(_ACCOUNT_PREFIX).partition(":")[0]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return groups
