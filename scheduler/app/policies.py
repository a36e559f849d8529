"""A policy that is kept in a ConfigMap, as configurations of v1alpha1 name one: read once, when the scheduler starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.app.config_map import ConfigMapKey, read_config_map
from scheduler.configuration.versions.algorithm_source import POLICY_KEY, PolicyMissingError
from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from contextlib import AbstractAsyncContextManager

    from scheduler.client.connection import ApiConnection
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap


async def with_policies(
    read: Callable[[], Configuration],
    policies: MutableMapping[PolicyConfigMap, str],
    connecting: Callable[[str], AbstractAsyncContextManager[ApiConnection]],
) -> Configuration:
    """Read a configuration, and the policy first if it is in a ConfigMap.

    Args:
        read: gives the configuration, by what is in `policies`.
        policies: takes the policy.
        connecting: opens a connection, by the kubeconfig that the configuration names, "" without one.

    Raises:
        ConfigurationError: everything that is wrong with it, or the policy is not there.
        ApiError: the API server cannot be asked at present.
    """
    try:
        return read()
    except PolicyMissingError as error:
        missing = error
    async with connecting(missing.kubeconfig) as connection:
        policies[missing.config_map] = await _read_policy(connection, missing.config_map)
    return read()


async def _read_policy(connection: ApiConnection, where: PolicyConfigMap) -> str:
    found = await read_config_map(connection, ConfigMapKey(where.namespace, where.name))
    if POLICY_KEY not in found.data:
        has = ", ".join(sorted(found.data)) or "none"
        raise ConfigurationError([FieldError("", f"has no key {POLICY_KEY}; it has {has}")], str(where))
    return found.data[POLICY_KEY]
