"""A configuration that is kept in a ConfigMap, with the plugin files beside it; and a policy that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from scheduler.app.reloader import Offer, digest_of, outcome
from scheduler.aside import in_a_thread
from scheduler.client.connection import CONNECTION_LOST
from scheduler.client.http.request import Request
from scheduler.client.recorded_event import ObjectReference
from scheduler.client.resources import Resource
from scheduler.configuration.load import NO_POLICIES, parse
from scheduler.configuration.versions.algorithm_source import POLICY_KEY, PolicyMissingError
from scheduler.controllers.config_map import ConfigMap
from scheduler.errors import ApiError, ConfigurationError, FieldError, ObjectError
from scheduler.objects.decode import decode_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from scheduler.client.requests import Requests
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
_PLUGIN_FILE = ".py"


class ConfigMapKey(NamedTuple):
    """Where in which ConfigMap the configuration is; no key means the only one that is no plugin file."""

    namespace: str
    name: str
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `namespace/name` or `namespace/name:key`.

        Raises:
            ValueError: it is neither.
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
        """For messages."""
        return f"ConfigMap {self.namespace}/{self.name}"


class ConfigMapSource:
    """Turns versions of a ConfigMap into configurations.

    Args:
        where: which, and which key.
        folder: where its plugin files are put, since Python reads files.
        policies: texts of policies in other ConfigMaps; read once, at the start.

    Attributes:
        digest: of the version that was offered last, plugin files included; empty after a deletion.
    """

    def __init__(
        self, where: ConfigMapKey, folder: Path, policies: Mapping[PolicyConfigMap, str] = NO_POLICIES
    ) -> None:
        self.where = where
        self._policies = policies
        self.digest = b""
        self._folder = folder

    def offer(self, config_map: ConfigMap | None) -> Offer | None:
        """Return what a version, or the deletion, means; None if it says nothing new."""
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
        """Return the configuration to begin with.

        Raises:
            ConfigurationError: there is none, or everything that is wrong with it.
        """
        self.digest = self._digest_of(config_map)
        return self._read(config_map)

    def unread(self) -> None:
        """Have the next version offered, the one that was read first too: it was not taken."""
        self.digest = b""

    def unpacked(self, config_map: ConfigMap) -> tuple[str, str]:
        """Put its plugin files into the folder; return the configuration's text, and what messages call it.

        Raises:
            ConfigurationError: there is none, or its plugin files cannot be written.
        """
        key = self._key_of(config_map)
        try:
            self._folder.mkdir(exist_ok=True)
            for old in self._folder.glob(f"*{_PLUGIN_FILE}"):
                old.unlink()
            for name, text in config_map.data.items():
                if name.endswith(_PLUGIN_FILE) and "/" not in name:  # which no API server stores
                    (self._folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            problem = f"its plugin files cannot be written into {self._folder}: {error.strerror or error}"
            raise self._fault(problem) from error
        return config_map.data[key], f"{self.where.source}, {key}"

    def _read(self, config_map: ConfigMap) -> Configuration:
        text, source = self.unpacked(config_map)
        return parse(text, source, self._folder, policies=self._policies)

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
        # Which keys there are counts as well: perhaps the one that is wanted is not.
        named = sorted((name, text.encode()) for name, text in config_map.data.items())
        return digest_of(b"", named)

    def _fault(self, problem: str) -> ConfigurationError:
        return ConfigurationError([FieldError("", problem)], self.where.source)


async def read_config_map(connection: Requests, where: ConfigMapKey) -> ConfigMap:
    """Ask for a ConfigMap.

    Raises:
        ConfigurationError: it is not there, or may not be read.
        ApiError: the API server cannot be asked at present.
    """
    try:
        answer = await connection.send(Request("GET", CONFIG_MAPS.path(where.namespace, where.name)))
    except ApiError as error:
        if error.status not in {401, 403, 404}:
            raise
        problem = "does not exist" if error.status == 404 else f"may not be read: {error}"
        raise ConfigurationError([FieldError("", problem)], where.source) from error
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
    """Read a configuration, and the policy first if it is in a ConfigMap.

    Args:
        read: gives the configuration, by what is in `policies`.
        policies: takes the policy.
        connecting: opens a connection, by the kubeconfig that the configuration names, "" without one.

    Raises:
        ConfigurationError: everything that is wrong with it, or the policy is not there.
        ApiError: the API server cannot be asked at present.
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
