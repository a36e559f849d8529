"""A configuration in a ConfigMap, with the plugin files beside it; and a policy in a ConfigMap."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from scheduler.configuration.load import NO_POLICIES, parse
from scheduler.configuration.versions.algorithm_source import POLICY_KEY, PolicyMissingError
from scheduler.daemon.app.reloader import Offer, digest_of, outcome
from scheduler.daemon.config_watch.config_objects import ConfigMap
from scheduler.errors import ApiError, ConfigurationError, FieldError, ObjectError
from scheduler.kube.client.connection import CONNECTION_LOST
from scheduler.kube.client.events import ObjectReference
from scheduler.kube.client.resources import Resource
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_object
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap
    from scheduler.kube.client.requests import Requests

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
_PLUGIN_FILE = ".py"


class ConfigMapKey(NamedTuple):
    """The ConfigMap and the key of a configuration; without a key, the only one that is not a plugin file."""

    namespace: str
    name: str
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `namespace/name` or `namespace/name:key`.

        Raises:
            ValueError: the text has another format.
        """
        where, _, key = text.partition(":")
        namespace, _, name = where.partition("/")
        if not namespace or not name or "/" in name or "/" in key or (":" in text and not key):
            raise ValueError(f"NAMESPACE/NAME or NAMESPACE/NAME:KEY is expected, was {text!r}")
        return cls(namespace, name, key)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" + (f":{self.key}" if self.key else "")

    @property
    def source(self) -> str:
        """The name in messages."""
        return f"ConfigMap {self.namespace}/{self.name}"


class ConfigMapSource:
    """Turns versions of a ConfigMap into configurations.

    Args:
        where: the ConfigMap and its key.
        folder: directory for its plugin files, since Python imports files.
        policies: texts of policies in other ConfigMaps; read once, at the start.

    Attributes:
        digest: digest of the version that was offered last, plugin files included; empty after a deletion.
    """

    def __init__(
        self, where: ConfigMapKey, folder: Path, policies: Mapping[PolicyConfigMap, str] = NO_POLICIES
    ) -> None:
        self.where = where
        self._policies = policies
        self.digest = b""
        self._folder = folder

    def offer(self, config_map: ConfigMap | None) -> Offer | None:
        """Return the offer for a version or for the deletion (None); None if nothing is new."""
        digest = b"" if config_map is None else self._digest_of(config_map)
        if digest == self.digest:
            return None
        self.digest = digest
        about = ObjectReference(
            kind=CONFIG_MAPS.kind,
            namespace=self.where.namespace,
            name=self.where.name,
            uid=config_map.uid if config_map else "",
            api_version=CONFIG_MAPS.api_version,
            resource_version=config_map.resource_version if config_map else "",
        )
        if config_map is None:
            return Offer(self.where.source, about, digest, outcome(self._fault("is deleted")))
        return Offer(self.where.source, about, digest, lambda: self._read(config_map))

    def first(self, config_map: ConfigMap) -> Configuration:
        """Return the initial configuration.

        Raises:
            ConfigurationError: there is none, or it is invalid; contains all errors.
        """
        self.digest = self._digest_of(config_map)
        return self._read(config_map)

    def unread(self) -> None:
        """Offer the next version even if it was read already, because it was not accepted."""
        self.digest = b""

    def unpacked(self, config_map: ConfigMap) -> tuple[str, str]:
        """Write the plugin files into the directory; return the configuration's text and its name in messages.

        Raises:
            ConfigurationError: there is none, or the plugin files cannot be written.
        """
        key = self._key_of(config_map)
        try:
            self._folder.mkdir(exist_ok=True)
            for old in self._folder.glob(f"*{_PLUGIN_FILE}"):
                old.unlink()
            for name, text in config_map.data.items():
                if name.endswith(_PLUGIN_FILE) and "/" not in name:  # no API server stores such a key
                    (self._folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            problem = f"its plugin files cannot be written into {self._folder}: {error.strerror or error}"
            raise self._fault(problem) from error
        return config_map.data[key], f"{self.where.source}, {key}"

    def _read(self, config_map: ConfigMap) -> Configuration:
        text, source = self.unpacked(config_map)
        return parse(text, source, self._folder, policies=self._policies, version=None)

    def _key_of(self, config_map: ConfigMap) -> str:
        keys = sorted(name for name in config_map.data if not name.endswith(_PLUGIN_FILE))
        has = ", ".join(keys) or "none"
        if self.where.key:
            if self.where.key not in config_map.data:
                raise self._fault(f"has no key {self.where.key}; it has {has}")
            return self.where.key
        if len(keys) != 1:
            raise self._fault(f"one key is expected beside plugin files, it has {has}; name it as NAME:KEY")
        return keys[0]

    def _digest_of(self, config_map: ConfigMap) -> bytes:
        # The set of keys counts as well: the requested key may be missing.
        named = sorted((name, text.encode()) for name, text in config_map.data.items())
        return digest_of(b"", named)

    def _fault(self, problem: str) -> ConfigurationError:
        return ConfigurationError([FieldError("", problem)], self.where.source)


class ConfigMapMissingError(ConfigurationError):
    """A ConfigMap does not exist."""


async def read_config_map(connection: Requests, where: ConfigMapKey) -> ConfigMap:
    """Read a ConfigMap from the API server.

    Raises:
        ConfigMapMissingError: it does not exist.
        ConfigurationError: access is denied.
        ApiError: the API server cannot be reached at present.
    """
    try:
        answer = await connection.send(Request("GET", CONFIG_MAPS.path(where.namespace, where.name)))
    except ApiError as error:
        if error.status not in {401, 403, 404}:
            raise
        if error.status == 404:
            raise ConfigMapMissingError([FieldError("", "does not exist")], where.source) from error
        raise ConfigurationError([FieldError("", f"may not be read: {error}")], where.source) from error
    try:
        return ConfigMap.of(decode_object(answer.body))
    except (ObjectError, KeyError) as error:
        problem = f"{where.source}: unreadable answer: {error}"
        raise ApiError(0, CONNECTION_LOST, problem) from error


async def with_policies(
    read: Callable[[], Configuration],
    policies: MutableMapping[PolicyConfigMap, str],
    connecting: Callable[[str], AbstractAsyncContextManager[Requests]],
) -> Configuration:
    """Read a configuration, after its policy if that is in a ConfigMap.

    Args:
        read: returns the configuration, using the contents of `policies`.
        policies: receives the policy.
        connecting: opens a connection, by the kubeconfig that the configuration names, "" without one.

    Raises:
        ConfigurationError: the configuration is invalid, or the policy does not exist; contains all errors.
        ApiError: the API server cannot be reached at present.
        TookTooLongError: a file cannot be read in time.
    """
    doing = "reading the configuration"
    try:
        return await in_a_thread(read, doing)
    except PolicyMissingError as error:
        missing = error
    async with connecting(missing.kubeconfig) as connection:
        policies[missing.config_map] = await _read_policy(connection, missing.config_map)
    return await in_a_thread(read, doing)


async def _read_policy(connection: Requests, where: PolicyConfigMap) -> str:
    config_map = await read_config_map(connection, ConfigMapKey(where.namespace, where.name))
    if POLICY_KEY not in config_map.data:
        has = ", ".join(sorted(config_map.data)) or "none"
        raise ConfigurationError([FieldError("", f"has no key {POLICY_KEY}; it has {has}")], str(where))
    return config_map.data[POLICY_KEY]
