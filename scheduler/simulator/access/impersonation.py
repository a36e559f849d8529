"""Impersonation: `kubectl --as`.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from scheduler.simulator.access.attributes import Attributes
from scheduler.simulator.access.users import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    service_account_of,
)
from scheduler.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from multidict import CIMultiDictProxy

_GROUP: Final = "authentication.k8s.io"
_EXTRA: Final = "impersonate-extra-"


@dataclass(frozen=True, slots=True)
class Impersonation:
    """A user to impersonate, and the rights that this requires."""

    user: User
    deeds: Sequence[Attributes]


def impersonated(headers: CIMultiDictProxy[str]) -> Impersonation | None:
    """Return the impersonation of a request; None if there is none.

    Raises:
        StatusError: 500, as upstream: groups or other fields without a user.
    """
    name = headers.get("Impersonate-User", "")
    groups = tuple(headers.getall("Impersonate-Group", ()))
    uid, extra = headers.get("Impersonate-Uid", ""), _extra(headers)
    if not name:
        if groups or uid or extra:
            problem = "Internal error occurred: requested groups, uid or extra without impersonating a user"
            raise StatusError(500, "InternalError", problem, {})
        return None
    wanted = User(name, uid, groups, extra)
    return Impersonation(_with_usual_groups(wanted), list(_deeds(wanted)))


def _extra(headers: CIMultiDictProxy[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            key = unquote(header[len(_EXTRA) :].lower())
            extra[key] = (*extra.get(key, ()), value)
    return extra


def _deeds(wanted: User) -> Iterator[Attributes]:
    """Yield the rights that the impersonation of a user requires."""
    account = service_account_of(wanted.name)
    if account is None:
        yield Attributes("impersonate", resource="users", name=wanted.name)
    else:
        namespace, name = account
        yield Attributes("impersonate", resource="serviceaccounts", namespace=namespace, name=name)
    for group in wanted.groups:
        yield Attributes("impersonate", resource="groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes("impersonate", _GROUP, "userextras", key, name=value)
    if wanted.uid:
        yield Attributes("impersonate", _GROUP, "uids", name=wanted.uid)


def _with_usual_groups(wanted: User) -> User:
    """Return a user with the groups that authentication adds."""
    groups, account = wanted.groups, service_account_of(wanted.name)
    if account is not None and not groups:
        groups = service_account_groups(account[0])
    if UNAUTHENTICATED not in groups:
        usual = UNAUTHENTICATED if wanted.name == ANONYMOUS else AUTHENTICATED
        groups = groups if usual in groups else (*groups, usual)
    return User(wanted.name, wanted.uid, groups, wanted.extra)
