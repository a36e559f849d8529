"""Accounts of daemons in tests: each has the rights that `check --rbac` prints for its configuration, and no more.

What they were granted and what they used is kept until the tests end: a whole run fails by a grant that nothing used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import yaml

from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.rights import Named, Right, rights_of, roles_yaml
from scheduler.tools.simulator.access.rbac import (
    Permission,
    User,
    permissions,
    service_account_groups,
    service_account_name,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.generation import Generation
    from scheduler.engine.runtime.registry import Registry
    from scheduler.extensions.extenders import Extenders
    from scheduler.kube.client.login import Headers
    from scheduler.tools.simulator.server import ApiServer

NAMESPACE: Final = "kube-system"
_ACCOUNTS: Final = 9
_GROUP: Final = "rbac.authorization.k8s.io"
_DELEGATOR: Final = "system:auth-delegator"

GRANTED: Final[set[str]] = set()
"""What any account was granted, in the words of a `Right`."""
USED: Final[set[str]] = set()
"""What any account made use of."""
UNREACHABLE: Final[Mapping[str, str]] = {}
"""Right -> why no test can use it."""


def token_users() -> dict[str, User]:
    """Return the tokens of all accounts, for an ApiServer."""
    names = [f"daemon-{number}" for number in range(_ACCOUNTS)]
    return {
        f"token of {name}": User(
            service_account_name(NAMESPACE, name), groups=service_account_groups(NAMESPACE)
        )
        for name in names
    }


class Account:
    """One daemon's ServiceAccount; an `Authorization`.

    Args:
        server: with RBAC, and the tokens above.
        number: which account.
    """

    def __init__(self, server: ApiServer, number: int) -> None:
        assert number < _ACCOUNTS, "one test has more daemons than there are accounts"
        self._server = server
        self._named = Named(NAMESPACE, f"daemon-{number}")
        self._user = service_account_name(*self._named)
        self._rights: dict[Right, str] = {}
        self._objects: Sequence[tuple[str, dict[str, Any]]] = ()

    def headers(self) -> Headers:
        return (("Authorization", f"Bearer token of {self._named.name}"),)

    def rejected(self) -> None:
        raise AssertionError(f"{self._named} is not known")

    def grant(self, rights: Mapping[Right, str]) -> None:
        """Give rights besides those that it has."""
        for plural, obj in self._objects:
            self._server.store.delete(plural, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
        self._rights |= rights
        self._objects = _roles(tuple(self._rights.items()), self._named) if self._rights else ()
        for plural, obj in self._objects:
            self._server.store.create(plural, obj, namespace=obj["metadata"].get("namespace", ""))

    def settle(self) -> None:
        """Take note of what was granted and used.

        Raises:
            AssertionError: something was asked for that was not granted.
        """
        refused = [refusal.message for refusal in self._server.grants.refused_to(self._user)]
        assert not refused, f"called without a right that `check --rbac` prints: {sorted(set(refused))}"
        rules = [rule for _, obj in self._objects for rule in obj.get("rules", ())]
        GRANTED.update(_told(permission) for rule in rules for permission in permissions(rule))
        keep_account(self._server, self._user)


@lru_cache(maxsize=256)
def _roles(rights: tuple[tuple[Right, str], ...], named: Named) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return the objects that `check --rbac` prints, each with its resource; most tests have those of the defaults."""
    objects = yaml.safe_load_all(roles_yaml(dict(rights), named))
    return [(f"{obj['kind'].lower()}s.{_GROUP}", obj) for obj in objects]


class GrantedDaemon(Daemon):
    """A daemon that is granted what a configuration takes as soon as it is built."""

    def __init__(
        self,
        *arguments: Any,
        account: Account,
        config_map: Named | None = None,
        scheduler_profiles: bool = False,
        **options: Any,
    ) -> None:
        self._account = account
        self._config_map = config_map
        self._scheduler_profiles = scheduler_profiles
        super().__init__(*arguments, **options)

    def _build(
        self, configuration: Configuration, registry: Registry, extenders: Extenders
    ) -> Generator[None, None, Generation]:
        generation = yield from super()._build(configuration, registry, extenders)
        profiles = generation.frameworks.values()
        try:
            rights = rights_of(
                profiles,
                configuration.settings,
                config_map=self._config_map,
                scheduler_profiles=self._scheduler_profiles,
            )
        except ValueError:
            return generation  # it names what is no kind; the daemon is to say so
        self._account.grant(rights)
        return generation


def keep_account(server: ApiServer, user: str) -> None:
    """Take note of what somebody made use of."""
    USED.update(_told(grant.permission) for grant in server.grants.used(user) if _DELEGATOR not in grant.role)


def unused() -> list[str]:
    """Return what some account was granted and none used."""
    return sorted(GRANTED - USED - UNREACHABLE.keys())


def _told(permission: Permission) -> str:
    """Return a permission, whatever the one object is called."""
    name = "one" if permission.name else ""
    return str(Right(permission.verb, permission.group, permission.resource, name=name))
